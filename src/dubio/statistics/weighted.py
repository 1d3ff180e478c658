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


class _Marked:
    """The marked rows of an ordering, and how to count the weights below and beside each of them.

    Prefix sums over all rows, looked up at the marked rows alone, are all that a replicate costs.
    """

    def __init__(self, scores: FloatArray, marks: BoolArray, unit: float = 0.0) -> None:
        ordering = ordered(scores, unit=unit)
        self.order = ordering.order
        self.at = np.flatnonzero(marks[self.order])
        ends = np.append(ordering.starts[1:], len(self.order))
        own = ordering.block[self.at]
        self.start, self.end = ordering.starts[own], ends[own]
        # Of the marked rows themselves: the first and the last in the same block.
        self.first, self.last = np.searchsorted(self.at, self.start), np.searchsorted(self.at, self.end)

    def counted(self, weights: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray, float]:
        """Of the marked rows: their weights, all weight in lower blocks, all weight up to their own; and the total."""
        placed = weights.take(self.order)
        upto = _running(placed)
        return placed[self.at], upto[self.start], upto[self.end], float(upto[-1])

    def of_marked(self, own: FloatArray) -> tuple[FloatArray, FloatArray]:
        """The weight of marked rows in lower blocks, and up to the own one."""
        upto = _running(own)
        return upto[self.first], upto[self.last]


def _running(values: FloatArray) -> FloatArray:
    """Sums of the first 0, 1, … values."""
    upto = np.zeros(len(values) + 1)
    np.cumsum(values, out=upto[1:])
    return upto


def weighted_auroc(scores: FloatArray, positive: BoolArray, *, unit: float = 0.0) -> Weighted:
    """Area under the ROC curve, ties counting one half; NaN where only one side was drawn.

    Args:
        scores: ``[N]``, higher = more likely positive.
        positive: ``[N]``, which rows are positive.
        unit: As for :func:`dubio.metrics.ranking.ordered`.
    """
    fewer = bool(positive.mean() > 0.5)  # the negatives are fewer: count from their side
    marked = _Marked(scores, ~positive if fewer else positive, unit)

    def one(weights: FloatArray) -> float:
        own, before, after, total = marked.counted(weights)
        own_before, own_after = marked.of_marked(own)
        pairs = float(own.sum()) * (total - float(own.sum()))
        if pairs == 0:
            return float("nan")
        below = (before - own_before + after - own_after) / 2  # half of those in the same block
        area = float(own @ below) / pairs
        return 1.0 - area if fewer else area

    return lambda weights: np.array([one(row) for row in weights])


def weighted_precision(scores: FloatArray, positive: BoolArray) -> Weighted:
    """Average precision over blocks of ties, Σ_b (R_b − R_{b−1}) P_b; NaN where only one side was drawn."""
    ordering = ordered(-scores)

    def value(weights: FloatArray) -> FloatArray:
        size, ups = _blocks(ordering, positive, weights)
        found, count = ups.sum(axis=1), size.sum(axis=1)
        upto = np.cumsum(size, axis=1)
        precision = np.divide(np.cumsum(ups, axis=1), upto, out=np.zeros_like(upto), where=upto > 0)
        with np.errstate(invalid="ignore", divide="ignore"):
            area = (ups * precision).sum(axis=1) / found
        return np.asarray(np.where((found > 0) & (found < count), area, np.nan))

    return value


def weighted_mean(forms: Sequence[Weighted]) -> Weighted:
    """The mean of several forms; NaN where one of them is."""
    return lambda weights: np.asarray(np.mean([form(weights) for form in forms], axis=0))


def weighted_aurc(scores: FloatArray, wrong: BoolArray) -> Weighted:
    """Mean over coverages of the risk of the kept, ties in the average order.

    An error at place j of n adds Σ_{k=j..n} 1/k = H(n) − H(j − 1) to the sum of risks, H the harmonic numbers; in a
    block of ties it adds the mean of that over the block's places, which prefix sums of H give. Were every row an
    error, the sum would be n: where errors are many, the right rows are counted and taken from that.
    """
    many = bool(wrong.mean() > 0.5)
    marked = _Marked(scores, ~wrong if many else wrong)
    tables = _harmonic(len(scores))

    def one(weights: FloatArray) -> float:
        own, before, after, total = marked.counted(weights)
        count = round(total)
        harmonic, sums = tables if count <= len(scores) else _harmonic(count)
        size = after - before
        past = sums[after.astype(np.int64)]
        past -= sums[before.astype(np.int64)]
        np.divide(past, size, out=past, where=size > 0)  # a block without weight has nothing to add
        area = float(own.sum() * harmonic[count] - own @ past) / total
        return 1.0 - area if many else area

    return lambda weights: np.array([one(row) for row in weights])


def _harmonic(count: int) -> tuple[FloatArray, FloatArray]:
    """H(m) and Σ_{j<m} H(j) for m = 0 … count."""
    harmonic = _running(1.0 / np.arange(1, count + 1))
    return harmonic, _running(harmonic[:-1])


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

    def spread(which: IntArray, gaps: FloatArray) -> FloatArray:
        wide = np.zeros((len(which), bins))
        wide[np.arange(len(which)), which] = gaps
        return wide

    kept = spread(*columns[0]) if len(columns) == 1 else None  # of many columns, one at a time

    def value(weights: FloatArray) -> FloatArray:
        count = weights.sum(axis=1)
        total = np.zeros(len(weights))
        for which, gaps in columns:
            total += np.abs(weights @ (spread(which, gaps) if kept is None else kept)).sum(axis=1) / count
        return total / len(columns)

    return value


def _blocks(ordering: Ordering, wrong: BoolArray, weights: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Weighted rows and errors in each block of ties, ``[R, B]``."""
    placed = weights[:, ordering.order]
    size = np.add.reduceat(placed, ordering.starts, axis=1)
    errors = np.add.reduceat(placed * wrong[ordering.order], ordering.starts, axis=1)
    return size, errors
