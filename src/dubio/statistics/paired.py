"""Systems on the same examples: every pair compared under several metrics, and the smallest significant difference.

Each metric that may rank models is one question. The difference D of two systems has the variance v of
:mod:`dubio.statistics.verdicts` without its terms over runs: there is one run per system. For a metric that is a mean,
v is that of the mean of the paired differences over examples (groups, where given); for any other it is the variance of
the difference over bootstrap replicates, the same resampled examples for both. p is two-sided, of t = D/√v with the
number of examples or groups (of replicates, where they are fewer) less one degrees of freedom.

Holm: with p₍₁₎ ≤ … ≤ p₍ₘ₎ the adjusted values are max_{j ≤ i} min(1, (m − j + 1) p₍ⱼ₎). The procedure tests p₍ᵢ₎ at
α/(m − i + 1), and stops at the first that is not significant, so that all later ones are tested at that level; the
smallest significant difference of a pair is t·√v at its level.

McNemar: of the b + c examples on which exactly one system is right, the number right for the first is
Binomial(b + c, 1/2) if neither is better; the two-sided exact p. It assumes independent examples, so it is refused
where they come in groups.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from scipy import stats

from dubio.core.errors import UserError
from dubio.core.predictions import Predictions
from dubio.core.types import FloatArray, Metric, StrArray
from dubio.metrics.decisions import correct
from dubio.metrics.requirements import labelled, lacking, why_not_applicable
from dubio.statistics.bootstrap import (
    check_level,
    guarded,
    metric_statistic,
    percentile_interval,
    replicate,
    units_of,
)
from dubio.statistics.verdicts import VarianceTerm, paired_variance, smallest_difference, two_sided_p


@dataclass(frozen=True)
class PairedTest:
    """One metric's difference between two systems, first minus second.

    Attributes:
        first: Name of one system.
        second: Name of the other.
        difference: Value of the first less value of the second.
        low: Lower end of its confidence interval.
        high: Upper end.
        p: Two-sided p-value; 1 where there is no spread to judge by.
        adjusted_p: The same after Holm's correction over the pairs tested together.
        resolves: The smallest significant difference on these examples; infinite where there is no spread.
        better: The name of the better system, or None where they do not differ significantly.
    """

    first: str
    second: str
    difference: float
    low: float
    high: float
    p: float
    adjusted_p: float
    resolves: float
    better: str | None


@dataclass(frozen=True)
class McNemar:
    """Examples that only one of two systems gets right, and the exact two-sided p-value."""

    only_first: int
    only_second: int
    p: float


def align(systems: Mapping[str, Predictions]) -> dict[str, Predictions]:
    """Return the same examples in the same order for every system, by their ids where all have them.

    Raises:
        UserError: When the systems are not about the same examples, classes or target, saying which differ and how.
    """
    names = list(systems)
    if not names:
        raise UserError("there is no system to evaluate.")
    first = systems[names[0]]
    aligned = {names[0]: first}
    for name in names[1:]:
        other = systems[name]
        pair = f"systems {names[0]!r} and {name!r} cannot be compared"
        for fact, what in (("target", "target"), ("class_count", "number of classes")):
            if getattr(first, fact) != getattr(other, fact):
                values = f"{getattr(first, fact)} in one and {getattr(other, fact)} in the other"
                raise UserError(f"{pair}: the {what} is {values}.")
        if first.classes is not None and other.classes is not None and first.classes != other.classes:
            raise UserError(f"{pair}: they name different classes, or in another order.")
        if len(first) != len(other):
            raise UserError(f"{pair}: one has {len(first)} rows and the other {len(other)}.")
        if first.ids is not None and other.ids is not None:
            other = _in_order(first.ids, other, other.ids, pair)
        _check_same_rows(first, other, pair)
        aligned[name] = other
    return aligned


def _in_order(order: StrArray, other: Predictions, ids: StrArray, pair: str) -> Predictions:
    if np.array_equal(order, ids):
        return other
    for names in (order, ids):
        unique, counts = np.unique(names, return_counts=True)
        if len(unique) < len(names):
            raise UserError(f"{pair}: id {str(unique[counts > 1][0])!r} occurs more than once.")
    row_of = {name: row for row, name in enumerate(ids.tolist())}
    missing = [name for name in order.tolist() if name not in row_of]
    if missing:
        raise UserError(f"{pair}: id {missing[0]!r} is in one and not in the other ({len(missing)} such).")
    return other.take(np.array([row_of[name] for name in order.tolist()], dtype=np.int64))


def _check_same_rows(first: Predictions, other: Predictions, pair: str) -> None:
    for column in ("labels", "ood"):
        differ = getattr(first, column) != getattr(other, column)
        if differ.any():
            row = int(np.argwhere(differ)[0][0])
            hint = "" if first.ids is not None and other.ids is not None else " Give ids to align them."
            raise UserError(f"{pair}: {column} differ, first in row {row} (from 0).{hint}")


def paired_tests_by(
    systems: Mapping[str, Predictions],
    metrics: Sequence[Metric],
    *,
    replicates: int = 2000,
    seed: int = 0,
    level: float = 0.95,
) -> dict[str, tuple[PairedTest, ...]]:
    """Test every pair of systems under several metrics; intervals come from shared bootstrap replicates.

    Holm's correction is over the pairs of each metric.

    Args:
        systems: Name to predictions on the same examples.
        metrics: What to compare.
        replicates: Of the bootstrap, shared by all systems.
        seed: Of the bootstrap.
        level: Confidence level.

    Raises:
        UserError: For fewer than two systems, or systems on different examples.
    """
    if len(systems) < 2:
        raise UserError(f"a paired test needs at least two systems; given {len(systems)}.")
    ready = align(systems)
    tests: dict[str, tuple[PairedTest, ...]] = {}
    for labels in (True, False):  # metrics that need labels see the labelled examples alone
        chosen = [metric for metric in metrics if ("labels" in metric.needs) == labels]
        if not chosen:
            continue
        bases = {name: system.labelled if labels else system for name, system in ready.items()}
        forms = {
            f"{number} {name}": metric_statistic(metric, each)
            for number, metric in enumerate(chosen)
            for name, each in bases.items()
        }
        draws = replicate(forms, units_of(next(iter(bases.values()))), replicates=replicates, seed=seed)
        for number, metric in enumerate(chosen):
            own = {name: draws[f"{number} {name}"] for name in bases}
            tests[metric.name] = _pairs(metric, bases, own, level)
    return {metric.name: tests[metric.name] for metric in metrics}


def _pairs(
    metric: Metric, systems: Mapping[str, Predictions], draws: Mapping[str, FloatArray], level: float
) -> tuple[PairedTest, ...]:
    """Test every pair of systems under one metric, corrected together.

    Args:
        metric: The metric.
        systems: Name to predictions, the rows the metric is computed on.
        draws: Name to its values on the same bootstrap replicates.
        level: Confidence level.
    """
    values = {name: float(metric.compute(each)) for name, each in systems.items()}
    losses = {} if metric.per_example is None else {name: metric.per_example(each) for name, each in systems.items()}
    rows = next(iter(systems.values()))
    pairs = list(combinations(values, 2))
    with np.errstate(invalid="ignore"):
        gaps = [draws[one] - draws[two] for one, two in pairs]
        terms = [
            paired_variance(losses[one] - losses[two], rows.group) if losses else replicate_variance(gap, rows)
            for (one, two), gap in zip(pairs, gaps, strict=True)
        ]
    differences = [values[one] - values[two] for one, two in pairs]
    p_values = [_p(difference, term) for difference, term in zip(differences, terms, strict=True)]
    adjusted, levels = holm(p_values), holm_levels(p_values, 1.0 - level)
    tests = []
    for index, (one, two) in enumerate(pairs):
        interval = percentile_interval(differences[index], gaps[index], level=level)
        resolves = smallest_difference(None, _finite(terms[index]), level=levels[index])
        winner = one if (differences[index] > 0) == (metric.better == "higher") else two
        tests.append(
            PairedTest(
                one,
                two,
                interval.value,
                interval.low,
                interval.high,
                p_values[index],
                adjusted[index],
                math.inf if resolves is None else resolves,
                winner if adjusted[index] <= 1.0 - level else None,
            )
        )
    return tuple(tests)


def replicate_variance(draws: FloatArray, rows: Predictions) -> VarianceTerm | None:
    """Return the variance of a statistic over bootstrap replicates of these rows; None for a single unit."""
    defined = draws[~np.isnan(draws)]
    freedom = min(units_of(rows).count, len(defined)) - 1
    return (float(defined.var(ddof=1)), freedom) if freedom > 0 else None


def _finite(term: VarianceTerm | None) -> VarianceTerm | None:
    return term if term is not None and math.isfinite(term[0]) else None


def _p(difference: float, term: VarianceTerm | None) -> float:
    finite = _finite(term)
    return 1.0 if finite is None or not math.isfinite(difference) else two_sided_p(difference, [finite])


def mcnemar(first: Predictions, second: Predictions) -> McNemar:
    """Test by McNemar's exact test that two systems are right equally often.

    Raises:
        UserError: When they are not about the same examples, or the examples come in groups.
    """
    pair = align({"first": first, "second": second})
    if first.group is not None or second.group is not None:
        raise UserError(
            "McNemar's test takes examples as independent, and these come in groups: "
            "use the paired t-test, which compares groups."
        )
    one, two = (correct(labelled(each, "McNemar's test")) for each in pair.values())
    b, c = int((one & ~two).sum()), int((two & ~one).sum())
    return McNemar(b, c, float(stats.binomtest(b, b + c, 0.5).pvalue) if b + c else 1.0)


def holm(p_values: Sequence[float]) -> tuple[float, ...]:
    """Return adjusted p-values that keep the chance of any false rejection below the level, in the order given."""
    p = np.asarray(p_values, dtype=np.float64)
    if np.isnan(p).any() or (p < 0).any() or (p > 1).any():
        raise UserError("p-values must lie between 0 and 1.")
    order = np.argsort(p, kind="stable")
    stepped = np.maximum.accumulate(np.minimum(1.0, p[order] * np.arange(len(p), 0, -1)))
    adjusted = np.empty_like(p)
    adjusted[order] = stepped
    return tuple(float(value) for value in adjusted)


def holm_levels(p_values: Sequence[float], alpha: float) -> tuple[float, ...]:
    """Return the level at which Holm's procedure tests each p-value, in the order given."""
    p = np.asarray(p_values, dtype=np.float64)
    order = np.argsort(p, kind="stable")
    steps = alpha / np.arange(len(p), 0, -1)
    failures = np.flatnonzero(p[order] > steps)
    levels = np.empty_like(p)
    levels[order] = np.minimum(steps, steps[failures[0]]) if len(failures) else steps
    return tuple(float(value) for value in levels)


def enough_replicates(replicates: int, tests: int, level: float) -> int:
    """Return the number of bootstrap replicates for tests that are corrected together.

    The more tests, the farther in the tail each is decided, and the more precisely its variance must be known.
    """
    return max(replicates, math.ceil(4 * tests / (1 - level)))


REPLICATES = 2000
"""Replicates of a metric that is a mean, where they cost nothing."""


@dataclass(frozen=True)
class SystemComparison:
    """Every pair of systems under every metric that may rank them.

    Attributes:
        tests: Metric to its pairs.
        mcnemar: Pair to McNemar's exact test of accuracy; empty where examples come in groups or have no labels.
        level: Confidence level.
    """

    tests: dict[str, tuple[PairedTest, ...]]
    mcnemar: dict[tuple[str, str], McNemar]
    level: float


def compare_systems(
    systems: Mapping[str, Predictions],
    metrics: Sequence[Metric],
    *,
    replicates: int,
    seed: int = 0,
    level: float = 0.95,
) -> SystemComparison:
    """Test every pair of systems under every metric that may rank models and applies to all of them.

    Args:
        systems: Name to predictions on the same examples in the same order; rows flagged ``ood`` serve detection alone.
        metrics: Those that may not rank models are left out.
        replicates: Bootstrap replicates; more are drawn for many pairs, and at least 2000 for metrics that are means.
        seed: Of the bootstrap.
        level: Confidence level.

    Raises:
        UserError: For fewer than two systems, or systems on different examples.
    """
    if len(systems) < 2:
        raise UserError(f"a comparison needs at least two systems; given {len(systems)}.")
    check_level(level)
    in_domain = {name: _in_domain(system) for name, system in systems.items()}
    enough = enough_replicates(replicates, math.comb(len(systems), 2), level)
    tests: dict[str, tuple[PairedTest, ...]] = {}
    for ood, rows in ((False, in_domain), (True, systems)):
        ranking = [m for m in metrics if ("ood" in m.needs) == ood and _ranks(m, rows.values())]
        for mean, count in ((True, max(enough, REPLICATES)), (False, enough)):
            chosen = [guarded(m) for m in ranking if (m.per_example is not None) == mean]
            if chosen:
                tests |= paired_tests_by(rows, chosen, replicates=count, seed=seed, level=level)
    ordered = {metric.name: tests[metric.name] for metric in metrics if metric.name in tests}
    return SystemComparison(ordered, _mcnemar(in_domain), level)


def _in_domain(predictions: Predictions) -> Predictions:
    mixed = predictions.ood.any() and not predictions.ood.all()
    return predictions.take(~predictions.ood) if mixed else predictions


def _ranks(metric: Metric, systems: Iterable[Predictions]) -> bool:
    """Return whether a metric may rank models and is defined for all of these."""
    return metric.comparable and all(_defined(metric, each) for each in systems)


def _defined(metric: Metric, predictions: Predictions) -> bool:
    """Return whether a metric applies and has a finite value: differences of infinities say nothing."""
    if why_not_applicable(metric, predictions) is not None:
        return False
    try:
        return math.isfinite(metric.compute(predictions))
    except UserError:
        return False


def _mcnemar(systems: Mapping[str, Predictions]) -> dict[tuple[str, str], McNemar]:
    """Return exact tests of accuracy, where examples are independent and have labels."""
    if any(each.group is not None or lacking(each, {"labels"}) is not None for each in systems.values()):
        return {}
    return {pair: mcnemar(systems[pair[0]], systems[pair[1]]) for pair in combinations(systems, 2)}
