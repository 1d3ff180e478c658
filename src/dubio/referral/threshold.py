"""State a policy's threshold as the probability that a person reads beside an answer.

Of a single answer per row, ``confidence`` is that probability. With two classes entropy and variance of the pooled
prediction fall as the probability of the answer rises from one half to one: a threshold on them is one on it.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable
from math import floor, inf, log
from typing import TYPE_CHECKING, NamedTuple

from scipy.optimize import brentq

from dubio.core.types import Target
from dubio.metrics.quantities import QUANTITIES
from dubio.referral.units import BITS

if TYPE_CHECKING:
    from dubio.referral.policy import Policy

MOST_DECIMALS = 9
"""Decimals of a percentage; no two uncertainties of sixteen binary digits above 1e-6 need more."""


def _entropy(answer: float) -> float:
    return -sum(p * log(p) for p in (answer, 1.0 - answer) if p > 0)


def _variance(answer: float) -> float:
    return answer * (1.0 - answer)


POOLED: dict[str, Callable[[float], float]] = {"predictive_entropy": _entropy, "total_variance": _variance}
"""Quantities of the pooled prediction as functions of the probability of the more probable of two classes."""

OF_SAMPLES: dict[str, Callable[[float], float]] = {"expected_entropy": _entropy, "expected_variance": _variance}
"""Quantities that equal those of the pooled prediction where there is one sample."""


class Scale(NamedTuple):
    """The facts that decide whether an uncertainty is one of a probability; a policy has them too."""

    quantity: str
    target: Target
    class_count: int
    samples: int
    temperature: float


def answer_probability(scale: Scale | Policy, uncertainty: float) -> float | None:
    """Return the probability of the answer at which a row has this uncertainty; None where it has no single one."""
    if scale.target == "multilabel":
        return None
    if scale.quantity == "confidence":
        return max(1.0 - uncertainty, 0.0)
    curves = POOLED | (OF_SAMPLES if scale.samples == 1 else {})
    curve = curves.get(scale.quantity)
    # All but the predictive entropy describe samples as they were drawn, before the temperature.
    tempered = scale.temperature != 1.0 and scale.quantity != "predictive_entropy"
    if curve is None or scale.class_count != 2 or tempered:
        return None
    return 1.0 if uncertainty <= 0 else 0.5 if uncertainty >= curve(0.5) else _inverse(curve, uncertainty)


def _inverse(curve: Callable[[float], float], value: float) -> float:
    return float(brentq(lambda answer: curve(answer) - value, 0.5, 1.0, xtol=1e-15))


def least_probability(policy: Policy, uncertainties: Iterable[float] = ()) -> tuple[float, int] | None:
    """Return the probability from which a policy retains answers, as :func:`dividing_probability` does.

    Args:
        policy: The policy; its calibration rows are divided as they were.
        uncertainties: Of new rows that must be divided alike, too.

    Returns:
        None where the threshold is none on a probability.
    """
    if not 0 <= policy.threshold < inf:
        return None
    above = bisect_right(policy.seen, policy.threshold)  # they ascend
    referred = min((value for value in (*policy.seen[above : above + 1], *uncertainties) if value > policy.threshold),
                   default=None)  # fmt: skip
    return dividing_probability(policy, policy.threshold, referred)


def dividing_probability(scale: Scale | Policy, retained: float, referred: float | None) -> tuple[float, int] | None:
    """Return the probability from which answers are retained, rounded, and its number of decimals in per cent.

    It has the fewest decimals at which it still divides all rows as the threshold does: it is rounded down, and every
    row that is referred must stay below it. Uncertainties themselves are rounded; a row counts up to that rounding.

    Args:
        scale: The uncertainty and the system.
        retained: The threshold, or the largest uncertainty that is retained.
        referred: The smallest uncertainty that is referred; None where there is none.

    Returns:
        None where the threshold is none on a probability.
    """
    limit = answer_probability(scale, retained * (1.0 - 2.0**-BITS))
    if limit is None:
        return None
    nearest = None if referred is None else answer_probability(scale, referred)
    for number in range(1, MOST_DECIMALS):
        rounded = rounded_down(limit, number)
        if nearest is None or rounded > nearest:
            return rounded, number
    return limit, MOST_DECIMALS


def rounded_down(probability: float, number: int) -> float:
    """Return a probability rounded down to this number of decimals of its percentage."""
    scale = 10.0 ** (number + 2)
    return floor(probability * scale) / scale


def percentage(probability: float, number: int) -> str:
    """Return a probability in per cent."""
    return f"{100 * probability:.{number}f} %"


def shown_quantity(quantity: str) -> str:
    """Return an uncertainty in words; a system's own is called a score, for its name alone may be any word."""
    return quantity.replace("_", " ") if quantity in QUANTITIES else f"score {quantity!r}"


def rule(policy: Policy, uncertainties: Iterable[float] = ()) -> str:
    """Return in words which rows a policy retains; arguments as of :func:`least_probability`."""
    name = shown_quantity(policy.quantity)
    if not 0 <= policy.threshold < inf:
        return f"{'no' if policy.threshold < 0 else 'every'} row is retained, whatever its {name}"
    by_quantity = f"{name} up to {policy.threshold:.6g}"
    if policy.quantity == "confidence" and policy.target == "multilabel":
        by_quantity = f"a mean probability of its labels of at least {1 - policy.threshold:.6g}"
    least = least_probability(policy, uncertainties)
    if least is None:
        return f"retained with {by_quantity}"
    answer = f"retained when the answer has at least {percentage(*least)}"
    return answer if policy.quantity == "confidence" else f"{answer} ({by_quantity})"
