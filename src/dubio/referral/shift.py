"""Whether new predictions are like the calibration set of a policy: of the same system, with the same uncertainties."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.stats import ks_2samp

from dubio.core.draws import independent_rows
from dubio.core.errors import UserError, check_between_0_and_1
from dubio.core.predictions import Predictions
from dubio.metrics.detection import share_below
from dubio.metrics.quantities import QUANTITIES
from dubio.referral.policy import Policy
from dubio.referral.units import rounded_uncertainty

SHIFT_LEVEL = 0.01
"""The p-value below which a shift is reported."""

EXACT = 1_000_000
"""Up to this product of sizes the exact distribution of the statistic is used; it is conservative with ties."""


@dataclass(frozen=True)
class Shift:
    """A two-sample Kolmogorov–Smirnov test of new uncertainties against those of the calibration set.

    Attributes:
        statistic: D, the largest distance between the two distribution functions.
        p_value: The p-value of "both come from one distribution".
        more_uncertain: The probability that a new row is more uncertain than a calibration row, ties counting one half;
            0.5 where neither is.
        level: Significance level.
        rows: New rows compared (one per group where there are groups).
        calibration_rows: Calibration rows compared.
    """

    statistic: float
    p_value: float
    more_uncertain: float
    level: float
    rows: int
    calibration_rows: int

    @property
    def significant(self) -> bool:
        """Whether the test rejects."""
        return self.p_value < self.level

    def sentence(self) -> str:
        """Return the result as a sentence."""
        direction = "more" if self.more_uncertain >= 0.5 else "less"
        share = max(self.more_uncertain, 1.0 - self.more_uncertain)
        figures = (
            f"Kolmogorov–Smirnov D = {self.statistic:.3f}, p = {self.p_value:.2g}; a new row is {direction} uncertain "
            f"than a calibration row with probability {share:.2f}"
        )
        if self.significant:
            return f"The uncertainties have shifted since calibration, so the guarantee may not hold: {figures}."
        return f"No significant shift of the uncertainties at level {self.level:g}: {figures}."


def shift_test(policy: Policy, predictions: Predictions, *, level: float = SHIFT_LEVEL, seed: int = 0) -> Shift:
    """Compare the uncertainties of new predictions with those stored in a policy.

    The test cannot detect a shift that leaves the uncertainties unchanged, nor a small one in few rows.

    Args:
        policy: The policy; its stored calibration uncertainties are the first sample.
        predictions: New predictions; where they have groups, one random row of each is used, whatever the labels.
        level: Reject below this p-value.
        seed: Seed of the choice of one row per group.

    Raises:
        UserError: For a level outside (0, 1).
    """
    check_between_0_and_1("level (--shift-level)", level)
    old = np.array(policy.seen)
    # The test uses no labels: it must have the same result once they are known.
    rows = independent_rows(predictions.with_checked(labels=np.zeros_like(predictions.labels)), seed=seed)
    new = np.sort(rounded_uncertainty(predictions, policy.quantity)[rows])
    test = ks_2samp(new, old, method="exact" if len(new) * len(old) <= EXACT else "asymp")
    more = float(share_below(old, new).mean())
    return Shift(float(test.statistic), float(test.pvalue), more, level, len(new), len(old))


def check_same_system(
    policy: Policy, predictions: Predictions, *, allow_unnamed: bool = False, allow_other: bool = False
) -> None:
    """Check that predictions can be of the system a policy was fitted for.

    Args:
        policy: The policy.
        predictions: The predictions.
        allow_unnamed: Accept that only one of them names its classes, whose order then cannot be compared.
        allow_other: Accept a policy that was fitted for another deployed model.

    Raises:
        UserError: Naming the difference.
    """
    facts: list[tuple[str, object, object]] = [
        ("target", policy.target, predictions.target),
        ("number of classes", policy.class_count, predictions.class_count),
        ("temperature", policy.temperature, float(predictions.temperature)),
        ("empty_decision", policy.empty_decision, predictions.empty_decision),
    ]
    names = zip(policy.classes or (), predictions.classes or (), strict=False)
    facts += [(f"class {index}", repr(expected), repr(actual)) for index, (expected, actual) in enumerate(names)]
    for name, expected, actual in facts:
        if expected != actual:
            raise UserError(f"these predictions cannot be of the system the policy was fitted for: their {name} is "
                            f"{actual}, the policy's is {expected}.")  # fmt: skip
    if lacks_score(policy, predictions):
        raise UserError(f"these predictions {missing_score(policy.quantity)}")
    if (other := other_model(policy, predictions.system)) and not allow_other:
        raise UserError(f"{other} Fit a policy for this model, or accept it all the same with force=True (--force).")
    if unnamed_classes(policy, predictions) and not allow_unnamed:
        raise UserError(f"{unnamed_classes(policy, predictions)} Give both or neither names, or say "
                        "allow_unnamed=True (--force) if the classes are the same, in the same order.")  # fmt: skip


def lacks_score(policy: Policy, predictions: Predictions) -> bool:
    """Return whether a policy refers by an uncertainty of the system itself that predictions do not have."""
    return policy.quantity not in QUANTITIES and policy.quantity not in predictions.scores


def missing_score(quantity: str) -> str:
    """Return the end of a sentence about predictions without the score that a policy refers by."""
    return (
        f"have no column 'score.{quantity}', the system's own uncertainty that the policy refers by: add it, computed "
        "as for the rows that the policy was fitted on."
    )


def other_model(policy: Policy, system: str | None) -> str:
    """Return that a policy was fitted for another deployed model, as a sentence; empty where it was not, or may not be.

    Args:
        policy: The policy.
        system: The identity of the model, where known.
    """
    if None in (policy.system, system) or policy.system == system:
        return ""
    return (f"The policy was fitted for the model {str(policy.system)[:12]}, this is the model {str(system)[:12]}: its "
            "guarantee is not about this one.")  # fmt: skip


def unnamed_model(policy: Policy, system: str | None) -> str:
    """Return that a policy does not say for which deployed model it was fitted, as a sentence; empty where it does.

    Args:
        policy: The policy.
        system: The identity of the model, where known.
    """
    if policy.system is not None or system is None:
        return ""
    return ("The policy does not say for which model it was fitted: that it was this one is not checked. Policies that "
            "are fitted on a .safetensors or .parquet file of dubio predict say it.")  # fmt: skip


def unnamed_classes(policy: Policy, predictions: Predictions) -> str:
    """Return which one names its classes where only one does, as a sentence; else empty."""
    named = {"policy": policy.classes, "predictions": predictions.classes}
    some = [name for name, classes in named.items() if classes is not None]
    if len(some) != 1:
        return ""
    verb, other = ("names", "these predictions do") if some == ["policy"] else ("name", "the policy does")
    subject = "The policy" if some == ["policy"] else "These predictions"
    listed = ", ".join(named[some[0]] or ())
    return f"{subject} {verb} the classes ({listed}) and {other} not, so that their order cannot be compared."
