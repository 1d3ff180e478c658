"""Assess a policy on labelled data it was not fitted on: selective risk and referred share with intervals, and shift.

A guarantee is about the unit of its policy. Where rows come in groups, the error is the share of a group's retained
rows that are wrong, averaged over groups that retain any, and the referred share is averaged over groups; intervals
resample groups. Without groups intervals are exact (Clopper–Pearson).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from dubio.core.predictions import Predictions
from dubio.core.types import BoolArray, FloatArray
from dubio.core.weights import Weights
from dubio.metrics.areas import ratio
from dubio.metrics.decisions import correct
from dubio.metrics.requirements import lacking
from dubio.referral.application import check_same_system, shift_test
from dubio.referral.bounds import binomial_upper
from dubio.referral.policy import Policy
from dubio.referral.units import rounded_uncertainty
from dubio.statistics.bootstrap import percentile_interval, replicate, units_of

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
    check_same_system(policy, predictions)
    labels_known, shift = has_labels(predictions), shift_test(policy, predictions).p_value
    rows = predictions.labelled if labels_known else predictions
    retained = rounded_uncertainty(rows, policy.quantity) <= policy.threshold
    if not (labels_known and retained.any()):
        return Observation(split, float(retained.mean()), None, None, shift)
    return Observation(split, float(retained.mean()), *share_of_units(~correct(rows), retained, rows), shift)


def has_labels(predictions: Predictions) -> bool:
    """Return whether any row has a label."""
    return lacking(predictions, {"labels"}) is None


def exact_interval(share: float, rows: int) -> Interval:
    """Return the Clopper–Pearson interval; each end excludes the truth with probability at most LEVEL / 2."""
    return 1.0 - binomial_upper(1.0 - share, rows, LEVEL / 2), binomial_upper(share, rows, LEVEL / 2)


def referred_share(policy: Policy, predictions: Predictions) -> ReferredShare:
    """Measure the share that a policy refers of the labelled rows of a split."""
    rows = predictions.labelled
    referred = rounded_uncertainty(rows, policy.quantity) > policy.threshold
    return ReferredShare(*share_of_units(referred, np.ones(len(rows), dtype=bool), rows))


def share_of_units(flags: BoolArray, counted: BoolArray, rows: Predictions) -> tuple[float, Interval | None]:
    """Return the share of flagged rows among those that count, and its interval; with groups, their mean share.

    A replicate of the bootstrap in which no row counts has no share and is left out; with one group there is no
    interval.

    Args:
        flags: ``[N]``.
        counted: ``[N]``, which rows count; at least one.
        rows: Predictions, for their groups.
    """
    if rows.group is None:
        share = float(flags[counted].mean())
        return share, exact_interval(share, int(counted.sum()))
    units = units_of(rows)
    weight = counted / np.maximum(1, np.bincount(units.index, counted))[units.index]
    mean = float((flags * weight).sum() / weight.sum())
    if units.count < 2:
        return mean, None

    def means(weights: Weights) -> FloatArray:
        return ratio(weights.sums(flags * weight), weights.sums(weight))

    draws = replicate({"mean": means}, units, replicates=REPLICATES, seed=0)["mean"]
    interval = percentile_interval(mean, draws, level=1.0 - LEVEL)
    return mean, (interval.low, interval.high)
