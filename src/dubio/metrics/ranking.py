"""Ordering rows by a score so that ties never make a result depend on the order of the rows.

Rows whose scores agree form a *block*. Every ranking metric treats a block as a whole, which equals the expectation
over all orders within the block. Scores come from logits stored in float32, so that two rows with the same probability
may differ in the seventh digit: neighbours in order that differ by less than that are in one block, unless the block
would grow wider than a few such steps.

With weights, a metric needs sums of the weights of all rows up to a row, for many replicates at once. A prefix sum goes
from row to row, one addition waiting for the other, unless many sums run side by side: here the order is cut into about
√N stretches, and row j of every stretch lies beside row j of the others, so that the j-th step adds one long contiguous
vector, all stretches of all replicates, to the next.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dubio.core.types import BoolArray, FloatArray, IntArray
from dubio.core.weights import Values, Weights

STEP = 4e-7
"""Relative difference below which two scores are equal: what rounding log p to float32 does to sums of p."""

WIDEST = 4
"""How many steps a block may span; a longer run of close scores is cut into pieces of that width."""

SMALL = 1 << 30
"""Whole sums below this are held in 32 bits, and so are sums of two of them."""


@dataclass(frozen=True, eq=False)
class Ordering:
    """Rows in ascending order of a score, with the blocks of ties.

    Attributes:
        order: ``[N]`` the rows, lowest score first; the order within a block means nothing.
        starts: ``[B]`` the first position of each block.
    """

    order: IntArray
    starts: IntArray

    @cached_property
    def block(self) -> IntArray:
        """``[N]`` the block of each position of ``order``, from 0."""
        return np.repeat(np.arange(len(self.starts)), np.diff(np.append(self.starts, len(self.order))))

    @cached_property
    def ends(self) -> IntArray:
        """``[B]`` the position after the last of each block."""
        return np.append(self.starts[1:], len(self.order))

    @property
    def sizes(self) -> IntArray:
        """The number of rows of each block, ``[B]``."""
        return self.ends - self.starts

    def sums(self, values: NDArray[Any]) -> FloatArray:
        """Return the sum of row-wise values ``[N]`` or ``[N, R]`` in each block, ``[B]`` or ``[B, R]``."""
        in_order = np.asarray(values, dtype=np.float64)[self.order]
        return in_order if len(self.starts) == len(in_order) else np.add.reduceat(in_order, self.starts, axis=0)

    def reverse(self) -> Ordering:
        """Return the rows in descending order, with the same blocks."""
        return Ordering(self.order[::-1], len(self.order) - self.ends[::-1])

    def by_row(self, values: FloatArray) -> FloatArray:
        """Return a value of each block ``[B, …]`` for each of its rows, ``[N, …]``."""
        rows = np.empty((len(self.order), *values.shape[1:]))
        rows[self.order] = values[self.block]
        return rows


def ordered(scores: FloatArray, *, unit: float = 0.0) -> Ordering:
    """Order rows by a score, lowest first, and find the blocks of ties.

    Args:
        scores: ``[N]``, not NaN; infinite ones are equal to their like.
        unit: Scores smaller than this are compared by their absolute difference, in steps of this size.
    """
    values = np.asarray(scores, dtype=np.float64)
    order = np.argsort(values)  # need not be stable: equal scores are in one block, and its order means nothing
    runs = values[order]
    sizes = np.maximum(np.abs(runs), unit)
    np.maximum(sizes[:-1], sizes[1:], out=sizes[:-1])
    opens = np.ones(len(runs), dtype=bool)
    with np.errstate(invalid="ignore"):
        opens[1:] = np.diff(runs) > STEP * sizes[:-1]
    if not (np.isfinite(runs[0]) and np.isfinite(runs[-1])):  # in order, the infinite ones are at the ends
        infinite = np.isinf(sizes[:-1])
        opens[1:][infinite] = (runs[1:] != runs[:-1])[infinite]
    starts = np.flatnonzero(opens)
    if len(starts) < len(runs) and _cut(runs, starts, opens, unit):
        starts = np.flatnonzero(opens)
    return Ordering(order, starts)


def _cut(runs: FloatArray, starts: IntArray, opens: BoolArray, unit: float) -> bool:
    """Cut runs of close scores that span too much, counted from their lowest score; return whether there was one."""
    ends = np.append(starts[1:], len(runs)) - 1
    several = np.flatnonzero(ends > starts)
    if not _too_wide(runs[starts[several]], runs[ends[several]], unit).any():
        return False
    run = np.cumsum(opens) - 1
    low, high = runs[starts], runs[ends]
    width = WIDEST * STEP * np.maximum(np.maximum(np.abs(low), np.abs(high)), unit)
    with np.errstate(invalid="ignore", divide="ignore"):
        piece = np.nan_to_num((runs - low[run]) / width[run]).astype(np.int64)
    opens[1:] |= piece[1:] != piece[:-1]
    return True


def _too_wide(low: FloatArray, high: FloatArray, unit: float) -> BoolArray:
    """Return which runs of more than one score span more than a block may."""
    with np.errstate(invalid="ignore"):
        gap = high - low
        return np.asarray(gap >= WIDEST * STEP * np.maximum(np.maximum(np.abs(low), np.abs(high)), unit)) & (gap > 0)


class PrefixSums:
    """Sums over rows in a fixed order, for many replicates at once.

    Attributes:
        count: The number of positions of the order.
        rows: ``[depth · stretches]``, the row at every slot; any row at the slots past the last position.
    """

    def __init__(self, order: IntArray, *, replicates: int) -> None:
        """Lay out an order; a single replicate has one stretch per position, which makes a plain cumulative sum."""
        self.count = len(order)
        self._depth = max(1, int(np.sqrt(self.count))) if replicates > 1 else 1
        self._stretches = -(-self.count // self._depth)
        if self._depth == 1:
            self.rows, self._past = order, order[:0]
            return
        padded = np.zeros(self._depth * self._stretches, dtype=np.int64)
        padded[: self.count] = order
        self.rows = np.ascontiguousarray(padded.reshape(self._stretches, self._depth).T).ravel()
        self._past = self.slots(np.arange(self.count, len(padded)))

    def slots(self, positions: IntArray) -> IntArray:
        """Return the slots of positions in the order."""
        if self._depth == 1:
            return positions
        return (positions % self._depth) * self._stretches + positions // self._depth

    def sums(self, values: NDArray[Any]) -> NDArray[Any]:
        """Turn values by slot, ``[slots, R]``, into their sums up to and including every position, in place."""
        if self._depth == 1:
            return np.asarray(np.cumsum(values, axis=0, out=values))
        values[self._past] = 0
        steps = values.reshape(self._depth, self._stretches, *values.shape[1:])
        totals = steps.sum(axis=0, dtype=values.dtype)
        steps[0, 1:] += np.cumsum(totals[:-1], axis=0, dtype=values.dtype)
        for step in range(1, self._depth):
            np.add(steps[step], steps[step - 1], out=steps[step])
        return values

    def weights(self, weights: Weights) -> NDArray[Any]:
        """Return the weight of all rows up to and including every position, by slot ``[slots, R]``."""
        in_slots = weights.counts.take(self.rows, axis=0)
        if in_slots.dtype.kind == "f":
            return self.sums(in_slots)
        return self.sums(in_slots.astype(np.int32 if float(weights.totals.max()) < SMALL else np.int64))


class Marked:
    """The marked rows of an ordering, and the weight that lies below and beside each of them.

    Attributes:
        ordering: All rows.
        marks: ``[N]``, which rows are marked.
        rows: ``[M]``, the marked rows, lowest score first.
        tied: Positions in ``rows`` of those that share their block with another row, marked or not.
        flipped: Whether the rows that were not meant are marked, because they are fewer.
    """

    def __init__(self, ordering: Ordering, marks: BoolArray, *, flipped: bool = False) -> None:
        """Find the marked rows and the blocks they are in."""
        at = np.flatnonzero(marks[ordering.order])
        own = ordering.block[at]
        self.ordering, self.marks, self.flipped = ordering, marks, flipped
        self.rows = ordering.order[at]
        self._start, self._end = ordering.starts[own], ordering.ends[own]
        self._marked_end = np.searchsorted(at, self._end)
        self.tied = np.flatnonzero(self._end - self._start > 1)
        self._layouts: dict[tuple[bool, bool], PrefixSums] = {}

    @classmethod
    def fewer(cls, scores: FloatArray, marks: BoolArray, *, unit: float = 0.0) -> Marked:
        """Order rows by a score and mark these rows, or the others where those are fewer."""
        return cls.fewer_of(ordered(scores, unit=unit), marks)

    @classmethod
    def fewer_of(cls, ordering: Ordering, marks: BoolArray) -> Marked:
        """Mark these rows of an ordering, or the others where those are fewer."""
        flipped = bool(marks.mean() > 0.5)
        return cls(ordering, ~marks if flipped else marks, flipped=flipped)

    def total(self, weights: Weights) -> Values:
        """Return the weight of the marked rows, ``[R]``."""
        return weights.sums(self.marks)

    def own(self, weights: Weights) -> NDArray[Any]:
        """Return the weight of each marked row, ``[M, R]``."""
        return np.asarray(weights.counts.take(self.rows, axis=0))

    def beside(self, weights: Weights) -> tuple[NDArray[Any], NDArray[Any]]:
        """Return all weight in the blocks below each marked row, and up to the end of its own, both ``[M, R]``."""
        if weights.each_once:
            return self._start[:, None].copy(), self._end[:, None]
        layout = self._layout(weights)
        sums = layout.weights(weights)
        before = sums.take(layout.slots(np.maximum(self._start - 1, 0)), axis=0)
        before[self._start == 0] = 0
        return before, sums.take(layout.slots(self._end - 1), axis=0)

    def marked_up_to(self, weights: Weights) -> NDArray[Any]:
        """Return for each marked row the weight of the marked rows up to the end of its block, ``[M, R]``."""
        if weights.each_once:
            return self._marked_end[:, None]
        among = self._layout(weights, marked=True)
        return np.asarray(among.weights(weights).take(among.slots(self._marked_end - 1), axis=0))

    def _layout(self, weights: Weights, *, marked: bool = False) -> PrefixSums:
        key = (marked, len(weights) > 1)
        if key not in self._layouts:
            order = self.rows if marked else self.ordering.order
            self._layouts[key] = PrefixSums(order, replicates=len(weights))
        return self._layouts[key]
