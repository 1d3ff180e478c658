"""Thresholds of multi-label decisions: for every label the one with the best F1 on validation predictions.

One half is right for calibrated probabilities and the share of right decisions; F1 of a rare label is often best below
it. Thresholds are fitted on validation data: fitted on what they are judged by they would flatter. A label
that hardly any validation row carries has one half: the best F1 of one row that is ranked 300th asserts 300 labels.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from dubio.core.errors import UserError
from dubio.core.predictions import Predictions
from dubio.core.types import BoolArray, FloatArray, Metric, Need
from dubio.core.weights import ONCE, Values, Weights
from dubio.metrics.decisions import decided
from dubio.metrics.metric import MetricFunction
from dubio.metrics.requirements import labelled
from dubio.metrics.scoring import counts_of_labels

HALF = 0.5

NEEDS: frozenset[Need] = frozenset({"labels", "probs"})

LEAST = 5
"""Validation rows that must carry a label before a threshold of its own is fitted."""

TUNED = "_at_val_thresholds"
"""What the name of a metric ends in that is computed at fitted thresholds."""

TUNED_METRICS = tuple(name + TUNED for name in ("accuracy", "micro_f1", "macro_f1"))
"""The metrics of :func:`metrics_at`, in its order."""


def fit_thresholds(validation: Predictions, least: int = LEAST) -> FloatArray:
    """Return for every label the threshold t that maximises F1 = 2TP / (2TP + FP + FN) of the decisions p̄ > t, ``[K]``.

    Candidates lie midway between neighbouring probabilities of a label, and below the lowest one; of equally good ones
    that nearest to one half is taken.

    Args:
        validation: What they are fitted on.
        least: A label that fewer rows carry keeps one half.

    Raises:
        UserError: When the predictions are not multi-label, or ``least`` is below 1.
    """
    if least < 1:
        raise UserError(f"least must be at least 1; given {least}.")
    rows = labelled(_multilabel(validation), "a threshold")
    truth = rows.labels.astype(bool)
    columns = zip(rows.probs.T, truth.T, truth.sum(axis=0) >= least, strict=True)
    return np.array([_best(probs, own) if enough else HALF for probs, own, enough in columns])


def _best(probs: FloatArray, truth: BoolArray) -> float:
    positives = int(truth.sum())
    order = np.argsort(-probs, kind="stable")
    falling = probs[order].astype(np.float64)
    hits = np.cumsum(truth[order])
    # Cutting after row k asserts rows 0..k; it can be done only where the next probability is smaller.
    below = np.append(falling[1:], 0.0)
    ends = np.flatnonzero(below < falling)
    if not len(ends):
        return HALF
    f1 = 2 * hits[ends] / (ends + 1 + positives)
    middle = (falling[ends] + below[ends]) / 2
    # Between two neighbouring floats there is no middle: the lower one cuts just as well.
    thresholds = np.where(middle < falling[ends], middle, below[ends])
    best = np.flatnonzero(f1 == f1.max())
    return float(thresholds[best[np.argmin(np.abs(thresholds[best] - HALF))]])


def asserted(predictions: Predictions, thresholds: FloatArray) -> BoolArray:
    """Return the decisions at these thresholds, ``[N, K]``: p̄ > t; a row without any as :func:`decided` says."""
    if thresholds.shape != (predictions.class_count,):
        labels = f"each of {predictions.class_count} labels"
        raise UserError(f"thresholds must have one value for {labels}; given {thresholds.size}.")
    above = np.asarray(_multilabel(predictions).probs > thresholds)
    return decided(above, predictions.log_probs, predictions.empty_decision)


def metrics_at(thresholds: FloatArray) -> tuple[Metric, ...]:
    """Return exact match, micro and macro F1 of decisions at these thresholds, as metrics.

    Their names are those of the metrics at one half with :data:`TUNED` behind.
    """

    def exact(p: Predictions) -> BoolArray:
        return np.asarray((asserted(p, thresholds) == p.labels.astype(bool)).all(axis=1))

    def micro(p: Predictions, *, weights: Weights = ONCE) -> Values:
        return counts_of_labels(asserted(p, thresholds), p.labels.astype(bool), weights).micro_f1()

    def macro(p: Predictions, *, weights: Weights = ONCE) -> Values:
        return counts_of_labels(asserted(p, thresholds), p.labels.astype(bool), weights).macro_f1()

    def tuned(name: str, function: Callable[..., Any], *, mean: bool = False) -> Metric:
        return MetricFunction(function, name, "higher", NEEDS, frozenset({"multilabel"}), mean=mean).metric()

    accuracy, micro_f1, macro_f1 = TUNED_METRICS
    return tuned(accuracy, exact, mean=True), tuned(micro_f1, micro), tuned(macro_f1, macro)


def _multilabel(predictions: Predictions) -> Predictions:
    if predictions.target != "multilabel":
        raise UserError(f"thresholds are for multi-label predictions; these are {predictions.target}.")
    return predictions
