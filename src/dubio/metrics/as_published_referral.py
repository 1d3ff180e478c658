"""Referral as the retina benchmark's code computed it: the fractions pooled, for reproducing and never for ranking.

R's metric objects were never reset between retained fractions, so the value at a fraction also counts the rows of every
smaller one: with the fractions 0.5, 0.6, …, 1.0 in this order and c_j right of n_j = ⌊f_j N⌋ kept rows,

    accuracy at f_i = Σ_{j ≤ i} c_j / Σ_{j ≤ i} n_j

and the AUC is that of all those rows together, each as often as it was kept, by trapezoids over 200 thresholds.
:mod:`dubio.metrics.referral_curve` computes each fraction on its own.
"""

from __future__ import annotations

import numpy as np

from dubio.core.errors import UserError
from dubio.core.predictions import Predictions
from dubio.core.registry import metric
from dubio.core.types import BoolArray, FloatArray, Metric
from dubio.metrics.as_published import published
from dubio.metrics.auc import REFERABLE
from dubio.metrics.naming import written
from dubio.metrics.needs import labelled
from dubio.metrics.outcomes import correct
from dubio.metrics.quantities import needs_with, uncertainty
from dubio.metrics.ranking import ordered
from dubio.metrics.referral_curve import FRACTIONS

THRESHOLDS = 200
EDGE = 1e-7
"""How far the first and last threshold lie outside [0, 1]."""


def pooled_weights(predictions: Predictions, *, quantity: str, retained: float, name: str) -> FloatArray:
    """How often each labelled row was counted up to a fraction, ``[N]``; tied rows share alike.

    Raises:
        UserError: For a fraction that R did not use, or where no row is kept.
    """
    if retained not in FRACTIONS:
        raise UserError(f"{name}: retained must be one of {', '.join(map(str, FRACTIONS))}; given {retained}.")
    ordering = ordered(uncertainty(predictions, quantity))
    weights = np.zeros(len(predictions))
    for fraction in FRACTIONS[: FRACTIONS.index(retained) + 1]:
        keep = int(len(predictions) * fraction)
        share = np.clip((keep - ordering.starts) / ordering.sizes, 0.0, 1.0)
        weights[ordering.order] += share[ordering.block]
    if weights.sum() == 0:
        raise UserError(f"{name} cannot be computed: of {len(predictions)} rows none is kept.")
    return weights


def referral_accuracy_as_published(
    predictions: Predictions, *, quantity: str = "confidence", retained: float = 0.8
) -> float:
    """Accuracy of all rows kept at this or a smaller fraction, each as often as it was kept."""
    known = labelled(predictions, "referral_accuracy_as_published")
    weights = pooled_weights(known, quantity=quantity, retained=retained, name="referral_accuracy_as_published")
    return float(weights @ correct(known) / weights.sum())


def referral_auc_as_published(
    predictions: Predictions, *, quantity: str = "confidence", retained: float = 0.8
) -> float:
    """Area under the ROC curve of the same rows, by trapezoids over 200 thresholds; zero where a side is missing.

    Of class 1; R has two classes. With more: of P(grade ≥ 2) where they are ordered, else the mean over classes.
    """
    known = labelled(predictions, "referral_auc_as_published")
    weights = pooled_weights(known, quantity=quantity, retained=retained, name="referral_auc_as_published")
    count = known.class_count
    if known.target == "ordinal" and count > REFERABLE:
        return threshold_auc(known.probs[:, REFERABLE:].sum(axis=1), known.labels >= REFERABLE, weights)
    sides = (1,) if count == 2 else range(count)
    return float(np.mean([threshold_auc(known.probs[:, k], known.labels == k, weights) for k in sides]))


def threshold_auc(scores: FloatArray, positive: BoolArray, weights: FloatArray) -> float:
    """Trapezoids under the ROC curve at 200 equally spaced thresholds; a rate of nothing counts as zero."""
    inner = np.arange(1, THRESHOLDS - 1) / (THRESHOLDS - 1)
    thresholds = np.concatenate([[-EDGE], inner, [1.0 + EDGE]])
    above = scores[None, :] > thresholds[:, None]
    ups, downs = above @ (weights * positive), above @ (weights * ~positive)
    tpr = ups / ups[0] if ups[0] > 0 else np.zeros_like(ups)
    fpr = downs / downs[0] if downs[0] > 0 else np.zeros_like(downs)
    return float(np.sum((fpr[:-1] - fpr[1:]) * (tpr[:-1] + tpr[1:]) / 2))


@metric("referral_accuracy_as_published")
def referral_accuracy_as_published_metric(*, quantity: str = "confidence", retained: float = 0.8) -> Metric:
    """Accuracy at a retained fraction, pooled with the smaller ones (R's code)."""
    return published(
        written("referral_accuracy_as_published", quantity=(quantity, "confidence"), retained=(retained, 0.8)),
        "higher",
        lambda p: referral_accuracy_as_published(p, quantity=quantity, retained=retained),
        "As R's code: pooled with smaller fractions.",
        needs=needs_with(quantity, "labels"),
    )


@metric("referral_auc_as_published")
def referral_auc_as_published_metric(*, quantity: str = "confidence", retained: float = 0.8) -> Metric:
    """AUC at a retained fraction, pooled with the smaller ones (R's code)."""
    return published(
        written("referral_auc_as_published", quantity=(quantity, "confidence"), retained=(retained, 0.8)),
        "higher",
        lambda p: referral_auc_as_published(p, quantity=quantity, retained=retained),
        "As R's code: pooled with smaller fractions.",
        needs=needs_with(quantity, "labels"),
    )
