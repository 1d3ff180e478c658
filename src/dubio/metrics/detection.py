"""Out-of-distribution detection: does uncertainty tell strange examples from ordinary ones?

The input is one set of predictions with ``ood`` flags (:func:`dubio.core.predictions.join` of an in-distribution and
an OOD set). Positive = out of distribution, score = uncertainty, unless the name says otherwise. Areas under
precision–recall curves depend on the share of OOD rows, so that share is reported beside them.
"""

from __future__ import annotations

from dataclasses import dataclass

from dubio.core.errors import UserError
from dubio.core.predictions import Predictions
from dubio.core.registry import metric
from dubio.core.types import BoolArray, FloatArray, Metric
from dubio.metrics import ranking
from dubio.metrics.naming import written
from dubio.metrics.needs import labelled, require
from dubio.metrics.outcomes import correct
from dubio.metrics.quantities import needs_with, quantity_named, uncertainty


@dataclass(frozen=True)
class Detection:
    """How well one quantity tells out-of-distribution rows from in-distribution ones.

    Attributes:
        quantity: Which quantity.
        auroc: Area under the ROC curve.
        aupr_ood: Average precision, strange rows positive, score = uncertainty.
        aupr_id: Average precision, ordinary rows positive, score = −uncertainty.
        fpr95: False-positive rate at a true-positive rate of at least 95 %.
        correlation: Signed point-biserial correlation of the quantity *as defined* with the flag (so that of
            ``confidence`` is negative where detection works); NaN where the quantity does not vary.
        prevalence: Share of strange rows.
    """

    quantity: str
    auroc: float
    aupr_ood: float
    aupr_id: float
    fpr95: float
    correlation: float
    prevalence: float


def detect(predictions: Predictions, quantity: str = "confidence", *, seed: int = 0) -> Detection:
    """Every detection figure of one quantity.

    Args:
        predictions: With ``ood`` flags of both kinds.
        quantity: A name in :data:`dubio.metrics.quantities.QUANTITIES`.
        seed: Used by ``random`` alone.

    Raises:
        UserError: When all rows are of one kind or the quantity is not defined for them.
    """
    scores, flag = _scored(predictions, quantity, "out-of-distribution detection", seed)
    return Detection(
        quantity,
        ranking.auroc(scores, flag),
        ranking.average_precision(scores, flag),
        ranking.average_precision(-scores, ~flag),
        ranking.fpr_at_tpr(scores, flag),
        _correlation(scores, flag, quantity),
        float(flag.mean()),
    )


def _scored(predictions: Predictions, quantity: str, name: str, seed: int = 0) -> tuple[FloatArray, BoolArray]:
    require(predictions, {"ood"}, name)
    return uncertainty(predictions, quantity, seed=seed), predictions.ood


def _correlation(scores: FloatArray, flag: BoolArray, quantity: str) -> float:
    sign = 1.0 if quantity_named(quantity).higher_is_more_uncertain else -1.0
    return sign * ranking.correlation(scores, flag)


def ood_auroc(predictions: Predictions, *, quantity: str = "confidence") -> float:
    """Chance that a strange row is more uncertain than an ordinary one, ties counting one half."""
    return ranking.auroc(*_scored(predictions, quantity, "ood_auroc"))


def ood_aupr(predictions: Predictions, *, quantity: str = "confidence") -> float:
    """Average precision with out-of-distribution rows positive."""
    return ranking.average_precision(*_scored(predictions, quantity, "ood_aupr"))


def id_aupr(predictions: Predictions, *, quantity: str = "confidence") -> float:
    """Average precision with in-distribution rows positive and certainty as the score."""
    scores, flag = _scored(predictions, quantity, "id_aupr")
    return ranking.average_precision(-scores, ~flag)


def ood_fpr95(predictions: Predictions, *, quantity: str = "confidence") -> float:
    """Share of ordinary rows flagged at the threshold that flags at least 95 % of the strange ones."""
    return ranking.fpr_at_tpr(*_scored(predictions, quantity, "ood_fpr95"))


def ood_correlation(predictions: Predictions, *, quantity: str = "confidence") -> float:
    """Signed point-biserial correlation of the quantity as defined with the out-of-distribution flag."""
    return _correlation(*_scored(predictions, quantity, "ood_correlation"), quantity)


def generalisation_gap(predictions: Predictions) -> float:
    """Accuracy in distribution − accuracy out of distribution, over labelled rows of each (T Fig. 4)."""
    require(predictions, {"ood"}, "generalisation_gap")
    known = labelled(predictions, "generalisation_gap")
    right, flag = correct(known), known.ood
    if flag.all() or not flag.any():
        raise UserError(
            "generalisation_gap cannot be computed: it needs labelled rows both in and out of distribution."
        )
    return float(right[~flag].mean() - right[flag].mean())


@metric("ood_auroc")
def ood_auroc_metric(*, quantity: str = "confidence") -> Metric:
    """AUROC of telling out-of-distribution rows from in-distribution ones."""
    return Metric(
        written("ood_auroc", quantity=(quantity, "confidence")),
        "higher",
        lambda p: ood_auroc(p, quantity=quantity),
        needs=needs_with(quantity, "ood"),
        summary="Telling strange rows from ordinary ones: AUROC.",
    )


@metric("ood_aupr")
def ood_aupr_metric(*, quantity: str = "confidence") -> Metric:
    """Average precision of finding out-of-distribution rows."""
    return Metric(
        written("ood_aupr", quantity=(quantity, "confidence")),
        "higher",
        lambda p: ood_aupr(p, quantity=quantity),
        needs=needs_with(quantity, "ood"),
        summary="Finding strange rows: average precision.",
    )


@metric("id_aupr")
def id_aupr_metric(*, quantity: str = "confidence") -> Metric:
    """Average precision of finding in-distribution rows."""
    return Metric(
        written("id_aupr", quantity=(quantity, "confidence")),
        "higher",
        lambda p: id_aupr(p, quantity=quantity),
        needs=needs_with(quantity, "ood"),
        summary="Finding ordinary rows: average precision.",
    )


@metric("ood_fpr95")
def ood_fpr95_metric(*, quantity: str = "confidence") -> Metric:
    """False-positive rate where 95 % of out-of-distribution rows are found."""
    return Metric(
        written("ood_fpr95", quantity=(quantity, "confidence")),
        "lower",
        lambda p: ood_fpr95(p, quantity=quantity),
        needs=needs_with(quantity, "ood"),
        summary="False alarms where 95 % of strange rows are found.",
    )


@metric("ood_correlation")
def ood_correlation_metric(*, quantity: str = "confidence") -> Metric:
    """Signed correlation of a quantity with the out-of-distribution flag."""
    higher = quantity_named(quantity).higher_is_more_uncertain
    return Metric(
        written("ood_correlation", quantity=(quantity, "confidence")),
        "higher" if higher else "lower",
        lambda p: ood_correlation(p, quantity=quantity),
        needs=needs_with(quantity, "ood"),
        summary="Signed correlation of the quantity with strangeness.",
    )


@metric("generalisation_gap")
def generalisation_gap_metric() -> Metric:
    """Accuracy in distribution minus accuracy out of distribution."""
    return Metric(
        "generalisation_gap",
        "lower",
        generalisation_gap,
        needs=frozenset({"labels", "ood"}),
        comparable=False,
        why_not="A model that is bad everywhere has no gap; read it beside accuracy.",
        summary="Accuracy lost out of distribution.",
    )
