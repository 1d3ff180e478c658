"""A policy on new predictions: a decision for each row, with its reason."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

import numpy as np

from dubio.core.errors import UserError
from dubio.core.predictions import Predictions
from dubio.core.types import BoolArray, FloatArray
from dubio.metrics.decisions import correct, predicted, predicted_labels
from dubio.metrics.quantities import confidence
from dubio.referral.policy import Policy
from dubio.referral.shift import Shift, shift_test
from dubio.referral.units import graded_uncertainty

WORDS = {"confidence": "1 − confidence"}
"""How an uncertainty is called where it is not the quantity itself."""


@dataclass(frozen=True, eq=False)
class Applied:
    """What a policy decided about new rows, every array and tuple ``[N]``.

    Attributes:
        keep: True for what is kept, False for what is referred.
        predicted: Name (or number) of the predicted class; of a multi-label row its labels, with semicolons.
        probability: The pooled probability of that class; multi-label: mean over the asserted labels.
        uncertainty: What was compared with the threshold.
        reasons: Why, in words.
        shift: The test of the uncertainties against those of the calibration set.
        warnings: What a reader must know, a sentence each.
        kept_error: Error among the kept rows with a label, or None where there is none.
        kept_labelled: How many those are.
    """

    keep: BoolArray
    predicted: tuple[str, ...]
    probability: FloatArray
    uncertainty: FloatArray
    reasons: tuple[str, ...]
    shift: Shift
    warnings: tuple[str, ...]
    kept_error: float | None
    kept_labelled: int


def apply_policy(policy: Policy, predictions: Predictions, *, shift_level: float = 0.01, seed: int = 0) -> Applied:
    """Decide for each row of new predictions whether it is kept or referred; labels are not needed.

    Args:
        policy: A fitted policy.
        predictions: Of the same system, on new rows.
        shift_level: Warn of a shift below this p-value.
        seed: Which row of each group the test of shift uses.

    Raises:
        UserError: When the predictions cannot be of the same system: other classes, another target, temperature, or no
            such uncertainty.
    """
    refuse_strangers(policy, predictions)
    uncertainties = graded_uncertainty(predictions, policy.quantity)
    keep = uncertainties <= policy.threshold
    shift = shift_test(policy, predictions, level=shift_level, seed=seed)
    error, labelled = _observed(predictions, keep)
    return Applied(
        keep,
        _called(policy, predictions),
        confidence(predictions),
        uncertainties,
        _reasons(policy, uncertainties, keep),
        shift,
        _warnings(policy, predictions, shift),
        error,
        labelled,
    )


def refuse_strangers(policy: Policy, predictions: Predictions) -> None:
    """Refuse predictions that cannot be of the system a policy was fitted for.

    Raises:
        UserError: Naming what differs.
    """
    pairs = (
        ("target", policy.target, predictions.target),
        ("number of classes", policy.class_count, predictions.class_count),
        ("temperature", policy.temperature, float(predictions.temperature)),
    )
    for what, own, given in pairs:
        if own != given:
            raise UserError(f"these predictions cannot be of the system the policy was fitted for: their {what} is "
                            f"{given}, the policy's is {own}.")  # fmt: skip
    if policy.classes and predictions.classes and policy.classes != predictions.classes:
        place = next(k for k in range(policy.class_count) if policy.classes[k] != predictions.classes[k])
        raise UserError(f"these predictions cannot be of the system the policy was fitted for: their class {place} is "
                        f"{predictions.classes[place]!r}, the policy's is {policy.classes[place]!r}.")  # fmt: skip


def _warnings(policy: Policy, predictions: Predictions, shift: Shift) -> tuple[str, ...]:
    found = [shift.sentence()] if shift.found else []
    if predictions.samples != policy.samples:
        found.append(f"These predictions have {predictions.samples} samples a row, the calibration set had "
                     f"{policy.samples}: the guarantee is for the system it was fitted on.")  # fmt: skip
    if policy.grouped and predictions.group is None:
        found.append("The policy was fitted on groups and these rows have none: the test of shift takes them to be "
                     "independent.")  # fmt: skip
    if policy.void:
        found.append(policy.guarantee)
    return tuple(found)


def _called(policy: Policy, predictions: Predictions) -> tuple[str, ...]:
    names = predictions.classes or policy.classes or tuple(map(str, range(predictions.class_count)))
    if predictions.target != "multilabel":
        return tuple(names[index] for index in predicted(predictions).tolist())
    asserted = predicted_labels(predictions)
    return tuple(";".join(names[k] for k in np.flatnonzero(row)) for row in asserted)


def _reasons(policy: Policy, uncertainties: FloatArray, keep: BoolArray) -> tuple[str, ...]:
    what = WORDS.get(policy.quantity, policy.quantity.replace("_", " "))
    if policy.threshold == inf:
        return (f"the policy keeps every row, whatever its {what}",) * len(keep)
    ranks = np.searchsorted(np.array(policy.seen), uncertainties, side="left") / len(policy.seen)
    limit = f"the threshold {policy.threshold:.6g}"
    return tuple(
        f"{what} {value:.6g} is at most {limit}" if kept
        else f"{what} {value:.6g} is above {limit}; {int(100 * rank)} % of calibration rows are more certain"
        for value, kept, rank in zip(uncertainties.tolist(), keep.tolist(), ranks.tolist(), strict=True)
    )  # fmt: skip


def _observed(predictions: Predictions, keep: BoolArray) -> tuple[float | None, int]:
    """Error among the kept rows whose label is known."""
    usable = keep if predictions.target == "multilabel" else keep & (predictions.labels >= 0)
    count = int(usable.sum())
    return (float(1.0 - correct(predictions.take(usable)).mean()), count) if count else (None, 0)
