"""Metrics of ordered grades: quadratic kappa, ranked probability score, AUC of P(grade ≥ g)."""

from __future__ import annotations

import numpy as np

from dubio.core.errors import UserError
from dubio.core.passes import row_blocks
from dubio.core.predictions import Predictions
from dubio.core.registry import metric
from dubio.core.types import FloatArray, Metric, Need, Target
from dubio.metrics.auc import LOG_ODDS
from dubio.metrics.naming import written
from dubio.metrics.needs import labelled
from dubio.metrics.outcomes import grade_scores, predicted
from dubio.metrics.ranking import auroc

_ORDINAL: frozenset[Target] = frozenset({"ordinal"})
_LABELS: frozenset[Need] = frozenset({"labels"})


def quadratic_kappa(predictions: Predictions) -> float:
    """Cohen's kappa with weights (i − j)²: 1 − Σ w O / Σ w E, E from the margins.

    NaN where every label and every decision are one and the same grade (then E has no disagreement to expect).
    """
    known = _ordered(predictions, "quadratic_kappa")
    truth, chosen = known.labels.astype(np.float64), predicted(known).astype(np.float64)
    # Σ w E over the margins is the mean squared difference of independent draws.
    expected = truth.var() + chosen.var() + (truth.mean() - chosen.mean()) ** 2
    if (truth == truth[0]).all() and (chosen == truth[0]).all():
        return float("nan")
    return float(1.0 - ((truth - chosen) ** 2).mean() / expected)


def rps_per_example(predictions: Predictions) -> FloatArray:
    """1/(K − 1) Σ_{k<K} (P̄(grade ≤ k) − 1[y ≤ k])² of each labelled row, between 0 and 1."""
    known = _ordered(predictions, "rps")
    if known.class_count < 2:
        raise UserError("rps cannot be computed: it needs at least two grades.")
    score = np.empty(len(known))
    steps = np.arange(known.class_count - 1)
    for rows in row_blocks(1, len(known), known.class_count):
        below = np.cumsum(known.probs[rows], axis=1)[:, :-1]
        score[rows] = ((below - (known.labels[rows, None] <= steps)) ** 2).mean(axis=1)
    return score


def rps(predictions: Predictions) -> float:
    """Ranked probability score, divided by K − 1 so that it lies between 0 and 1."""
    return float(rps_per_example(predictions).mean())


def auc_from_grade(predictions: Predictions, *, grade: int = 2) -> float:
    """AUROC of P̄(y ≥ grade) for telling y ≥ grade; NaN where all rows lie on one side."""
    known = _ordered(predictions, "auc_from_grade")
    if not 1 <= grade < known.class_count:
        raise UserError(f"grade must lie between 1 and {known.class_count - 1}; given {grade}.")
    return auroc(grade_scores(known, grade), known.labels >= grade, unit=LOG_ODDS)


def _ordered(predictions: Predictions, name: str) -> Predictions:
    if predictions.target != "ordinal":
        raise UserError(f"{name} is defined for ordinal predictions; these are {predictions.target}.")
    return labelled(predictions, name)


@metric("quadratic_kappa")
def quadratic_kappa_metric() -> Metric:
    """Quadratic-weighted kappa of the decided grades."""
    return Metric(
        "quadratic_kappa",
        "higher",
        quadratic_kappa,
        None,
        _LABELS,
        _ORDINAL,
        summary="Agreement of grades beyond chance, squared distances.",
    )


@metric("rps")
def rps_metric() -> Metric:
    """Ranked probability score, between 0 and 1."""
    return Metric("rps", "lower", rps, rps_per_example, _LABELS, _ORDINAL, summary="Ranked probability score, 0 to 1.")


@metric("auc_from_grade")
def auc_from_grade_metric(*, grade: int = 2) -> Metric:
    """AUROC of P(grade ≥ g), g = 2 for referable disease."""
    return Metric(
        written("auc_from_grade", grade=(grade, 2)),
        "higher",
        lambda p: auc_from_grade(p, grade=grade),
        None,
        _LABELS | {"two_classes"},
        _ORDINAL,
        summary="Telling grades from g upwards: AUROC.",
    )
