"""Apply a policy to new predictions: a decision and its reason for each row, its guarantee checked, a shift test."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from dubio.core.csv_files import CsvTable, Repeated
from dubio.core.data_frame import data_frame
from dubio.core.errors import MissingExtra, UserError, one_of, plural
from dubio.core.notebook import Shown
from dubio.core.predictions import Predictions, check_predictions
from dubio.core.types import BoolArray, FloatArray, StrArray
from dubio.metrics.decisions import correct, predicted, predicted_labels
from dubio.metrics.quantities import confidence
from dubio.metrics.requirements import has_labels
from dubio.referral.assessment import Outcome, Rate, Subgroups, plain_subgroups, rates, subgroup_rates
from dubio.referral.policy import Policy
from dubio.referral.reasons import Reasons
from dubio.referral.shift import (
    SHIFT_LEVEL,
    Shift,
    check_same_system,
    other_model,
    shift_test,
    unnamed_classes,
    unnamed_model,
)
from dubio.referral.threshold import rule
from dubio.referral.units import rounded_uncertainty
from dubio.statistics.bootstrap import units_of

if TYPE_CHECKING:
    import pandas

DECISIONS = ("refer", "retain")
"""The two decisions, by whether a row is retained."""

COLUMNS = ("id", "group", "decision", "group_decision", "predicted", "probability", "uncertainty", "shift", "reason")
"""The columns of a table of decisions, beside those of subgroups."""

PER = ("row", "group")
"""What decisions may be about."""

TOGETHER = 4096
"""Rows of a table of decisions that are in memory at a time."""

WHOLE_GROUPS = (
    "A group is retained if all its rows are. The guarantee is about rows that are retained one by one, not about "
    "groups that are retained whole."
)


@dataclass(frozen=True, eq=False, repr=False)
class Applied(Shown):
    """The decisions of a policy about new rows; every array and tuple of strings is ``[N]``.

    Attributes:
        retained: True for retained rows, False for referred ones.
        predicted: Name (or number) of the predicted class; of a multi-label row its labels, with semicolons.
        probability: The pooled probability of that class; multi-label: mean over the asserted labels.
        uncertainty: The value that was compared with the threshold.
        reasons: The reason of each decision.
        ids: Names of the rows; their numbers where the predictions have none.
        group: The group of each row, or None.
        group_retained: Whether all rows of its group are retained; None unless decisions are per group.
        columns: The subgroup of each row, by column.
        rule: Which rows are retained, in words.
        shift: The test of the uncertainties against those of the calibration set.
        warnings: Sentences that a reader must know.
        notes: Sentences about the source of the predictions, and about guarantees that were fitted together.
        retained_error: Error among the retained rows with a label, or None where there is none.
        retained_labelled: Number of retained rows with a label.
        rates: What the policy guarantees, as observed, with intervals and outcomes.
        positives: Of a screening policy on labelled rows: the number of positives, and of those referred.
        subgroups: Column to value to the decisions and rates there.
        outcome: That of the guarantee: violated or undecided where one of its rates is; None where it is not known.
        unchecked: Guaranteed rates of screening that no retained row with a label is about.
    """

    retained: BoolArray
    predicted: tuple[str, ...]
    probability: FloatArray
    uncertainty: FloatArray
    reasons: Reasons
    ids: StrArray
    group: StrArray | None
    group_retained: BoolArray | None
    columns: Mapping[str, StrArray]
    rule: str
    shift: Shift
    warnings: tuple[str, ...]
    notes: tuple[str, ...]
    retained_error: float | None
    retained_labelled: int
    rates: tuple[Rate, ...]
    positives: tuple[int, int] | None
    subgroups: Subgroups
    outcome: Outcome | None
    unchecked: tuple[str, ...] = ()

    @property
    def group_counts(self) -> dict[str, int] | None:
        """The number of groups, and of those retained whole; None unless decisions are per group."""
        if self.group is None or self.group_retained is None:
            return None
        count, retained = len(np.unique(self.group)), len(np.unique(self.group[self.group_retained]))
        return {"groups": count, "retained": retained, "referred": count - retained}

    def as_dict(self) -> dict[str, Any]:
        """Return everything but what is per row, as plain values."""
        rows, retained = len(self.retained), int(self.retained.sum())
        names = "positives", "referred"
        return {
            "rows": rows,
            "retained": retained,
            "referred": rows - retained,
            "rule": self.rule,
            "retained_error": self.retained_error,
            "retained_labelled": self.retained_labelled,
            "outcome": self.outcome,
            "rates": [rate.as_dict() for rate in self.rates],
            "unchecked": list(self.unchecked),
            "positives": None if self.positives is None else dict(zip(names, self.positives, strict=True)),
            "groups": self.group_counts,
            "subgroups": plain_subgroups(self.subgroups),
            "shift": {**vars(self.shift), "significant": self.shift.significant},
            "warnings": list(self.warnings),
            "notes": list(self.notes),
        }

    def __str__(self) -> str:
        return "\n".join([*self.lines, *self.warnings])

    __repr__ = __str__

    @property
    def lines(self) -> list[str]:
        """The result in words, line by line, without what the warnings say; a significant shift is one of them."""
        rows, retained = len(self.retained), int(self.retained.sum())
        share = (rows - retained) / rows
        referred = f"{rows - retained} referred ({share:.1%})"
        lines = [f"{rows} {plural('row', rows)}: {retained} retained, {referred}; {self.rule}"]
        if (groups := self.group_counts) is not None:
            decisions = "{groups} {}: {retained} retained whole, {referred} referred"
            lines.append(decisions.format(plural("group", groups["groups"]), **groups))
        if (error := self.retained_error) is not None:
            count = self.retained_labelled
            lines.append(f"error of the {count} retained {plural('row', count)} with a label: {error:.4f}")
        lines += [rate.sentence() for rate in self.rates if rate.bound is not None or rate.name != "error"]
        lines += [f"{name.capitalize()} among the retained: no labelled row of its class is retained; undecided."
                  for name in self.unchecked]  # fmt: skip
        if self.outcome == "nothing retained":
            lines.append("No row is retained: the guarantee cannot be checked.")
        if self.positives is not None and self.positives[0]:
            lines.append("Positives referred, not counted as missed: {1} of {0}.".format(*self.positives))
        return lines if self.shift.significant else [*lines, self.shift.sentence()]

    def rows(self) -> Iterator[dict[str, str | float]]:
        """Yield the decision about each row, with its reason."""
        for start in range(0, len(self.ids), TOGETHER):
            shown = {name: column for name, column in self._columns(slice(start, start + TOGETHER)).items() if column}
            for values in zip(*shown.values(), strict=True):
                yield dict(zip(shown, values, strict=True))

    def _columns(self, rows: slice) -> dict[str, Sequence[Any]]:
        """Return the columns of some rows; empty where there is no such column."""
        group, group_retained, ids = self.group, self.group_retained, self.ids[rows].tolist()
        return {
            "id": ids,
            "group": () if group is None else group[rows].tolist(),
            **{f"column.{name}" if name in COLUMNS else name: c[rows].tolist() for name, c in self.columns.items()},
            "decision": _decisions(self.retained[rows]),
            "group_decision": [] if group_retained is None else _decisions(group_retained[rows]),
            "predicted": self.predicted[rows],
            "probability": self.probability[rows].tolist(),
            "uncertainty": self.uncertainty[rows].tolist(),
            "shift": [("no", "yes")[self.shift.significant]] * len(ids),
            "reason": self.reasons[rows],
        }

    def to_frame(self) -> pandas.DataFrame:
        """Return the decisions as a data frame, one row each."""
        return data_frame(self.rows())

    def to_csv(self, *, raw: bool = False) -> str:
        """Return a table with the decision about each row and its reason.

        Args:
            raw: Write text cells that a spreadsheet would take for formulas as they are.
        """
        return "".join(self.csv_lines(raw=raw))

    def csv_lines(self, *, raw: bool = False) -> Iterator[str]:
        """Yield the same table line by line, in memory that does not grow with the reasons."""
        rows = Repeated(lambda: ([*row.values()] for row in self.rows()))
        return CsvTable([*next(self.rows(), ())], rows, "{:.6g}".format).lines(raw)

    def to_parquet(self) -> bytes:
        """Return the same table as a Parquet file; its numbers are not rounded.

        Raises:
            MissingExtra: When pyarrow is not installed.
        """
        try:
            import pyarrow
            import pyarrow.parquet
        except ModuleNotFoundError as missing:
            raise MissingExtra("writing Parquet", "parquet") from missing
        sink = pyarrow.BufferOutputStream()
        pyarrow.parquet.write_table(pyarrow.Table.from_pylist(list(self.rows())), sink)
        return bytes(sink.getvalue())


def apply_policy(
    policy: Policy,
    predictions: Predictions,
    *,
    shift_level: float = SHIFT_LEVEL,
    seed: int = 0,
    by: Sequence[str] = (),
    per: Literal["row", "group"] = "row",
    allow_unnamed: bool = False,
    allow_other: bool = False,
) -> Applied:
    """Decide for each row of new predictions whether it is retained or referred; labels are not needed.

    Args:
        policy: A fitted policy.
        predictions: Predictions of the same system on new rows. Where they have labels, the guarantee is checked.
        shift_level: Warn of a shift below this p-value.
        seed: Seed of the choice of one row per group in the shift test.
        by: Columns of the predictions whose values are subgroups, each with decisions and rates of its own.
        per: ``"group"`` adds a decision per group: it is retained if all its rows are.
        allow_unnamed: Accept that only one of policy and predictions names its classes; a warning records it.
        allow_other: Accept a policy that was fitted for another deployed model; a warning records it.

    Raises:
        UserError: When the predictions cannot be of the same system: other classes, another target, temperature, or no
            such uncertainty; or for groups or subgroups that they do not have.
    """
    check_predictions(predictions, "predictions")
    check_same_system(policy, predictions, allow_unnamed=allow_unnamed, allow_other=allow_other)
    one_of("per (--per)", per, PER)
    uncertainties = rounded_uncertainty(predictions, policy.quantity)
    retained = uncertainties <= policy.threshold
    shift = shift_test(policy, predictions, level=shift_level, seed=seed)
    error, count = _observed(predictions, retained)
    observed = rates(policy, predictions, retained)
    goals = policy.goals if policy.positive is not None and observed else {}
    unchecked = tuple(name for name in goals if name not in {rate.name for rate in observed})
    return Applied(
        retained=retained,
        predicted=class_names(policy.classes, predictions),
        probability=confidence(predictions),
        uncertainty=uncertainties,
        reasons=Reasons(policy, uncertainties, retained),
        ids=_numbers(len(predictions)) if predictions.ids is None else predictions.ids,
        group=predictions.group,
        group_retained=_whole_groups(predictions, retained) if per == "group" else None,
        rule=rule(policy, [] if retained.all() else [float(uncertainties[~retained].min())]),
        shift=shift,
        warnings=(*_warnings(policy, predictions, shift), *([WHOLE_GROUPS] if per == "group" else ())),
        notes=(*predictions.notes, *([policy.family.sentence] if policy.family and not policy.void else ())),
        retained_error=error,
        retained_labelled=count,
        rates=observed,
        positives=_positives(policy, predictions, retained),
        subgroups=subgroup_rates(policy, predictions, retained, by),
        columns={name: predictions.columns[name] for name in by},
        outcome=_outcome(observed, unchecked, has_labels(predictions) and not retained.any()),
        unchecked=unchecked,
    )


class RowDecision(NamedTuple):
    """The decision about one row, whatever other rows there are; the fields are those of :class:`Applied`."""

    retained: bool
    predicted: str
    probability: float
    uncertainty: float
    reason: str


def decide_each(policy: Policy, predictions: Predictions, *, allow_other: bool = False) -> list[RowDecision]:
    """Decide about each row as :func:`apply_policy` does about it alone: the others change nothing, no test is made.

    Args:
        policy: A fitted policy.
        predictions: Predictions of the same system on new rows.
        allow_other: Accept a policy that was fitted for another deployed model.

    Raises:
        UserError: As :func:`apply_policy`.
    """
    check_same_system(policy, predictions, allow_other=allow_other)
    uncertainties = rounded_uncertainty(predictions, policy.quantity)
    retained = uncertainties <= policy.threshold
    values = uncertainties.tolist()
    reasons = (Reasons(policy, *row)[0] for row in zip(uncertainties[:, None], retained[:, None], strict=True))
    names, probabilities = class_names(policy.classes, predictions), confidence(predictions).tolist()
    return list(map(RowDecision, retained.tolist(), names, probabilities, values, reasons))


def _outcome(observed: Sequence[Rate], unchecked: Sequence[str], empty: bool) -> Outcome | None:
    """Return the worst outcome of the rates; where labelled rows are all referred, that nothing is retained.

    A guaranteed rate that has no rows to be measured on leaves the guarantee undecided, unless another violates it.
    """
    outcomes = {rate.outcome for rate in observed} | ({"undecided"} if unchecked else set())
    order: tuple[Outcome, ...] = ("violated", "undecided", "met")
    worst = next((outcome for outcome in order if outcome in outcomes), None)
    return "nothing retained" if worst is None and empty else worst


def _numbers(count: int) -> StrArray:
    return np.arange(count).astype(f"<U{len(str(count))}")  # without a width numpy takes 84 bytes for each


def _decisions(retained: BoolArray) -> list[str]:
    return [DECISIONS[retain] for retain in retained.tolist()]


def _whole_groups(predictions: Predictions, retained: BoolArray) -> BoolArray:
    if predictions.group is None:
        raise UserError("per='group' (--per group) needs groups: name their column with group (--group).")
    units = units_of(predictions)
    referred = np.bincount(units.index, ~retained, minlength=units.count) > 0
    return ~referred[units.index]


def _positives(policy: Policy, predictions: Predictions, retained: BoolArray) -> tuple[int, int] | None:
    if policy.positive is None or not has_labels(predictions):
        return None
    positive = predictions.labels == policy.positive
    return int(positive.sum()), int((positive & ~retained).sum())


def _warnings(policy: Policy, predictions: Predictions, shift: Shift) -> tuple[str, ...]:
    warnings = [shift.sentence()] if shift.significant else []
    models = (sentence(policy, predictions.system) for sentence in (other_model, unnamed_model))
    warnings += filter(None, (unnamed_classes(policy, predictions), *models))
    if predictions.samples != policy.samples:
        samples = f"{predictions.samples} {plural('sample', predictions.samples)}"
        warnings.append(f"These predictions have {samples} per row, the calibration set had {policy.samples}: the "
                        "guarantee is for the system it was fitted on.")  # fmt: skip
    if policy.grouped and predictions.group is None:
        warnings.append("The policy was fitted on groups and these rows have none: intervals and the shift test treat "
                        "them as independent.")  # fmt: skip
    if predictions.group is not None and not policy.grouped:
        warnings.append("The policy was fitted on rows without groups and these have some: its guarantee is about "
                        "rows, the rates here are means over groups.")  # fmt: skip
    if policy.void:
        warnings.append(policy.guarantee)
    return tuple(warnings)


def class_names(classes: Sequence[str] | None, predictions: Predictions) -> tuple[str, ...]:
    """Return the answer of each row: its class, or its labels with semicolons.

    Args:
        classes: The names of the classes, where the predictions have none; numbers where neither has.
        predictions: The predictions.
    """
    names = predictions.classes or classes or tuple(map(str, range(predictions.class_count)))
    if predictions.target != "multilabel":
        return tuple(names[index] for index in predicted(predictions).tolist())
    asserted = predicted_labels(predictions)
    return tuple(";".join(names[k] for k in np.flatnonzero(row).tolist()) for row in asserted)


def _observed(predictions: Predictions, retained: BoolArray) -> tuple[float | None, int]:
    """Return the error among the retained rows with a label, and their number."""
    usable = retained if predictions.target == "multilabel" else retained & (predictions.labels >= 0)
    count = int(usable.sum())
    return (float(1.0 - correct(predictions.take(usable)).mean()), count) if count else (None, 0)
