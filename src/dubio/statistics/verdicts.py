"""Verdicts over runs: which method is best, and which ones are not significantly different from it.

Two methods A and B differ by D = mean(A) − mean(B). Its variance has terms: the test set is a sample (paired, over
examples or groups), and so are the trainings behind the n_A and n_B runs:

    v = v_examples + s_A²/n_A + s_B²/n_B,    v_examples = G/(G−1) · Σ_g (Σ_{i∈g} (d_i − d̄))² / N²,

where d_i is the difference of the two methods' losses on example i, each averaged over its runs. A few seeds say
little about a variance, so methods of one *variance group* (single fits; ensembles of the same size) share theirs, as
in an analysis of variance: s² = Σ (n_m − 1) s_m² / Σ (n_m − 1). Degrees of freedom are Satterthwaite's. The smallest
significant difference is t·√v at level α over the number of pairs, k(k − 1)/2 (Bonferroni): the best is chosen after
the fact, so any pair could have been the one compared. Fits that two methods share make the terms correlate positively,
which errs on the side of "not significantly different".

An area under a ROC curve is compared like any other mean over examples. With θ the area, n out-of-distribution and m
in-distribution examples and N = n + m, every OOD example has its placement V among the in-distribution ones (the share
of them below it, ties counting one half) and every in-distribution example its share W of OOD ones above it. The values

    θ + (N/n)(V − θ)    and    θ + (N/m)(W − θ)

average to θ, and the variance of their mean is DeLong, DeLong and Clarke-Pearson's (1988) up to n/(n − 1) and
m/(m − 1); differences of two methods on the same examples are paired by it.

:mod:`dubio.statistics.paired` compares systems of one run each by the same p and the same smallest significant
difference, with v = v_examples.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

import numpy as np
from scipy import stats

from dubio.core.types import Direction, FloatArray, StrArray

ALPHA = 0.05

Place = Literal["best", "tied", "behind", "unjudged"]
"""``tied``: not significantly different from the best. ``unjudged``: no spread, over runs or examples, to judge by."""

VarianceTerm = tuple[float, int]
"""A term of a variance, and its degrees of freedom."""


class Runs(Protocol):
    """The values of one method's runs: their number, mean and standard deviation."""

    @property
    def n(self) -> int:
        """The number of runs that have a value."""
        ...

    @property
    def mean(self) -> float:
        """Their mean; NaN where there is none."""
        ...

    @property
    def std(self) -> float | None:
        """Their sample standard deviation; None where it is undefined."""
        ...


@dataclass(frozen=True)
class Verdict:
    """How a method compares with the best one.

    Attributes:
        place: Best, tied with it, behind it, or not judged.
        difference: How much worse than the best, ≥ 0.
        resolves: The smallest significant difference; None where it is unknown.
    """

    place: Place
    difference: float
    resolves: float | None


@dataclass(frozen=True, eq=False)
class Losses:
    """A method's loss on every test example, averaged over its runs, and the groups that are sampled together."""

    values: FloatArray
    group: StrArray | None = None


def against_best(
    cells: Mapping[str, Runs],
    better: Direction,
    losses: Mapping[str, Losses] | None = None,
    variance_groups: Mapping[str, Hashable] | None = None,
    among: Collection[str] = (),
) -> dict[str, Verdict]:
    """Judge every method that has a value against the one with the best mean.

    Args:
        cells: Method → its runs.
        better: Which way is better.
        losses: Method → per-example losses, where the metric is a mean over examples.
        variance_groups: Method → its variance group; by default every method is its own.
        among: The methods that are judged, against the best of them; all by default. Variances and the level stay those
            of all, so that a pair is judged alike whatever it is shown with.
    """
    judged = {method: cell for method, cell in cells.items() if not among or method in among}
    finite = {method: cell for method, cell in judged.items() if cell.n and math.isfinite(cell.mean)}
    # An infinite loss is behind any finite one, and no spread is needed to say so.
    verdicts = {method: Verdict("behind", math.inf, None) for method, cell in judged.items() if math.isinf(cell.mean)}
    if not finite:
        return verdicts
    sign = 1.0 if better == "lower" else -1.0
    best = min(finite, key=lambda method: sign * finite[method].mean)
    verdicts[best] = Verdict("best", 0.0, None)
    for method in finite:
        if method != best:
            verdicts[method] = pair_verdict(cells, better, (method, best), losses, variance_groups)
    return verdicts


def pair_verdict(
    cells: Mapping[str, Runs],
    better: Direction,
    pair: tuple[str, str],
    losses: Mapping[str, Losses] | None = None,
    variance_groups: Mapping[str, Hashable] | None = None,
) -> Verdict:
    """Judge the first of two methods against the second, as strictly as against the best of all.

    Args:
        cells: Method → its runs, of all methods that are compared: they share variances and the level.
        better: Which way is better.
        pair: Two of them, both with a finite mean.
        losses: As for :func:`against_best`.
        variance_groups: As for :func:`against_best`.

    Returns:
        ``best`` where the first is significantly better, ``behind`` where it is significantly worse, ``tied`` where the
        difference is not significant, ``unjudged`` where there is no spread. The difference is positive where the first
        is worse.
    """
    finite = {method: cell for method, cell in cells.items() if cell.n and math.isfinite(cell.mean)}
    level = ALPHA / max(1, len(finite) * (len(finite) - 1) // 2)
    groups = {method: method if variance_groups is None else variance_groups[method] for method in finite}
    first, second = pair
    difference = (1.0 if better == "lower" else -1.0) * (finite[first].mean - finite[second].mean)
    examples = None if losses is None else _example_term(losses, first, second)
    shared = shared_variances(finite, groups)
    terms = _run_terms({name: finite[name] for name in pair}, groups, shared, examples)
    resolves = smallest_difference(terms, examples, level=level)
    if resolves is None:
        return Verdict("unjudged", difference, None)
    if abs(difference) <= resolves:
        return Verdict("tied", difference, resolves)
    return Verdict("behind" if difference > 0 else "best", difference, resolves)


def shared_variances(cells: Mapping[str, Runs], groups: Mapping[str, Hashable]) -> dict[Hashable, VarianceTerm]:
    """Return variance group → the variance over runs that its methods share; none where no run repeats."""
    terms: dict[Hashable, list[VarianceTerm]] = {}
    for method, cell in cells.items():
        if cell.std is not None:
            terms.setdefault(groups[method], []).append((cell.std**2, cell.n - 1))
    return {
        name: (sum(variance * freedom for variance, freedom in own) / total, total)
        for name, own in terms.items()
        for total in [sum(freedom for _, freedom in own)]
    }


def smallest_difference(
    runs: list[VarianceTerm] | None, examples: VarianceTerm | None, *, level: float = ALPHA
) -> float | None:
    """Return the smallest difference of two means that is significant at this two-sided level.

    Args:
        runs: The terms of the variance that come from trainings; None where they are not known for both methods.
        examples: The term that comes from the test set being a sample, where it is known.
        level: Error rate, both sides together.

    Returns:
        None where neither is known.
    """
    if runs is None and examples is None:
        return None
    variance, freedom = _total([*(runs or ()), *([examples] if examples is not None else ())])
    return 0.0 if variance == 0.0 else float(stats.t.ppf(1 - level / 2, freedom)) * math.sqrt(variance)


def two_sided_p(difference: float, terms: Sequence[VarianceTerm]) -> float:
    """Return the two-sided p of a difference of two means, whose variance has these terms."""
    variance, freedom = _total(terms)
    if variance == 0.0:
        return 1.0 if difference == 0.0 else 0.0
    return 2.0 * float(stats.t.sf(abs(difference) / math.sqrt(variance), freedom))


def _total(terms: Sequence[VarianceTerm]) -> tuple[float, float]:
    """Return the sum of the terms of a variance, and Satterthwaite's degrees of freedom."""
    variance = sum(term for term, _ in terms)
    if variance == 0.0:
        return 0.0, math.inf
    return variance, variance**2 / sum(term**2 / degrees for term, degrees in terms)


def paired_variance(difference: FloatArray, group: StrArray | None) -> VarianceTerm | None:
    """Return the variance of the mean difference over examples, or over groups of them; None for a single unit."""
    centred = difference - difference.mean()
    if group is not None:
        _, index = np.unique(group, return_inverse=True)
        centred = np.bincount(index, weights=centred)
    units = centred.size
    if units < 2:
        return None
    return float(units / (units - 1) * np.sum(centred**2) / difference.size**2), units - 1


def placements(inside: FloatArray, outside: FloatArray) -> FloatArray:
    """Return a value for every in-distribution and then every OOD example; their mean is the area under the ROC curve.

    Args:
        inside: Uncertainties of the in-distribution examples.
        outside: Of the OOD ones.
    """
    n, m = len(outside), len(inside)
    above = _share_below(inside, outside)
    below = 1.0 - _share_below(outside, inside)
    area = above.mean()
    return np.concatenate([area + (n + m) / m * (below - area), area + (n + m) / n * (above - area)])


def _run_terms(
    pair: Mapping[str, Runs],
    groups: Mapping[str, Hashable],
    shared: Mapping[Hashable, VarianceTerm],
    examples: VarianceTerm | None,
) -> list[VarianceTerm] | None:
    """Return s²/n of both methods; two of one group make one term, since they share their estimate of s².

    Where the spread of one method is not known, that of the other still counts beside that of the examples; without
    examples nothing is known.
    """
    shares: dict[Hashable, float] = {}
    for method, cell in pair.items():
        shares[groups[method]] = shares.get(groups[method], 0.0) + 1 / cell.n
    if examples is None and not shares.keys() <= shared.keys():
        return None
    return [(shared[name][0] * share, shared[name][1]) for name, share in shares.items() if name in shared]


def _example_term(losses: Mapping[str, Losses], method: str, best: str) -> VarianceTerm | None:
    one, other = losses.get(method), losses.get(best)
    if one is None or other is None or one.values.shape != other.values.shape:
        return None
    return paired_variance(one.values - other.values, other.group)


def _share_below(reference: FloatArray, values: FloatArray) -> FloatArray:
    """Return the share of the reference below each value, ties counting one half."""
    in_order = np.sort(reference)
    lower, upper = np.searchsorted(in_order, values, "left"), np.searchsorted(in_order, values, "right")
    return np.asarray((lower + upper) / (2 * len(in_order)))
