"""Calibration errors in bins, with rows counted by weights; see :mod:`dubio.statistics.weighted`.

In bins of equal width a row's bin does not depend on the weights. In bins of equal mass it does: a bin is the next n/M
rows in order, with every row repeated as often as it weighs. Within a block of ties all rows share their gaps, so the
sum of gaps up to some place is linear within the block, and a bin that begins inside a row or a block is cut there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from dubio.core.types import BoolArray, FloatArray, IntArray
from dubio.metrics.calibration_error import EDGE
from dubio.metrics.ranking import ordered
from dubio.statistics.resampling import Weights
from dubio.statistics.running import Stretches
from dubio.statistics.weighted import Weighted


def weighted_widths(stated: FloatArray, truth: FloatArray, bins: int) -> Weighted:
    """Σ_B |Σ_{i in B} (truth_i − stated_i)| / n over equal-width, right-closed bins of what was stated.

    Args:
        stated: ``[N]``, or ``[N, K]``: all columns in the same bins, and n counts every cell.
        truth: Of the same shape.
        bins: How many bins.
    """
    cells = stated.reshape(len(stated), -1)
    which = np.clip(np.ceil((cells - EDGE) * bins) - 1, 0, bins - 1).astype(np.int64)
    rows = np.broadcast_to(np.arange(len(cells))[:, None], cells.shape)
    gaps = (truth.reshape(cells.shape) - cells).ravel()
    spread = sparse.csr_array((gaps, (which.ravel(), rows.ravel())), shape=(bins, len(cells)))

    def value(weights: Weights) -> FloatArray:
        return np.asarray(np.abs(spread @ weights.real).sum(axis=0) / (weights.totals * cells.shape[1]))

    return value


@dataclass(frozen=True, eq=False)
class Column:
    """One column of stated probabilities, in order; kept small, because there may be a thousand of them.

    Attributes:
        rows: The rows that count at all, lowest stated first.
        opens: Which of them begin a block of ties.
        gaps: How far truth lies above what was stated, in the same order.
    """

    rows: IntArray
    opens: BoolArray
    gaps: FloatArray

    @classmethod
    def of(cls, stated: FloatArray, truth: FloatArray, kept: BoolArray | None = None) -> Column:
        """The column of what was stated and what is true; of the kept rows alone, where given."""
        rows = np.arange(len(stated)) if kept is None else np.flatnonzero(kept)
        opens = np.zeros(len(rows), dtype=bool)
        if len(rows):
            ordering = ordered(stated[rows])
            rows, opens[ordering.starts] = rows[ordering.order], True
        return cls(rows.astype(np.int32), opens, (truth[rows] - stated[rows]).astype(np.float64))


def weighted_masses(columns: Sequence[Column], bins: int) -> Weighted:
    """Mean over columns of Σ_B |Σ_{i in B} gap_i| / n over bins of equal mass of the column's rows.

    Bins differ in size by at most one; with fewer rows than bins every row is its own bin.
    """

    def value(weights: Weights) -> FloatArray:
        total = np.zeros(len(weights))
        for column in columns:
            if len(column.rows):
                total += _mass_sum(column, weights, bins)
        return total / (len(columns) * weights.totals)

    return value


def _mass_sum(column: Column, weights: Weights, bins: int) -> FloatArray:
    """Σ_B |Σ_{i in B} gap_i| of one column in every replicate."""
    stretches = Stretches(column.rows)
    counted = stretches.counted(weights.counts, float(weights.totals.max()))
    placed = np.zeros((len(counted), 1))
    placed[stretches.slots(np.arange(stretches.count))] = column.gaps[:, None]
    gaps = stretches.sums(placed * weights.real.take(stretches.rows, axis=0))
    last = stretches.slots(np.array([stretches.count - 1]))
    sizes, all_gaps = counted[last].astype(np.int64), gaps[last]
    used = np.minimum(sizes, bins)
    number = np.arange(bins)[:, None]
    begins = np.where(number < used, number * sizes // np.maximum(used, 1), sizes)
    place = _place_of(begins, counted, stretches)
    first, following = _block_of(place, np.flatnonzero(column.opens), stretches.count)
    low, high = _upto(first, counted, stretches), _upto(following, counted, stretches)
    low_gaps, high_gaps = _upto(first, gaps, stretches), _upto(following, gaps, stretches)
    inside = (begins - low) / np.maximum(high - low, 1)
    upto = np.where(begins < sizes, low_gaps + inside * (high_gaps - low_gaps), all_gaps)
    return np.asarray(np.abs(np.diff(upto, axis=0, append=all_gaps)).sum(axis=0))


def _place_of(begins: IntArray, counted: NDArray[Any], stretches: Stretches) -> IntArray:
    """The first place up to which more than ``begins`` was counted, in every replicate; else the last place."""
    low, high = np.zeros_like(begins), np.full_like(begins, stretches.count - 1)
    replicate = np.arange(begins.shape[1])
    while bool((low < high).any()):
        middle = (low + high) // 2
        past = counted[stretches.slots(middle), replicate] > begins
        low, high = np.where(past, low, np.minimum(middle + 1, high)), np.where(past, middle, high)
    return low


def _block_of(place: IntArray, starts: IntArray, count: int) -> tuple[IntArray, IntArray]:
    """Where the block of each place begins, and where the next one does."""
    block = np.searchsorted(starts, place, side="right") - 1
    return starts[block], np.append(starts[1:], count)[block]


def _upto(place: IntArray, sums: NDArray[Any], stretches: Stretches) -> NDArray[Any]:
    """Sums of what lies before a place, of sums up to and with every place."""
    found = sums[stretches.slots(np.maximum(place - 1, 0)), np.arange(place.shape[1])]
    return np.where(place > 0, found, 0)
