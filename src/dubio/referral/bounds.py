"""Upper confidence bounds on a mean loss between 0 and 1, and the p-values they invert.

A p-value here tests "the mean is ``risk`` or more": under that hypothesis it is at most α with probability at most α.
The upper bound at level α is the smallest ``risk`` whose p-value is at most α, so that bound and test always agree.
"""

from __future__ import annotations

from collections.abc import Callable
from math import ceil, e, exp, log
from typing import NamedTuple

from scipy.optimize import brentq
from scipy.special import bdtr, betaincinv

SLACK = 1e-9
"""A sum of losses this close above a whole number is that number."""


def binomial_p(mean: float, count: int, risk: float) -> float:
    """Return P(Bin(count, risk) ≤ count · mean): exact for losses that are 0 or 1.

    Args:
        mean: Share of losses that are 1.
        count: Number of independent losses; with none the p-value is 1.
        risk: Above 0 and below 1.
    """
    return float(bdtr(round(mean * count), count, risk)) if count else 1.0


def binomial_upper(mean: float, count: int, level: float) -> float:
    """Return the Clopper–Pearson upper bound: the (1 − level) quantile of Beta(k + 1, n − k), and 1 where k = n."""
    errors = round(mean * count)
    return float(betaincinv(errors + 1, count - errors, 1.0 - level)) if errors < count else 1.0


def hoeffding_bentkus_p(mean: float, count: int, risk: float) -> float:
    """Return the smaller of two valid p-values for independent losses in [0, 1] (Bates et al. 2021, eq. 9).

    Hoeffding: exp(−n KL(min(mean, risk) ‖ risk)). Bentkus: e · P(Bin(n, risk) ≤ ⌈n · mean⌉). Each of them bounds
    P(observed mean ≤ x) at every x, hence so does the smaller, and that makes it a p-value.

    Args:
        mean: Mean loss.
        count: Number of independent losses; with none the p-value is 1.
        risk: Above 0 and below 1.
    """
    if not count:
        return 1.0
    hoeffding = exp(-count * _divergence(min(mean, risk), risk))
    bentkus = e * float(bdtr(ceil(mean * count - SLACK), count, risk))
    return min(1.0, hoeffding, bentkus)


def hoeffding_bentkus_upper(mean: float, count: int, level: float) -> float:
    """Return the smallest risk whose Hoeffding–Bentkus p-value is at most ``level``; 1 where there is none."""
    low, high = max(mean, 1e-12), 1.0 - 1e-12
    if not count or low >= high or hoeffding_bentkus_p(mean, count, high) > level:
        return 1.0
    root = brentq(lambda risk: hoeffding_bentkus_p(mean, count, risk) - level, low, high, xtol=1e-10)
    return float(min(1.0, root + 1e-9))  # rounded upwards: never below the true inverse


def _divergence(first: float, second: float) -> float:
    """Return the KL divergence between two Bernoulli distributions."""
    terms = ((first, second), (1.0 - first, 1.0 - second))
    return sum(one * log(one / other) for one, other in terms if one > 0)


class Bound(NamedTuple):
    """A test of a mean loss, and the upper bound that inverts it.

    Attributes:
        p_value: From mean, count and risk: the p-value of "the mean loss is ``risk`` or more".
        upper: From mean, count and level: the upper bound on the mean loss with confidence 1 − level.
    """

    p_value: Callable[[float, int, float], float]
    upper: Callable[[float, int, float], float]


BINOMIAL = Bound(binomial_p, binomial_upper)
"""For units that are single rows."""

HOEFFDING_BENTKUS = Bound(hoeffding_bentkus_p, hoeffding_bentkus_upper)
"""For groups of rows."""
