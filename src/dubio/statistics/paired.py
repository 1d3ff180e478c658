"""Systems' predictions on the same examples: aligned, and every pair tested under every metric that may rank them.

The tests are those of :mod:`dubio.statistics.verdicts`. Where a metric has values per example, the variance of a
difference is that of the mean of the paired differences over examples (groups, where given); for any other metric it is
the variance of the difference over bootstrap replicates, the same resampled examples for both.

McNemar: of the b + c examples on which exactly one system is right, the number right for the first is
Binomial(b + c, 1/2) if neither is better; the two-sided exact p. It assumes independent examples, so it is refused
where they come in groups.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from scipy import stats

from dubio.core.errors import UserError, check_between_0_and_1
from dubio.core.passes import row_blocks
from dubio.core.predictions import Predictions
from dubio.core.types import FloatArray, Metric, StrArray
from dubio.metrics.decisions import correct
from dubio.metrics.metric import score_each
from dubio.metrics.requirements import labelled, lacking
from dubio.statistics.bootstrap import Units, basis, deciding_units, guarded, metric_statistic, replicate, units_of
from dubio.statistics.verdicts import PairTest, Replicates, Rows, Runs, Sample, compare_systems

Systems = Mapping[str, Predictions]


@dataclass(frozen=True)
class McNemar:
    """Examples that only one of two systems gets right, and the exact two-sided p-value."""

    only_first: int
    only_second: int
    p: float


def align(systems: Systems) -> dict[str, Predictions]:
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


def pair_tests(
    systems: Systems, metrics: Sequence[Metric], *, replicates: int, seed: int = 0, level: float = 0.95
) -> dict[str, tuple[PairTest, ...]]:
    """Test every pair of systems under every metric that may rank models, where both have a finite value.

    Args:
        systems: Name to predictions on the same examples; rows flagged ``ood`` serve detection alone.
        metrics: Those that may not rank models are left out.
        replicates: Bootstrap replicates for metrics without values per example; more are drawn for many pairs.
        seed: Of the bootstrap.
        level: Confidence level.

    Returns:
        Metric to its pairs, corrected together.

    Raises:
        UserError: For fewer than two systems, or systems on different examples.
    """
    if len(systems) < 2:
        raise UserError(f"a comparison needs at least two systems; given {len(systems)}.")
    check_between_0_and_1("level", level)
    aligned = align(systems)
    in_domain = {name: in_domain_rows(system) for name, system in aligned.items()}
    kinds = [
        (rows, [metric for metric in metrics if metric.comparable and ("ood" in metric.needs) == ood])
        for ood, rows in ((False, in_domain), (True, aligned))
    ]
    values: dict[str, dict[str, float]] = {name: {} for name in aligned}
    for rows, ranking in kinds:
        for name, system in rows.items():
            values[name] |= score_each(system, ranking).values
    same = first_with_predictions(aligned, values)
    distinct = max(2, len(set(same.values())))  # a copy asks for no further replicates, which would change others
    count = enough_replicates(replicates, math.comb(distinct, 2), level)
    tests: dict[str, tuple[PairTest, ...]] = {}
    for rows, ranking in kinds:
        # Differences of infinities say nothing; the systems that have a finite value are compared.
        compared: dict[Metric, dict[str, Runs]] = {}
        for metric in ranking:
            scores = {name: own.get(metric.name, math.nan) for name, own in values.items()}
            finite = {name: Runs((score,)) for name, score in scores.items() if math.isfinite(score)}
            compared |= {metric: finite} if len(finite) > 1 else {}
        for metric, sample in zip(compared, _samples(compared, rows, count, seed), strict=True):
            pairs = compare_systems(compared[metric], metric.better, sample, same=same, alpha=1.0 - level)
            tests[metric.name] = pairs.tests
    return {metric.name: tests[metric.name] for metric in metrics if metric.name in tests}


def first_with_predictions(systems: Systems, values: Mapping[str, Mapping[str, float]]) -> dict[str, str]:
    """Return system → the first that makes the same predictions, itself where none does before it.

    The arrays that metrics are computed from are equal to the last bit, not their values alone: systems that are right
    equally often differ otherwise.

    Args:
        systems: Name to predictions on the same examples, in the same order.
        values: Name to its values by metric; where these differ, no array is read.
    """
    same: dict[str, str] = {}
    for name, system in systems.items():
        alike = (
            first
            for first in dict.fromkeys(same.values())
            if _equal(values[first], values[name]) and make_the_same(systems[first], system)
        )
        same[name] = next(alike, name)
    return same


def _equal(one: Mapping[str, float], other: Mapping[str, float]) -> bool:
    return one.keys() == other.keys() and np.array_equal([*one.values()], [other[name] for name in one], equal_nan=True)


def make_the_same(one: Predictions, other: Predictions) -> bool:
    """Return whether two systems predict the same of the same examples, in all that a metric may use."""
    facts = [(own.temperature, own.empty_decision, own.samples, own.class_count, {*own.scores}) for own in (one, other)]
    if facts[0] != facts[1] or len(one) != len(other):
        return False
    optional = [(own.data_variance, own.model_variance) for own in (one, other)]
    small = [(one.member, other.member), *zip(*optional, strict=True)]
    small += [(one.scores[name], other.scores[name]) for name in one.scores]
    for array, counterpart in small:
        if (array is None) != (counterpart is None) or (array is not None and not np.array_equal(array, counterpart)):
            return False
    blocks = row_blocks(one.samples, len(one), one.class_count)  # a file of logits may be larger than memory
    return all(np.array_equal(one.logits[:, rows], other.logits[:, rows]) for rows in blocks)


def in_domain_rows(predictions: Predictions) -> Predictions:
    """Return the rows that are not flagged as out of distribution; all where every row is."""
    if predictions.ood.all() or not predictions.ood.any():
        return predictions
    if predictions.target != "multilabel":
        _ = predictions.summary  # computed once for all rows: the rows taken next inherit it
    return predictions.take(~predictions.ood)


def _samples(metrics: Mapping[Metric, Iterable[str]], systems: Systems, replicates: int, seed: int) -> Iterator[Sample]:
    """Yield the systems' values under each metric as a sample: per example, or on shared bootstrap replicates.

    Args:
        metrics: Metric to the names of the systems that are compared by it.
        systems: Name to predictions.
        replicates: Bootstrap replicates.
        seed: Of the bootstrap.
    """
    rows = {metric.name: {name: basis(metric, systems[name]) for name in names} for metric, names in metrics.items()}
    draws: dict[tuple[str, str], FloatArray] = {}
    for labels in (True, False):  # metrics that need labels see the labelled examples alone
        undivided = [guarded(m) for m in metrics if m.per_example is None and ("labels" in m.needs) == labels]
        if undivided:
            forms = {(m.name, name): metric_statistic(m, own) for m in undivided for name, own in rows[m.name].items()}
            draws |= replicate(forms, _units(rows[undivided[0].name]), replicates=replicates, seed=seed)
    for metric in metrics:
        own = rows[metric.name]
        first = next(iter(own.values()))
        count = tested_units(metric, first)
        if metric.per_example is None:
            yield Replicates({name: draws[metric.name, name] for name in own}, count)
        else:
            values = {name: metric.per_example(system) for name, system in own.items()}
            yield Rows(values, first.group, count)


def tested_units(metric: Metric, predictions: Predictions) -> float:
    """Return the number of units that determine the variance of a difference; too few of them count as one.

    One unit has no variance, so that the metric is not judged.
    """
    count = deciding_units(metric, predictions)
    return count if count >= metric.least_units else 1


def _units(systems: Systems) -> Units:
    return units_of(next(iter(systems.values())))


def enough_replicates(replicates: int, tests: int, level: float) -> int:
    """Return the number of bootstrap replicates for tests that are corrected together.

    The more tests, the farther in the tail each is decided, and the more precisely its variance must be known.
    """
    return max(replicates, math.ceil(4 * tests / (1 - level)))


def mcnemar(first: Predictions, second: Predictions) -> McNemar:
    """Test by McNemar's exact test that two systems are right equally often.

    Raises:
        UserError: When they are not about the same examples, or the examples come in groups.
    """
    pair = align({"first": first, "second": second})
    if _grouped(first) or _grouped(second):
        raise UserError("McNemar's test needs independent examples, and these come in groups; use the paired t-test.")
    one, two = (correct(labelled(system, "McNemar's test")) for system in pair.values())
    b, c = int((one & ~two).sum()), int((two & ~one).sum())
    return McNemar(b, c, float(stats.binomtest(b, b + c, 0.5).pvalue) if b + c else 1.0)


def mcnemar_tests(systems: Systems) -> dict[tuple[str, str], McNemar]:
    """Return pair → the exact test of accuracy; nothing where examples come in groups or have no labels."""
    rows = {name: in_domain_rows(system) for name, system in systems.items()}
    if any(_grouped(own) or lacking(own, {"labels"}) is not None for own in rows.values()):
        return {}
    return {pair: mcnemar(rows[pair[0]], rows[pair[1]]) for pair in combinations(rows, 2)}


def _grouped(predictions: Predictions) -> bool:
    """Return whether several examples belong to one unit."""
    return units_of(predictions).count < len(predictions)
