"""Metrics that are no mean, with rows counted by weights: what a bootstrap evaluates for many replicates at once.

Each function here prepares what does not depend on the weights and returns a function from weights ``[R, N]``, whole
numbers, to values ``[R]``. The value equals the metric on the rows repeated as often as they weigh.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from dubio.metrics.ranking import Ordering, ordered
from dubio.pooling import FloatArray
from dubio.types import BoolArray, IntArray

Weighted = Callable[[FloatArray], FloatArray]


def weighted_auroc(scores: FloatArray, positive: BoolArray) -> Weighted:
    """Area under the ROC curve, ties counting one half; NaN where only one side was drawn."""
    ordering = ordered(scores)
    marks = positive[ordering.order].astype(np.float64)

    def value(weights: FloatArray) -> FloatArray:
        placed = weights[:, ordering.order]
        ups = np.add.reduceat(placed * marks, ordering.starts, axis=1)
        downs = np.add.reduceat(placed * (1.0 - marks), ordering.starts, axis=1)
        below = np.cumsum(downs, axis=1) - downs
        pairs = ups.sum(axis=1) * downs.sum(axis=1)
        with np.errstate(invalid="ignore", divide="ignore"):
            return np.asarray(np.where(pairs > 0, (ups * (below + downs / 2)).sum(axis=1) / pairs, np.nan))

    return value


def weighted_aurc(scores: FloatArray, wrong: BoolArray) -> Weighted:
    """Mean over coverages of the risk of the kept, ties in the average order.

    Within a block of s tied rows with r errors a row, after n rows with e errors, the risks sum to
    s·r + (e − n·r)(H(n + s) − H(n)), H the harmonic numbers.
    """
    ordering = ordered(scores)

    def value(weights: FloatArray) -> FloatArray:
        size, errors = _blocks(ordering, wrong, weights)
        after = np.cumsum(size, axis=1)
        before = after - size
        rate = np.divide(errors, size, out=np.zeros_like(errors), where=size > 0)
        harmonic = np.concatenate([[0.0], np.cumsum(1.0 / np.arange(1, int(after[:, -1].max()) + 1))])
        stretch = harmonic[after.astype(np.int64)] - harmonic[before.astype(np.int64)]
        past = np.cumsum(errors, axis=1) - errors
        return np.asarray((errors + (past - before * rate) * stretch).sum(axis=1) / after[:, -1])

    return value


def weighted_augrc(scores: FloatArray, wrong: BoolArray) -> Weighted:
    """Area under the generalised risk–coverage curve, ties in the average order."""
    ordering = ordered(scores)

    def value(weights: FloatArray) -> FloatArray:
        size, errors = _blocks(ordering, wrong, weights)
        total, count = errors.sum(axis=1), size.sum(axis=1)
        past = np.cumsum(errors, axis=1) - errors
        area = (past * size + errors * (size + 1) / 2).sum(axis=1)
        return np.asarray((area - total / 2) / np.square(count))

    return value


def weighted_bins(columns: Sequence[tuple[IntArray, FloatArray]], bins: int) -> Weighted:
    """Mean over columns of Σ_B |Σ_{i in B} gap_i| / n.

    Args:
        columns: For each column, which bin every row is in and how far truth lies above what was stated.
        bins: How many bins.
    """

    def value(weights: FloatArray) -> FloatArray:
        count = weights.sum(axis=1)
        total = np.zeros(len(weights))
        for which, gaps in columns:
            spread = np.zeros((len(which), bins))
            spread[np.arange(len(which)), which] = gaps
            total += np.abs(weights @ spread).sum(axis=1) / count
        return total / len(columns)

    return value


def _blocks(ordering: Ordering, wrong: BoolArray, weights: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Weighted rows and errors in each block of ties, ``[R, B]``."""
    placed = weights[:, ordering.order]
    size = np.add.reduceat(placed, ordering.starts, axis=1)
    errors = np.add.reduceat(placed * wrong[ordering.order], ordering.starts, axis=1)
    return size, errors
