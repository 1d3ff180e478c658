"""Selective prediction: how accuracy rises as the least certain rows are referred.

Rows are rejected by number, never by a confidence threshold (P §3.3), the most uncertain first. Rows that are equally
uncertain are rejected in the average of all orders, so the order of rows never matters. With e(k) the expected number
of errors among the k most certain of n rows and a the accuracy of all::

    risk(k)        = e(k) / k
    aurc           = mean_{k=1..n} risk(k)
    au_arc         = 1 − aurc                          (mean accuracy of the retained)
    e_aurc         = aurc − aurc of the ideal order, all errors last
    augrc          = ∫ e/n d(coverage), trapezoidal from coverage 0
    referral_gain  = au_arc − a                        (referral at random retains an accuracy of a at every coverage)
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dubio.core.predictions import Predictions
from dubio.core.types import BoolArray, FloatArray, IntArray
from dubio.core.weights import ONCE, Values, Weights
from dubio.metrics.areas import excess_risk_area, generalised_risk_area, precision_area, risk_area, roc_area
from dubio.metrics.decisions import correct
from dubio.metrics.metric import metric, prepared
from dubio.metrics.quantities import CONFIDENCE, Quantity, uncertainty
from dubio.metrics.ranking import Marked, ordered
from dubio.metrics.requirements import labelled

ROUNDING = 1e-12
"""A gain smaller than this is none: where all rows are tied, only rounding is left of it."""

ONE_MODEL = (
    "Each model is judged on its own mistakes, so a worse model may detect them more easily; "
    "it describes one model and ranks none."
)
OWN_IDEAL = "It is measured against each model's own ideal order, which differs with its accuracy; aurc ranks."
OWN_ACCURACY = "It is measured from each model's own accuracy, and a worse model has more to gain; au_arc ranks."


@dataclass(frozen=True, eq=False)
class RejectionCurve:
    """Accuracy of the retained as rows are rejected, for 0, 1, … n − 1 rejected.

    Attributes:
        rejected: ``[n]`` number rejected, ascending from 0.
        coverage: ``[n]`` share retained.
        accuracy: ``[n]`` accuracy of the retained.
    """

    rejected: IntArray
    coverage: FloatArray
    accuracy: FloatArray


def expected_errors(scores: FloatArray, wrong: BoolArray) -> FloatArray:
    """Return e(k) for k = 1..n, the expected number of errors among the k rows of lowest score."""
    ordering = ordered(scores)
    return np.cumsum((ordering.sums(wrong) / ordering.sizes)[ordering.block])


def rejection_curve(predictions: Predictions, *, quantity: Quantity = CONFIDENCE) -> RejectionCurve:
    """Return the accuracy–rejection curve by number rejected."""
    rows = labelled(predictions, "the rejection curve")
    errors = expected_errors(uncertainty(rows, quantity), ~correct(rows))
    retained = np.arange(len(errors), 0, -1)
    return RejectionCurve(len(errors) - retained, retained / len(errors), 1.0 - errors[::-1] / retained)


@prepared
def _errors(predictions: Predictions, quantity: Quantity) -> Marked:
    """Order rows by uncertainty and mark the wrong ones."""
    return Marked.fewer(uncertainty(predictions, quantity), ~correct(predictions))


@prepared
def _errors_first(predictions: Predictions, quantity: Quantity) -> Marked:
    """Order rows by uncertainty, the most uncertain first, and mark the wrong ones."""
    return Marked(ordered(-uncertainty(predictions, quantity)), ~correct(predictions))


@metric("aurc", better="lower", needs={"labels"})
def aurc(p: Predictions, *, quantity: Quantity = CONFIDENCE, weights: Weights = ONCE) -> Values:
    """Area under the risk–coverage curve: the mean over coverages 1/n, 2/n, … 1 of the error of the retained."""
    return risk_area(_errors(p, quantity), weights)


@metric("au_arc", better="higher", needs={"labels"})
def au_arc(p: Predictions, *, quantity: Quantity = CONFIDENCE, weights: Weights = ONCE) -> Values:
    """Area under the accuracy–rejection curve, 1 − aurc."""
    return 1.0 - risk_area(_errors(p, quantity), weights)


@metric("e_aurc", better="lower", needs={"labels"}, why_not=OWN_IDEAL)
def e_aurc(p: Predictions, *, quantity: Quantity = CONFIDENCE, weights: Weights = ONCE) -> Values:
    """Excess of aurc over that of an ideal order of the same decisions, in which every error comes last."""
    return excess_risk_area(_errors(p, quantity), weights)


@metric("augrc", better="lower", needs={"labels"})
def augrc(p: Predictions, *, quantity: Quantity = CONFIDENCE, weights: Weights = ONCE) -> Values:
    """Area under the generalised risk–coverage curve: ∫ P(wrong and retained) d(coverage), between 0 and 1/2.

    Equals (1 − AUROC) a (1 − a) + (1 − a)²/2 for accuracy a and the misclassification AUROC.
    """
    return generalised_risk_area(_errors(p, quantity), weights)


@metric("referral_gain", better="higher", needs={"labels"}, why_not=OWN_ACCURACY)
def referral_gain(p: Predictions, *, quantity: Quantity = CONFIDENCE, weights: Weights = ONCE) -> Values:
    """Area under the referral curve minus that of referral at random.

    It is 0 for an uncertainty that says nothing, and negative for one that refers what is right.
    """
    gain = 1.0 - risk_area(_errors(p, quantity), weights) - weights.mean(correct(p))
    return np.where(np.abs(gain) < ROUNDING, 0.0, gain)


@metric("misclassification_auroc", better="higher", needs={"labels"}, why_not=ONE_MODEL)
def misclassification_auroc(p: Predictions, *, quantity: Quantity = CONFIDENCE, weights: Weights = ONCE) -> Values:
    """AUROC of detecting wrong decisions by uncertainty; NaN where all are right or all wrong."""
    return roc_area(_errors(p, quantity), weights)


@metric("misclassification_aupr", better="higher", needs={"labels"}, why_not=ONE_MODEL)
def misclassification_aupr(p: Predictions, *, quantity: Quantity = CONFIDENCE, weights: Weights = ONCE) -> Values:
    """Average precision of detecting wrong decisions by uncertainty; NaN where all are right or all wrong."""
    return precision_area(_errors_first(p, quantity), weights)
