"""Estimate the calibration set size that a guarantee on the error needs: for planning, not a guarantee itself.

Other labelled rows of the same system, such as a test set, show how often the retained are wrong and which share of
units has a retained row. Their mean loss is shrunk towards one half, (Σ loss + ½) / (m + 1) over m units, because "none
of nine" is no proof of "never". With n units of that error the bound r passes once p(error, n, r) ≤ α; units without a
retained row and units that choose thresholds come on top. The result is a rough lower estimate: with that number of
rows a policy is found about half the time; with that number of groups less often, because the fifth of them that
chooses thresholds is small. Plan for twice the number. Where a set of that size was refused, by chance, more than it is
needed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import ceil, inf

import numpy as np

from dubio.core.predictions import Predictions
from dubio.metrics.decisions import correct
from dubio.metrics.requirements import labelled
from dubio.referral.bounds import BINOMIAL, HOEFFDING_BENTKUS, SLACK, Bound
from dubio.referral.calibration_set import usable_rows
from dubio.referral.fixed_sequence import GUARD_SHARE
from dubio.referral.group_search import DESIGN_SHARE
from dubio.referral.units import Claim, ClaimEstimate, Units, units_of

STEPS = 10
"""Number of coverages that are tried."""

MOST = 10_000
"""Number of units at which the search ends; at twice the units there are, if that is more."""


@dataclass(frozen=True)
class SampleSize:
    """The calibration set size that a bound on the error needs.

    Attributes:
        units: Total number of calibration units: rows, or groups where rows come in groups.
        retained: Share of units with a retained row at that size.
        error: Expected mean loss of those units.
    """

    units: int
    retained: float
    error: float


def least_count(mean: float, risk: float, *, level: float, bound: Bound, most: int = MOST) -> int | None:
    """Return the least number of units with which a mean loss passes the bound.

    Args:
        mean: Mean loss; of 0-or-1 losses ⌈n · mean⌉ are taken to be 1.
        risk: The bound.
        level: α.
        bound: The test.
        most: Largest number to try.

    Returns:
        None where no number up to ``most`` does.
    """
    if mean >= risk:
        return None
    counts = range(1, most + 1)
    means = (ceil(count * mean - SLACK) / count if bound is BINOMIAL else mean for count in counts)
    passing = (count for count, loss in zip(counts, means, strict=True) if bound.p_value(loss, count, risk) <= level)
    return next(passing, None)


def units_needed(
    like: Predictions, *, max_risk: float, confidence: float, quantity: str, refused: int = 0
) -> SampleSize | None:
    """Estimate the smallest calibration set that would support ``max_risk``, if its rows are like these.

    Args:
        like: Labelled predictions of the same system, grouped as the calibration set is.
        max_risk: The bound.
        confidence: Confidence of the guarantee.
        quantity: The uncertainty to refer by.
        refused: Number of units of a calibration set that was not enough; the estimate is larger.

    Returns:
        None where the retained are wrong too often at every coverage, so that more units alone would not help.
    """
    rows = labelled(like, "the number of units needed")
    units = units_of(rows, quantity)
    plan = _Plan.of(confidence, single=units.single)
    best, limit = None, max(MOST, 2 * refused)
    for estimate in _estimates(rows, units, max_risk):
        share = estimate.units / units.count
        error = (estimate.mean * estimate.units + 0.5) / (estimate.units + 1.0)
        most = limit if best is None else best.units
        count = least_count(error, max_risk, level=plan.level, bound=plan.bound, most=int(most * share))
        if count is not None and (best is None or plan.total(count, share) < best.units):
            best = SampleSize(plan.total(count, share), share, error)
    return best and replace(best, units=max(best.units, refused + 1))


def _estimates(rows: Predictions, units: Units, max_risk: float) -> Iterator[ClaimEstimate]:
    """Yield the error among the retained over a grid of coverages."""
    wrong = 1.0 - correct(rows)
    claim = Claim("error", np.ones(len(wrong), dtype=bool), wrong, max_risk)
    tenths = np.quantile(units.uncertainty, np.arange(1, STEPS) / STEPS, method="inverted_cdf")
    for threshold in [*np.unique(tenths).tolist(), inf]:
        yield units.estimate(claim, threshold, np.ones(units.count, dtype=bool))


def sample_size_sentence(calibration: Predictions, *, max_risk: float, confidence: float, quantity: str) -> str:
    """Say how much calibration data a bound would need that these rows do not support.

    Args:
        calibration: The rows that were not enough; the estimate extrapolates from them.
        max_risk: The bound.
        confidence: Confidence of the guarantee.
        quantity: The uncertainty to refer by.
    """
    rows, _ = usable_rows(calibration, True, "the number of units needed")
    units = units_of(rows, quantity)
    unit = "rows" if units.single else "groups"
    needed = units_needed(rows, max_risk=max_risk, confidence=confidence, quantity=quantity, refused=units.count)
    if needed is None:
        fewest = fewest_units(max_risk, confidence, single=units.single)
        least = "" if fewest is None else f" Even without any error, {max_risk:.4g} needs {fewest:,} {unit}."
        if min(estimate.mean for estimate in _estimates(rows, units, max_risk)) < max_risk:
            return f"These {unit} are too few to estimate how many would be enough.{least}"
        most = max(MOST, 2 * units.count)
        return (f"Even {most:,} {unit} like these are unlikely to be enough: the retained are wrong too often at every "
                f"coverage.{least}")  # fmt: skip
    amount = f"at least about {needed.units:,}" if needed.units > units.count + 1 else "more than these"
    return (f"An estimate: if further {unit} are like these, {amount} are needed, retaining {needed.retained:.0%}; "
            f"there are {units.count:,} now. Plan for twice the number.")  # fmt: skip


def fewest_units(max_risk: float, confidence: float, *, single: bool) -> int | None:
    """Return the number of units needed if everything is retained and correct; None beyond :data:`MOST`.

    Args:
        max_risk: The bound.
        confidence: Confidence of the guarantee.
        single: Whether every unit is one row.
    """
    plan = _Plan.of(confidence, single=single)
    count = least_count(0.0, max_risk, level=plan.level, bound=plan.bound)
    return None if count is None else plan.total(count, 1.0)


@dataclass(frozen=True)
class _Plan:
    """How units are used: the bound, its level, and the share of units that test it."""

    bound: Bound
    level: float
    testing: float

    @classmethod
    def of(cls, confidence: float, *, single: bool) -> _Plan:
        level = 1.0 - confidence
        if single:
            return cls(BINOMIAL, (1.0 - GUARD_SHARE) * level, 1.0)
        return cls(HOEFFDING_BENTKUS, level, 1.0 - DESIGN_SHARE)

    def total(self, count: int, share: float) -> int:
        return ceil(count / share / self.testing - SLACK)
