"""Referral: accuracy and AUC of what is kept when the most uncertain rows are referred to an expert (R §2.4).

Each retained fraction is computed on its own. The kept are the least uncertain rows by a chosen quantity; a block of
equally uncertain rows across the cut is kept in part, every row of it with the same weight, so that the order of rows
never matters (accuracy is then the expectation over all orders).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dubio.core.errors import UserError
from dubio.core.predictions import Predictions
from dubio.core.registry import metric
from dubio.core.types import BoolArray, FloatArray, IntArray, Metric
from dubio.metrics.auc import LOG_ODDS, area, contests
from dubio.metrics.naming import written
from dubio.metrics.needs import labelled
from dubio.metrics.outcomes import correct
from dubio.metrics.quantities import needs_with, uncertainty
from dubio.metrics.ranking import Ordering, auroc, ordered

FRACTIONS = (0.5, 0.6, 0.7, 0.8, 0.9, 1.0)
NHS_POINT = (0.85, 0.80)
"""Sensitivity and specificity asked of diabetic-retinopathy screening (R §2.4)."""


@dataclass(frozen=True, eq=False)
class ReferralCurve:
    """Accuracy and AUC of the kept rows at each retained fraction.

    Attributes:
        quantity: What rows were referred by.
        fraction: ``[F]`` the fractions asked for.
        kept: ``[F]`` rows kept, at least one.
        accuracy: ``[F]`` accuracy of the kept.
        auc: ``[F]`` area under the ROC curve of the kept, NaN where undefined.
        undefined: ``[F]`` why the area is undefined, or None.
    """

    quantity: str
    fraction: FloatArray
    kept: IntArray
    accuracy: FloatArray
    auc: FloatArray
    undefined: tuple[str | None, ...]


def referral_curve(
    predictions: Predictions,
    *,
    quantity: str = "confidence",
    fractions: Sequence[float] = FRACTIONS,
    seed: int = 0,
) -> ReferralCurve:
    """Accuracy and AUC as a function of the fraction retained.

    Args:
        predictions: Labelled rows are used.
        quantity: What to refer by; a name in :data:`dubio.metrics.quantities.QUANTITIES`.
        fractions: Fractions retained, each above 0 and at most 1.
        seed: Used by ``random`` alone.
    """
    known = labelled(predictions, "the referral curve")
    ordering = ordered(uncertainty(known, quantity, seed=seed))
    right = correct(known).astype(np.float64)
    questions = contests(known)
    kept, accuracies, areas, reasons = [], [], [], []
    for fraction in fractions:
        weights = kept_weights(ordering, fraction)
        kept.append(round(weights.sum()))
        accuracies.append(float(weights @ right / weights.sum()))
        value, reason = area(questions, weights)
        areas.append(value)
        reasons.append(reason)
    return ReferralCurve(
        quantity,
        np.array(fractions, dtype=float),
        np.array(kept),
        np.array(accuracies),
        np.array(areas),
        tuple(reasons),
    )


def kept_weights(ordering: Ordering, fraction: float) -> FloatArray:
    """How much of each row is kept, ``[N]`` between 0 and 1, summing to the number kept.

    Args:
        ordering: Rows by uncertainty.
        fraction: Of n rows, the nearest whole number to fraction × n is kept (halves upwards), at least one.

    Raises:
        UserError: For a fraction outside (0, 1].
    """
    if not 0 < fraction <= 1:
        raise UserError(f"fraction retained must lie above 0 and be at most 1; given {fraction}.")
    count = len(ordering.order)
    keep = max(1, int(np.floor(fraction * count + 0.5)))
    share = np.clip((keep - ordering.starts) / ordering.sizes, 0.0, 1.0)
    weights = np.empty(count)
    weights[ordering.order] = share[ordering.block]
    return weights


@dataclass(frozen=True, eq=False)
class RocCurve:
    """A ROC curve: (1 − specificity, sensitivity) at every threshold, from (0, 0) to (1, 1)."""

    false_positive_rate: FloatArray
    true_positive_rate: FloatArray
    area: float


def retained_roc(
    predictions: Predictions, *, fraction: float = 1.0, quantity: str = "confidence", seed: int = 0
) -> RocCurve:
    """The ROC curve of the rows kept at one fraction, of a task with two sides (binary, or ordinal by its grade).

    Raises:
        UserError: When there are more than two sides, or the kept rows all lie on one.
    """
    known = labelled(predictions, "the ROC curve")
    questions = contests(known)
    if len(questions) != 1:
        raise UserError(
            f"the ROC curve needs a binary or ordinal task; these predictions have {len(questions)} classes."
        )
    _, scores, positive = questions[0]
    weights = kept_weights(ordered(uncertainty(known, quantity, seed=seed)), fraction)
    _, reason = area(questions, weights)
    if reason is not None:
        raise UserError(f"the ROC curve at {fraction:.0%} retained is undefined: {reason}.")
    return roc_curve(scores, positive, weights)


def roc_curve(scores: FloatArray, positive: BoolArray, weights: FloatArray) -> RocCurve:
    """The ROC curve of log-odds ``[N]`` with both sides among the rows that weigh; a threshold splits no tied rows."""
    ordering = ordered(-scores, unit=LOG_ODDS)
    ups, downs = np.cumsum(ordering.sums(weights * positive)), np.cumsum(ordering.sums(weights * ~positive))
    return RocCurve(
        np.append(0.0, downs / downs[-1]),
        np.append(0.0, ups / ups[-1]),
        auroc(scores, positive, weights, unit=LOG_ODDS),
    )


def _at(predictions: Predictions, quantity: str, retained: float) -> ReferralCurve:
    return referral_curve(predictions, quantity=quantity, fractions=(retained,))


@metric("referral_accuracy")
def referral_accuracy_metric(*, quantity: str = "confidence", retained: float = 0.8) -> Metric:
    """Accuracy of the least uncertain share of rows."""
    name = written("referral_accuracy", quantity=(quantity, "confidence"), retained=(retained, 0.8))
    return Metric(
        name,
        "higher",
        lambda p: float(_at(p, quantity, retained).accuracy[0]),
        needs=needs_with(quantity, "labels"),
        summary="Accuracy of the kept at one retained fraction.",
    )


@metric("referral_auc")
def referral_auc_metric(*, quantity: str = "confidence", retained: float = 0.8) -> Metric:
    """AUC of the least uncertain share of rows; undefined where they are of one class."""
    name = written("referral_auc", quantity=(quantity, "confidence"), retained=(retained, 0.8))
    return Metric(
        name,
        "higher",
        lambda p: float(_at(p, quantity, retained).auc[0]),
        needs=needs_with(quantity, "labels", "two_classes"),
        summary="AUC of the kept at one retained fraction.",
    )
