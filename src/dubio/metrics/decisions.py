"""Decisions: the chosen class, whether it is right, and the binary problems behind an area under the ROC curve."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dubio.core.passes import TIE
from dubio.core.predictions import Predictions
from dubio.core.types import BoolArray, EmptyDecision, FloatArray, IntArray

LOG_ODDS = 1.0
"""Log-odds below one are compared absolutely: those of an even chance are zero but for rounding."""

REFERABLE = 2
"""The grade from which an eye is referred (R §2.1)."""


def predicted(predictions: Predictions) -> IntArray:
    """Return the most probable class of each row, ``[N]``; of equally probable ones the first in class order."""
    return predictions.summary.chosen


def predicted_labels(predictions: Predictions) -> BoolArray:
    """Return the decisions of a multi-label prediction, ``[N, K]``: the labels with p̄ > 1/2.

    A row that has none is decided as ``predictions.empty_decision`` says (:func:`decided`).
    """
    above = labels_above_half(predictions)
    return decided(above, predictions.log_probs, predictions.empty_decision)


def labels_above_half(predictions: Predictions) -> BoolArray:
    """Return the labels with p̄ > 1/2, ``[N, K]``; a row may have none."""
    return labels_asserted(predictions.log_probs, predictions.log_complements)


def decided(asserted: BoolArray, scores: FloatArray, empty: EmptyDecision) -> BoolArray:
    """Return the decisions that follow from the labels above their thresholds, ``[N, K]``.

    With ``argmax`` a row without any takes its most probable label (T's code), of equally probable ones the first.

    Args:
        asserted: ``[N, K]``, the labels above their thresholds.
        scores: ``[N, K]``, log p̄ or log-odds.
        empty: What is decided where no label is.
    """
    if empty == "empty":
        return asserted
    rows = np.flatnonzero(~asserted.any(axis=1))
    highest = np.argmax(scores[rows] >= scores[rows].max(axis=1, keepdims=True) - TIE, axis=1)
    decisions = asserted.copy()
    decisions[rows, highest] = True
    return decisions


def labels_asserted(yes: FloatArray, no: FloatArray) -> BoolArray:
    """Return where log p̄ exceeds log(1 − p̄) by more than rounding."""
    return yes > no + TIE


def correct(predictions: Predictions) -> BoolArray:
    """Return which rows are right, ``[N]``; multi-label: the whole set of labels matches. Rows must be labelled."""
    if predictions.target == "multilabel":
        return np.asarray((predicted_labels(predictions) == predictions.labels.astype(bool)).all(axis=1))
    return np.asarray(predicted(predictions) == predictions.labels)


class BinaryProblem(NamedTuple):
    """A score for a positive side, one of those whose areas under the ROC curve are averaged.

    Attributes:
        positive_class: What the positive side is, as a reader would say it.
        scores: ``[N]``, log-odds of the positive side.
        positive: ``[N]``, which rows are on it.
    """

    positive_class: str
    scores: FloatArray
    positive: BoolArray


def binary_problems(predictions: Predictions) -> list[BinaryProblem]:
    """Return the binary problems of labelled predictions.

    Of two classes: class 1. Of ordinal predictions: grade ≥ 2, or the upper class of two. Otherwise one against the
    rest, for every class or label.
    """
    count = predictions.class_count
    if predictions.target == "multilabel":
        odds, truth = predictions.log_probs - predictions.log_complements, predictions.labels.astype(bool)
        return [BinaryProblem(_class_name(predictions, k), odds[:, k], truth[:, k]) for k in range(count)]
    if predictions.target == "ordinal" and count > REFERABLE:
        scores = grade_scores(predictions, REFERABLE)
        return [BinaryProblem(f"grade {REFERABLE} or above", scores, predictions.labels >= REFERABLE)]
    return [
        BinaryProblem(_class_name(predictions, k), class_scores(predictions, k), predictions.labels == k)
        for k in ((1,) if count == 2 else range(count))
    ]


def why_undefined(problems: list[BinaryProblem], retained: BoolArray | slice = slice(None)) -> str | None:
    """Return why the mean area over binary problems is undefined, as a clause, or None when it is defined.

    Args:
        problems: From :func:`binary_problems`.
        retained: ``[N]``, which rows count; all by default.
    """
    for problem in problems:
        positive = problem.positive[retained]
        if positive.all() or not positive.any():
            return f"every row {'is' if positive.all() else 'is other than'} {problem.positive_class}"
    return None


def grade_scores(predictions: Predictions, grade: int) -> FloatArray:
    """Return the log-odds of "the class is ``grade`` or above", ``[N]``; unlike P they separate nearly certain rows."""
    probs = predictions.probs
    with np.errstate(divide="ignore"):
        return np.asarray(np.log(probs[:, grade:].sum(axis=1)) - np.log(probs[:, :grade].sum(axis=1)))


def class_scores(predictions: Predictions, index: int) -> FloatArray:
    """Return the log-odds of one class against the rest, ``[N]``."""
    summary = predictions.summary
    inside = predictions.probs[:, index]
    # Only the class that was chosen can be near one, and of that one the complement is known exactly.
    outside = np.where((summary.chosen == index) & (inside > 0.5), summary.complement, 1.0 - inside)
    with np.errstate(divide="ignore"):
        return np.asarray(np.log(inside) - np.log(outside))


def _class_name(predictions: Predictions, index: int) -> str:
    return f"class {predictions.classes[index]!r}" if predictions.classes else f"class {index}"
