"""The one comparison: every pair of systems under one metric, their differences tested together.

Every comparison names its *question*. Commands, ``dubio.compare`` and ``dubio.benchmark`` ask whether these trained
*systems* differ (:func:`compare_systems`): the test set is a sample, the trainings are fixed, and one run of
each suffices. Reports ask whether the *methods* behind them differ (:func:`compare_methods`), given training set and
split: the trainings are a sample too. A and B differ by D = mean(A) − mean(B), each a mean over its runs, with variance

    v = v_examples [+ v_trainings],    v_examples = G/(G−1) · Σ_g (Σ_{i∈g} (d_i − d̄))² / N²,

where d_i is the difference of the two systems' values on example i, each averaged over its runs (:class:`Rows`). For a
metric without values per example, v_examples is the variance of D over bootstrap replicates (:class:`Replicates`).
v_trainings is that of :mod:`dubio.statistics.trainings`; where it is not known of one of the two methods, the pair is
not judged.

p is two-sided, of t = D/√v with degrees of freedom halfway between Satterthwaite's and those of the term that has the
fewest, and the interval of D is D ± t·√v at the same level, uncorrected. All pairs of a metric that can be judged are
corrected together after Holm: with p₍₁₎ ≤ … ≤ p₍ₘ₎ the adjusted values are max_{j ≤ i} min(1, (m − j + 1) p₍ⱼ₎). The
best is chosen after the fact, so any pair could have been the one compared. The procedure tests p₍ᵢ₎ at α/(m − i + 1),
and stops at the first that is not significant, so that all later ones are tested at that level; the smallest
significant difference of a pair is t·√v at its level. Systems, and methods, that make the same predictions are one
here: a pair of them is no hypothesis, and what a third differs from is one hypothesis, however many of them there are.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import combinations
from typing import Literal

import numpy as np
from scipy import special

from dubio.core.errors import UserError
from dubio.core.types import Direction, FloatArray, StrArray
from dubio.statistics.trainings import (
    OwnTerm,
    Trainings,
    VarianceTerm,
    first_of_same,
    own_terms,
    pair_terms,
    trainings_of_runs,
)

ALPHA = 0.05

FEWEST_ALIKE = 6
"""Fewer units that all differ alike say nothing: of n units, each as likely to differ the other way, all do so one way
with probability 2^(1 − n), and their spread, which is none, would make any difference significant."""

Place = Literal["best", "tied", "behind", "unjudged"]
"""``tied``: not significantly different from the best. ``unjudged``: a variance is not known; no verdict."""

Question = Literal["systems", "methods"]
"""What a comparison asks: ``systems``, whether these trained systems differ, of which only the test units are a sample;
``methods``, whether the methods behind them do, of which the trainings are a sample too."""

Estimate = tuple[float, Sequence[VarianceTerm]]
"""A difference and the terms of its variance; none where that is not known."""


@dataclass(frozen=True)
class Runs:
    """The values of one system's runs under one metric, those where it is undefined left out."""

    values: tuple[float, ...]

    @property
    def n(self) -> int:
        """The number of runs that have a value."""
        return len(self.values)

    @property
    def mean(self) -> float:
        """Their mean; NaN where there is none."""
        return float(np.mean(self.values)) if self.values else math.nan

    @property
    def std(self) -> float | None:
        """Their sample standard deviation (n − 1); None for fewer than two values, or where one is infinite."""
        return float(np.std(self.values, ddof=1)) if self.n > 1 and np.isfinite(self.values).all() else None


@dataclass(frozen=True, eq=False)
class Rows:
    """Values per example, each averaged over a system's runs, whose mean is the system's score.

    Attributes:
        values: System → ``[N]``.
        group: The unit each example belongs to; units are sampled as a whole.
        units: The number of units that determine the variance, where it is not all of them: of OOD detection those of
            the smaller side.
    """

    values: Mapping[str, FloatArray]
    group: StrArray | None = None
    units: float | None = None

    @cached_property
    def _sums(self) -> dict[str, FloatArray]:
        """The centred values of every system, added up by group."""
        with np.errstate(invalid="ignore"):
            centred = {name: values - values.mean() for name, values in self.values.items()}
        if self.group is None:
            return centred
        _, index = np.unique(self.group, return_inverse=True)
        return {name: np.asarray(np.bincount(index, values), dtype=np.float64) for name, values in centred.items()}

    def term(self, first: str, second: str) -> VarianceTerm | None:
        """Return the variance of the mean of the paired differences."""
        if not {first, second} <= self.values.keys():
            return None
        units = len(self._sums[first]) if self.units is None else self.units
        squares = float(np.sum(np.square(self._sums[first] - self._sums[second])))
        if units < 2 or (squares == 0.0 and units < FEWEST_ALIKE):
            return None
        return units / (units - 1) * squares / len(self.values[first]) ** 2, units - 1

    def own_term(self, name: str) -> VarianceTerm | None:
        """Return the variance of the mean of one system's values: of its difference to a constant."""
        if name not in self.values:
            return None
        return replace(self, values={name: self.values[name], "": np.zeros_like(self.values[name])}).term(name, "")


@dataclass(frozen=True, eq=False)
class Replicates:
    """Values on the same bootstrap replicates of a test set.

    Attributes:
        values: System → ``[R]``, NaN where the metric is undefined.
        units: The number of examples or groups that determine the variance: those that were resampled, of OOD detection
            those of the smaller side, of an area between classes less where one is rare.
    """

    values: Mapping[str, FloatArray]
    units: float

    def term(self, first: str, second: str) -> VarianceTerm | None:
        """Return the variance of the difference over replicates."""
        with np.errstate(invalid="ignore"):
            return self._variance(self.values[first] - self.values[second])

    def own_term(self, name: str) -> VarianceTerm | None:
        """Return the variance of one system's value over replicates."""
        return self._variance(self.values[name])

    def _variance(self, draws: FloatArray) -> VarianceTerm | None:
        defined = draws[~np.isnan(draws)]
        freedom = min(self.units, len(defined)) - 1
        variance = float(defined.var(ddof=1)) if freedom > 0 and np.isfinite(defined).all() else math.nan
        if not math.isfinite(variance) or (variance == 0.0 and self.units < FEWEST_ALIKE):
            return None
        return variance, freedom


Sample = Rows | Replicates
"""A test set as a sample: the variance that it gives to the difference of two systems; None for a single unit."""


@dataclass(frozen=True)
class PairTest:
    """One metric's difference between two systems, first minus second.

    Attributes:
        first: Name of one system.
        second: Name of the other.
        difference: Value of the first less value of the second.
        error: Its standard error; NaN where there is no spread to judge by.
        freedom: Its degrees of freedom; NaN likewise, infinite where the error is zero.
        low: Lower end of its confidence interval, not corrected for several pairs; NaN likewise.
        high: Upper end.
        p: Two-sided p-value; 1 where there is no spread.
        adjusted_p: The same after Holm's correction over the pairs tested together.
        resolves: The smallest significant difference; infinite where there is no spread.
        better: The name of the better system, or None where they do not differ significantly.
    """

    first: str
    second: str
    difference: float
    error: float
    freedom: float
    low: float
    high: float
    p: float
    adjusted_p: float
    resolves: float
    better: str | None


@dataclass(frozen=True)
class Verdict:
    """How a method compares with the best one, or with another.

    Attributes:
        place: Best (better), tied with it, behind it, or not judged because a variance is not known.
        difference: How much worse than the other; negative where it is better.
        resolves: The smallest significant difference; None where it is unknown.
        p: Two-sided p-value after Holm's correction; None for the best, and where it is unknown.
    """

    place: Place
    difference: float
    resolves: float | None
    p: float | None = None


@dataclass(frozen=True, eq=False)
class Pairs:
    """Every pair of systems under one metric, tested together.

    Attributes:
        scores: System → its runs.
        better: Which way is better.
        tests: The pairs of systems with a finite mean.
        question: What was asked.
        identical: System → what it shares with those that make the same predictions.
    """

    scores: Mapping[str, Runs]
    better: Direction
    tests: tuple[PairTest, ...]
    question: Question
    identical: Mapping[str, Hashable] = field(default_factory=dict)

    @cached_property
    def _by_names(self) -> dict[frozenset[str], PairTest]:
        return {frozenset((test.first, test.second)): test for test in self.tests}

    def verdict(self, first: str, second: str) -> Verdict:
        """Judge one system against another, both with a finite mean."""
        test = self._by_names[frozenset((first, second))]
        difference = test.difference if (test.first == first) == (self.better == "lower") else -test.difference
        if math.isinf(test.resolves):
            return Verdict("unjudged", difference, None)
        judged: Place = "tied" if test.better is None else "best" if test.better == first else "behind"
        return Verdict(judged, difference, test.resolves, test.adjusted_p)

    def same(self, first: str, second: str) -> bool:
        """Whether two systems make the same predictions."""
        same = first_of_same((first, second), self.identical)
        return same[first] == same[second]

    def advantage(self, first: str, second: str) -> Estimate:
        """Return by how much the first is better than the second, with the variance of that in one term."""
        test = self._by_names[frozenset((first, second))]
        sign = 1.0 if (test.first == first) == (self.better == "higher") else -1.0
        return sign * test.difference, [] if math.isinf(test.resolves) else [(test.error**2, test.freedom)]

    def against_best(self, among: Collection[str] = ()) -> dict[str, Verdict]:
        """Judge every system that has a value against the one with the best mean.

        An infinite loss of a method is behind any finite one, and no spread is needed to say so. That of a trained
        system may come of one example, on which no test says anything: it is not compared.

        Args:
            among: The systems to judge, against the best of them; all by default. The tests stay those of all, so that
                a pair is judged alike whatever it is shown with.
        """
        chosen = {name: runs.mean for name, runs in self.scores.items() if runs.n and (not among or name in among)}
        infinite = [name for name, mean in chosen.items() if math.isinf(mean) and self.question == "methods"]
        verdicts = dict.fromkeys(infinite, Verdict("behind", math.inf, None))
        finite = {name: mean for name, mean in chosen.items() if math.isfinite(mean)}
        if finite:
            best = (min if self.better == "lower" else max)(finite, key=finite.__getitem__)
            verdicts[best] = Verdict("best", 0.0, None)
            verdicts |= {name: self.verdict(name, best) for name in finite if name != best}
        return verdicts


def compare_systems(
    scores: Mapping[str, Runs],
    better: Direction,
    sample: Sample,
    *,
    same: Mapping[str, Hashable] | None = None,
    alpha: float = ALPHA,
) -> Pairs:
    """Test every pair of trained systems under one metric: of these, only the test units are a sample.

    Args:
        scores: System → its runs.
        better: Which way is better.
        sample: The systems' values on the test set as a sample.
        same: As for :func:`~dubio.statistics.trainings.first_of_same`: such systems count as one in the correction.
        alpha: Error rate of all pairs together.
    """
    terms = {pair: _listed(sample.term(*pair)) for pair in combinations(_finite(scores), 2)}
    return _judged(scores, better, terms, "systems", alpha, same)


def compare_methods(
    scores: Mapping[str, Runs],
    better: Direction,
    sample: Sample | None = None,
    trainings: Mapping[str, Trainings] | None = None,
    variance_groups: Mapping[str, Hashable] | None = None,
    *,
    same: Mapping[str, Hashable] | None = None,
    alpha: float = ALPHA,
) -> Pairs:
    """Test every pair of methods under one metric: their trainings are a sample, and so is the test set.

    Args:
        scores: Method → its runs.
        better: Which way is better.
        sample: The methods' values on the test set as a sample; without it, they are compared on this test set as it
            is.
        trainings: Method → its trainings, of methods with several; by default every run is a training.
        variance_groups: Method → its variance group; by default every method is its own.
        same: As for :func:`~dubio.statistics.trainings.first_of_same`: the difference of two such methods is 0 in any
            training, and they count as one method in the correction and in the variances of groups.
        alpha: Error rate of all pairs together.
    """
    finite, same = _finite(scores), same or {}
    if trainings is None:
        trainings = trainings_of_runs({name: runs.values for name, runs in finite.items()})
    repeated = {name: own for name, own in trainings.items() if name in finite}
    variances = own_terms(repeated, variance_groups or {name: name for name in repeated}, same)
    first, copies = first_of_same(finite, same), dict[str, list[str]]()
    for name, own in first.items():
        copies.setdefault(own, []).append(name)
    between = {
        frozenset((one, two)): _between(copies[one], copies[two], repeated, variances, sample)
        for one, two in combinations(copies, 2)
    }
    terms = {
        pair: between.get(frozenset(first[name] for name in pair), [(0.0, math.inf)])
        for pair in combinations(finite, 2)
    }
    return _judged(scores, better, terms, "methods", alpha, same)


def _between(
    ones: Sequence[str],
    others: Sequence[str],
    trainings: Mapping[str, Trainings],
    variances: Mapping[str, OwnTerm],
    sample: Sample | None,
) -> list[VarianceTerm]:
    """Return the variance of the difference of two methods, either of which may have several names; empty if unknown.

    Of several names those with the same trainings are taken, whose difference has a joint variance.
    """
    pairs = [(one, two) for one in ones for two in others if {one, two} <= trainings.keys()]
    alike = [pair for pair in pairs if trainings[pair[0]].shares.keys() == trainings[pair[1]].shares.keys()]
    over_trainings = pair_terms(*(alike or pairs)[0], trainings, variances) if pairs else []
    over_examples = [] if sample is None else _listed(sample.term(ones[0], others[0]))
    return [*over_trainings, *over_examples] if over_trainings and (sample is None or over_examples) else []


def _finite(scores: Mapping[str, Runs]) -> dict[str, Runs]:
    return {name: runs for name, runs in scores.items() if runs.n and math.isfinite(runs.mean)}


def _listed(term: VarianceTerm | None) -> list[VarianceTerm]:
    return [] if term is None else [term]


def _judged(
    scores: Mapping[str, Runs],
    better: Direction,
    terms: Mapping[tuple[str, str], Sequence[VarianceTerm]],
    question: Question,
    alpha: float,
    same: Mapping[str, Hashable] | None = None,
) -> Pairs:
    differences = {pair: (scores[pair[0]].mean - scores[pair[1]].mean, own) for pair, own in terms.items()}
    tests = judge_differences(differences, better, same=same, alpha=alpha)
    return Pairs(scores, better, tests, question, same or {})


def judge_differences(
    differences: Mapping[tuple[str, str], Estimate],
    better: Direction,
    *,
    same: Mapping[str, Hashable] | None = None,
    alpha: float = ALPHA,
) -> tuple[PairTest, ...]:
    """Test differences against zero, those with a known variance corrected together after Holm.

    Args:
        differences: Pair → its difference, first less second.
        better: Which way is better.
        same: As for :func:`~dubio.statistics.trainings.first_of_same`: nothing is tested between such systems, and
            their differences to a third are one hypothesis, which the correction counts once.
        alpha: Error rate of all together.
    """
    first = first_of_same(dict.fromkeys(name for pair in differences for name in pair), same or {})
    hypotheses: dict[frozenset[str], dict[tuple[str, str], float]] = {}
    for pair, (value, terms) in differences.items():
        if terms and len(names := frozenset(first[name] for name in pair)) == 2:
            hypotheses.setdefault(names, {})[pair] = two_sided_p(value, terms)
    p_values = [max(own.values()) for own in hypotheses.values()]
    judged = zip(hypotheses.values(), holm(p_values), holm_levels(p_values, alpha), strict=True)
    corrected = {pair: (p, adjusted, level) for own, adjusted, level in judged for pair, p in own.items()}
    tests = []
    for (one, two), (value, terms) in differences.items():
        p, adjusted, error, freedom, half, resolves = 1.0, 1.0, math.nan, math.nan, math.nan, math.inf
        if terms:
            p, adjusted, level = corrected.get((one, two), (1.0, 1.0, alpha))
            variance, freedom = _total(terms)
            error = math.sqrt(variance)
            half, resolves = (smallest_difference(terms, level=share) for share in (alpha, level))
        winner = one if (value > 0) == (better == "higher") else two
        verdict = winner if adjusted <= alpha else None
        ends = value - half, value + half
        tests.append(PairTest(one, two, value, error, freedom, *ends, p, adjusted, resolves, verdict))
    return tuple(tests)


def smallest_difference(terms: Sequence[VarianceTerm], *, level: float = ALPHA) -> float:
    """Return the smallest difference of two means that is significant at this level, both sides together."""
    variance, freedom = _total(terms)
    return 0.0 if variance == 0.0 else float(special.stdtrit(freedom, 1 - level / 2)) * math.sqrt(variance)


def two_sided_p(difference: float, terms: Sequence[VarianceTerm]) -> float:
    """Return the two-sided p of a difference of two means, whose variance has these terms."""
    variance, freedom = _total(terms)
    if variance == 0.0:
        return 1.0 if difference == 0.0 else 0.0
    return 2.0 * float(special.stdtr(freedom, -abs(difference) / math.sqrt(variance)))


def _total(terms: Sequence[VarianceTerm]) -> tuple[float, float]:
    """Return the sum of the terms of a variance, and its degrees of freedom: the mean of Satterthwaite's and the least.

    Satterthwaite's alone are too many in the far tails where Holm's correction tests: where a few trainings decide, up
    to 6.8 % of comparisons of methods that are alike (18 methods, 5 runs) had a difference. The least number that any
    term has never exceeds the level (Mickey and Brown 1966), but finds much less.
    """
    variance = sum(term for term, _ in terms)
    if variance == 0.0:
        return 0.0, math.inf
    satterthwaite = variance**2 / sum(term**2 / degrees for term, degrees in terms)
    return variance, (satterthwaite + min(degrees for term, degrees in terms if term > 0.0)) / 2


def holm(p_values: Sequence[float]) -> tuple[float, ...]:
    """Return adjusted p-values that keep the chance of any false rejection below the level, in the order given."""
    p = np.asarray(p_values, dtype=np.float64)
    if np.isnan(p).any() or (p < 0).any() or (p > 1).any():
        raise UserError("p-values must lie between 0 and 1.")
    order = np.argsort(p, kind="stable")
    adjusted = np.empty_like(p)
    adjusted[order] = np.maximum.accumulate(np.minimum(1.0, p[order] * np.arange(len(p), 0, -1)))
    return tuple(adjusted.tolist())


def holm_levels(p_values: Sequence[float], alpha: float) -> tuple[float, ...]:
    """Return the level at which Holm's procedure tests each p-value, in the order given."""
    p = np.asarray(p_values, dtype=np.float64)
    order = np.argsort(p, kind="stable")
    steps = alpha / np.arange(len(p), 0, -1)
    failures = np.flatnonzero(p[order] > steps)
    levels = np.empty_like(p)
    levels[order] = np.minimum(steps, steps[failures[0]]) if len(failures) else steps
    return tuple(levels.tolist())
