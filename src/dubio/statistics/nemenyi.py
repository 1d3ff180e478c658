"""Nemenyi's test after Friedman's: how far apart two mean ranks must lie to differ.

CD = q_α √(k(k+1)/(6N)), q_α the 1 − α quantile of the studentised range of k means with infinitely many degrees of
freedom, divided by √2. Two methods differ when their mean ranks are at least CD apart.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from math import inf, sqrt

from scipy import stats

from dubio.core.errors import UserError


@lru_cache(maxsize=64)
def critical_value(methods: int, alpha: float = 0.05) -> float:
    """q_α for so many methods.

    Raises:
        UserError: For fewer than two methods or an α outside (0, 1).
    """
    if methods < 2:
        raise UserError(f"a critical difference needs at least two methods; given {methods}.")
    if not 0.0 < alpha < 1.0:
        raise UserError(f"alpha must lie between 0 and 1; given {alpha}.")
    return float(stats.studentized_range.ppf(1.0 - alpha, methods, inf)) / sqrt(2.0)


def critical_difference(methods: int, datasets: int, alpha: float = 0.05) -> float:
    """The least difference of two mean ranks that is significant.

    Args:
        methods: k.
        datasets: N.
        alpha: Level of the test, over all pairs together.
    """
    if datasets < 1:
        raise UserError(f"a critical difference needs at least one dataset; given {datasets}.")
    return critical_value(methods, alpha) * sqrt(methods * (methods + 1) / (6.0 * datasets))


def cliques(average_ranks: Mapping[str, float], difference: float) -> tuple[tuple[str, ...], ...]:
    """The largest sets of methods, two or more, whose mean ranks all lie less than the critical difference apart.

    Args:
        average_ranks: Method to mean rank.
        difference: The critical difference.

    Returns:
        Each set from best to worst, the sets by their best method.
    """
    names = sorted(average_ranks, key=lambda name: (average_ranks[name], name))
    found: list[tuple[str, ...]] = []
    reach = 0
    for start, name in enumerate(names):
        end = start
        while end < len(names) and average_ranks[names[end]] - average_ranks[name] < difference:
            end += 1
        if end > reach and end - start > 1:
            found.append(tuple(names[start:end]))
        reach = max(reach, end)
    return tuple(found)
