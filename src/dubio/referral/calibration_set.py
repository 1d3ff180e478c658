"""The calibration set of a policy: which rows it may be fitted on, and the notes a reader needs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from dubio.core.errors import UserError
from dubio.core.predictions import Predictions
from dubio.referral.policy import SELECTED, Policy, PolicyKind
from dubio.referral.units import independent_uncertainties

SEEN = 4000
"""Number of calibration uncertainties that a policy stores for the shift test."""


@dataclass(frozen=True, eq=False)
class CalibrationSet:
    """Predictions that a policy is fitted on.

    Attributes:
        predictions: The usable rows.
        notes: Sentences about rows left out and about the split.
    """

    predictions: Predictions
    notes: tuple[str, ...]


def calibration_set(predictions: Predictions, *, labelled: str | None, allow_selected: bool) -> CalibrationSet:
    """Select the rows a policy may be fitted on.

    Args:
        predictions: Predictions of a calibration set.
        labelled: The guarantee that needs labels, for the message; None where none are needed.
        allow_selected: Accept a split that training or selection has used, without the guarantee.

    Raises:
        UserError: For such a split, or where no row is left.
    """
    notes = list(_provenance(predictions, allow_selected))
    if predictions.ood.any() and not predictions.ood.all():
        notes.append(f"{int(predictions.ood.sum())} rows marked out of distribution were left out.")
        predictions = predictions.take(~predictions.ood)
    if labelled is not None:
        if predictions.target != "multilabel" and not (predictions.labels >= 0).any():
            raise UserError(f"{labelled} needs labels, and every row is unlabelled.")
        missing = len(predictions) - len(predictions.labelled)
        if missing:
            notes.append(f"{missing} unlabelled rows were left out: the guarantee is about rows like the labelled.")
        predictions = predictions.labelled
    return CalibrationSet(predictions, tuple(notes))


def _provenance(predictions: Predictions, allow_selected: bool) -> list[str]:
    kind = predictions.kind
    if kind in SELECTED:
        used = "training" if kind == "train" else "selection"
        if not allow_selected:
            raise UserError(f"a policy needs a split that training and selection have not seen; this one is {kind!r} "
                            f"and was used for {used}. Use a 'cal' split, or allow_selected=True (--force) without "
                            "the guarantee.")  # fmt: skip
        return []
    return {
        None: ["dubio cannot know whether training or selection has used these rows; if so, the guarantee is void."],
        "id": ["It was fitted on a test split, which for this system is no longer a test set."],
        "shift": ["It was fitted on a shifted split: the guarantee is for data like that."],
        "ood": ["It was fitted on an out-of-distribution split: the guarantee is for data like that."],
        "cal": [],
    }[kind]


def fraction(name: str, value: float) -> float:
    """Check that a value lies strictly between 0 and 1."""
    if not 0.0 < value < 1.0:
        raise UserError(f"{name} must lie between 0 and 1; given {value}.")
    return value


def make_policy(
    kind: PolicyKind,
    source: CalibrationSet,
    *,
    quantity: str,
    threshold: float,
    confidence: float,
    goals: Mapping[str, float],
    guarantee: str,
    evidence: Mapping[str, float],
    seed: int,
    notes: tuple[str, ...] = (),
    positive: int | None = None,
) -> Policy:
    """Make a policy with the facts of its calibration set; arguments as of :class:`Policy`."""
    predictions = source.predictions
    facts: dict[str, Any] = {
        "target": predictions.target,
        "class_count": predictions.class_count,
        "classes": predictions.classes,
        "temperature": float(predictions.temperature),
        "samples": predictions.samples,
        "grouped": predictions.group is not None,
        "split": predictions.kind,
        "seen": _seen(predictions, quantity, seed),
    }
    if predictions.kind in SELECTED:
        guarantee = (
            f"No guarantee: fitted by force on a {predictions.kind!r} split, which training or selection has used."
        )
    return Policy(
        kind, quantity, threshold, confidence, dict(goals), positive, guarantee, dict(evidence),
        (*source.notes, *notes), **facts,
    )  # fmt: skip


def _seen(predictions: Predictions, quantity: str, seed: int) -> tuple[float, ...]:
    """Return uncertainties of independent rows (one per group), ascending; a random subset of very many."""
    values = independent_uncertainties(predictions, quantity, seed=seed)
    if len(values) > SEEN:
        values = np.sort(np.random.default_rng(seed).choice(values, SEEN, replace=False))
    return tuple(values.tolist())
