"""A positive number chosen on a logarithmic grid."""

from __future__ import annotations

import math
from collections.abc import Callable

from dubio.errors import TrainingFailed

COARSE = 0.5
"""Decades between the first values tried."""

FINE = 0.25
"""Decades to both sides of the best of them that are tried next."""


def least_on_log_grid(score: Callable[[float], float], low: float, high: float) -> float:
    """The value with the least score: of half-decades between two values, then of quarter-decades beside the best.

    Args:
        score: Asked once a value; a score that is not a number is never the least.
        low: The smallest value.
        high: The largest value of the coarse grid.

    Raises:
        TrainingFailed: When no value has a finite score.
    """
    scores: dict[float, float] = {}

    def ask(exponent: float) -> None:
        found = score(10.0**exponent)
        scores[exponent] = math.inf if math.isnan(found) else found

    steps = round((math.log10(high) - math.log10(low)) / COARSE)
    for i in range(steps + 1):
        ask(math.log10(low) + i * COARSE)
    best = min(scores, key=scores.__getitem__)
    for beside in (best - FINE, best + FINE):
        ask(beside)
    least = min(scores, key=scores.__getitem__)
    if not math.isfinite(scores[least]):
        raise TrainingFailed(f"no value from {low:g} to {high:g} gives a finite score; is the network trained at all?")
    return float(10.0**least)
