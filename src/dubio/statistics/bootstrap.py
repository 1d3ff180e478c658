"""The bootstrap over examples or groups: seeded, shared between metrics, written as weights.

A replicate draws n examples (groups, where given) of n, with replacement; what counts is how often each was drawn, so a
replicate is a column of multinomial weights, and a metric that understands weights is evaluated for many replicates at
once. Every statistic sees the same weights for the same seed: two systems scored with one seed are scored on the same
resampled examples.

Percentile interval: the a and 1 − a quantiles of the replicates. With a = α/2 it is too narrow for few units n, as a
normal interval with the variance of the sample is (with 5 units 76 % of intervals held, of 95 % intended), and is
expanded as Student's t and n − 1 would expand that one: a = Φ(−√(n/(n − 1)) · t(1 − α/2; n − 1)) (Hesterberg 2015,
*The American Statistician* 69, §4.2). n counts the units that determine the variance (:func:`deciding_units`): of an
area between classes hardly more than the rarer one has. Replicates that are all equal say nothing about other test
sets, and there is no interval.

A share, such as accuracy, has the exact interval of Clopper and Pearson instead, since replicates of rows that are all
right are all right, too. Groups count like the number of independent rows with the share's variance over replicates,
corrected for its degrees of freedom (Korn and Graubard 1998, *Survey Methodology* 24); where all rows are alike, each
group as one row.

Centred interval: percentiles, moved so that the
mean of the replicates lies on the estimate; for binned calibration errors, which resampling pushes up (drawn rows are
noisier than rows, and |·| turns noise into bias), so that their percentile interval may leave out the estimate itself.
It says where the same estimator would fall on other test sets of this size, not where the error without bins would.

The counts of one replicate follow the multinomial law of n draws over n units. They are not drawn one by one: counts
that are Poisson and independent are, given their sum m, the counts of m draws, whatever m is. So Poisson counts with a
mean a little below one are drawn for all units at once, and the n − m draws that are still missing are made singly.
Where the sum came out above n the replicate is drawn again, which changes how m is distributed and nothing else.
A Poisson count takes one random byte: ⌊256 p_k⌋ of the 256 bytes stand for the count k, and the few other bytes
call for a draw from the remainder of the law.

An interval of a mean over runs (:class:`RunIntervals`) draws the same units for every run and averages over runs within
each replicate: it is of the mean of these trained networks over other test sets like this one. What other trainings
would have given is not in it, and shows in the spread over seeds.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from math import inf
from typing import Literal, TypeVar

import numpy as np
from numpy.typing import NDArray
from scipy import special, stats

from dubio.core.errors import UserError, check_between_0_and_1
from dubio.core.predictions import Predictions
from dubio.core.types import BoolArray, FloatArray, IntArray, Metric, StrArray
from dubio.core.weights import Values, Weights
from dubio.metrics.decisions import binary_problems, correct
from dubio.metrics.metric import preparing_once

BLOCK_CELLS = 1 << 20
"""Counts in a block of replicates: large enough to work on many replicates at once, small enough for the cache."""

SHORTFALL = 3.0
"""How many standard deviations the sum of the Poisson counts is expected to fall short of the draws."""

FEW = 1000
"""Below this many units all draws are made singly: that takes no longer."""

UNDECIDED = 255
"""The mark of a byte that does not settle a count; no count comes near it."""


@dataclass(frozen=True, eq=False)
class Units:
    """The units that are resampled: groups where there are any, else examples.

    Attributes:
        index: ``[N]``, the unit each example belongs to.
        count: The number of units.
    """

    index: IntArray
    count: int

    def weights(self, replicates: int, seed: int) -> Iterator[Weights]:
        """Yield the weights of every example, in blocks of replicates; the blocks do not change what is drawn."""
        generator = np.random.default_rng(seed)
        law = ShortPoisson.of(self.count)
        ungrouped = self.count == len(self.index)
        block = max(1, BLOCK_CELLS // len(self.index))
        for start in range(0, replicates, block):
            rows = np.empty((min(block, replicates - start), self.count), dtype=np.uint8)
            for row in rows:
                law.fill(row, generator)
            counts = np.ascontiguousarray(rows.T)
            yield Weights(counts if ungrouped else counts[self.index])


def units_of(predictions: Predictions) -> Units:
    """Return the groups of the predictions, or its examples where it has none."""
    if predictions.group is None:
        return Units(np.arange(len(predictions), dtype=np.int64), len(predictions))
    names, index = np.unique(predictions.group, return_inverse=True)
    return Units(index.astype(np.int64), len(names))


def deciding_units(metric: Metric, predictions: Predictions) -> float:
    """Return the number of units that determine the variance of a metric; one of them has no variance.

    Args:
        metric: The metric.
        predictions: The rows that it is computed on.
    """
    if "ood" in metric.needs:
        return units_of_smaller_side(predictions.ood, predictions.group)
    return units_between_classes(predictions) if "two_classes" in metric.needs else units_of(predictions).count


def units_between_classes(predictions: Predictions) -> float:
    """Return the number of units that determine the variance of an area between classes, such as an AUROC.

    A side of m examples (groups) adds about 1/m to the variance, known from m − 1 degrees of freedom: that of a rare
    class is most of it. Of all sides together Satterthwaite's degrees of freedom are (Σ 1/m)² / Σ 1/(m² (m − 1)), and
    the units one more; 1 where a side is a single unit.
    """
    units = units_of(predictions)
    sides = (side for problem in binary_problems(predictions) for side in (problem.positive, ~problem.positive))
    sizes = np.array([np.count_nonzero(np.bincount(units.index[side])) for side in sides])
    if sizes.min() < 2:
        return 1
    freedom = np.sum(1 / sizes) ** 2 / np.sum(1 / (sizes**2 * (sizes - 1.0)))
    return min(1 + float(freedom), units.count)


def units_of_smaller_side(ood: BoolArray, group: StrArray | None) -> int:
    """Return the number of examples (groups) that are out of distribution, or of those that are not, if fewer.

    A detection score averages over both sides. With few OOD rows its variance is mostly theirs, and known from no more
    than their number: with the degrees of freedom of all rows a difference by chance would be significant too often.
    """
    names = np.arange(len(ood)) if group is None else group
    return min(len(np.unique(names[side])) for side in (ood, ~ood))


def units_of_errors(predictions: Predictions) -> int:
    """Return the number of examples (groups) with an error, or of those with a right answer, if fewer.

    With few errors what referral gains is decided by where these few are in the order.
    """
    right = correct(predictions)
    return units_of_smaller_side(~right, predictions.group)


@dataclass(frozen=True, eq=False)
class ShortPoisson:
    """A Poisson law with a mean somewhat below one, as a table of 256 bytes and a remainder.

    Attributes:
        mean: Its mean; zero for few units, where all draws are made singly.
        table: The count each byte stands for, or ``UNDECIDED``.
        remainder: ``[K]``, cumulated shares of the counts among the bytes that are undecided.
    """

    mean: float
    table: bytes
    remainder: FloatArray

    @classmethod
    def of(cls, units: int) -> ShortPoisson:
        """Return the law for this many units."""
        mean = 0.0 if units < FEW else max(0.0, 1.0 - SHORTFALL / float(np.sqrt(units)))
        shares = 256.0 * stats.poisson.pmf(np.arange(40), mean)
        settled = np.floor(shares).astype(np.int64)
        remainder = np.cumsum(shares - settled)
        table = np.full(256, UNDECIDED, dtype=np.uint8)
        table[: settled.sum()] = np.repeat(np.arange(40), settled)
        return cls(mean, table.tobytes(), remainder / remainder[-1] if remainder[-1] > 0 else remainder)

    def fill(self, row: NDArray[np.uint8], generator: np.random.Generator) -> None:
        """Fill a row, one count per unit, with the counts of n draws for n units."""
        row[:] = 0
        draws = len(row) + 1 if self.mean > 0 else 0
        while draws > len(row):
            draws = self._start(row, generator)
        np.add.at(row, generator.integers(0, len(row), len(row) - draws), np.uint8(1))

    def _start(self, row: NDArray[np.uint8], generator: np.random.Generator) -> int:
        """Fill a row with independent counts and return their sum."""
        raw = generator.bit_generator.random_raw(-(-len(row) // 8)).astype("<u8", copy=False)
        row[:] = np.frombuffer(raw.tobytes().translate(self.table), dtype=np.uint8)[: len(row)]
        undecided = np.flatnonzero(row == UNDECIDED)
        row[undecided] = np.searchsorted(self.remainder, generator.random(len(undecided)), side="right")
        return int(row.sum(dtype=np.uint32))


ROUNDING = 1e-12
"""The share of a value by which replicates that are equal may differ."""

K = TypeVar("K", bound=Hashable)

Statistic = Callable[[Weights], Values]
"""A function from the weights of some replicates to the value of each."""


@dataclass(frozen=True)
class Interval:
    """An estimate with a confidence interval; the interval is undefined (NaN) where there is one unit only.

    Attributes:
        value: The estimate on the data as they are.
        low: Lower end.
        high: Upper end.
    """

    value: float
    low: float
    high: float


def mean_statistic(contributions: FloatArray) -> Statistic:
    """Return the weighted mean of per-example contributions as a function of weights."""
    return lambda weights: weights.mean(contributions)


def metric_statistic(metric: Metric, predictions: Predictions) -> Statistic:
    """Return a metric of these predictions as a function of weights.

    A metric that does not understand weights is computed again on the examples of every replicate, which is right for
    every metric and slow.
    """
    if metric.weighted is not None:
        weighted = metric.weighted
        return lambda weights: weighted(predictions, weights)
    if metric.per_example is not None:
        return mean_statistic(metric.per_example(predictions))
    return lambda weights: np.array([metric.compute(predictions.take(rows)) for rows in weights.replicates()])


def replicate(statistics: Mapping[K, Statistic], units: Units, *, replicates: int, seed: int) -> dict[K, FloatArray]:
    """Evaluate every statistic on the same replicates.

    Args:
        statistics: By name.
        units: What to resample.
        replicates: The number of replicates.
        seed: Seed of the draws.

    Returns:
        Name to ``[replicates]`` values.
    """
    if replicates < 2:
        raise UserError(f"replicates must be at least 2; given {replicates}.")
    collected: dict[K, list[FloatArray]] = {name: [] for name in statistics}
    with preparing_once():
        for weights in units.weights(replicates, seed):
            for name, statistic in statistics.items():
                collected[name].append(statistic(weights))
    return {name: np.concatenate(values) for name, values in collected.items()}


def percentile_interval(value: float, draws: FloatArray, *, level: float = 0.95, units: float = inf) -> Interval:
    """Return the percentile interval of replicates, expanded for few units.

    Replicates on which the metric is undefined are left out. Where it is undefined on more than half of them, what is
    left is no sample of what other test sets would give: the interval is undefined, too. So it is where all replicates
    are equal, or one unit decides, such as the only row of a class.

    Args:
        value: The estimate.
        draws: Its values on replicates.
        level: Confidence level.
        units: The number of units that determine the variance.
    """
    check_between_0_and_1("level", level)
    defined = draws[~np.isnan(draws)]
    if units < 2 or 2 * len(defined) < len(draws) or len(defined) == 0 or _equal(defined):
        return Interval(value, np.nan, np.nan)
    share = (1 - level) / 2
    if np.isfinite(units):
        share = float(special.ndtr(np.sqrt(units / (units - 1)) * special.stdtrit(units - 1, share)))
    if np.isfinite(defined).all():
        low, high = np.quantile(defined, [share, 1 - share])
    else:  # quantiles stay defined beside infinite replicates if nothing is interpolated with them
        low, high = np.quantile(defined, share, method="lower"), np.quantile(defined, 1 - share, method="higher")
    return Interval(value, float(low), float(high))


def _equal(draws: FloatArray) -> bool:
    """Return whether all replicates are equal, but for the rounding of sums in another order."""
    if not np.isfinite(draws).all():
        return bool((draws == draws[0]).all())
    return bool(np.ptp(draws) <= ROUNDING * np.abs(draws).max())


def centred_interval(value: float, draws: FloatArray, *, level: float = 0.95, units: float = inf) -> Interval:
    """Return the percentile interval of replicates moved so that their mean is the estimate.

    It does not cross zero where neither the estimate nor any replicate does. An infinite replicate leaves nothing to
    centre: then it is the percentile interval.
    """
    defined = draws[~np.isnan(draws)]
    if len(defined) == 0 or not np.isfinite([value, *defined]).all():
        return percentile_interval(value, draws, level=level, units=units)
    moved = percentile_interval(value, draws + (value - defined.mean()), level=level, units=units)
    return replace(moved, low=max(moved.low, 0.0)) if value >= 0 and defined.min() >= 0 else moved


def share_interval(value: float, draws: FloatArray, units: Units, *, level: float = 0.95) -> Interval:
    """Return the interval of Clopper and Pearson of a share, of groups after Korn and Graubard; none for one unit.

    Args:
        value: The share of rows, or its mean over runs on the same rows.
        draws: Its values on replicates.
        units: What was resampled.
        level: Confidence level.
    """
    check_between_0_and_1("level", level)
    rows, tail = len(units.index), (1 - level) / 2
    if units.count < 2:
        return Interval(value, np.nan, np.nan)
    count = float(rows)
    if units.count < rows:
        variance = float(np.var(draws, ddof=1))
        count = min(count, value * (1 - value) / variance) if variance > 0 else units.count
        count *= float(special.stdtrit(rows - 1, tail) / special.stdtrit(units.count - 1, tail)) ** 2
    hits = value * count
    low = 0.0 if value <= 0 else float(special.betaincinv(hits, count - hits + 1, tail))
    high = 1.0 if value >= 1 else float(special.betaincinv(hits + 1, count - hits, 1 - tail))
    return Interval(value, low, high)


def is_share(values: FloatArray) -> bool:
    """Return whether values per example are all 0 or 1, so that their mean is a share."""
    return bool(np.isin(values, (0.0, 1.0)).all())


def bootstrap(
    metrics: Mapping[str, Metric], predictions: Predictions, *, replicates: int, seed: int = 0, level: float = 0.95
) -> dict[str, Interval]:
    """Return confidence intervals of several metrics on one set of predictions, from shared replicates.

    Args:
        metrics: By name.
        predictions: What they score; its groups are resampled, where it has any.
        replicates: The number of replicates.
        seed: Seed of the draws.
        level: Confidence level.
    """
    bases = {name: basis(metric, predictions) for name, metric in metrics.items()}
    result: dict[str, Interval] = {}
    for rows in {id(base): base for base in bases.values()}.values():
        chosen = {name: metric for name, metric in metrics.items() if bases[name] is rows}
        with preparing_once():
            forms = {name: metric_statistic(metric, rows) for name, metric in chosen.items()}
            draws = replicate(forms, units_of(rows), replicates=replicates, seed=seed)
            for name, metric in chosen.items():
                result[name] = _interval_of(metric, rows, draws[name], level)
    return {name: result[name] for name in metrics}


def _interval_of(metric: Metric, rows: Predictions, draws: FloatArray, level: float) -> Interval:
    """Return the interval of a metric on the rows it is computed on, from its values on replicates."""
    value = float(metric.compute(rows))
    per_example = None if metric.weighted is None or "ood" in metric.needs else metric.per_example
    if per_example is not None and is_share(per_example(rows)):
        return share_interval(value, draws, units_of(rows), level=level)
    interval = centred_interval if metric.interval == "centred" else percentile_interval
    return interval(value, draws, level=level, units=deciding_units(metric, rows))


def basis(metric: Metric, predictions: Predictions) -> Predictions:
    """Return the rows a metric is computed on: the labelled ones where it needs labels."""
    return predictions.labelled if "labels" in metric.needs else predictions


def guarded(metric: Metric) -> Metric:
    """Return the metric, undefined (NaN) on a replicate that happens to lack what it needs, such as a class."""

    def compute(predictions: Predictions) -> float:
        try:
            return metric.compute(predictions)
        except UserError:
            return float("nan")

    return replace(metric, compute=compute)


MOST_REPLICATES = 1_000_000
"""More would run for hours and change no digit that is printed."""


def check_replicates(replicates: int) -> None:
    """Refuse a number of replicates that gives no interval."""
    if not isinstance(replicates, int) or not (replicates == 0 or 2 <= replicates <= MOST_REPLICATES):
        raise UserError(f"replicates must be 0 (no intervals) or 2 to {MOST_REPLICATES:,}; given {replicates!r}.")


CELLS = 4_000_000
"""Rows × replicates of one statistic: large test sets have narrow intervals, which need fewer replicates."""

MOST, FEWEST = 1000, 200
SEED = 0

Counts = NDArray[np.unsignedinteger]
"""``[N, R]``, as of :class:`dubio.core.weights.Weights`."""


def replicates_for(rows: int) -> int:
    """Return the number of replicates for a test set of this size: 1,000, and at least 200."""
    return max(FEWEST, min(MOST, CELLS // max(1, rows)))


@dataclass
class _Sum:
    value: float
    draws: FloatArray
    runs: int
    units: Units
    deciding: float


@dataclass
class RunIntervals:
    """Sums over runs of statistics and of their replicates; the draws of a task are stored: its runs share them."""

    sums: dict[tuple[str, ...], _Sum] = field(default_factory=dict)
    draws: dict[tuple[str, ...], tuple[Counts, ...]] = field(default_factory=dict)

    def add(
        self,
        key: tuple[str, ...],
        predictions: Predictions,
        statistics: Mapping[str, Statistic],
        deciding: float | None = None,
    ) -> None:
        """Add one run's statistics.

        Args:
            key: Kind, task, split and last the method: the sums are stored under it and the statistic's name.
            predictions: Labelled rows, the same ones for all runs and methods.
            statistics: Functions of weights.
            deciding: The number of units that determine the variance, where it is not all of them; of several runs the
                smallest counts.
        """
        units, count = units_of(predictions), replicates_for(len(predictions))
        once = Weights.once(len(predictions))
        blocks = [Weights(counts) for counts in self._draws(key[:-1], units, count)]
        for name, statistic in statistics.items():
            with preparing_once():
                values = [statistic(block) for block in blocks] or [np.full(count, np.nan)]
                value = float(statistic(once)[0])
            total = self.sums.setdefault((*key, name), _Sum(0.0, np.zeros(count), 0, units, units.count))
            total.deciding = min(total.deciding, units.count if deciding is None else deciding)
            total.value += value
            total.draws += np.concatenate(values)
            total.runs += 1

    def _draws(self, key: tuple[str, ...], units: Units, count: int) -> tuple[Counts, ...]:
        """Return how often every row counts in every replicate, in blocks; nothing for a single unit."""
        if key not in self.draws:
            self.draws = {other: counts for other, counts in self.draws.items() if other[1] == key[1]}
            several = units.weights(count, SEED) if units.count > 1 else ()
            self.draws[key] = tuple(weights.counts for weights in several)
        return self.draws[key]

    def interval(
        self, key: tuple[str, ...], kind: Literal["percentile", "centred", "share"] = "percentile"
    ) -> Interval:
        """Return the mean over runs with its 95 % interval.

        Args:
            key: As it was added, and the statistic's name.
            kind: ``centred`` where resampling itself pushes the statistic up, ``share`` for a share of the rows.
        """
        total = self.sums[key]
        value, draws = total.value / total.runs, total.draws / total.runs
        if kind == "share":
            return share_interval(value, draws, total.units)
        interval = centred_interval if kind == "centred" else percentile_interval
        return interval(value, draws, units=total.deciding)

    def units(self, key: tuple[str, ...]) -> int:
        """Return the number of units that were resampled."""
        return self.sums[key].units.count
