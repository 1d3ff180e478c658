"""Ordering rows by a score so that ties never make a result depend on the order of the rows.

Rows whose scores agree form a *block*. Every ranking metric here treats a block as a whole, which equals the
expectation over all orders within the block. Scores come from logits kept in float32, so that two rows given the same
probability may differ in the seventh digit: neighbours in order that differ by less than that are in one block, unless
the block would grow wider than a few such steps.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dubio.pooling import FloatArray
from dubio.types import BoolArray, IntArray

STEP = 4e-7
"""Relative difference below which two scores are equal: what rounding log p to float32 does to sums of p."""

WIDEST = 4
"""How many steps a block may span; a longer run of close scores is cut into pieces of that width."""


@dataclass(frozen=True, eq=False)
class Ordering:
    """Rows in ascending order of a score, with the blocks of ties.

    Attributes:
        order: ``[N]`` the rows, lowest score first; the order within a block means nothing.
        block: ``[N]`` which block each place of ``order`` belongs to, from 0.
        starts: ``[B]`` the first place of each block.
    """

    order: IntArray
    block: IntArray
    starts: IntArray

    def sums(self, values: NDArray[Any]) -> FloatArray:
        """The sum of row-wise values in each block, ``[B]``."""
        return np.add.reduceat(np.asarray(values, dtype=np.float64)[self.order], self.starts)

    def averaged(self, values: NDArray[Any]) -> FloatArray:
        """Row-wise values in this order, each replaced by the mean of its block, ``[N]``."""
        return (self.sums(values) / self.sizes)[self.block]

    @property
    def sizes(self) -> FloatArray:
        """How many rows each block has, ``[B]``."""
        return np.diff(np.append(self.starts, len(self.order))).astype(np.float64)


def ordered(scores: FloatArray, *, unit: float = 0.0) -> Ordering:
    """Order rows by a score, lowest first, and find the blocks of ties.

    Args:
        scores: ``[N]``, not NaN; infinite ones are equal to their like.
        unit: Scores smaller than this are compared by their absolute difference, in steps of this size.
    """
    values = np.asarray(scores, dtype=np.float64)
    order = np.argsort(values, kind="stable")
    runs = values[order]
    with np.errstate(invalid="ignore"):
        gaps = np.diff(runs)
    sizes = np.maximum(np.maximum(np.abs(runs[:-1]), np.abs(runs[1:])), unit)
    finite = np.isfinite(sizes)
    apart = np.where(finite, gaps > STEP * np.where(finite, sizes, 0.0), runs[1:] != runs[:-1])
    opens = np.concatenate(([True], apart))
    opens |= _cuts(runs, opens, unit)
    return Ordering(order, np.cumsum(opens) - 1, np.flatnonzero(opens))


def _cuts(runs: FloatArray, opens: BoolArray, unit: float) -> BoolArray:
    """Where a run of close scores that spans too much is cut, counted from its lowest score."""
    starts = np.flatnonzero(opens)
    run = np.cumsum(opens) - 1
    low, high = runs[starts], runs[np.append(starts[1:], len(runs)) - 1]
    width = WIDEST * STEP * np.maximum(np.maximum(np.abs(low), np.abs(high)), unit)
    with np.errstate(invalid="ignore", divide="ignore"):
        piece = np.nan_to_num((runs - low[run]) / width[run]).astype(np.int64)
    return np.concatenate(([False], piece[1:] != piece[:-1]))


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
    weight = np.ones(len(scores)) if weights is None else weights
    ordering = ordered(scores, unit=unit)
    ups, downs = ordering.sums(weight * positive), ordering.sums(weight * ~positive)
    total = ups.sum() * downs.sum()
    if total == 0:
        return float("nan")
    below = np.cumsum(downs) - downs
    return float(np.sum(ups * (below + downs / 2)) / total)


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
