"""Selective prediction: how accuracy rises as the least certain rows are given away.

Rows are rejected by number, never by a confidence threshold (P §3.3), the most uncertain first. Rows that are equally
uncertain are rejected in the average of all orders, so the order of rows never matters. With e(k) the expected number
of errors among the k most certain of n rows::

    risk(k)  = e(k) / k
    aurc     = mean_{k=1..n} risk(k)
    au_arc   = 1 − aurc                               (mean accuracy of the kept)
    e_aurc   = aurc − aurc of the ideal order, all errors last
    augrc    = ∫ e/n d(coverage), trapezoidal from coverage 0
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dubio.core.predictions import Predictions
from dubio.core.registry import metric
from dubio.core.types import BoolArray, FloatArray, IntArray, Metric
from dubio.metrics.naming import written
from dubio.metrics.needs import labelled
from dubio.metrics.outcomes import correct
from dubio.metrics.quantities import needs_with, uncertainty
from dubio.metrics.ranking import auroc, average_precision, ordered


@dataclass(frozen=True, eq=False)
class RejectionCurve:
    """Accuracy of what is kept as rows are rejected, for 0, 1, … n − 1 rejected.

    Attributes:
        rejected: ``[n]`` number rejected, ascending from 0.
        coverage: ``[n]`` share kept.
        accuracy: ``[n]`` accuracy of the kept.
    """

    rejected: IntArray
    coverage: FloatArray
    accuracy: FloatArray


def expected_errors(scores: FloatArray, wrong: BoolArray) -> FloatArray:
    """e(k) for k = 1..n: expected number of errors among the k rows of lowest score, ties in the average order."""
    return np.cumsum(ordered(scores).averaged(wrong))


def rejection_curve(predictions: Predictions, *, quantity: str = "confidence") -> RejectionCurve:
    """The accuracy–rejection curve by number rejected."""
    errors = _errors(predictions, quantity, "the rejection curve")
    kept = np.arange(len(errors), 0, -1)
    return RejectionCurve(len(errors) - kept, kept / len(errors), 1.0 - errors[::-1] / kept)


def aurc(predictions: Predictions, *, quantity: str = "confidence") -> float:
    """Area under the risk–coverage curve: the mean over coverages 1/n, 2/n, … 1 of the error of the kept."""
    errors = _errors(predictions, quantity, "aurc")
    return float(np.mean(errors / np.arange(1, len(errors) + 1)))


def au_arc(predictions: Predictions, *, quantity: str = "confidence") -> float:
    """Area under the accuracy–rejection curve, 1 − aurc."""
    return 1.0 - aurc(predictions, quantity=quantity)


def e_aurc(predictions: Predictions, *, quantity: str = "confidence") -> float:
    """Excess over the area of an ideal order of the same decisions, in which every error comes last."""
    errors = _errors(predictions, quantity, "e_aurc")
    kept = np.arange(1, len(errors) + 1)
    ideal = np.maximum(0.0, kept - (len(errors) - errors[-1]))
    return max(0.0, float(np.mean((errors - ideal) / kept)))


def augrc(predictions: Predictions, *, quantity: str = "confidence") -> float:
    """Area under the generalised risk–coverage curve: ∫ P(wrong and kept) d(coverage), between 0 and 1/2.

    Equals (1 − AUROC) a (1 − a) + (1 − a)²/2 for accuracy a and the misclassification AUROC.
    """
    errors = _errors(predictions, quantity, "augrc")
    return float((errors.sum() - errors[-1] / 2) / len(errors) ** 2)


def misclassification_auroc(predictions: Predictions, *, quantity: str = "confidence") -> float:
    """AUROC of telling wrong decisions from right ones by uncertainty; NaN where all are right or all wrong."""
    known = labelled(predictions, "misclassification_auroc")
    return auroc(uncertainty(known, quantity), ~correct(known))


def misclassification_aupr(predictions: Predictions, *, quantity: str = "confidence") -> float:
    """Average precision of finding wrong decisions by uncertainty; NaN where all are right or all wrong."""
    known = labelled(predictions, "misclassification_aupr")
    return average_precision(uncertainty(known, quantity), ~correct(known))


def _errors(predictions: Predictions, quantity: str, name: str) -> FloatArray:
    known = labelled(predictions, name)
    return expected_errors(uncertainty(known, quantity), ~correct(known))


_ONE_MODEL = (
    "Each model is judged on its own mistakes, so a worse model may detect them more easily; "
    "it describes one model and ranks none."
)


@metric("aurc")
def aurc_metric(*, quantity: str = "confidence") -> Metric:
    """Area under the risk–coverage curve."""
    return Metric(
        written("aurc", quantity=(quantity, "confidence")),
        "lower",
        lambda p: aurc(p, quantity=quantity),
        needs=needs_with(quantity, "labels"),
        summary="Mean error of the kept over all coverages.",
    )


@metric("au_arc")
def au_arc_metric(*, quantity: str = "confidence") -> Metric:
    """Area under the accuracy–rejection curve."""
    return Metric(
        written("au_arc", quantity=(quantity, "confidence")),
        "higher",
        lambda p: au_arc(p, quantity=quantity),
        needs=needs_with(quantity, "labels"),
        summary="Mean accuracy of the kept over all coverages.",
    )


@metric("e_aurc")
def e_aurc_metric(*, quantity: str = "confidence") -> Metric:
    """Excess of aurc over the ideal order of the same decisions."""
    return Metric(
        written("e_aurc", quantity=(quantity, "confidence")),
        "lower",
        lambda p: e_aurc(p, quantity=quantity),
        needs=needs_with(quantity, "labels"),
        comparable=False,
        why_not="It is measured against each model's own ideal order, which differs with its accuracy; aurc ranks.",
        summary="aurc above that of the ideal order.",
    )


@metric("augrc")
def augrc_metric(*, quantity: str = "confidence") -> Metric:
    """Area under the generalised risk–coverage curve."""
    return Metric(
        written("augrc", quantity=(quantity, "confidence")),
        "lower",
        lambda p: augrc(p, quantity=quantity),
        needs=needs_with(quantity, "labels"),
        summary="Mean share of undetected errors over all coverages.",
    )


@metric("misclassification_auroc")
def misclassification_auroc_metric(*, quantity: str = "confidence") -> Metric:
    """AUROC of telling wrong decisions from right ones; of one model only."""
    return Metric(
        written("misclassification_auroc", quantity=(quantity, "confidence")),
        "higher",
        lambda p: misclassification_auroc(p, quantity=quantity),
        needs=needs_with(quantity, "labels"),
        comparable=False,
        why_not=_ONE_MODEL,
        summary="Telling wrong from right by uncertainty.",
    )


@metric("misclassification_aupr")
def misclassification_aupr_metric(*, quantity: str = "confidence") -> Metric:
    """Average precision of finding wrong decisions; of one model only."""
    return Metric(
        written("misclassification_aupr", quantity=(quantity, "confidence")),
        "higher",
        lambda p: misclassification_aupr(p, quantity=quantity),
        needs=needs_with(quantity, "labels"),
        comparable=False,
        why_not=_ONE_MODEL,
        summary="Finding wrong decisions by uncertainty.",
    )
