"""Metrics of ordered grades: quadratic kappa, ranked probability score, AUC of P(grade ≥ g)."""

from __future__ import annotations

import numpy as np

from dubio.core.errors import UserError
from dubio.core.passes import row_blocks
from dubio.core.predictions import Predictions
from dubio.core.types import FloatArray
from dubio.core.weights import ONCE, Values, Weights
from dubio.metrics.areas import roc_area
from dubio.metrics.decisions import LOG_ODDS, grade_scores, predicted
from dubio.metrics.metric import metric, prepared
from dubio.metrics.ranking import Marked


@metric("quadratic_kappa", better="higher", needs={"labels"}, targets={"ordinal"})
def quadratic_kappa(p: Predictions, *, weights: Weights = ONCE) -> Values:
    """Cohen's kappa with weights (i − j)²: 1 − Σ w O / Σ w E, E from the margins.

    NaN where every label and every decision are one and the same grade (then E has no disagreement to expect).
    """
    truth, chosen = p.labels.astype(np.float64), predicted(p).astype(np.float64)
    sides = [weights.mean(side) for side in (truth, chosen)]
    variances = [weights.mean(side * side) - mean * mean for side, mean in zip((truth, chosen), sides, strict=True)]
    # Σ w E over the margins is the mean squared difference of independent draws.
    expected = variances[0] + variances[1] + (sides[0] - sides[1]) ** 2
    observed = weights.mean((truth - chosen) ** 2)
    kappa = 1.0 - np.divide(observed, expected, out=np.zeros(len(weights)), where=expected > 0)
    lowest, highest = np.minimum(truth, chosen), np.maximum(truth, chosen)
    several = [bool(highest[counts > 0].max() > lowest[counts > 0].min()) for counts in weights.counts.T]
    return np.where(several, kappa, np.nan)


@metric("rps", better="lower", needs={"labels", "probs"}, targets={"ordinal"}, mean=True)
def rps(p: Predictions) -> FloatArray:
    """Ranked probability score 1/(K − 1) Σ_{k<K} (P̄(grade ≤ k) − 1[y ≤ k])², between 0 and 1."""
    if p.class_count < 2:
        raise UserError("rps cannot be computed: it needs at least two grades.")
    score = np.empty(len(p))
    steps = np.arange(p.class_count - 1)
    for rows in row_blocks(1, len(p), p.class_count):
        below = np.cumsum(p.probs[rows], axis=1)[:, :-1]
        score[rows] = ((below - (p.labels[rows, None] <= steps)) ** 2).mean(axis=1)
    return score


@prepared
def _grades(p: Predictions, grade: int) -> Marked:
    if not 1 <= grade < p.class_count:
        raise UserError(f"grade must lie between 1 and {p.class_count - 1}; given {grade}.")
    return Marked.fewer(grade_scores(p, grade), p.labels >= grade, unit=LOG_ODDS)


@metric("auc_from_grade", better="higher", needs={"labels", "two_classes", "probs"}, targets={"ordinal"})
def auc_from_grade(p: Predictions, *, grade: int = 2, weights: Weights = ONCE) -> Values:
    """AUROC of P̄(y ≥ g) for y ≥ g, g = 2 for referable disease; NaN where all rows lie on one side."""
    return roc_area(_grades(p, grade), weights)
