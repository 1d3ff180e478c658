"""Whether new data are as uncertain as the data a policy was fitted on."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.stats import ks_2samp

from dubio.core.errors import UserError
from dubio.core.predictions import Predictions
from dubio.referral.policy import Policy
from dubio.referral.units import independent_uncertainties

EXACT = 1_000_000
"""Up to this product of sizes the exact distribution of the statistic is used; it is conservative with ties."""


@dataclass(frozen=True)
class Shift:
    """A two-sample Kolmogorov–Smirnov test of new uncertainties against those of the calibration set.

    Attributes:
        statistic: D, the largest distance between the two distribution functions.
        p_value: Of "both come from one distribution".
        more_uncertain: The chance that a new row is more uncertain than a calibration row, ties counting one half; 0.5
            where neither is.
        level: The p-value from which on nothing is said.
        rows: New rows compared (one a group where there are groups).
        calibration_rows: Calibration rows compared.
    """

    statistic: float
    p_value: float
    more_uncertain: float
    level: float
    rows: int
    calibration_rows: int

    @property
    def found(self) -> bool:
        """Whether the test rejects."""
        return self.p_value < self.level

    def sentence(self) -> str:
        """The result in words."""
        way = "more" if self.more_uncertain >= 0.5 else "less"
        share = max(self.more_uncertain, 1.0 - self.more_uncertain)
        figures = (
            f"Kolmogorov–Smirnov D = {self.statistic:.3f}, p = {self.p_value:.2g}; a new row is {way} uncertain than a "
            f"calibration row with probability {share:.2f}"
        )
        if self.found:
            return f"The uncertainties have shifted since calibration, so the guarantee may not hold: {figures}."
        return f"No shift of the uncertainties was found at level {self.level:g}: {figures}."


def shift_test(policy: Policy, predictions: Predictions, *, level: float = 0.01, seed: int = 0) -> Shift:
    """Compare the uncertainties of new predictions with those stored in a policy.

    A shift that leaves the uncertainties as they were is not seen by this, and a small one is not in few rows.

    Args:
        policy: Whose ``seen`` values are the first sample.
        predictions: The new ones; where they have groups, one row of each is used.
        level: Reject below this p-value.
        seed: Which row of each group.

    Raises:
        UserError: For a level outside (0, 1).
    """
    if not 0.0 < level < 1.0:
        raise UserError(f"level (--shift-level) must lie between 0 and 1; given {level}.")
    old = np.array(policy.seen)
    new = independent_uncertainties(predictions, policy.quantity, seed=seed)
    found = ks_2samp(new, old, method="exact" if len(new) * len(old) <= EXACT else "asymp")
    below = np.searchsorted(old, new, side="left") + np.searchsorted(old, new, side="right")
    more = float(below.mean() / (2 * len(old)))
    return Shift(float(found.statistic), float(found.pvalue), more, level, len(new), len(old))
