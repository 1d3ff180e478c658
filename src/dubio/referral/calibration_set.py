"""The calibration set of a policy: which rows it may be fitted on, and the notes a reader needs."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import numpy as np

from dubio.core.draws import independent_rows, row_numbers
from dubio.core.errors import UserError, check_between_0_and_1, plural
from dubio.core.predictions import Predictions, check_predictions
from dubio.metrics.requirements import labelled
from dubio.referral.policy import SELECTED, Policy, PolicyKind
from dubio.referral.units import rounded_uncertainty
from dubio.statistics.bootstrap import units_of

Evidence = dict[str, float]
Notes = tuple[str, ...]
Rows = tuple[Predictions, Notes]

SEEN = 4000
"""Number of calibration uncertainties that a policy stores for the shift test."""


@dataclass(frozen=True, eq=False)
class CalibrationSet:
    """Predictions that a policy is fitted on, and the targets it is fitted for.

    Attributes:
        predictions: The usable rows.
        notes: Sentences about rows left out and about the split.
        kind: The kind of policy.
        goals: Its targets by name.
        confidence: Probability, over calibration sets, that the guarantee holds.
        quantity: The uncertainty to refer by.
        seed: Seed of all random choices.

    Raises:
        UserError: For a target or a confidence outside (0, 1).
    """

    predictions: Predictions
    notes: Notes
    kind: PolicyKind
    goals: dict[str, float]
    confidence: float
    quantity: str
    seed: int

    def __post_init__(self) -> None:
        for name, value in {**self.goals, "confidence": self.confidence}.items():
            check_between_0_and_1(f"{name} (--{name.replace('_', '-')})", value)

    def policy(
        self, threshold: float, guarantee: str, evidence: Evidence, notes: Notes = (), positive: int | None = None
    ) -> Policy:
        """Make the policy with the facts of its calibration set; arguments as of :class:`Policy`."""
        predictions = self.predictions
        if predictions.kind in SELECTED:
            used = "which training or selection has used"
            guarantee = f"No guarantee: fitted by force on a {predictions.kind!r} split, {used}."
        facts = {"rows": float(len(predictions)), "units": float(units_of(predictions).count)}
        return Policy(
            kind=self.kind, quantity=self.quantity, threshold=threshold, confidence=self.confidence, goals=self.goals,
            positive=positive, guarantee=guarantee, evidence=facts | evidence, notes=(*self.notes, *notes),
            target=predictions.target, class_count=predictions.class_count, classes=predictions.classes,
            temperature=float(predictions.temperature), samples=predictions.samples,
            grouped=predictions.group is not None, split=predictions.kind, seen=self._seen(),
            empty_decision=predictions.empty_decision,
            system=predictions.system,
        )  # fmt: skip

    def _seen(self) -> tuple[float, ...]:
        """Return uncertainties of independent rows (one per group), ascending; a random subset of very many."""
        rows = independent_rows(self.predictions, seed=self.seed)
        if len(rows) > SEEN:
            numbers = row_numbers(self.predictions, seed=self.seed, purpose="shift test")
            rows = rows[np.argsort(numbers[rows])[:SEEN]]
        return tuple(np.sort(rounded_uncertainty(self.predictions, self.quantity)[rows]).tolist())


def usable_rows(predictions: Predictions, allow_selected: bool, labels_for: str | None = None) -> Rows:
    """Return the rows a policy may be fitted on, and notes about the others.

    Args:
        predictions: Predictions of a calibration set.
        allow_selected: Accept a split that training or selection has used, without the guarantee.
        labels_for: The guarantee that needs labels, for the message; None where none are needed.

    Raises:
        UserError: For such a split, or where no row is left.
    """
    check_predictions(predictions, "calibration")
    notes = [*_provenance(predictions, allow_selected), *predictions.notes]
    if predictions.ood.any() and not predictions.ood.all():
        count = int(predictions.ood.sum())
        notes.append(f"Left out: {count} {plural('row', count)} marked out of distribution.")
        predictions = predictions.take(~predictions.ood)
    if labels_for is not None:
        rows = labelled(predictions, labels_for)
        if len(rows) < len(predictions):
            missing = len(predictions) - len(rows)
            notes.append(f"Left out: {missing} unlabelled {plural('row', missing)}. "
                         "The guarantee is about rows like the labelled.")  # fmt: skip
        predictions = rows
    return predictions, tuple(notes)


def calibration_rows(policy: Policy, predictions: Predictions) -> Predictions | None:
    """Return the rows that a policy was fitted on, where these predictions are its calibration set; else None.

    It is recognised by its number of usable rows and by the uncertainties that the policy stores.
    """
    try:
        rows, _ = usable_rows(predictions, True, None if policy.kind == "capacity" else "a guarantee")
    except UserError:  # no row has a label
        return None
    uncertainties = Counter(rounded_uncertainty(rows, policy.quantity).tolist())
    same = len(rows) == policy.evidence.get("rows") and Counter(policy.seen) <= uncertainties
    return rows if same else None


def _provenance(predictions: Predictions, allow_selected: bool) -> list[str]:
    kind = predictions.kind
    if kind in SELECTED and not allow_selected:
        used = "training" if kind == "train" else "selection"
        raise UserError(f"a policy needs a split that training and selection have not seen; this one is {kind!r} and "
                        f"was used for {used}. Use a 'cal' split, or allow_selected=True (--force) without the "
                        "guarantee.")  # fmt: skip
    notes = {
        None: "dubio cannot know whether training or selection has used these rows; if so, the guarantee is void.",
        "id": "It was fitted on a test split, which for this system is no longer a test set.",
        "shift": "It was fitted on a shifted split: the guarantee is for data like that.",
        "ood": "It was fitted on an out-of-distribution split: the guarantee is for data like that.",
    }
    return [notes[kind]] if kind in notes else []
