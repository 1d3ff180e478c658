"""About how many calibration units a promised error would take: a plan for the next collection, not a guarantee.

Other labelled rows of the same system, a test set for instance, say how often the kept are wrong and how many units
have something kept. Their mean loss is drawn towards one half, (Σ loss + ½) / (m + 1) over m units, as "none of nine"
is no proof of "never". With n units that err as often, the bound r is shown once p(error, n, r) ≤ α; as many more are
needed as have nothing kept, or serve to choose thresholds. It is rough, and rather the least: from so many rows the
promise can be made about as often as not; from so many groups less often, since the fifth of them that chooses
thresholds is small and may choose badly. Half as many again make that even, twice as many are on the safer side.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, inf

import numpy as np

from dubio.core.predictions import Predictions
from dubio.metrics.decisions import correct
from dubio.metrics.requirements import labelled
from dubio.referral.bounds import SLACK, Bound
from dubio.referral.calibration_set import usable
from dubio.referral.search import DESIGN_SHARE
from dubio.referral.units import Claim, graded_uncertainty, units_of
from dubio.referral.walk import GUARD_SHARE

STEPS = 10
"""Tenths of the rows are tried as what is kept."""

MOST = 10_000
"""Units beyond which nobody would plan, and the search ends."""


@dataclass(frozen=True)
class Needed:
    """What a promised error would take.

    Attributes:
        units: Calibration units in all: rows, or groups where rows come in groups.
        kept: Share of units that have something kept, where so few are needed.
        error: Mean loss expected of those.
    """

    units: int
    kept: float
    error: float


def least_count(mean: float, risk: float, *, level: float, bound: Bound, most: int = MOST) -> int | None:
    """The least number of units whose mean loss, not above ``mean`` by a whole error, shows the bound.

    Args:
        mean: Mean loss; of 0-or-1 losses ⌈n · mean⌉ are taken to be 1.
        risk: The bound to be shown.
        level: α.
        bound: How it is shown.
        most: Give up beyond.

    Returns:
        None where no number up to ``most`` does.
    """
    if mean >= risk:
        return None
    whole = bound.name == "binomial"
    for count in range(1, most + 1):
        seen = ceil(count * mean - SLACK) / count if whole else mean
        if bound.p_value(seen, count, risk) <= level:
            return count
    return None


def units_needed(like: Predictions, *, max_risk: float, confidence: float, quantity: str) -> Needed | None:
    """The fewest calibration units that would show ``max_risk``, if they are like these rows.

    Args:
        like: Labelled predictions of the same system, grouped as the calibration set is.
        max_risk: The bound.
        confidence: Of the promise.
        quantity: The uncertainty to refer by.

    Returns:
        None where the kept err too often at every tenth kept, so that more units alone would not do.
    """
    known = labelled(like, "the number of units needed")
    wrong = 1.0 - correct(known)
    units = units_of(known, graded_uncertainty(known, quantity), wrong)
    plan = _Plan.of(confidence, single=units.single)
    claim = Claim("error", np.ones(len(wrong), dtype=bool), wrong, max_risk)
    tenths = np.quantile(units.uncertainty, np.arange(1, STEPS) / STEPS, method="inverted_cdf")
    best = None
    for threshold in [*np.unique(tenths).tolist(), inf]:
        stand = units.standing(claim, threshold, np.ones(units.count, dtype=bool))
        share = stand.count / units.count
        error = (stand.mean * stand.count + 0.5) / (stand.count + 1.0)
        most = MOST if best is None else best.units
        count = least_count(error, max_risk, level=plan.level, bound=plan.bound, most=int(most * share))
        if count is not None and (best is None or plan.total(count, share) < best.units):
            best = Needed(plan.total(count, share), share, error)
    return best


def needed_words(calibration: Predictions, *, max_risk: float, confidence: float, quantity: str) -> str:
    """What a bound that these calibration rows do not show would take, in a sentence or two.

    Args:
        calibration: The rows that were not enough; what they show of the system is the guide.
        max_risk: The bound.
        confidence: Of the promise.
        quantity: The uncertainty to refer by.
    """
    known = usable(calibration, labelled="the number of units needed", allow_selected=True).predictions
    units = units_of(known, graded_uncertainty(known, quantity), 1.0 - correct(known))
    what = "rows" if units.single else "groups"
    needed = units_needed(known, max_risk=max_risk, confidence=confidence, quantity=quantity)
    if needed is None:
        fewest = fewest_units(max_risk, confidence, single=units.single)
        least = "" if fewest is None else f" Even if nothing were wrong, {max_risk:.4g} would take {fewest:,} {what}."
        return (
            f"Even {MOST:,} {what} like these would hardly do: as far as these can tell, the kept err too often, "
            f"however many are referred.{least}"
        )
    return (
        f"If more {what} are like these, it takes at least about {needed.units:,} of them, with {needed.kept:.0%} "
        f"kept; now there are {units.count:,}. Twice what it takes is on the safer side."
    )


def fewest_units(max_risk: float, confidence: float, *, single: bool) -> int | None:
    """The units it takes even if everything is kept and nothing is wrong; None where that is beyond :data:`MOST`.

    Args:
        max_risk: The bound.
        confidence: Of the promise.
        single: Whether every unit is one row.
    """
    plan = _Plan.of(confidence, single=single)
    count = least_count(0.0, max_risk, level=plan.level, bound=plan.bound)
    return None if count is None else plan.total(count, 1.0)


@dataclass(frozen=True)
class _Plan:
    """How units are spent: the bound, its level, and the share of units that test it."""

    bound: Bound
    level: float
    testing: float

    @classmethod
    def of(cls, confidence: float, *, single: bool) -> _Plan:
        level = 1.0 - confidence
        if single:
            return cls(Bound("binomial"), (1.0 - GUARD_SHARE) * level, 1.0)
        return cls(Bound("hoeffding-bentkus"), level, 1.0 - DESIGN_SHARE)

    def total(self, count: int, share: float) -> int:
        return ceil(count / share / self.testing - SLACK)
