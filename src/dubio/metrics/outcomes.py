"""What a classifier decided and whether it was right."""

from __future__ import annotations

from dataclasses import dataclass
from weakref import WeakKeyDictionary

import numpy as np

from dubio.pooling import FloatArray, row_blocks
from dubio.types import BoolArray, IntArray, Predictions

TIE = 1e-12
"""Log-probabilities this close to the highest count as equal to it: pooling in another order moves the last bit."""


@dataclass(frozen=True, eq=False)
class Decisions:
    """What a multi-class or ordinal prediction comes down to, every array ``[N]``.

    Attributes:
        chosen: The most probable class; of equally probable ones the first in class order.
        top: max_k p̄_k.
        rest: 1 − max_k p̄_k, summed from the others: exact also where the first is near one.
    """

    chosen: IntArray
    top: FloatArray
    rest: FloatArray


_KNOWN: WeakKeyDictionary[Predictions, Decisions] = WeakKeyDictionary()


def decide(predictions: Predictions) -> Decisions:
    """The decisions in one pass over rows; asked again for the same predictions, they are remembered."""
    known = _KNOWN.get(predictions)
    if known is None:
        count = len(predictions)
        known = Decisions(np.empty(count, dtype=np.int64), np.empty(count), np.empty(count))
        for rows in row_blocks(1, count, predictions.class_count):
            logs, probs = predictions.log_probs[rows], predictions.probs[rows].copy()
            highest = logs.max(axis=1, keepdims=True)
            chosen = np.argmax(logs >= highest - TIE, axis=1)
            places = np.arange(len(chosen)), chosen
            known.chosen[rows] = chosen
            known.top[rows] = np.exp(highest[:, 0])
            probs[places] = 0.0
            known.rest[rows] = probs.sum(axis=1)
        _KNOWN[predictions] = known
    return known


def predicted(predictions: Predictions) -> IntArray:
    """The most probable class of each row, ``[N]``; of equally probable ones the first in class order."""
    return decide(predictions).chosen


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
    found = decide(predictions)
    inside = predictions.probs[:, index]
    # Only the class that was chosen can be near one, and of that one the rest is known exactly.
    outside = np.where((found.chosen == index) & (inside > 0.5), found.rest, 1.0 - inside)
    with np.errstate(divide="ignore"):
        return np.asarray(np.log(inside) - np.log(outside))
