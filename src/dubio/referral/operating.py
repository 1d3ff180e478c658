"""Where a policy lies on a referral curve of labelled predictions."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dubio.core.predictions import Predictions
from dubio.metrics.decisions import correct
from dubio.metrics.requirements import labelled
from dubio.referral.applying import refuse_strangers
from dubio.referral.policy import Policy
from dubio.referral.units import graded_uncertainty


@dataclass(frozen=True)
class OperatingPoint:
    """What a policy does on labelled rows it was not fitted on.

    Attributes:
        retained: Share of rows kept.
        accuracy: Accuracy of the kept, NaN where none is.
        kept: Rows kept.
        rows: Labelled rows.
    """

    retained: float
    accuracy: float
    kept: int
    rows: int


def operating_point(policy: Policy, predictions: Predictions) -> OperatingPoint:
    """The point of a policy on the referral curve of these predictions.

    Args:
        policy: A fitted policy.
        predictions: Of the same system; rows without a label are left out.

    Raises:
        UserError: When they cannot be of the same system, or have no labels.
    """
    refuse_strangers(policy, predictions)
    known = labelled(predictions, "the operating point")
    keep = graded_uncertainty(known, policy.quantity) <= policy.threshold
    accuracy = float(correct(known)[keep].mean()) if keep.any() else float(np.nan)
    return OperatingPoint(float(keep.mean()), accuracy, int(keep.sum()), len(known))
