"""What a referral policy promises on calibration data, and what becomes of it on the test sets.

Every method is asked for the same: an error among the kept below half of what the reference method errs without
referral, with 90 % confidence. One target for all lets coverages be compared. It is taken from the in-domain test set,
never from the calibration set: the guarantee is for a bound that was fixed without looking at the rows that prove it.
The first run of each method stands for it, since a policy belongs to one system and not to a method.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Literal

import numpy as np

from dubio.core.errors import UserError
from dubio.core.predictions import Predictions
from dubio.core.types import FloatArray
from dubio.core.weights import Weights
from dubio.metrics.decisions import correct
from dubio.referral.application import operating_point, shift_test
from dubio.referral.bounds import binomial_upper
from dubio.referral.policy import Policy
from dubio.referral.risk import NoGuarantee, fit_risk_policy
from dubio.referral.sample_size import SampleSize, units_needed
from dubio.referral.units import rounded_uncertainty
from dubio.reporting.manifest_view import MethodRun
from dubio.reporting.measures import REFERRED_BY, retained_accuracy
from dubio.reporting.readings import Reading
from dubio.statistics.bootstrap import percentile_interval, replicate, units_of

CONFIDENCE = 0.9
"""Of the promise."""

SHARE = 0.5
"""Of the reference method's error without referral that is promised."""

LEVEL = 0.05
"""One minus the coverage of the exact interval around the error on a test set."""

WARNED_BELOW = 0.01
"""p-value of the shift test from which on a policy warns, as ``dubio refer`` does."""

REPLICATES = 1000
"""Of the interval where rows come in groups."""

KEPT = np.arange(5, 101) / 100
"""Fractions kept at which the curve behind an operating point is drawn."""

Outcome = Literal["held", "above, undecided", "above", "broken", "nothing kept"]


@dataclass(frozen=True)
class Observed:
    """What a policy does on one split.

    Attributes:
        split: Its name.
        retained: Share of rows kept.
        error: Error among the kept; None where no label is known or nothing is kept.
        interval: Its exact (Clopper–Pearson) interval; where rows come in groups, from resampling those; None without
            an error, or with a single group.
        shift: p-value of the test that the uncertainties are those of the calibration set.
    """

    split: str
    retained: float
    error: float | None
    interval: tuple[float, float] | None
    shift: float


@dataclass(frozen=True, eq=False)
class Promise:
    """A method's policy, or why there is none.

    Attributes:
        run: The run it is fitted for.
        target: The error asked for.
        curve: Error among the kept on the in-domain test set at :data:`KEPT`.
        policy: None where nothing meets the target.
        best: (bound, share kept) of the best that could be guaranteed, where nothing meets the target.
        home: On the in-domain test set; None without a policy.
        away: On splits from elsewhere.
        needed: Where nothing meets the target, about how many calibration units would, if they err as the in-domain
            test set does; None where more of them alone would not do.
        rows: Labelled calibration examples.
        units: How many of them are independent: groups where there are any.
    """

    run: MethodRun
    target: float
    curve: FloatArray
    policy: Policy | None
    best: tuple[float, float] | None
    home: Observed | None
    away: tuple[Observed, ...] = ()
    needed: SampleSize | None = None
    rows: int = 0
    units: int = 0

    @property
    def outcome(self) -> Outcome | None:
        """What the in-domain test set says of the promise; None where none was made."""
        return None if self.home is None else outcome_of(self.home, self.target)


def outcome_of(seen: Observed, target: float) -> Outcome:
    """What a split says of a promised error."""
    if seen.error is None:
        return "nothing kept"
    if seen.error < target:
        return "held"
    if seen.interval is None:
        return "above"
    return "broken" if seen.interval[0] >= target else "above, undecided"


def target_of(error: float) -> float | None:
    """The error to promise where the reference method errs so much, in two digits; None where there is no error."""
    return float(f"{SHARE * error:.2g}") if error > 0 else None


def exact_interval(error: float, rows: int) -> tuple[float, float]:
    """Clopper–Pearson: each end has a chance of at most half of :data:`LEVEL` to exclude the truth."""
    return 1.0 - binomial_upper(1.0 - error, rows, LEVEL / 2), binomial_upper(error, rows, LEVEL / 2)


def promise_of(reading: Reading, target: float) -> Promise | None:
    """A policy and what it does; None where the calibration split has no labels to fit it on."""
    home, known = reading.home.labelled, reading.calibration.labelled
    curve = 1.0 - retained_accuracy(home, REFERRED_BY, KEPT)
    made = partial(Promise, reading.run, target, curve, rows=len(known), units=units_of(known).count)
    try:
        policy = fit_risk_policy(reading.calibration, max_risk=target, confidence=CONFIDENCE, quantity=REFERRED_BY)
    except NoGuarantee as refusal:
        needed = units_needed(home, max_risk=target, confidence=CONFIDENCE, quantity=REFERRED_BY)
        return made(None, (refusal.upper, refusal.coverage), None, needed=needed)
    except UserError:
        return None
    elsewhere = tuple(observe(policy, name, predictions) for name, predictions in reading.away.items())
    return made(policy, None, observe(policy, "home", reading.home), elsewhere)


def observe(policy: Policy, split: str, predictions: Predictions) -> Observed:
    """What a policy does on a split."""
    shift = shift_test(policy, predictions).p_value
    if predictions.target != "multilabel" and not (predictions.labels >= 0).any():
        retained = np.mean(rounded_uncertainty(predictions, policy.quantity) <= policy.threshold)
        return Observed(split, float(retained), None, None, shift)
    point = operating_point(policy, predictions)
    if not point.retained:
        return Observed(split, point.coverage, None, None, shift)
    if predictions.group is None:
        error = 1.0 - point.accuracy
        return Observed(split, point.coverage, error, exact_interval(error, point.retained), shift)
    return Observed(split, point.coverage, *grouped_error(policy, predictions), shift)


def grouped_error(policy: Policy, predictions: Predictions) -> tuple[float, tuple[float, float] | None]:
    """The error among the kept, every group with a kept row counting alike: what a policy for groups promises.

    Returns:
        The error, and its percentile interval with groups resampled whole; None with one group. A replicate in which
        nothing is kept has no error and is left out.
    """
    known = predictions.labelled
    units = units_of(known)
    kept_rows = rounded_uncertainty(known, policy.quantity) <= policy.threshold
    _, unit = np.unique(np.asarray(known.group), return_inverse=True)
    keep = kept_rows / np.maximum(1, np.bincount(unit, kept_rows))[unit]
    wrong = keep * ~correct(known)
    point = float(wrong.sum() / keep.sum())
    if units.count < 2:
        return point, None

    def error(weights: Weights) -> FloatArray:
        kept = weights.sums(keep)
        return np.asarray(np.divide(weights.sums(wrong), kept, out=np.full(len(kept), np.nan), where=kept > 0))

    draws = replicate({"error": error}, units, replicates=REPLICATES, seed=0)["error"]
    found = percentile_interval(point, draws, level=1.0 - LEVEL)
    return point, (found.low, found.high)
