"""Referral: scores of the rows retained when the most uncertain ones are referred to an expert (R §2.4).

Each retained fraction is computed on its own. The retained are the least uncertain rows by a chosen quantity; a block
of equally uncertain rows across the cut is retained in part, every row of it with the same weight, so that the order of
rows never matters (accuracy is then the expectation over all orders).

Sensitivity and specificity are those of the best threshold that keeps the other one at its level; a threshold never
splits tied rows and nothing is interpolated. Sides are those of :func:`dubio.metrics.decisions.binary_problems`: class
1 of two, P(grade ≥ 2) of grades, otherwise one class against the rest, averaged. The NHS asks a sensitivity of 85 % at
a specificity of 80 %.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from dubio.core.errors import UserError
from dubio.core.predictions import Predictions
from dubio.core.types import BoolArray, FloatArray, IntArray
from dubio.core.weights import ONCE, Values, Weights
from dubio.metrics.areas import auroc, retained_weights, roc_area
from dubio.metrics.decisions import LOG_ODDS, binary_problems, correct, why_undefined
from dubio.metrics.metric import metric, prepared
from dubio.metrics.quantities import CONFIDENCE, Quantity, uncertainty
from dubio.metrics.ranking import Marked, Ordering, ordered
from dubio.metrics.requirements import labelled

FRACTIONS = (0.5, 0.6, 0.7, 0.8, 0.9, 1.0)
NHS_POINT = (0.85, 0.80)
"""Sensitivity and specificity asked of diabetic-retinopathy screening (R §2.4)."""

SLACK = 1e-12
"""Rates are quotients of whole numbers: a little slack prevents a level from missing its own count by rounding."""


@dataclass(frozen=True, eq=False)
class ReferralCurve:
    """Accuracy and AUC of the retained rows at each retained fraction.

    Attributes:
        quantity: The quantity rows were referred by.
        fraction: ``[F]`` the fractions.
        retained: ``[F]`` rows retained, at least one.
        accuracy: ``[F]`` accuracy of the retained.
        auc: ``[F]`` area under the ROC curve of the retained, NaN where undefined.
        undefined: ``[F]`` why the area is undefined, or None.
    """

    quantity: Quantity
    fraction: FloatArray
    retained: IntArray
    accuracy: FloatArray
    auc: FloatArray
    undefined: tuple[str | None, ...]


def referral_curve(
    predictions: Predictions,
    *,
    quantity: Quantity = CONFIDENCE,
    fractions: Sequence[float] = FRACTIONS,
    seed: int = 0,
) -> ReferralCurve:
    """Return accuracy and AUC as a function of the fraction retained.

    Args:
        predictions: Labelled rows are used.
        quantity: What to refer by; a name in :data:`dubio.metrics.quantities.QUANTITIES`.
        fractions: Fractions retained, each above 0 and at most 1.
        seed: Used by ``random`` alone.
    """
    rows = labelled(predictions, "the referral curve")
    ordering = ordered(uncertainty(rows, quantity, seed=seed))
    right, problems = correct(rows), binary_problems(rows)
    ranks = [Marked.fewer(problem.scores, problem.positive, unit=LOG_ODDS) for problem in problems]
    numbers, accuracies, areas, reasons = [], [], [], []
    for fraction in fractions:
        weights = _retained(ordering, Weights.once(len(rows)), fraction)
        numbers.append(round(weights.totals[0]))
        accuracies.append(float(weights.mean(right)[0]))
        areas.append(float(np.mean([roc_area(marked, weights)[0] for marked in ranks])))
        reasons.append(why_undefined(problems, weights.counts[:, 0] > 0))
    return ReferralCurve(
        quantity,
        np.array(fractions, dtype=float),
        np.array(numbers),
        np.array(accuracies),
        np.array(areas),
        tuple(reasons),
    )


def _retained(ordering: Ordering, weights: Weights, fraction: float) -> Weights:
    if not 0 < fraction <= 1:
        raise UserError(f"fraction retained must lie above 0 and be at most 1; given {fraction}.")
    return retained_weights(ordering, weights, fraction)


@dataclass(frozen=True, eq=False)
class RocCurve:
    """A ROC curve: (1 − specificity, sensitivity) at every threshold, from (0, 0) to (1, 1)."""

    false_positive_rate: FloatArray
    true_positive_rate: FloatArray
    area: float


def retained_roc(
    predictions: Predictions, *, fraction: float = 1.0, quantity: Quantity = CONFIDENCE, seed: int = 0
) -> RocCurve:
    """Return the ROC curve of the rows retained at one fraction, of a binary task or an ordinal one by its grade.

    Raises:
        UserError: When there are more than two sides, or the retained rows all lie on one.
    """
    rows = labelled(predictions, "the ROC curve")
    problems = binary_problems(rows)
    if len(problems) != 1:
        raise UserError(
            f"the ROC curve needs a binary or ordinal task; these predictions have {len(problems)} classes."
        )
    ordering = ordered(uncertainty(rows, quantity, seed=seed))
    weights = _retained(ordering, Weights.once(len(rows)), fraction).counts[:, 0]
    reason = why_undefined(problems, weights > 0)
    if reason is not None:
        raise UserError(f"the ROC curve at {fraction:.0%} retained is undefined: {reason}.")
    return roc_curve(problems[0].scores, problems[0].positive, weights)


def roc_curve(scores: FloatArray, positive: BoolArray, weights: FloatArray) -> RocCurve:
    """Return the ROC curve of log-odds ``[N]``, both sides among the rows that weigh; no threshold splits tied rows."""
    ordering = ordered(-scores, unit=LOG_ODDS)
    ups, downs = np.cumsum(ordering.sums(weights * positive)), np.cumsum(ordering.sums(weights * ~positive))
    return RocCurve(
        np.append(0.0, downs / downs[-1]),
        np.append(0.0, ups / ups[-1]),
        auroc(scores, positive, weights, unit=LOG_ODDS),
    )


def best_sensitivity(curve: RocCurve, specificity: float) -> float:
    """Return the highest sensitivity of a threshold whose specificity is at least the level."""
    allowed = curve.false_positive_rate <= 1.0 - specificity + SLACK
    return float(curve.true_positive_rate[allowed].max())


def best_specificity(curve: RocCurve, sensitivity: float) -> float:
    """Return the highest specificity of a threshold whose sensitivity is at least the level."""
    allowed = curve.true_positive_rate >= sensitivity - SLACK
    return float(1.0 - curve.false_positive_rate[allowed].min())


@prepared
def _by_uncertainty(p: Predictions, quantity: Quantity) -> Ordering:
    return ordered(uncertainty(p, quantity))


@prepared
def _ranks(p: Predictions) -> tuple[Marked, ...]:
    problems = binary_problems(p)
    return tuple(Marked.fewer(problem.scores, problem.positive, unit=LOG_ODDS) for problem in problems)


@metric(
    "referral_accuracy", better="higher", needs={"labels"}, summary="Accuracy of the retained at one retained fraction."
)
def referral_accuracy(
    p: Predictions, *, quantity: Quantity = CONFIDENCE, retained: float = 0.8, weights: Weights = ONCE
) -> Values:
    """Accuracy of the least uncertain share of rows."""
    return _retained(_by_uncertainty(p, quantity), weights, retained).mean(correct(p))


@metric(
    "referral_auc",
    better="higher",
    needs={"labels", "two_classes", "probs"},
    summary="AUC of the retained at one retained fraction.",
)
def referral_auc(
    p: Predictions, *, quantity: Quantity = CONFIDENCE, retained: float = 0.8, weights: Weights = ONCE
) -> Values:
    """AUC of the least uncertain share of rows; NaN where they are of one class."""
    share = _retained(_by_uncertainty(p, quantity), weights, retained)
    return np.asarray(np.mean([roc_area(ranks, share) for ranks in _ranks(p)], axis=0))


def _over_problems(p: Predictions, figure: Callable[[RocCurve], float], quantity: Quantity, retained: float) -> float:
    """Return the mean figure over the binary problems on the rows retained; NaN where those of one lie on one side."""
    problems = binary_problems(p)
    weights = _retained(ordered(uncertainty(p, quantity)), Weights.once(len(p)), retained).counts[:, 0]
    if why_undefined(problems, weights > 0) is not None:
        return float("nan")
    return float(np.mean([figure(roc_curve(problem.scores, problem.positive, weights)) for problem in problems]))


def _check_level(name: str, value: float) -> None:
    if not 0 < value < 1:
        raise UserError(f"{name} must lie between 0 and 1; given {value}.")


@metric(
    "sensitivity_at_specificity",
    better="higher",
    needs={"labels", "two_classes", "probs"},
    summary="Share of positives detected at a given specificity.",
)
def sensitivity_at_specificity(
    p: Predictions, *, specificity: float = 0.80, retained: float = 1.0, quantity: Quantity = CONFIDENCE
) -> float:
    """Highest sensitivity where specificity is at least 80 %, of the rows retained."""
    _check_level("specificity", specificity)
    return _over_problems(p, lambda curve: best_sensitivity(curve, specificity), quantity, retained)


@metric(
    "specificity_at_sensitivity",
    better="higher",
    needs={"labels", "two_classes", "probs"},
    summary="Share of negatives passed at a given sensitivity.",
)
def specificity_at_sensitivity(
    p: Predictions, *, sensitivity: float = 0.85, retained: float = 1.0, quantity: Quantity = CONFIDENCE
) -> float:
    """Highest specificity where sensitivity is at least 85 %, of the rows retained."""
    _check_level("sensitivity", sensitivity)
    return _over_problems(p, lambda curve: best_specificity(curve, sensitivity), quantity, retained)
