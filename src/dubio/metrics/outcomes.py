"""What a classifier decided and whether it was right."""

from __future__ import annotations

import numpy as np

from dubio.core.passes import TIE
from dubio.core.predictions import Predictions
from dubio.core.types import BoolArray, FloatArray, IntArray

__all__ = ["TIE", "class_scores", "correct", "grade_scores", "predicted", "predicted_labels"]


def predicted(predictions: Predictions) -> IntArray:
    """The most probable class of each row, ``[N]``; of equally probable ones the first in class order."""
    return predictions.summary.chosen


def predicted_labels(predictions: Predictions) -> BoolArray:
    """The labels a multi-label prediction asserts, ``[N, K]``: those with p̄ > 1/2."""
    return predictions.log_probs > predictions.log_complements + TIE


def correct(predictions: Predictions) -> BoolArray:
    """Which rows are right, ``[N]``; multi-label: the whole set of labels matches. Rows must be labelled."""
    if predictions.target == "multilabel":
        return np.asarray((predicted_labels(predictions) == predictions.labels.astype(bool)).all(axis=1))
    return np.asarray(predicted(predictions) == predictions.labels)


def grade_scores(predictions: Predictions, grade: int) -> FloatArray:
    """Log-odds of "the class is ``grade`` or above", ``[N]``; unlike P itself they keep nearly certain rows apart."""
    probs = predictions.probs
    with np.errstate(divide="ignore"):
        return np.asarray(np.log(probs[:, grade:].sum(axis=1)) - np.log(probs[:, :grade].sum(axis=1)))


def class_scores(predictions: Predictions, index: int) -> FloatArray:
    """Log-odds of one class against the rest, ``[N]``."""
    found = predictions.summary
    inside = predictions.probs[:, index]
    # Only the class that was chosen can be near one, and of that one the rest is known exactly.
    outside = np.where((found.chosen == index) & (inside > 0.5), found.complement, 1.0 - inside)
    with np.errstate(divide="ignore"):
        return np.asarray(np.log(inside) - np.log(outside))
