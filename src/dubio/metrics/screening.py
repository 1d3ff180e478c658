"""Screening: how many of the ill are found at a given share of false alarms, and the point the NHS asks for (R §2.4).

Both figures are those of the best threshold that keeps the other one at its level; a threshold never splits tied rows
and nothing is interpolated. Sides are those of :func:`dubio.metrics.auc.contests`: class 1 of two, P(grade ≥ 2) of
grades, otherwise one class against the rest, averaged. The NHS asks a sensitivity of 85 % at a specificity of 80 %.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from dubio.core.errors import UserError
from dubio.core.predictions import Predictions
from dubio.core.registry import metric
from dubio.core.types import Metric
from dubio.metrics.auc import area, contests
from dubio.metrics.naming import written
from dubio.metrics.needs import labelled
from dubio.metrics.quantities import needs_with, uncertainty
from dubio.metrics.ranking import ordered
from dubio.metrics.referral_curve import NHS_POINT, RocCurve, kept_weights, roc_curve

SLACK = 1e-12
"""Rates are quotients of whole numbers: a hair of slack keeps a level from missing its own count by rounding."""


def best_sensitivity(curve: RocCurve, specificity: float) -> float:
    """The highest sensitivity of a threshold whose specificity is at least the level."""
    allowed = curve.false_positive_rate <= 1.0 - specificity + SLACK
    return float(curve.true_positive_rate[allowed].max())


def best_specificity(curve: RocCurve, sensitivity: float) -> float:
    """The highest specificity of a threshold whose sensitivity is at least the level."""
    allowed = curve.true_positive_rate >= sensitivity - SLACK
    return float(1.0 - curve.false_positive_rate[allowed].min())


def meets_nhs(curve: RocCurve) -> bool:
    """Whether some threshold reaches both figures of the NHS point at once."""
    sensitivity, specificity = NHS_POINT
    return best_sensitivity(curve, specificity) >= sensitivity - SLACK


def _screened(
    predictions: Predictions, figure: Callable[[RocCurve], float], name: str, quantity: str, retained: float
) -> float:
    """The mean figure over the contests on the rows retained; NaN where the kept rows of one lie on one side."""
    known = labelled(predictions, name)
    questions = contests(known)
    weights = kept_weights(ordered(uncertainty(known, quantity)), retained)
    if area(questions, weights)[1] is not None:
        return float("nan")
    return float(np.mean([figure(roc_curve(scores, positive, weights)) for _, scores, positive in questions]))


def _level(name: str, value: float) -> None:
    if not 0 < value < 1:
        raise UserError(f"{name} must lie between 0 and 1; given {value}.")


@metric("sensitivity_at_specificity")
def sensitivity_at_specificity(
    *, specificity: float = 0.80, retained: float = 1.0, quantity: str = "confidence"
) -> Metric:
    """Highest sensitivity where specificity is at least 80 %, of the rows retained."""
    _level("specificity", specificity)
    told = {"specificity": (specificity, 0.80), "retained": (retained, 1.0), "quantity": (quantity, "confidence")}
    name = written("sensitivity_at_specificity", **told)
    return Metric(
        name,
        "higher",
        lambda p: _screened(p, lambda curve: best_sensitivity(curve, specificity), name, quantity, retained),
        needs=needs_with(quantity, "labels", "two_classes"),
        summary="Share of positives found at a given specificity.",
    )


@metric("specificity_at_sensitivity")
def specificity_at_sensitivity(
    *, sensitivity: float = 0.85, retained: float = 1.0, quantity: str = "confidence"
) -> Metric:
    """Highest specificity where sensitivity is at least 85 %, of the rows retained."""
    _level("sensitivity", sensitivity)
    told = {"sensitivity": (sensitivity, 0.85), "retained": (retained, 1.0), "quantity": (quantity, "confidence")}
    name = written("specificity_at_sensitivity", **told)
    return Metric(
        name,
        "higher",
        lambda p: _screened(p, lambda curve: best_specificity(curve, sensitivity), name, quantity, retained),
        needs=needs_with(quantity, "labels", "two_classes"),
        summary="Share of negatives passed at a given sensitivity.",
    )
