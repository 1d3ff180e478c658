"""Simultaneous confidence limits: how much worse than the best each system may be, and intervals of several values.

**Excess over the best.** "Not significantly different" says nothing about how much worse a system may be: a noisy
comparison is never significant. With θ the means (lower is better) and * the system that is best in truth, the excess
of system i is θ_i − θ_*, and

    U_i = max(0, max_{j ≠ i} (D_ij + t(1 − α/(k − 1); ν_ij) · √v_ij))

is above the excess of every system at once with probability at least 1 − α: the best of the k systems is one of them,
though unknown, so that of all bounds only the k − 1 against it need to hold, and the maximum over j is at least that
bound. This is Hsu's multiple comparison with the best (1981; *Multiple Comparisons*, 1996, §4.1) with Bonferroni's
inequality in place of the multivariate t, so that each pair may have its own variance v_ij and degrees of freedom ν_ij.

**Several values.** For m estimates the intervals x ± t(1 − α/2m; ν)·√v hold all at once with probability 1 − α.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Hashable, Mapping, Sequence
from typing import TypeVar

from scipy import special

from dubio.statistics.bootstrap import Interval
from dubio.statistics.verdicts import ALPHA, Estimate, Pairs, PairTest, smallest_difference

Name = TypeVar("Name", bound=Hashable)


def excess_limits(pairs: Pairs, among: Collection[str] = (), *, alpha: float = ALPHA) -> dict[str, float]:
    """Return system → the simultaneous upper limit of how much worse than the best it may be.

    Only systems of which every two were judged have a limit, against the best of these; none where there are not two.

    Args:
        pairs: Every pair of systems.
        among: The systems that are compared with each other; all by default.
        alpha: The probability that any limit is too low.
    """
    tests = [test for test in pairs.tests if not among or {test.first, test.second} <= set(among)]
    names = _judged_together(tests)
    level, limits = 1 - alpha / max(len(names) - 1, 1), dict.fromkeys(names, 0.0)
    for test in tests:
        if {test.first, test.second} <= limits.keys():
            half = float(special.stdtrit(test.freedom, level)) * test.error if test.error else 0.0
            worse = test.difference if pairs.better == "lower" else -test.difference
            limits[test.first] = max(limits[test.first], worse + half)
            limits[test.second] = max(limits[test.second], half - worse)
    return limits


def _judged_together(tests: Sequence[PairTest]) -> list[str]:
    """Return systems of which every pair was judged: those with the most pairs that were not are left out in turn."""
    names = list(dict.fromkeys(name for test in tests for name in (test.first, test.second)))
    unjudged = [{test.first, test.second} for test in tests if math.isnan(test.error)]
    while unjudged:
        worst = max(reversed(names), key=lambda name: sum(name in pair for pair in unjudged))
        names.remove(worst)
        unjudged = [pair for pair in unjudged if worst not in pair]
    return names if len(names) > 1 else []


def intervals(estimates: Mapping[Name, Estimate], *, alpha: float = ALPHA) -> dict[Name, Interval]:
    """Return name → the confidence interval of its value; all hold together with probability 1 − α.

    Args:
        estimates: Name → a value and the terms of its variance; one without terms has no interval, but counts.
        alpha: The probability that any interval misses its value.
    """
    level, results = alpha / max(len(estimates), 1), {}
    for name, (value, terms) in estimates.items():
        if terms:
            half = smallest_difference(terms, level=level)
            results[name] = Interval(value, value - half, value + half)
    return results
