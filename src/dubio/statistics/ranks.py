"""Comparing methods over datasets: ranks, Friedman, Nemenyi, signed-rank tests, wins.

Ranks: one is best, ties share the mean of their ranks. With several metrics a dataset stays one block: a method's rank
there is the mean of its ranks under each metric. Datasets are independent measurements, two metrics on one dataset are
not, and counting them as such would overstate the evidence. Nor are test sets on which the same trained networks were
tested: these are one block, too, in which a method's rank is the mean of its ranks on each.

Friedman's test asks whether the mean ranks differ more than by chance. With r_ij the rank of method j in block i,
R_j = Σ_i r_ij, N blocks and k methods,

    χ² = (k − 1) Σ_j (R_j − N(k+1)/2)² / (Σ_ij r_ij² − N k (k+1)²/4),

which is the usual statistic corrected for ties, and stays right for ranks averaged over several metrics or test sets,
since a block still sums to k(k+1)/2. Its p is the share of all exchanges of ranks within blocks with a χ² at least as
large: the χ² distribution is one of many blocks (:mod:`dubio.statistics.exchanges`). Iman and Davenport's
F = (N − 1) χ² / (N (k − 1) − χ²) grows with χ², so that over exchanges it is the same test with the same p; F with
k − 1 and (k − 1)(N − 1) degrees of freedom is used where χ² is.

Nemenyi's critical difference is CD = q_α √(k(k+1)/(6N)), q_α the 1 − α quantile of the studentised range of k means
with infinitely many degrees of freedom, divided by √2. Two methods differ when their mean ranks are at least CD apart,
provided that Friedman's test finds that methods differ at all. Where there are two methods alone, Friedman's test is
about this pair, and decides; CD is then the least difference of mean ranks that it finds, if there is one.

Wilcoxon's signed-rank test of every pair, corrected after Holm, is the paired counterpart: it uses the differences of
two methods alone, whatever other methods are in the table; a block counts once, by its mean difference, and p is exact.
With few blocks the smallest possible p is 2^(1−N), N without the blocks where both are equal: five can never reach
0.05.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import lru_cache
from itertools import combinations
from math import inf, sqrt
from typing import Literal, NamedTuple

import numpy as np
from scipy import stats

from dubio.core.errors import UserError, check_between_0_and_1, listing
from dubio.core.types import Direction, FloatArray
from dubio.statistics.exchanges import exchange_p, exchanges, least_difference, signed_rank_p
from dubio.statistics.result_table import Grid, ResultTable, grid
from dubio.statistics.verdicts import holm


def kendall_tau(one: Sequence[float] | FloatArray, other: Sequence[float] | FloatArray) -> float | None:
    """Return Kendall's τ_b of two scores of the same methods, over those that are finite in both.

    None for fewer than two of them, or where all are tied under one score.
    """
    sides = np.array([one, other], dtype=np.float64)
    finite = sides[:, np.isfinite(sides).all(axis=0)]
    if finite.shape[1] < 2 or (np.ptp(finite, axis=1) == 0).any():
        return None
    return float(stats.kendalltau(*finite).statistic)


@dataclass(frozen=True, eq=False)
class Ranks:
    """Ranks in blocks.

    Attributes:
        methods: Column names.
        datasets: Row names: datasets, or blocks of them.
        values: ``[datasets, methods]``; every row sums to k(k+1)/2.
    """

    methods: tuple[str, ...]
    datasets: tuple[str, ...]
    values: FloatArray

    @property
    def average(self) -> FloatArray:
        """The mean rank of every method over the rows."""
        return np.asarray(self.values.mean(axis=0))

    def averaged(self, blocks: Mapping[str, str]) -> Ranks:
        """Return the mean ranks in every block.

        Args:
            blocks: Dataset → the block that it belongs to; a dataset that is not named is a block of its own.
        """
        rows = _rows_by_owner(self.datasets, blocks)
        means = np.array([self.values[own].mean(axis=0) for own in rows.values()])
        names = tuple(name if len(own) > 1 else self.datasets[own[0]] for (_, name), own in rows.items())
        return Ranks(self.methods, names, means)


Owner = tuple[bool, str]
"""Whether a dataset is in a block with a name, and that name, or else its own, which a block may have too."""


def _rows_by_owner(datasets: Sequence[str], blocks: Mapping[str, str]) -> dict[Owner, list[int]]:
    """Return owner → the rows of its datasets, owners in order of appearance."""
    rows: dict[Owner, list[int]] = {}
    for row, name in enumerate(datasets):
        rows.setdefault((name in blocks, blocks.get(name, name)), []).append(row)
    return rows


def mid_ranks(values: Sequence[Fraction], *, sign: int) -> list[Fraction]:
    """Return ranks from one; equal values share the mean of their ranks.

    Args:
        values: Exact values.
        sign: +1 where lower is better, −1 where higher is.
    """
    keys = sorted(sign * value for value in values)
    return [Fraction(2 * keys.index(sign * value) + keys.count(sign * value) + 1, 2) for value in values]


def rank(grids: Sequence[Grid]) -> Ranks:
    """Rank the methods on every dataset, averaged over metrics.

    Args:
        grids: One per metric, over the same methods and datasets.

    Raises:
        UserError: When the metrics are not over the same methods and datasets.
    """
    first = grids[0]
    names = {*first.methods, *first.datasets}
    for other in grids[1:]:
        unmatched = sorted(names ^ {*other.methods, *other.datasets})
        if unmatched:
            raise UserError(
                f"{first.metric} and {other.metric} are not given for the same methods and datasets: "
                f"{unmatched[0]!r} is in one of them only."
            )
    return Ranks(first.methods, first.datasets, np.mean([_ranked(table, first) for table in grids], axis=0))


def _ranked(grid: Grid, like: Grid) -> FloatArray:
    """Return ranks ``[datasets, methods]`` of one grid, in the order of another."""
    ranks = {
        dataset: dict(zip(grid.methods, mid_ranks(row, sign=_sign(grid)), strict=True))
        for dataset, row in zip(grid.datasets, grid.values, strict=True)
    }
    return np.array([[float(ranks[dataset][method]) for method in like.methods] for dataset in like.datasets])


def _sign(grid: Grid) -> int:
    """Return the factor that makes lower better."""
    return 1 if grid.better == "lower" else -1


Distribution = Literal["exact", "sampled", "chi2"]
"""What the p of Friedman's test is of: all exchanges of ranks within blocks, a sample of them, the χ² distribution."""


@dataclass(frozen=True)
class Friedman:
    """The outcome of Friedman's test and of Iman and Davenport's refinement."""

    chi2: float
    p: float
    iman_davenport: float
    iman_davenport_p: float
    methods: int
    datasets: int
    distribution: Distribution


def friedman(ranks: Ranks) -> Friedman:
    """Test that all methods have the same mean rank; where all are tied everywhere, χ² = 0 and p = 1.

    Raises:
        UserError: For fewer than two methods or two datasets.
    """
    values = ranks.values
    blocks, methods = values.shape
    if methods < 2:
        raise UserError(f"comparing needs at least two methods; given one, {ranks.methods[0]!r}.")
    if blocks < 2:
        raise UserError(
            f"comparing by ranks needs at least two datasets; given one, {ranks.datasets[0]!r}. On one dataset, "
            "compare two systems on the same examples: dubio evaluate a=FILE b=FILE."
        )
    between = float(np.square(values.sum(axis=0) - blocks * (methods + 1) / 2).sum())
    within = float(np.square(values).sum()) - blocks * methods * (methods + 1) ** 2 / 4
    chi2 = (methods - 1) * between / within if within > 1e-12 else 0.0
    spare = blocks * (methods - 1) - chi2
    refined = (blocks - 1) * chi2 / spare if spare > 1e-9 else np.inf
    over = exchanges(values)
    if over is not None:
        p = exchange_p(values, over)
        return Friedman(chi2, p, float(refined), p, methods, blocks, "exact" if over.draws is None else "sampled")
    p = float(stats.chi2.sf(chi2, methods - 1))
    refined_p = float(stats.f.sf(refined, methods - 1, (methods - 1) * (blocks - 1)))
    return Friedman(chi2, p, float(refined), refined_p, methods, blocks, "chi2")


@lru_cache(maxsize=64)
def critical_value(methods: int, alpha: float = 0.05) -> float:
    """Return q_α for a number of methods.

    Raises:
        UserError: For fewer than two methods or an α outside (0, 1).
    """
    if methods < 2:
        raise UserError(f"a critical difference needs at least two methods; given {methods}.")
    check_between_0_and_1("alpha", alpha)
    return float(stats.studentized_range.ppf(1.0 - alpha, methods, inf)) / sqrt(2.0)


def critical_difference(methods: int, datasets: int, alpha: float = 0.05) -> float:
    """Return the least difference of two mean ranks that is significant.

    Args:
        methods: k.
        datasets: N.
        alpha: Level of the test, over all pairs together.
    """
    if datasets < 1:
        raise UserError(f"a critical difference needs at least one dataset; given {datasets}.")
    return critical_value(methods, alpha) * sqrt(methods * (methods + 1) / (6.0 * datasets))


def cliques(average_ranks: Mapping[str, float], difference: float) -> tuple[tuple[str, ...], ...]:
    """Return the largest sets of two or more methods whose mean ranks lie less than the critical difference apart.

    Args:
        average_ranks: Method to mean rank.
        difference: The critical difference.

    Returns:
        Each set from best to worst, the sets by their best method.
    """
    names = sorted(average_ranks, key=lambda name: (average_ranks[name], name))
    sets: list[tuple[str, ...]] = []
    reach = 0
    for start, name in enumerate(names):
        end = start
        while end < len(names) and average_ranks[names[end]] - average_ranks[name] < difference:
            end += 1
        if end > reach and end - start > 1:
            sets.append(tuple(names[start:end]))
        reach = max(reach, end)
    return tuple(sets)


@dataclass(frozen=True)
class SignedRank:
    """Wilcoxon's signed-rank test of two methods over datasets."""

    first: str
    second: str
    p: float
    adjusted_p: float


def signed_rank_tests(grid: Grid, blocks: Mapping[str, str] | None = None) -> tuple[SignedRank, ...]:
    """Test every pair of methods under one metric; a pair that is equal everywhere has p = 1.

    Args:
        grid: The values.
        blocks: As for :func:`compare`.
    """
    rows, tests = _rows_by_owner(grid.datasets, blocks or {}), []
    for one, two in combinations(range(len(grid.methods)), 2):
        # exact until here: a mean of zero that is rounded has a sign, and equal means have different ranks
        exact = [row[one] - row[two] for row in grid.values]
        gaps = np.array([float(sum(exact[row] for row in own) / len(own)) for own in rows.values()])
        p = signed_rank_p(gaps)
        tests.append(SignedRank(grid.methods[one], grid.methods[two], p, p))
    adjusted = holm([test.p for test in tests])
    return tuple(replace(test, adjusted_p=p) for test, p in zip(tests, adjusted, strict=True))


class Record(NamedTuple):
    """How often a method was better, equal and worse; draws are equal values after rounding."""

    wins: int
    draws: int
    losses: int


def win_draw_loss(grids: Sequence[Grid]) -> dict[str, Record]:
    """Return method → its record over all pairs, datasets and metrics; the counts of one method sum to (k − 1) N M.

    Args:
        grids: One per metric.
    """
    counts: dict[str, list[int]] = {}
    for table in grids:
        for row in table.values:
            for index, method in enumerate(table.methods):
                tally = counts.setdefault(method, [0, 0, 0])
                for other in (*row[:index], *row[index + 1 :]):
                    gap = _sign(table) * (row[index] - other)
                    tally[0 if gap < 0 else 1 if gap == 0 else 2] += 1
    return {method: Record(*tally) for method, tally in counts.items()}


@dataclass(frozen=True)
class Comparison:
    """A comparison of methods over datasets, under one metric or several together.

    Attributes:
        metrics: The metrics compared by, and which way each is better.
        digits: Decimals the averages were rounded to, or None.
        alpha: Level of the tests.
        datasets: Names of the datasets.
        average_ranks: Method to mean rank, best first.
        friedman: Friedman's test, over blocks; its number of datasets is that of the blocks.
        critical_difference: Nemenyi's, over blocks: the smallest significant difference of mean ranks; of two methods
            that of Friedman's test, where it has one.
        cliques: Sets of methods that do not differ significantly.
        win_draw_loss: Method to its record over datasets and metrics.
        pairs: Signed-rank tests of every pair, where there is one metric.
        by_metric: The comparison under each metric alone, where there are several.
    """

    metrics: Mapping[str, Direction]
    digits: int | None
    alpha: float
    datasets: tuple[str, ...]
    average_ranks: Mapping[str, float]
    friedman: Friedman
    critical_difference: float
    cliques: tuple[tuple[str, ...], ...]
    win_draw_loss: Mapping[str, Record]
    pairs: tuple[SignedRank, ...] = ()
    by_metric: Mapping[str, Comparison] = field(default_factory=dict)

    def differ(self, one: str, other: str) -> bool:
        """Return whether two methods differ significantly: after Nemenyi, where Friedman's test finds differences."""
        gap = abs(self.average_ranks[one] - self.average_ranks[other])
        far = gap > 0 if self.friedman.methods == 2 else gap >= self.critical_difference
        return self.friedman.p <= self.alpha and far


def compare(
    table: ResultTable,
    metrics: Mapping[str, Direction],
    *,
    digits: int | None = None,
    alpha: float = 0.05,
    blocks: Mapping[str, str] | None = None,
) -> Comparison:
    """Compare the methods of a table.

    Args:
        table: Long results.
        metrics: Which metrics, and which way each is better.
        digits: Decimals to round averages to before they are ranked; None for none.
        alpha: Level of the tests.
        blocks: Dataset → the block that it belongs to, of datasets that are not independent measurements; a dataset
            that is not named is a block of its own.

    Raises:
        UserError: For an unknown metric, a gap in the table, fewer than two methods or blocks.
    """
    if not metrics:
        raise UserError("name at least one metric to compare by.")
    grids = [grid(table, name, better, digits=digits) for name, better in metrics.items()]
    comparison = _compared(grids, digits, alpha, blocks or {})
    if len(grids) == 1:
        return comparison
    return replace(comparison, by_metric={own.metric: _compared([own], digits, alpha, blocks or {}) for own in grids})


def _compared(grids: list[Grid], digits: int | None, alpha: float, blocks: Mapping[str, str]) -> Comparison:
    ranks = rank(grids).averaged(blocks)
    if len(ranks.datasets) < 2 <= len(grids[0].datasets):
        raise UserError(
            "comparing by ranks needs at least two blocks of datasets (--block-col; of a run, its training data): "
            f"datasets of one block share what was trained, and are one measurement. Given {len(grids[0].datasets)} "
            f"datasets of one block: {listing(grids[0].datasets)}."
        )
    test, records = friedman(ranks), win_draw_loss(grids)
    average = {name: value for value, name in sorted(zip(ranks.average.tolist(), ranks.methods, strict=True))}
    difference = critical_difference(test.methods, test.datasets, alpha)
    sets = cliques(average, difference) if test.p <= alpha else (tuple(average),)
    if test.methods == 2:
        difference = least_difference(ranks.values, alpha) or difference
        sets = () if test.p <= alpha else sets
    wins = {name: records[name] for name in average}
    pairs = signed_rank_tests(grids[0], blocks) if len(grids) == 1 else ()
    better = {own.metric: own.better for own in grids}
    return Comparison(better, digits, alpha, grids[0].datasets, average, test, difference, sets, wins, pairs)
