"""Several systems on the same examples under several metrics: every pair tested, and what these examples can resolve.

Each metric that may rank models is one question, answered by :func:`dubio.statistics.paired.paired_tests_by`: the
paired bootstrap over examples or groups, corrected after Holm over the pairs of systems. Two systems are told apart
only where the corrected p is at most 1 − level *and* their difference is at least the smallest one these examples
resolve.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

from dubio.core.errors import UserError
from dubio.core.predictions import Predictions
from dubio.core.types import Direction, Metric
from dubio.metrics.needs import lacking, why_not_applicable
from dubio.statistics.bootstrap import check_level, guarded
from dubio.statistics.paired import McNemar, PairedTest, mcnemar, paired_tests_by

REPLICATES = 2000
"""Replicates of a metric that is a mean, where they cost nothing."""


@dataclass(frozen=True)
class Verdict:
    """One pair of systems under one metric.

    Attributes:
        test: The paired test, first minus second.
        better: The name of the better system, or None where the two are not distinguishable.
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
        systems: Name to predictions on the same examples in the same order; rows flagged ``ood`` serve detection only.
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
    ordinary = {name: _ordinary(each) for name, each in systems.items()}
    # the smallest p of r replicates is 2/(1 + r), and Holm multiplies it by the number of pairs
    enough = max(replicates, math.ceil(4 * math.comb(len(systems), 2) / (1 - level)))
    tests: dict[str, tuple[PairedTest, ...]] = {}
    for strange in (False, True):
        part = systems if strange else ordinary
        fit = [m for m in metrics if ("ood" in m.needs) == strange and _ranks(m, part.values())]
        for mean, count in ((True, max(enough, REPLICATES)), (False, enough)):
            chosen = [guarded(m) for m in fit if (m.per_example is not None) == mean]
            if chosen:
                tests |= paired_tests_by(part, chosen, replicates=count, seed=seed, level=level)
    verdicts = {
        metric.name: tuple(Verdict(test, better_of(test, metric.better, level)) for test in tests[metric.name])
        for metric in metrics
        if metric.name in tests
    }
    return SideBySide(verdicts, _mcnemar(ordinary), level)


def _ordinary(predictions: Predictions) -> Predictions:
    mixed = predictions.ood.any() and not predictions.ood.all()
    return predictions.take(~predictions.ood) if mixed else predictions


def _ranks(metric: Metric, systems: Iterable[Predictions]) -> bool:
    """Whether a metric may rank models and is defined for all of these."""
    return metric.comparable and all(_defined(metric, each) for each in systems)


def _defined(metric: Metric, predictions: Predictions) -> bool:
    """Whether a metric applies and has a finite value: differences of infinities say nothing."""
    if why_not_applicable(metric, predictions) is not None:
        return False
    try:
        return math.isfinite(metric.compute(predictions))
    except UserError:
        return False


def better_of(test: PairedTest, direction: Direction, level: float) -> str | None:
    """The better of two systems, or None where the corrected p or the smallest difference resolved says neither is."""
    if not test.adjusted_p <= 1.0 - level or not abs(test.difference) >= test.resolves or test.difference == 0:
        return None
    return test.first if (test.difference > 0) == (direction == "higher") else test.second


def _mcnemar(systems: Mapping[str, Predictions]) -> dict[tuple[str, str], McNemar]:
    """Exact tests of accuracy, where examples are independent and have labels."""
    if any(each.group is not None or lacking(each, {"labels"}) is not None for each in systems.values()):
        return {}
    return {pair: mcnemar(systems[pair[0]], systems[pair[1]]) for pair in combinations(systems, 2)}
