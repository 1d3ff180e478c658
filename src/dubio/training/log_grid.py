"""A positive number chosen on a logarithmic grid."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Literal, NamedTuple

from dubio.core.errors import TrainingFailed

COARSE = 0.5
"""Decades between the first values tried."""

FINE = 0.25
"""Decades to both sides of the best of them that are tried next."""

End = Literal["low", "high"]


class Least(NamedTuple):
    """The value that did best.

    Attributes:
        value: The value.
        at_bound: The end of all that may be tried that does as well, so that a better value may lie beyond it; None
            where the best lies between values that do worse.
    """

    value: float
    at_bound: End | None = None


def least_on_log_grid(score: Callable[[float], float], low: float, high: float) -> Least:
    """The value with the least score: of half-decades between two values, then of quarter-decades beside the best.

    Where an end of the half-decades is the best of them, the quarter-decade beyond it is tried too.

    Args:
        score: Asked once a value; a score that is not a number is never the least.
        low: The smallest value of the coarse grid.
        high: The largest value of the coarse grid.

    Raises:
        TrainingFailed: When no value has a finite score.
    """
    scores: dict[float, float] = {}

    def ask(exponent: float) -> None:
        found = score(10.0**exponent)
        scores[exponent] = math.inf if math.isnan(found) else found

    steps = round((math.log10(high) - math.log10(low)) / COARSE)
    coarse = [math.log10(low) + i * COARSE for i in range(steps + 1)]
    for exponent in coarse:
        ask(exponent)
    best = min(scores, key=scores.__getitem__)
    for beside in (best - FINE, best + FINE):
        ask(beside)
    least = min(scores, key=scores.__getitem__)
    if not math.isfinite(scores[least]):
        raise TrainingFailed(f"no value from {low:g} to {high:g} gives a finite score; is the network trained at all?")
    ends: dict[End, float] = {"low": coarse[0] - FINE, "high": coarse[-1] + FINE}
    hit = [end for end, exponent in ends.items() if scores.get(exponent, math.inf) <= scores[least]]
    return Least(float(10.0**least), hit[0] if hit else None)
