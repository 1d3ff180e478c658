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

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from dubio.core.errors import UserError, check_between_0_and_1
from dubio.core.predictions import Predictions
from dubio.core.types import FloatArray, IntArray
from dubio.core.weights import ONCE, Values, Weights
from dubio.metrics.areas import false_positive_rate, retained_weights
from dubio.metrics.decisions import LOG_ODDS, binary_problems, correct, why_undefined
from dubio.metrics.metric import metric, prepared
from dubio.metrics.quantities import CONFIDENCE, Quantity, uncertainty
from dubio.metrics.ranking import Marked, Ordering, ordered
from dubio.metrics.requirements import labelled
from dubio.metrics.scoring import class_auroc

FRACTIONS = (0.5, 0.6, 0.7, 0.8, 0.9, 1.0)
NHS_POINT = (0.85, 0.80)
"""Sensitivity and specificity asked of diabetic-retinopathy screening (R §2.4)."""


_of_sides = partial(metric, better="higher", needs={"labels", "two_classes", "probs"}, least_units=15)
"""With few rows of a class only some of them are retained, and others in another system: how many decide is unknown."""


@dataclass(frozen=True, eq=False)
class ReferralCurve:
    """Accuracy and AUC of the retained rows at each of F retained fractions.

    Attributes:
        retained: ``[F]`` rows retained, at least one.
        accuracy: ``[F]`` accuracy of the retained.
        auc: ``[F]`` area under the ROC curve of the retained, NaN where they are of one class.
    """

    retained: IntArray
    accuracy: FloatArray
    auc: FloatArray


def referral_curve(
    predictions: Predictions, *, quantity: Quantity = CONFIDENCE, fractions: Sequence[float] = FRACTIONS
) -> ReferralCurve:
    """Return accuracy and AUC as a function of the fraction retained.

    Args:
        predictions: Labelled rows are used.
        quantity: What to refer by; a name in :data:`dubio.metrics.quantities.QUANTITIES`.
        fractions: Fractions retained, each above 0 and at most 1.
    """
    rows = labelled(predictions, "the referral curve")
    ordering, once = ordered(uncertainty(rows, quantity)), Weights.once(len(rows))
    columns = [retained_weights(ordering, once, fraction).counts for fraction in fractions]
    weights = Weights(np.concatenate(columns, axis=1))
    retained = np.rint(weights.totals).astype(np.int64)
    return ReferralCurve(retained, weights.mean(correct(rows)), class_auroc(rows, weights=weights))


@dataclass(frozen=True, eq=False)
class RocCurve:
    """A ROC curve: (1 − specificity, sensitivity) at every threshold, from (0, 0) to (1, 1)."""

    false_positive_rate: FloatArray
    true_positive_rate: FloatArray


def retained_roc(predictions: Predictions, *, fraction: float = 1.0, quantity: Quantity = CONFIDENCE) -> RocCurve:
    """Return the ROC curve of the rows retained at one fraction, of a binary task or an ordinal one by its grade.

    No threshold splits tied rows.

    Raises:
        UserError: When there are more than two sides, or the retained rows all lie on one.
    """
    rows = labelled(predictions, "the ROC curve")
    problems = binary_problems(rows)
    if len(problems) != 1:
        raise UserError(f"the ROC curve needs a binary or ordinal task; these have {len(problems)} classes.")
    weights = _retained(rows, quantity, fraction, Weights.once(len(rows))).counts[:, 0]
    reason = why_undefined(problems, weights > 0)
    if reason is not None:
        raise UserError(f"the ROC curve at {fraction:.0%} retained is undefined: {reason}.")
    ordering, positive = ordered(-problems[0].scores, unit=LOG_ODDS), problems[0].positive
    ups, downs = (np.append(0.0, np.cumsum(ordering.sums(weights * side))) for side in (positive, ~positive))
    return RocCurve(downs / downs[-1], ups / ups[-1])


@prepared
def _by_uncertainty(p: Predictions, quantity: Quantity) -> Ordering:
    return ordered(uncertainty(p, quantity))


def _retained(p: Predictions, quantity: Quantity, fraction: float, weights: Weights) -> Weights:
    """Return the weights of what is retained of each row when the most uncertain rows are referred."""
    return retained_weights(_by_uncertainty(p, quantity), weights, fraction)


@metric("referral_accuracy", better="higher", needs={"labels"})
def referral_accuracy(
    p: Predictions, *, quantity: Quantity = CONFIDENCE, retained: float = 0.8, weights: Weights = ONCE
) -> Values:
    """Accuracy of the least uncertain share of rows."""
    return _retained(p, quantity, retained, weights).mean(correct(p))


def accuracy_changes(predictions: Predictions, *, quantity: Quantity = CONFIDENCE, retained: float = 0.8) -> FloatArray:
    """Return one value per row, whose mean is what referral changes: accuracy of the retained less that of all rows.

    With c_i whether row i is right, c̄ the accuracy of all rows and s_i = N·w_i / Σw, w_i the weight of row i among the
    retained, these are (s_i − 1)·(c_i − c̄). Their spread over rows (groups) is to give the standard error in a test of
    whether being retained and being right have anything to do with each other. Where no error happens to be referred it
    is too small; it is stretched to at least the one that rows retained at random have on average,
    Σ(s_i − 1)²·Σ(c_i − c̄)² / (N − 1).

    Args:
        predictions: Labelled rows.
        quantity: The uncertainty by which rows are referred.
        retained: The share of rows that is not referred.
    """
    weights = _retained(predictions, quantity, retained, Weights.once(len(predictions)))
    right = correct(predictions).astype(np.float64)
    shares, centred = weights.real[:, 0] * (len(right) / weights.totals[0]) - 1.0, right - right.mean()
    rows = shares * centred
    change = rows.mean()
    own, at_random = np.sum((rows - change) ** 2), np.sum(shares**2) * np.sum(centred**2) / max(len(rows) - 1, 1)
    stretched = max(1.0, np.sqrt(at_random / own)) if own > 0 else 1.0
    return np.asarray(change + stretched * (rows - change))


@_of_sides("referral_auc")
def referral_auc(
    p: Predictions, *, quantity: Quantity = CONFIDENCE, retained: float = 0.8, weights: Weights = ONCE
) -> Values:
    """AUC of the least uncertain share of rows; NaN where they are of one class."""
    return np.asarray(class_auroc(p, weights=_retained(p, quantity, retained, weights)))


@prepared
def _from_the_top(p: Predictions) -> list[Marked]:
    """Order rows by the log-odds of each binary problem, highest first, and mark its positive side."""
    return [Marked(ordered(-problem.scores, unit=LOG_ODDS), problem.positive) for problem in binary_problems(p)]


@prepared
def _from_the_bottom(p: Predictions) -> list[Marked]:
    """Order rows by the log-odds of each binary problem, lowest first, and mark its negative side."""
    return [Marked(side.ordering.reverse(), ~side.marks) for side in _from_the_top(p)]


def _best_rate(name: str, level: float, sides: list[Marked], weights: Weights) -> Values:
    """Return the highest share of unmarked rows that a threshold passes which detects a level of the marked ones.

    One that detects the positives of highest score has that sensitivity, and passes the negatives below it; one that
    detects the negatives of lowest score has that specificity, and passes the positives above it.

    Args:
        name: What the level is of, for the message.
        level: Between 0 and 1.
        sides: One per binary problem, over which the shares are averaged.
        weights: Of the rows retained.
    """
    check_between_0_and_1(name, level)
    return 1.0 - np.asarray(np.mean([false_positive_rate(side, weights, level) for side in sides], axis=0))


@_of_sides("sensitivity_at_specificity")
def sensitivity_at_specificity(
    p: Predictions,
    *,
    specificity: float = 0.80,
    retained: float = 1.0,
    quantity: Quantity = CONFIDENCE,
    weights: Weights = ONCE,
) -> Values:
    """Highest sensitivity where specificity is at least 80 %, of the rows retained."""
    return _best_rate("specificity", specificity, _from_the_bottom(p), _retained(p, quantity, retained, weights))


@_of_sides("specificity_at_sensitivity")
def specificity_at_sensitivity(
    p: Predictions,
    *,
    sensitivity: float = 0.85,
    retained: float = 1.0,
    quantity: Quantity = CONFIDENCE,
    weights: Weights = ONCE,
) -> Values:
    """Highest specificity where sensitivity is at least 85 %, of the rows retained."""
    return _best_rate("sensitivity", sensitivity, _from_the_top(p), _retained(p, quantity, retained, weights))
