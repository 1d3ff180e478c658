"""Apply a policy to new predictions: a decision for each row with its reason, and a test of shift."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.stats import ks_2samp

from dubio.core.data_frame import data_frame
from dubio.core.errors import UserError
from dubio.core.predictions import Predictions, check_predictions
from dubio.core.types import BoolArray, FloatArray
from dubio.metrics.decisions import correct, predicted, predicted_labels
from dubio.metrics.detection import share_below
from dubio.metrics.quantities import confidence
from dubio.referral.policy import Policy
from dubio.referral.units import independent_uncertainties, rounded_uncertainty

if TYPE_CHECKING:
    import pandas

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


def shift_test(policy: Policy, predictions: Predictions, *, level: float = 0.01, seed: int = 0) -> Shift:
    """Compare the uncertainties of new predictions with those stored in a policy.

    The test cannot detect a shift that leaves the uncertainties unchanged, nor a small one in few rows.

    Args:
        policy: The policy; its stored calibration uncertainties are the first sample.
        predictions: New predictions; where they have groups, one row of each is used.
        level: Reject below this p-value.
        seed: Seed of the choice of one row per group.

    Raises:
        UserError: For a level outside (0, 1).
    """
    if not 0.0 < level < 1.0:
        raise UserError(f"level (--shift-level) must lie between 0 and 1; given {level}.")
    old = np.array(policy.seen)
    new = independent_uncertainties(predictions, policy.quantity, seed=seed)
    test = ks_2samp(new, old, method="exact" if len(new) * len(old) <= EXACT else "asymp")
    more = float(share_below(old, new).mean())
    return Shift(float(test.statistic), float(test.pvalue), more, level, len(new), len(old))


UNCERTAINTY_NAMES = {"confidence": "1 − confidence"}
"""The displayed name of an uncertainty where it is not the quantity itself."""


@dataclass(frozen=True, eq=False)
class Applied:
    """The decisions of a policy about new rows; every array and tuple is ``[N]``.

    Attributes:
        retained: True for retained rows, False for referred ones.
        predicted: Name (or number) of the predicted class; of a multi-label row its labels, with semicolons.
        probability: The pooled probability of that class; multi-label: mean over the asserted labels.
        uncertainty: The value that was compared with the threshold.
        reasons: The reason of each decision.
        ids: Names of the rows; their numbers where the predictions have none.
        shift: The test of the uncertainties against those of the calibration set.
        warnings: Sentences that a reader must know.
        retained_error: Error among the retained rows with a label, or None where there is none.
        retained_labelled: Number of retained rows with a label.
    """

    retained: BoolArray
    predicted: tuple[str, ...]
    probability: FloatArray
    uncertainty: FloatArray
    reasons: tuple[str, ...]
    ids: tuple[str, ...]
    shift: Shift
    warnings: tuple[str, ...]
    retained_error: float | None
    retained_labelled: int

    def as_dict(self) -> dict[str, Any]:
        """Return counts, the observed error, the shift test and the warnings as plain values."""
        rows, retained = len(self.retained), int(self.retained.sum())
        return {
            "rows": rows,
            "retained": retained,
            "referred": rows - retained,
            "retained_error": self.retained_error,
            "retained_labelled": self.retained_labelled,
            "shift": {**vars(self.shift), "significant": self.shift.significant},
            "warnings": list(self.warnings),
        }

    def __str__(self) -> str:
        rows, retained = len(self.retained), int(self.retained.sum())
        share = (rows - retained) / rows
        lines = [f"{rows} rows: {retained} retained, {rows - retained} referred ({share:.1%})"]
        if (error := self.retained_error) is not None:
            lines.append(f"error of the {self.retained_labelled} retained rows with a label: {error:.4f}")
        return "\n".join([*lines, self.shift.sentence()])

    def rows(self) -> Iterator[dict[str, str | float]]:
        """Yield the decision about each row, with its reason."""
        decisions = ("retain" if retain else "refer" for retain in self.retained)
        numbers = self.probability.tolist(), self.uncertainty.tolist()
        columns = "id", "decision", "predicted", "probability", "uncertainty", "reason"
        for values in zip(self.ids, decisions, self.predicted, *numbers, self.reasons, strict=True):
            yield dict(zip(columns, values, strict=True))

    def to_frame(self) -> pandas.DataFrame:
        """Return the decisions as a data frame, one row each."""
        return data_frame(self.rows())

    def to_csv(self) -> str:
        """Return a table with the decision about each row and its reason."""
        sink = io.StringIO()
        writer = csv.writer(sink, lineterminator="\n")
        writer.writerow(["id", "decision", "predicted", "probability", "uncertainty", "reason"])
        for row in self.rows():
            writer.writerow(f"{value:.6g}" if isinstance(value, float) else value for value in row.values())
        return sink.getvalue()


def apply_policy(policy: Policy, predictions: Predictions, *, shift_level: float = 0.01, seed: int = 0) -> Applied:
    """Decide for each row of new predictions whether it is retained or referred; labels are not needed.

    Args:
        policy: A fitted policy.
        predictions: Predictions of the same system on new rows.
        shift_level: Warn of a shift below this p-value.
        seed: Seed of the choice of one row per group in the shift test.

    Raises:
        UserError: When the predictions cannot be of the same system: other classes, another target, temperature, or no
            such uncertainty.
    """
    check_predictions(predictions, "predictions")
    check_same_system(policy, predictions)
    uncertainties = rounded_uncertainty(predictions, policy.quantity)
    retained = uncertainties <= policy.threshold
    shift = shift_test(policy, predictions, level=shift_level, seed=seed)
    names, reasons = _class_names(policy, predictions), _reasons(policy, uncertainties, retained)
    warnings, observed = _warnings(policy, predictions, shift), _observed(predictions, retained)
    ids = tuple(map(str, range(len(predictions)) if predictions.ids is None else predictions.ids.tolist()))
    return Applied(retained, names, confidence(predictions), uncertainties, reasons, ids, shift, warnings, *observed)


def check_same_system(policy: Policy, predictions: Predictions) -> None:
    """Check that predictions can be of the system a policy was fitted for.

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


def _warnings(policy: Policy, predictions: Predictions, shift: Shift) -> tuple[str, ...]:
    warnings = [shift.sentence()] if shift.significant else []
    if predictions.samples != policy.samples:
        warnings.append(f"These predictions have {predictions.samples} samples per row, the calibration set had "
                        f"{policy.samples}: the guarantee is for the system it was fitted on.")  # fmt: skip
    if policy.grouped and predictions.group is None:
        warnings.append("The policy was fitted on groups and these rows have none: the shift test treats them as "
                        "independent.")  # fmt: skip
    if policy.void:
        warnings.append(policy.guarantee)
    return tuple(warnings)


def _class_names(policy: Policy, predictions: Predictions) -> tuple[str, ...]:
    names = predictions.classes or policy.classes or tuple(map(str, range(predictions.class_count)))
    if predictions.target != "multilabel":
        return tuple(names[index] for index in predicted(predictions).tolist())
    asserted = predicted_labels(predictions)
    return tuple(";".join(names[k] for k in np.flatnonzero(row)) for row in asserted)


def _reasons(policy: Policy, uncertainties: FloatArray, retained: BoolArray) -> tuple[str, ...]:
    name = UNCERTAINTY_NAMES.get(policy.quantity, policy.quantity.replace("_", " "))
    if policy.threshold == inf:
        return (f"the policy retains every row, whatever its {name}",) * len(retained)
    ranks = np.searchsorted(np.array(policy.seen), uncertainties, side="left") / len(policy.seen)
    limit = f"the threshold {policy.threshold:.6g}"
    return tuple(
        f"{name} {value:.6g} is at most {limit}" if retain
        else f"{name} {value:.6g} is above {limit}; {int(100 * rank)} % of calibration rows are more certain"
        for value, retain, rank in zip(uncertainties.tolist(), retained.tolist(), ranks.tolist(), strict=True)
    )  # fmt: skip


def _observed(predictions: Predictions, retained: BoolArray) -> tuple[float | None, int]:
    """Return the error among the retained rows with a label, and their number."""
    usable = retained if predictions.target == "multilabel" else retained & (predictions.labels >= 0)
    count = int(usable.sum())
    return (float(1.0 - correct(predictions.take(usable)).mean()), count) if count else (None, 0)
