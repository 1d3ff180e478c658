"""A policy that few calibration examples can always give: refer at most a stated share; and what becomes of it.

It promises a capacity and nothing about the error. The share referred is looked at as it is promised: of a random
example, or where examples come in groups, of a random example of a random group, each group counting alike. On average
over calibration sets it is at most the capacity. One calibration set may be unlucky: what the policy states for itself,
with confidence, is an upper end of its share, and a split breaks the promise only if it is shown to lie above that.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import numpy as np

from dubio.core.errors import UserError
from dubio.core.predictions import Predictions
from dubio.core.types import FloatArray
from dubio.core.weights import Weights
from dubio.referral.capacity import fit_capacity_policy
from dubio.referral.policy import Policy
from dubio.referral.units import rounded_uncertainty
from dubio.reporting.manifest_view import MethodRun
from dubio.reporting.measures import REFERRED_BY
from dubio.reporting.promises import CONFIDENCE, LEVEL, REPLICATES, Observed, Outcome, exact_interval, observe
from dubio.reporting.readings import Reading
from dubio.statistics.bootstrap import percentile_interval, replicate, units_of

CAPACITY = 0.3
"""Share of examples that may be referred."""


@dataclass(frozen=True)
class Referred:
    """What a policy with a capacity does on one labelled split.

    Attributes:
        share: Share referred, each group counting alike where there are groups.
        interval: Of the share: exact, or groups resampled; None with a single group.
        seen: Error among the kept with its interval, and the test of shift.
    """

    share: float
    interval: tuple[float, float] | None
    seen: Observed


@dataclass(frozen=True, eq=False)
class Capacity:
    """A method's policy for :data:`CAPACITY`.

    Attributes:
        run: The run it is fitted for.
        policy: The policy.
        home: On the in-domain test set.
        away: On labelled splits from elsewhere.
    """

    run: MethodRun
    policy: Policy
    home: Referred
    away: tuple[Referred, ...] = ()

    @property
    def places(self) -> tuple[Referred, ...]:
        """At home, then away."""
        return self.home, *self.away

    @property
    def upper(self) -> float:
        """What the policy itself states, with confidence, as the most it refers in the long run."""
        return self.policy.evidence["upper_referral"]

    def outcome(self, referred: Referred) -> Outcome:
        """What a split says of the capacity."""
        if referred.share <= CAPACITY:
            return "held"
        if referred.interval is None:
            return "above"
        return "broken" if referred.interval[0] > self.upper else "above, undecided"


def capacity_of(reading: Reading, home: str) -> Capacity | None:
    """The policy of a run and what it does; None where there are too few calibration examples even for that.

    Args:
        reading: The run's predictions.
        home: What the in-domain test split is called.
    """
    try:
        policy = fit_capacity_policy(
            reading.calibration, capacity=CAPACITY, confidence=CONFIDENCE, quantity=REFERRED_BY
        )
    except UserError:
        return None
    places = {name: found for name, found in reading.away.items() if _labelled(found)}
    away = tuple(referred_by(policy, name, predictions) for name, predictions in places.items())
    return Capacity(reading.run, policy, referred_by(policy, home, reading.home), away)


def _labelled(predictions: Predictions) -> bool:
    return predictions.target == "multilabel" or bool((predictions.labels >= 0).any())


def referred_by(policy: Policy, split: str, predictions: Predictions) -> Referred:
    """What a policy refers on a labelled split, and how the kept fare; rows without a label are left out of both."""
    known = predictions.labelled
    gone = (rounded_uncertainty(known, policy.quantity) > policy.threshold).astype(np.float64)
    units = units_of(known)
    alike = 1.0 / np.bincount(units.index, minlength=units.count)[units.index]
    share = float((gone * alike).sum() / units.count)
    if known.group is None:
        return Referred(share, exact_interval(share, len(known)), observe(policy, split, predictions))
    draws = replicate({"share": partial(_share, gone, alike)}, units, replicates=REPLICATES, seed=0)["share"]
    found = percentile_interval(share, draws, level=1.0 - LEVEL)
    interval = (found.low, found.high) if units.count > 1 else None
    return Referred(share, interval, observe(policy, split, predictions))


def _share(gone: FloatArray, alike: FloatArray, weights: Weights) -> FloatArray:
    """Share referred in each replicate."""
    return np.asarray(weights.sums(gone * alike) / weights.sums(alike))
