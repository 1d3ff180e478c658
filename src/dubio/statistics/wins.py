"""Wins, draws and losses: every method against every other on every dataset under every metric."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from dubio.statistics.results import Grid


class Record(NamedTuple):
    """How often a method was better, equal and worse; draws are equal values after rounding."""

    wins: int
    draws: int
    losses: int


def win_draw_loss(grids: Sequence[Grid]) -> dict[str, Record]:
    """Method to its record over all pairs, datasets and metrics; the counts of one method sum to (k − 1) N M.

    Args:
        grids: One a metric.
    """
    counts: dict[str, list[int]] = {}
    for grid in grids:
        sign = 1 if grid.better == "lower" else -1
        for row in grid.values:
            for method, own in zip(grid.methods, row, strict=True):
                tally = counts.setdefault(method, [0, 0, 0])
                for other in row:
                    gap = sign * (own - other)
                    tally[0 if gap < 0 else 1 if gap == 0 else 2] += 1
                tally[1] -= 1  # a method against itself
    return {method: Record(*tally) for method, tally in counts.items()}
