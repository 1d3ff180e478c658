"""Assess a policy on data it was not fitted on: its rates with intervals, whether its guarantee is met, and shift.

A guarantee is about the unit of its policy. Where rows come in groups, the error is the share of a group's retained
rows that are wrong, averaged over groups that retain any, and the referred share is averaged over groups. Intervals are
exact: Clopper–Pearson where rows are the units, Hoeffding–Bentkus (wider, for losses between 0 and 1) where groups are.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal, NamedTuple

import numpy as np

from dubio.core.errors import check_known, plural
from dubio.core.predictions import Predictions
from dubio.core.types import BoolArray
from dubio.metrics.decisions import correct
from dubio.metrics.requirements import has_labels as has_labels
from dubio.referral.bounds import binomial_upper, hoeffding_bentkus_upper
from dubio.referral.policy import Policy
from dubio.referral.shift import SHIFT_LEVEL, check_same_system, shift_test
from dubio.referral.units import rounded_uncertainty
from dubio.statistics.bootstrap import Units, units_of
from dubio.statistics.subgroups import UNDERPOWERED, parts_of

LEVEL = 0.05
"""One minus the coverage of the intervals."""

Interval = tuple[float, float]

Outcome = Literal["met", "undecided", "violated", "nothing retained"]
"""The outcome of a guarantee on a split.

met: the whole interval is within the bound. violated: the whole interval is beyond it. undecided: it contains the
bound.
"""


def outcome_of(interval: Interval | None, bound: float) -> Outcome:
    """Return the outcome of a guarantee that a rate is at most a bound; without an interval nothing was retained."""
    if interval is None:
        return "nothing retained"
    low, high = interval
    return "met" if high <= bound else "violated" if low >= bound else "undecided"


@dataclass(frozen=True)
class Observation:
    """The selective risk of a policy on one split.

    Attributes:
        split: Name of the split.
        retained: Share of rows retained.
        error: Error among the retained; None where no label is known or nothing is retained.
        interval: Its interval; None without an error.
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
        return outcome_of(self.interval, target)


def observe(policy: Policy, split: str, predictions: Predictions) -> Observation:
    """Measure the selective risk and the shift of a policy on a split."""
    check_same_system(policy, predictions)
    labels_known, shift = has_labels(predictions), shift_test(policy, predictions).p_value
    rows = predictions.labelled if labels_known else predictions
    retained = rounded_uncertainty(rows, policy.quantity) <= policy.threshold
    if not (labels_known and retained.any()):
        return Observation(split, float(retained.mean()), None, None, shift)
    error = share_of_units(~correct(rows), retained, units_of(rows))
    return Observation(split, float(retained.mean()), error.value, error.interval, shift)


def referred_share(policy: Policy, predictions: Predictions) -> Share:
    """Measure the share that a policy refers of the labelled rows of a split."""
    rows = predictions.labelled
    referred = rounded_uncertainty(rows, policy.quantity) > policy.threshold
    return share_of_units(referred, np.ones(len(rows), dtype=bool), units_of(rows))


class Share(NamedTuple):
    """A share of rows, or the mean share of groups.

    Attributes:
        value: The share.
        interval: Its interval.
        units: The number of rows, or of groups with a row that counts.
    """

    value: float
    interval: Interval
    units: int


def share_of_units(flags: BoolArray, counted: BoolArray, units: Units, level: float = LEVEL) -> Share:
    """Return the share of flagged rows among those that count; with groups, the mean of their shares.

    Args:
        flags: ``[N]``.
        counted: ``[N]``, which rows count; at least one.
        units: The groups, or the rows.
        level: One minus the coverage of the interval.
    """
    counts = np.bincount(units.index, counted, minlength=units.count)
    some = counts > 0
    shares = np.bincount(units.index, flags & counted, minlength=units.count)[some] / counts[some]
    value, number = float(shares.mean()), int(some.sum())
    upper = binomial_upper if (counts <= 1).all() else hoeffding_bentkus_upper
    return Share(value, (1.0 - upper(1.0 - value, number, level / 2), upper(value, number, level / 2)), number)


@dataclass(frozen=True)
class Rate:
    """A rate of a policy on labelled data, and the bound that is guaranteed for it.

    Attributes:
        name: ``error``, ``referred``, ``sensitivity`` or ``specificity``; all but the second are of the retained.
        value: The rate; with groups its mean over groups.
        interval: Its 95 % interval.
        units: The number of rows, or of groups, that it is a mean over.
        grouped: Whether groups are the units.
        bound: The guaranteed bound; None where there is none.
    """

    name: str
    value: float
    interval: Interval
    units: int
    grouped: bool
    bound: float | None

    @property
    def outcome(self) -> Outcome | None:
        """The outcome of the guarantee; None where there is none for this rate."""
        if self.bound is None:
            return None
        if self.name in ("error", "referred"):
            return outcome_of(self.interval, self.bound)
        low, high = self.interval
        return outcome_of((1.0 - high, 1.0 - low), 1.0 - self.bound)

    def sentence(self) -> str:
        """Return the rate, its interval and the outcome of its guarantee, as a sentence."""
        title = {"error": "Error among the retained", "referred": "Referred share"}.get(
            self.name, f"{self.name.capitalize()} among the retained"
        )
        unit = plural("group" if self.grouped else "row", self.units)
        units = f"mean of {self.units} {unit}" if self.grouped else f"{self.units} {unit}"
        low, high = self.interval
        figures = f"{self.value:.4f}, 95 % interval {low:.4f} to {high:.4f} ({units})"
        if self.bound is None:
            return f"{title}: {figures}."
        side = {"error": "below", "referred": "at most"}.get(self.name, "above")
        return f"{title}: {figures}; guaranteed {side} {self.bound:.4g}: {self.outcome}."

    def as_dict(self) -> dict[str, Any]:
        """Return plain values, with the outcome."""
        return {**asdict(self), "outcome": self.outcome}


def rates(policy: Policy, predictions: Predictions, retained: BoolArray) -> tuple[Rate, ...]:
    """Return the rates that a policy is about, as far as labels are known and rows are retained.

    Args:
        policy: The policy.
        predictions: Predictions of its system.
        retained: ``[N]``.
    """
    counts: list[tuple[str, Predictions, BoolArray, BoolArray, float | None]] = []
    if policy.kind == "capacity":
        everything = np.ones(len(predictions), dtype=bool)
        counts.append(("referred", predictions, ~retained, everything, policy.evidence.get("upper_referral")))
    if has_labels(predictions):
        labelled = _labelled(predictions)
        rows, retained = predictions.take(labelled), retained[labelled]
        right = correct(rows)
        if policy.positive is None:
            counts.append(("error", rows, ~right, retained, policy.goals.get("max_risk")))
        else:
            positive = rows.labels == policy.positive
            for name, side in (("sensitivity", positive), ("specificity", ~positive)):
                counts.append((name, rows, right, side & retained, policy.goals.get(name)))
    return tuple(
        Rate(name, *share_of_units(flags, counted, units_of(rows)), rows.group is not None, bound)
        for name, rows, flags, counted, bound in counts
        if counted.any()
    )


def _labelled(predictions: Predictions) -> BoolArray:
    if predictions.target == "multilabel":
        return np.ones(len(predictions), dtype=bool)
    return np.asarray(predictions.labels >= 0)


@dataclass(frozen=True)
class SubgroupRates:
    """The decisions of a policy on a subgroup; its guarantee is about all rows together, not about these.

    Attributes:
        rows: Number of rows.
        units: Number of groups, or of rows where there are no groups.
        retained: Number of rows retained.
        rates: As of the policy, without bounds.
    """

    rows: int
    units: int
    retained: int
    rates: tuple[Rate, ...]

    @property
    def underpowered(self) -> bool:
        """Whether it is too small for a conclusion."""
        return self.units < UNDERPOWERED

    def as_dict(self) -> dict[str, Any]:
        """Return plain values."""
        rows = {"rows": self.rows, "units": self.units, "underpowered": self.underpowered, "retained": self.retained}
        return {**rows, "referred": self.rows - self.retained, "rates": [rate.as_dict() for rate in self.rates]}


Subgroups = Mapping[str, Mapping[str, SubgroupRates]]
"""Column to value to the decisions on the rows that have it."""


def plain_subgroups(subgroups: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """Return subgroups as plain values."""
    return {column: {value: own.as_dict() for value, own in values.items()} for column, values in subgroups.items()}


def subgroup_rates(policy: Policy, predictions: Predictions, retained: BoolArray, by: Iterable[str]) -> Subgroups:
    """Return the decisions on every subgroup of some columns.

    Raises:
        UnknownName: For a column that the predictions do not have.
    """
    columns: dict[str, dict[str, SubgroupRates]] = {}
    for column in by:
        check_known("column for --by", [column], predictions.columns)
        for value, chosen in parts_of(predictions.columns[column]).items():
            rows = predictions.take(chosen)
            own = tuple(replace(rate, bound=None) for rate in rates(policy, rows, retained[chosen]))
            subgroup = SubgroupRates(len(rows), units_of(rows).count, int(retained[chosen].sum()), own)
            columns.setdefault(column, {})[value] = subgroup
    return columns
