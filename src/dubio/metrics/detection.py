"""Out-of-distribution detection: is uncertainty higher on out-of-distribution examples than on in-distribution ones?

The input is one set of predictions with ``ood`` flags (:func:`dubio.core.predictions.join` of an in-distribution and
an OOD set). Positive = out of distribution, score = uncertainty, unless the name says otherwise. Areas under
precision–recall curves depend on the share of OOD rows, so that share is reported beside them.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dubio.core.errors import UserError
from dubio.core.predictions import Predictions
from dubio.core.types import BoolArray, Direction, FloatArray
from dubio.core.weights import ONCE, Values, Weights
from dubio.metrics.areas import (
    correlation,
    correlations,
    false_positive_rate,
    precision_area,
    ratio,
    roc_area,
)
from dubio.metrics.decisions import correct
from dubio.metrics.metric import metric, prepared
from dubio.metrics.quantities import CONFIDENCE, QUANTITIES, Quantity, uncertainty
from dubio.metrics.ranking import Marked, ordered
from dubio.metrics.requirements import require

BAD_EVERYWHERE = "A model that is bad everywhere has no gap; read it beside accuracy."


@dataclass(frozen=True)
class Detection:
    """How well one quantity detects out-of-distribution rows.

    Attributes:
        quantity: Which quantity.
        auroc: Area under the ROC curve.
        aupr_ood: Average precision, OOD rows positive, score = uncertainty.
        aupr_id: Average precision, in-distribution rows positive, score = −uncertainty.
        fpr95: False-positive rate at a true-positive rate of at least 95 %.
        correlation: Signed point-biserial correlation of the quantity *as defined* with the flag (so that of
            ``confidence`` is negative where detection works); NaN where the quantity does not vary.
        prevalence: Share of OOD rows.
    """

    quantity: Quantity
    auroc: float
    aupr_ood: float
    aupr_id: float
    fpr95: float
    correlation: float
    prevalence: float


def detect(predictions: Predictions, quantity: Quantity = CONFIDENCE, *, seed: int = 0) -> Detection:
    """Return every detection figure of one quantity.

    Args:
        predictions: With ``ood`` flags of both kinds.
        quantity: A name in :data:`dubio.metrics.quantities.QUANTITIES`.
        seed: Used by ``random`` alone.

    Raises:
        UserError: When all rows are of one kind or the quantity is not defined for them.
    """
    require(predictions, {"ood"}, "out-of-distribution detection")
    return detection_of(uncertainty(predictions, quantity, seed=seed), predictions.ood, quantity)


def detection_of(scores: FloatArray, ood: BoolArray, quantity: Quantity) -> Detection:
    """Return every detection figure of an uncertainty.

    Args:
        scores: ``[N]``, higher = more uncertain.
        ood: ``[N]``, which rows are out of distribution.
        quantity: Which quantity the scores are of.
    """
    once, lowest_first = Weights.once(len(scores)), ordered(scores)
    ood_first = Marked(ordered(-scores), ood)
    return Detection(
        quantity,
        float(roc_area(Marked.fewer_of(lowest_first, ood), once)[0]),
        float(precision_area(ood_first, once)[0]),
        float(precision_area(Marked(lowest_first, ~ood), once)[0]),
        float(false_positive_rate(ood_first, once)[0]),
        _sign(quantity) * correlation(scores, ood),
        float(ood.mean()),
    )


def _sign(quantity: Quantity) -> float:
    """Return −1 for a quantity that falls with uncertainty, else 1."""
    return -1.0 if quantity in QUANTITIES and not QUANTITIES[quantity].higher_is_more_uncertain else 1.0


@prepared
def _ood(p: Predictions, quantity: Quantity) -> Marked:
    """Order rows by uncertainty and mark those out of distribution."""
    return Marked.fewer(uncertainty(p, quantity), p.ood)


@prepared
def _ood_first(p: Predictions, quantity: Quantity) -> Marked:
    """Order rows by uncertainty, the most uncertain first, and mark those out of distribution."""
    return Marked(ordered(-uncertainty(p, quantity)), p.ood)


@prepared
def _id_first(p: Predictions, quantity: Quantity) -> Marked:
    """Order rows by uncertainty and mark those in distribution."""
    return Marked(ordered(uncertainty(p, quantity)), ~p.ood)


def placements(scores: FloatArray, ood: BoolArray) -> FloatArray:
    """Return a value for every row, whose mean is the AUROC and whose spread is DeLong's variance of it.

    With θ the area, n out-of-distribution and m in-distribution rows and N = n + m, every OOD row has its placement V
    among the in-distribution ones (the share of them below it, ties counting one half) and every in-distribution row
    its share W of OOD ones above it. The values θ + (N/n)(V − θ) and θ + (N/m)(W − θ) average to θ, and the variance of
    their mean is DeLong, DeLong and Clarke-Pearson's (1988) up to n/(n − 1) and m/(m − 1). Differences of two systems
    on the same rows are paired by it.

    Args:
        scores: ``[N]``, higher = more uncertain.
        ood: ``[N]``, which rows are out of distribution.
    """
    shares = np.empty(len(scores))
    shares[ood] = share_below(scores[~ood], scores[ood])
    shares[~ood] = 1.0 - share_below(scores[ood], scores[~ood])
    area = shares[ood].mean()
    counts = np.where(ood, np.count_nonzero(ood), np.count_nonzero(~ood))
    return np.asarray(area + len(scores) / counts * (shares - area))


def share_below(reference: FloatArray, values: FloatArray) -> FloatArray:
    """Return the share of the reference below each value, ties counting one half."""
    in_order = np.sort(reference)
    lower, upper = np.searchsorted(in_order, values, "left"), np.searchsorted(in_order, values, "right")
    return np.asarray((lower + upper) / (2 * len(in_order)))


def _placements(p: Predictions, *, quantity: Quantity) -> FloatArray:
    return placements(uncertainty(p, quantity), p.ood)


@metric("ood_auroc", better="higher", needs={"ood"}, rows=_placements)
def ood_auroc(p: Predictions, *, quantity: Quantity = CONFIDENCE, weights: Weights = ONCE) -> Values:
    """AUROC of OOD detection: the chance that an OOD row is more uncertain than an in-distribution one."""
    return roc_area(_ood(p, quantity), weights)


@metric("ood_aupr", better="higher", needs={"ood"})
def ood_aupr(p: Predictions, *, quantity: Quantity = CONFIDENCE, weights: Weights = ONCE) -> Values:
    """Average precision with out-of-distribution rows positive."""
    return precision_area(_ood_first(p, quantity), weights)


@metric("id_aupr", better="higher", needs={"ood"})
def id_aupr(p: Predictions, *, quantity: Quantity = CONFIDENCE, weights: Weights = ONCE) -> Values:
    """Average precision with in-distribution rows positive and certainty as the score."""
    return precision_area(_id_first(p, quantity), weights)


# Of few OOD rows the lowest one or two set the threshold, and the bootstrap of an extreme has no valid variance.
@metric("ood_fpr95", better="lower", needs={"ood"}, least_units=40)
def ood_fpr95(p: Predictions, *, quantity: Quantity = CONFIDENCE, weights: Weights = ONCE) -> Values:
    """Share of in-distribution rows flagged at the threshold that flags at least 95 % of the OOD ones."""
    return false_positive_rate(_ood_first(p, quantity), weights)


def _direction(quantity: Quantity) -> Direction:
    return "higher" if _sign(quantity) > 0 else "lower"


@metric("ood_correlation", better=_direction, needs={"ood"})
def ood_correlation(p: Predictions, *, quantity: Quantity = CONFIDENCE, weights: Weights = ONCE) -> Values:
    """Signed point-biserial correlation of the quantity as defined with the out-of-distribution flag."""
    return _sign(quantity) * correlations(uncertainty(p, quantity), p.ood, weights)


@metric("generalisation_gap", better="lower", needs={"labels", "ood"}, why_not=BAD_EVERYWHERE)
def generalisation_gap(p: Predictions, *, weights: Weights = ONCE) -> Values:
    """Accuracy in distribution − accuracy out of distribution, over labelled rows of each (T Fig. 4)."""
    if p.ood.all() or not p.ood.any():
        needed = "labelled rows both in and out of distribution"
        raise UserError(f"generalisation_gap cannot be computed: it needs {needed}.")
    right = correct(p)
    inside, outside = (ratio(weights.sums(right & side), weights.sums(side)) for side in (~p.ood, p.ood))
    return np.asarray(inside - outside)
