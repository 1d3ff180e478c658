"""Ranks of methods: one is best, ties share the mean of the places they take.

With several metrics a dataset stays one block: a method's rank there is the mean of its ranks under each metric.
Datasets are independent measurements, two metrics on one dataset are not, and counting them as such would overstate the
evidence.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from dubio.core.errors import UserError
from dubio.core.types import FloatArray
from dubio.statistics.results import Grid


@dataclass(frozen=True, eq=False)
class Ranks:
    """Ranks in blocks.

    Attributes:
        methods: Column names.
        datasets: Row names.
        values: ``[datasets, methods]``; every row sums to k(k+1)/2.
    """

    methods: tuple[str, ...]
    datasets: tuple[str, ...]
    values: FloatArray

    @property
    def average(self) -> FloatArray:
        """The mean rank of every method over datasets."""
        return np.asarray(self.values.mean(axis=0))


def mid_ranks(values: Sequence[Fraction], *, sign: int) -> list[Fraction]:
    """Ranks from one; equal values share the mean of their places.

    Args:
        values: Exact values.
        sign: +1 where lower is better, −1 where higher is.
    """
    keys = [sign * value for value in values]
    order = sorted(range(len(keys)), key=keys.__getitem__)
    ranks = [Fraction(0)] * len(keys)
    start = 0
    while start < len(order):
        end = start
        while end < len(order) and keys[order[end]] == keys[order[start]]:
            end += 1
        for place in order[start:end]:
            ranks[place] = Fraction(start + 1 + end, 2)
        start = end
    return ranks


def rank(grids: Sequence[Grid]) -> Ranks:
    """Rank the methods on every dataset, averaged over metrics.

    Args:
        grids: One a metric, over the same methods and datasets.

    Raises:
        UserError: When the metrics are not over the same methods and datasets.
    """
    first = grids[0]
    for other in grids[1:]:
        if set(other.methods) != set(first.methods) or set(other.datasets) != set(first.datasets):
            odd = sorted((set(other.methods) ^ set(first.methods)) | (set(other.datasets) ^ set(first.datasets)))
            raise UserError(f"{first.metric} and {other.metric} are not given for the same methods and datasets: "
                            f"{odd[0]!r} is in one of them only.")
    values = np.mean([_ranked(each, first) for each in grids], axis=0)
    return Ranks(first.methods, first.datasets, values)


def _ranked(grid: Grid, like: Grid) -> FloatArray:
    """Ranks ``[datasets, methods]`` of one grid, in the order of another."""
    sign = 1 if grid.better == "lower" else -1
    columns = [grid.methods.index(method) for method in like.methods]
    rows = [grid.datasets.index(dataset) for dataset in like.datasets]
    return np.array([[float(mid_ranks(grid.values[row], sign=sign)[column]) for column in columns] for row in rows])
