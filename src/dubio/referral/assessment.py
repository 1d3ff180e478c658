"""Assess a policy on labelled data it was not fitted on: selective risk and referred share with intervals, and shift.

A guarantee is about the unit of its policy. Where rows come in groups, the error is the share of a group's retained
rows that are wrong, averaged over groups that retain any, and the referred share is averaged over groups; intervals
resample groups. Without groups intervals are exact (Clopper–Pearson).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Literal

import numpy as np

from dubio.core.predictions import Predictions
from dubio.core.types import FloatArray
from dubio.core.weights import Weights
from dubio.metrics.decisions import correct
from dubio.referral.application import operating_point, shift_test
from dubio.referral.bounds import binomial_upper
from dubio.referral.policy import Policy
from dubio.referral.units import rounded_uncertainty
from dubio.statistics.bootstrap import Units, percentile_interval, replicate, units_of

LEVEL = 0.05
"""One minus the coverage of the intervals."""

REPLICATES = 1000
"""Bootstrap replicates of an interval where rows come in groups."""

SHIFT_LEVEL = 0.01
"""The p-value of the shift test below which ``dubio refer apply`` warns."""

Interval = tuple[float, float]

Outcome = Literal["met", "undecided", "above", "violated", "nothing retained"]
"""The outcome of a guarantee on a split.

met: the estimate is within the bound. violated: its whole interval is above. undecided: it is above, but its interval
reaches below. above: it is above, and there is no interval.
"""


@dataclass(frozen=True)
class Observation:
    """The selective risk of a policy on one split.

    Attributes:
        split: Name of the split.
        retained: Share of rows retained.
        error: Error among the retained; None where no label is known or nothing is retained.
        interval: Its interval; None without an error, or with a single group.
        shift: p-value of the test that the uncertainties are those of the calibration set.
    """

    split: str
    retained: float
    error: float | None
    interval: Interval | None
    shift: float

    @property
    def warned(self) -> bool:
        """Whether the shift test warns."""
        return self.shift < SHIFT_LEVEL

    def outcome(self, target: float) -> Outcome:
        """Return the outcome of a guarantee that the error is below a target."""
        if self.error is None:
            return "nothing retained"
        if self.error < target:
            return "met"
        if self.interval is None:
            return "above"
        return "violated" if self.interval[0] >= target else "undecided"


@dataclass(frozen=True)
class ReferredShare:
    """The share of rows that a policy refers, each group counting alike where there are groups.

    Attributes:
        share: The share.
        interval: Its interval; None with a single group.
    """

    share: float
    interval: Interval | None

    def outcome(self, capacity: float, upper: float) -> Outcome:
        """Return the outcome of a capacity.

        Args:
            capacity: The share that may be referred, on average over calibration sets.
            upper: The share below which the policy itself claims to stay, with confidence.
        """
        if self.share <= capacity:
            return "met"
        if self.interval is None:
            return "above"
        return "violated" if self.interval[0] > upper else "undecided"


def observe(policy: Policy, split: str, predictions: Predictions) -> Observation:
    """Measure the selective risk and the shift of a policy on a split."""
    shift = shift_test(policy, predictions).p_value
    if not has_labels(predictions):
        retained = np.mean(rounded_uncertainty(predictions, policy.quantity) <= policy.threshold)
        return Observation(split, float(retained), None, None, shift)
    point = operating_point(policy, predictions)
    if not point.retained:
        return Observation(split, point.coverage, None, None, shift)
    if predictions.group is None:
        error = 1.0 - point.accuracy
        return Observation(split, point.coverage, error, exact_interval(error, point.retained), shift)
    return Observation(split, point.coverage, *error_over_groups(policy, predictions), shift)


def has_labels(predictions: Predictions) -> bool:
    """Return whether any row has a label."""
    return predictions.target == "multilabel" or bool((predictions.labels >= 0).any())


def exact_interval(share: float, rows: int) -> Interval:
    """Return the Clopper–Pearson interval; each end excludes the truth with probability at most LEVEL / 2."""
    return 1.0 - binomial_upper(1.0 - share, rows, LEVEL / 2), binomial_upper(share, rows, LEVEL / 2)


def error_over_groups(policy: Policy, predictions: Predictions) -> tuple[float, Interval | None]:
    """Return the error among the retained averaged over groups, and its bootstrap interval.

    A replicate that retains nothing has no error and is left out; with one group there is no interval.
    """
    rows = predictions.labelled
    units = units_of(rows)
    retained = rounded_uncertainty(rows, policy.quantity) <= policy.threshold
    weight = retained / np.maximum(1, np.bincount(units.index, retained))[units.index]
    return _mean_over_groups(weight * ~correct(rows), weight, units)


def referred_share(policy: Policy, predictions: Predictions) -> ReferredShare:
    """Measure the share that a policy refers of the labelled rows of a split."""
    rows = predictions.labelled
    referred = (rounded_uncertainty(rows, policy.quantity) > policy.threshold).astype(np.float64)
    if rows.group is None:
        share = float(referred.mean())
        return ReferredShare(share, exact_interval(share, len(rows)))
    units = units_of(rows)
    weight = 1.0 / np.bincount(units.index, minlength=units.count)[units.index]
    return ReferredShare(*_mean_over_groups(referred * weight, weight, units))


def _mean_over_groups(values: FloatArray, weight: FloatArray, units: Units) -> tuple[float, Interval | None]:
    """Return Σ values / Σ weight with an interval that resamples groups; None with one group."""
    mean = float(values.sum() / weight.sum())
    if units.count < 2:
        return mean, None
    draws = replicate({"mean": partial(_ratio, values, weight)}, units, replicates=REPLICATES, seed=0)["mean"]
    interval = percentile_interval(mean, draws, level=1.0 - LEVEL)
    return mean, (interval.low, interval.high)


def _ratio(values: FloatArray, weight: FloatArray, weights: Weights) -> FloatArray:
    totals = weights.sums(weight)
    return np.asarray(np.divide(weights.sums(values), totals, out=np.full(len(totals), np.nan), where=totals > 0))
