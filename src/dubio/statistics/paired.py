"""Systems on the same examples: every pair tested under several metrics, and the smallest significant difference.

Paired bootstrap: the same resampled examples (groups, where given) for both; the two-sided p is twice the smaller share
of replicates of the difference on one side of zero, with one added above and below so that it is never zero.
McNemar: of the b + c examples on which exactly one system is right, the split is Binomial(b + c, 1/2) if neither is
better; the two-sided exact p. It assumes independent examples, so it is refused where they come in groups.
Holm: with p₍₁₎ ≤ … ≤ p₍ₘ₎ the adjusted values are max_{j ≤ i} min(1, (m − j + 1) p₍ⱼ₎).

Each metric that may rank models is one question. Two systems differ significantly only where the corrected p is at most
1 − level *and* their difference is at least the smallest significant one.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations

import numpy as np
from scipy import stats

from dubio.core.errors import UserError
from dubio.core.predictions import Predictions
from dubio.core.types import Direction, FloatArray, Metric, StrArray
from dubio.metrics.decisions import correct
from dubio.metrics.requirements import labelled, lacking, why_not_applicable
from dubio.statistics.bootstrap import (
    check_level,
    guarded,
    metric_statistic,
    percentile_interval,
    replicate,
    resolvable,
    units_of,
)


@dataclass(frozen=True)
class PairedTest:
    """One metric's difference between two systems, first minus second.

    Attributes:
        first: Name of one system.
        second: Name of the other.
        difference: Value of the first less value of the second.
        low: Lower end of its confidence interval.
        high: Upper end.
        p: Two-sided p-value.
        adjusted_p: The same after Holm's correction over the pairs tested together.
        resolves: The smallest significant difference on these examples.
    """

    first: str
    second: str
    difference: float
    low: float
    high: float
    p: float
    adjusted_p: float
    resolves: float


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
    """Test every pair of systems by the paired bootstrap under several metrics, from shared replicates.

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
            values = {name: float(metric.compute(each)) for name, each in bases.items()}
            own = {name: draws[f"{number} {name}"] for name in bases}
            tests[metric.name] = pairs_of_draws(values, own, level)
    return {metric.name: tests[metric.name] for metric in metrics}


def pairs_of_draws(
    values: Mapping[str, float], draws: Mapping[str, FloatArray], level: float
) -> tuple[PairedTest, ...]:
    """Test every pair of systems from values and replicates on the same resampled examples, corrected together."""
    tests = [_test(one, two, values, draws, level) for one, two in combinations(values, 2)]
    adjusted = holm([test.p for test in tests])
    return tuple(replace(test, adjusted_p=p) for test, p in zip(tests, adjusted, strict=True))


def _test(one: str, two: str, values: Mapping[str, float], draws: Mapping[str, FloatArray], level: float) -> PairedTest:
    with np.errstate(invalid="ignore"):
        gaps = draws[one] - draws[two]
        interval = percentile_interval(values[one] - values[two], gaps, level=level)
    p = bootstrap_p(gaps)
    resolves = resolvable(interval.error, level=level)
    return PairedTest(one, two, interval.value, interval.low, interval.high, p, p, resolves)


def bootstrap_p(gaps: FloatArray) -> float:
    """Return the two-sided p of a difference: 2 · (1 + the fewer replicates on one side of zero) / (1 + replicates)."""
    defined = gaps[~np.isnan(gaps)]
    fewer = min(int((defined <= 0).sum()), int((defined >= 0).sum()))
    return min(1.0, 2.0 * (1 + fewer) / (1 + len(defined)))


def mcnemar(first: Predictions, second: Predictions) -> McNemar:
    """Test by McNemar's exact test that two systems are right equally often.

    Raises:
        UserError: When they are not about the same examples, or the examples come in groups.
    """
    pair = align({"first": first, "second": second})
    if first.group is not None or second.group is not None:
        raise UserError("McNemar's test takes examples as independent, and these come in groups: "
                        "use the paired bootstrap, which resamples groups.")
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


REPLICATES = 2000
"""Replicates of a metric that is a mean, where they cost nothing."""


@dataclass(frozen=True)
class Verdict:
    """One pair of systems under one metric.

    Attributes:
        test: The paired test, first minus second.
        better: The name of the better system, or None where they do not differ significantly.
    """

    test: PairedTest
    better: str | None


@dataclass(frozen=True)
class SideBySide:
    """Every pair of systems under every metric that may rank them.

    Attributes:
        verdicts: Metric to its pairs.
        mcnemar: Pair to McNemar's exact test of accuracy; empty where examples come in groups or have no labels.
        level: Confidence level.
    """

    verdicts: dict[str, tuple[Verdict, ...]]
    mcnemar: dict[tuple[str, str], McNemar]
    level: float


def side_by_side(
    systems: Mapping[str, Predictions],
    metrics: Sequence[Metric],
    *,
    replicates: int,
    seed: int = 0,
    level: float = 0.95,
) -> SideBySide:
    """Test every pair of systems under every metric that may rank models and applies to all of them.

    Args:
        systems: Name to predictions on the same examples in the same order; rows flagged ``ood`` serve detection alone.
        metrics: Those that may not rank models are left out.
        replicates: Bootstrap replicates; more are drawn where the smallest p they allow would not survive the
            correction for this many pairs, and at least 2000 for metrics that are means.
        seed: Of the bootstrap.
        level: Confidence level.

    Raises:
        UserError: For fewer than two systems, or systems on different examples.
    """
    if len(systems) < 2:
        raise UserError(f"a comparison needs at least two systems; given {len(systems)}.")
    check_level(level)
    in_domain = {name: _in_domain(system) for name, system in systems.items()}
    # the smallest p of r replicates is 2/(1 + r), and Holm multiplies it by the number of pairs
    enough = max(replicates, math.ceil(4 * math.comb(len(systems), 2) / (1 - level)))
    tests: dict[str, tuple[PairedTest, ...]] = {}
    for ood, rows in ((False, in_domain), (True, systems)):
        ranking = [m for m in metrics if ("ood" in m.needs) == ood and _ranks(m, rows.values())]
        for mean, count in ((True, max(enough, REPLICATES)), (False, enough)):
            chosen = [guarded(m) for m in ranking if (m.per_example is not None) == mean]
            if chosen:
                tests |= paired_tests_by(rows, chosen, replicates=count, seed=seed, level=level)
    verdicts = {
        metric.name: tuple(Verdict(test, better_of(test, metric.better, level)) for test in tests[metric.name])
        for metric in metrics
        if metric.name in tests
    }
    return SideBySide(verdicts, _mcnemar(in_domain), level)


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


def better_of(test: PairedTest, direction: Direction, level: float) -> str | None:
    """Return the better of two systems, or None where they do not differ significantly."""
    if not test.adjusted_p <= 1.0 - level or not abs(test.difference) >= test.resolves or test.difference == 0:
        return None
    return test.first if (test.difference > 0) == (direction == "higher") else test.second


def _mcnemar(systems: Mapping[str, Predictions]) -> dict[tuple[str, str], McNemar]:
    """Return exact tests of accuracy, where examples are independent and have labels."""
    if any(each.group is not None or lacking(each, {"labels"}) is not None for each in systems.values()):
        return {}
    return {pair: mcnemar(systems[pair[0]], systems[pair[1]]) for pair in combinations(systems, 2)}
