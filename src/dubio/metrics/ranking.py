"""Ordering rows by a score so that ties never make a result depend on the order of the rows.

Rows whose scores agree form a *block*. Every ranking metric here treats a block as a whole, which equals the
expectation over all orders within the block. Scores come from logits kept in float32, so that two rows given the same
probability may differ in the seventh digit: neighbours in order that differ by less than that are in one block, unless
the block would grow wider than a few such steps.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dubio.core.types import BoolArray, FloatArray, IntArray

STEP = 4e-7
"""Relative difference below which two scores are equal: what rounding log p to float32 does to sums of p."""

WIDEST = 4
"""How many steps a block may span; a longer run of close scores is cut into pieces of that width."""


@dataclass(frozen=True, eq=False)
class Ordering:
    """Rows in ascending order of a score, with the blocks of ties.

    Attributes:
        order: ``[N]`` the rows, lowest score first; the order within a block means nothing.
        starts: ``[B]`` the first place of each block.
    """

    order: IntArray
    starts: IntArray

    @cached_property
    def block(self) -> IntArray:
        """``[N]`` which block each place of ``order`` belongs to, from 0."""
        return np.repeat(np.arange(len(self.starts)), np.diff(np.append(self.starts, len(self.order))))

    def sums(self, values: NDArray[Any]) -> FloatArray:
        """The sum of row-wise values in each block, ``[B]``."""
        placed = np.asarray(values, dtype=np.float64)[self.order]
        return placed if len(self.starts) == len(placed) else np.add.reduceat(placed, self.starts)

    def averaged(self, values: NDArray[Any]) -> FloatArray:
        """Row-wise values in this order, each replaced by the mean of its block, ``[N]``."""
        means = self.sums(values) / self.sizes
        return means if len(means) == len(self.order) else means[self.block]

    @property
    def sizes(self) -> FloatArray:
        """How many rows each block has, ``[B]``."""
        ends = np.empty(len(self.starts))
        ends[:-1], ends[-1] = self.starts[1:], len(self.order)
        return ends - self.starts


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
    """Cut every run of close scores that spans too much, counted from its lowest score; whether there was one."""
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
    """Which runs of more than one score span more than a block may."""
    with np.errstate(invalid="ignore"):
        gap = high - low
        return np.asarray(gap >= WIDEST * STEP * np.maximum(np.maximum(np.abs(low), np.abs(high)), unit)) & (gap > 0)


def auroc(scores: FloatArray, positive: BoolArray, weights: FloatArray | None = None, *, unit: float = 0.0) -> float:
    """Area under the ROC curve: the chance that a positive scores above a negative, ties counting one half.

    Args:
        scores: ``[N]``, higher = more likely positive.
        positive: ``[N]``, which rows are positive.
        weights: ``[N]``, how much each row counts; all alike by default.
        unit: As for :func:`ordered`.

    Returns:
        The area, or NaN where there is no positive or no negative.
    """
    ordering = ordered(scores, unit=unit)
    ups = ordering.sums(positive if weights is None else weights * positive)
    downs = ordering.sizes - ups if weights is None else ordering.sums(weights * ~positive)
    total = ups.sum() * downs.sum()
    if total == 0:
        return float("nan")
    return float(ups @ (np.cumsum(downs) - downs / 2) / total)


def average_precision(scores: FloatArray, positive: BoolArray) -> float:
    """Area under the precision–recall curve as average precision, Σ_b (R_b − R_{b−1}) P_b over blocks of ties.

    Returns:
        The area, or NaN where there is no positive or no negative (the value would not say anything about scores).
    """
    ordering = ordered(-np.asarray(scores, dtype=np.float64))
    ups = ordering.sums(positive)
    if ups.sum() == 0 or ups.sum() == len(scores):
        return float("nan")
    precision = np.cumsum(ups) / np.cumsum(ordering.sizes)
    return float(np.sum(ups * precision) / ups.sum())


def fpr_at_tpr(scores: FloatArray, positive: BoolArray, level: float = 0.95) -> float:
    """The lowest false-positive rate of a threshold whose true-positive rate is at least ``level``.

    A threshold never splits a block of ties and nothing is interpolated.

    Returns:
        The rate, or NaN where there is no positive or no negative.
    """
    ordering = ordered(-np.asarray(scores, dtype=np.float64))
    ups = np.cumsum(ordering.sums(positive))
    downs = np.cumsum(ordering.sums(~positive))
    if ups[-1] == 0 or downs[-1] == 0:
        return float("nan")
    # Counts are whole numbers: a hair of slack keeps level * total from missing its own count by rounding.
    first = int(np.argmax(ups >= level * ups[-1] - 1e-9))
    return float(downs[first] / downs[-1])


def correlation(scores: FloatArray, flag: BoolArray) -> float:
    """Signed point-biserial (Pearson) correlation between a score and a flag.

    Returns:
        A value in [−1, 1], or NaN where the score or the flag does not vary.
    """
    values = np.asarray(scores, dtype=np.float64)
    if len(ordered(values).starts) == 1 or flag.all() or not flag.any():
        return float("nan")
    centred = (values - values.mean()) / np.abs(values - values.mean()).max()  # scaled: tiny scores must not underflow
    marks = flag - flag.mean()
    return float(np.clip(centred @ marks / np.sqrt((centred @ centred) * (marks @ marks)), -1.0, 1.0))
