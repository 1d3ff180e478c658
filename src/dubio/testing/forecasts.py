"""Made-up predictions for a metric to look at: ordinary, perfect, random, and with only what it says it needs."""

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


def _hints(target: Target, labels: IntArray) -> FloatArray:
    """+1 where a class is right and −1 where it is not, ``[N, K]``."""
    hot = labels if target == "multilabel" else np.eye(CLASSES, dtype=np.int64)[labels]
    return 2.0 * hot - 1.0


def _with(target: Target, signal: tuple[float, float], noise: float, seed: int) -> Predictions:
    """Predictions that point to the right class, more or less strongly, but nowhere on every fourth row (ood)."""
    generator = np.random.default_rng(seed)
    labels = _labels(target, generator)
    ood = np.arange(ROWS) % 4 == 0
    strength = np.where(ood, 0.0, generator.uniform(*signal, ROWS))[None, :, None]
    spread = np.where(ood, max(noise, signal[0]), noise)[None, :, None]
    logits = strength * _hints(target, labels) + spread * generator.standard_normal((SAMPLES, ROWS, CLASSES))
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


def ordinary(target: Target, seed: int = 0) -> Predictions:
    """Predictions that are often right, some sure and some not, with everything a metric may need."""
    return _with(target, (0.0, 4.0), 1.0, seed)


def random(target: Target) -> Predictions:
    """Predictions that know nothing."""
    return _with(target, (0.0, 0.0), 1.0, 1)


def perfect(target: Target) -> Predictions:
    """Right and sure on every row of the training distribution, torn on every other; those have no label."""
    made = _with(target, (30.0, 30.0), 0.01, 1)
    return made if target == "multilabel" else replace(made, labels=np.where(made.ood, UNLABELLED, made.labels))


def with_unlabelled(predictions: Predictions) -> Predictions:
    """The same with sixteen more rows that have no label."""
    generator = np.random.default_rng(3)
    rows = generator.integers(0, len(predictions), 16)
    more = predictions.take(np.concatenate([np.arange(len(predictions)), rows]))
    labels = more.labels.copy()
    labels[len(predictions) :] = UNLABELLED
    logits = more.logits.copy()
    logits[:, len(predictions) :] = generator.standard_normal(logits[:, len(predictions) :].shape)
    return replace(more, logits=logits, labels=labels, ids=np.array([f"row-{row:03d}" for row in range(len(more))]))


def only_with(metric: Metric, target: Target) -> tuple[Predictions, ...]:
    """Predictions that have what a metric declares and nothing else."""
    made = ordinary(target, 4)
    needs: frozenset[Need] = metric.needs
    if "samples" not in needs:
        made = replace(
            made,
            logits=made.logits[:1],
            member=made.member[:1],
            data_variance=None if made.data_variance is None else made.data_variance[:1],
            model_variance=None if made.model_variance is None else made.model_variance[:1],
        )
    if "ood" not in needs:
        made = replace(made, ood=np.zeros(ROWS, dtype=bool))
    if "data_variance" not in needs:
        made = replace(made, data_variance=None)
    if "model_variance" not in needs:
        made = replace(made, model_variance=None)
    made = replace(made, ids=None)
    if target == "multilabel" or "two_classes" in needs:
        return (made,)
    if "labels" not in needs:
        return (replace(made, labels=np.full(ROWS, UNLABELLED, dtype=np.int64)),)
    return made, replace(made, labels=np.zeros(ROWS, dtype=np.int64))
