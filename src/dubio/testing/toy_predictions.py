"""Toy predictions for a metric: typical, perfect, random, and with only what the metric declares that it needs."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from dubio.core.predictions import Predictions
from dubio.core.types import UNLABELLED, FloatArray, IntArray, Metric, Need, Target

SAMPLES = 6
ROWS = 80
CLASSES = 5


def _labels(target: Target, generator: np.random.Generator) -> IntArray:
    if target == "multilabel":
        return (generator.random((ROWS, CLASSES)) < 0.4).astype(np.int64)
    return generator.permutation(np.arange(ROWS, dtype=np.int64) % CLASSES)


def _evidence(target: Target, labels: IntArray) -> FloatArray:
    """Return +1 for the right class and −1 for the others, ``[N, K]``."""
    hot = labels if target == "multilabel" else np.eye(CLASSES, dtype=np.int64)[labels]
    return 2.0 * hot - 1.0


def _with(target: Target, signal: tuple[float, float], noise: float, seed: int) -> Predictions:
    """Return predictions with evidence for the right class, except on every fourth row (OOD)."""
    generator = np.random.default_rng(seed)
    labels = _labels(target, generator)
    ood = np.arange(ROWS) % 4 == 0
    strength = np.where(ood, 0.0, generator.uniform(*signal, ROWS))[None, :, None]
    spread = np.where(ood, max(noise, signal[0]), noise)[None, :, None]
    logits = strength * _evidence(target, labels) + spread * generator.standard_normal((SAMPLES, ROWS, CLASSES))
    return Predictions(
        logits.astype(np.float32),
        labels,
        target=target,
        ood=ood,
        member=np.arange(SAMPLES, dtype=np.int64) // 2,
        data_variance=(spread * generator.uniform(0.5, 1.5, logits.shape)).astype(np.float32),
        model_variance=(spread[..., 0] * generator.uniform(0.5, 1.5, logits.shape[:2])).astype(np.float32),
        ids=np.array([f"row-{row:03d}" for row in range(ROWS)]),
    )


def typical(target: Target, seed: int = 0) -> Predictions:
    """Return predictions of varying confidence, often right, with everything a metric may need."""
    return _with(target, (0.0, 4.0), 1.0, seed)


def random(target: Target) -> Predictions:
    """Return predictions without information."""
    return _with(target, (0.0, 0.0), 1.0, 1)


def perfect(target: Target) -> Predictions:
    """Return predictions that are right and confident in-domain, and uncertain on unlabelled other rows."""
    sure = _with(target, (30.0, 30.0), 0.01, 1)
    return sure if target == "multilabel" else replace(sure, labels=np.where(sure.ood, UNLABELLED, sure.labels))


def with_unlabelled(predictions: Predictions) -> Predictions:
    """Return the predictions with sixteen more rows that have no label."""
    generator = np.random.default_rng(3)
    rows = generator.integers(0, len(predictions), 16)
    more = predictions.take(np.concatenate([np.arange(len(predictions)), rows]))
    labels = more.labels.copy()
    labels[len(predictions) :] = UNLABELLED
    logits = more.logits.copy()
    logits[:, len(predictions) :] = generator.standard_normal(logits[:, len(predictions) :].shape)
    return replace(more, logits=logits, labels=labels, ids=np.array([f"row-{row:03d}" for row in range(len(more))]))


def only_with(metric: Metric, target: Target) -> tuple[Predictions, ...]:
    """Return predictions with what a metric declares that it needs, and nothing else."""
    predictions = typical(target, 4)
    needs: frozenset[Need] = metric.needs
    if "samples" not in needs:
        predictions = replace(
            predictions,
            logits=predictions.logits[:1],
            member=predictions.member[:1],
            data_variance=None if predictions.data_variance is None else predictions.data_variance[:1],
            model_variance=None if predictions.model_variance is None else predictions.model_variance[:1],
        )
    if "ood" not in needs:
        predictions = replace(predictions, ood=np.zeros(ROWS, dtype=bool))
    if "data_variance" not in needs:
        predictions = replace(predictions, data_variance=None)
    if "model_variance" not in needs:
        predictions = replace(predictions, model_variance=None)
    predictions = replace(predictions, ids=None)
    if target == "multilabel" or "two_classes" in needs:
        return (predictions,)
    if "labels" not in needs:
        return (replace(predictions, labels=np.full(ROWS, UNLABELLED, dtype=np.int64)),)
    return predictions, replace(predictions, labels=np.zeros(ROWS, dtype=np.int64))
