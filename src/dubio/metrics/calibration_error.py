"""Calibration error: how far stated confidence is from observed accuracy, bin by bin.

None of these ranks models: each depends on its bins and is estimated with a bias that differs between models (P §3.4).
With B a bin, n rows and K classes (P eqs 1–2)::

    ece           = Σ_B |B|/n · |acc(B) − conf(B)|        conf = max_k p̄_k, equal-width bins, right-closed
    ece_adaptive  = the same over bins of equal mass
    classwise_ece = 1/K Σ_k Σ_B |B|/n · |share of class k in B − mean p̄_k in B|     (also called sce)
    ace, tace     = the same over bins of equal mass; tace only over p̄_k > threshold, still divided by n K

Multi-label: ``ece`` and ``ece_adaptive`` are taken per label and averaged; ``ece_pooled`` bins all decisions together.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from dubio.core.errors import UserError
from dubio.core.predictions import Predictions
from dubio.core.types import FloatArray
from dubio.metrics.needs import labelled
from dubio.metrics.outcomes import correct
from dubio.metrics.ranking import ordered

EDGE = 5e-7
"""Values this close to a bin's edge are on it: predictions are kept as float32 logarithms, which move p by 1e-7."""


@dataclass(frozen=True, eq=False)
class Reliability:
    """A reliability diagram's data, one entry a bin; empty bins have NaN for confidence and accuracy.

    Attributes:
        lower: ``[M]`` lower edges, not in the bin (but 0 is in the first).
        upper: ``[M]`` upper edges, in the bin.
        confidence: ``[M]`` mean confidence.
        accuracy: ``[M]`` share of right decisions.
        count: ``[M]`` rows.
    """

    lower: FloatArray
    upper: FloatArray
    confidence: FloatArray
    accuracy: FloatArray
    count: FloatArray


def reliability(predictions: Predictions, *, bins: int = 15) -> Reliability:
    """Confidence against accuracy in equal-width bins; multi-label: every decision p̄_k against its label, pooled."""
    known = labelled(predictions, "the reliability diagram")
    stated, truth = _pooled_labels(known) if known.target == "multilabel" else _decisions(known)
    count, stated_sum, true_sum = _width_sums(stated, truth, bins)
    with np.errstate(invalid="ignore"):
        edges = np.linspace(0.0, 1.0, bins + 1)
        return Reliability(edges[:-1], edges[1:], stated_sum / count, true_sum / count, count)


def width_error(stated: FloatArray, truth: FloatArray, bins: int) -> float:
    """Σ_B |Σ_{i in B} (truth_i − stated_i)| / n over equal-width, right-closed bins of ``stated``."""
    _, stated_sum, true_sum = _width_sums(stated, truth, bins)
    return float(np.abs(true_sum - stated_sum).sum() / len(stated))


def mass_error(stated: FloatArray, truth: FloatArray, bins: int) -> float:
    """Σ_B |Σ_{i in B} (truth_i − stated_i)| / n over bins of equal mass; rows that state the same share their truth.

    Bins differ in size by at most one; with fewer rows than bins every row is its own bin; without rows it is zero.
    """
    _check_bins(bins)
    if len(stated) == 0:
        return 0.0
    ordering = ordered(stated)
    gaps = ordering.averaged(truth) - ordering.averaged(stated)
    used = min(bins, len(gaps))
    starts = (np.arange(used) * len(gaps)) // used
    return float(np.abs(np.add.reduceat(gaps, starts)).sum() / len(gaps))


def _width_sums(stated: FloatArray, truth: FloatArray, bins: int) -> tuple[FloatArray, FloatArray, FloatArray]:
    _check_bins(bins)
    which = np.clip(np.ceil((stated - EDGE) * bins) - 1, 0, bins - 1).astype(np.int64)
    return (
        np.bincount(which, minlength=bins).astype(np.float64),
        np.asarray(np.bincount(which, stated, minlength=bins), dtype=np.float64),
        np.asarray(np.bincount(which, truth, minlength=bins), dtype=np.float64),
    )


def _check_bins(bins: int) -> None:
    if bins < 1:
        raise UserError(f"bins must be at least 1; given {bins}.")


def _decisions(known: Predictions) -> tuple[FloatArray, FloatArray]:
    return known.summary.top, correct(known).astype(np.float64)


def _pooled_labels(known: Predictions) -> tuple[FloatArray, FloatArray]:
    return known.probs.ravel(), known.labels.ravel().astype(np.float64)


def _by_column(known: Predictions, error: Callable[[FloatArray, FloatArray], float]) -> float:
    """The mean over classes (labels) of an error of p̄_k against "is class k"."""
    parts = []
    for column in range(known.class_count):
        truth = known.labels[:, column] if known.target == "multilabel" else known.labels == column
        parts.append(error(np.ascontiguousarray(known.probs[:, column]), truth.astype(np.float64)))
    return float(np.mean(parts))


def ece(predictions: Predictions, *, bins: int = 15) -> float:
    """Expected calibration error over equal-width, right-closed bins of the highest probability."""
    known = labelled(predictions, "ece")
    if known.target == "multilabel":
        return _by_column(known, lambda stated, truth: width_error(stated, truth, bins))
    return width_error(*_decisions(known), bins)


def ece_pooled(predictions: Predictions, *, bins: int = 15) -> float:
    """Multi-label expected calibration error with the decisions of all labels in the same bins."""
    known = labelled(predictions, "ece_pooled")
    if known.target != "multilabel":
        raise UserError(f"ece_pooled is defined for multilabel predictions; these are {known.target}.")
    return width_error(*_pooled_labels(known), bins)


def ece_adaptive(predictions: Predictions, *, bins: int = 15) -> float:
    """Expected calibration error over bins of equal mass of the highest probability."""
    known = labelled(predictions, "ece_adaptive")
    if known.target == "multilabel":
        return _by_column(known, lambda stated, truth: mass_error(stated, truth, bins))
    return mass_error(*_decisions(known), bins)


def classwise_ece(predictions: Predictions, *, bins: int = 15) -> float:
    """Calibration error of each class's probability over equal-width bins, averaged over classes (sce)."""
    known = labelled(predictions, "classwise_ece")
    return _by_column(known, lambda stated, truth: width_error(stated, truth, bins))


def ace(predictions: Predictions, *, bins: int = 15) -> float:
    """Calibration error of each class's probability over bins of equal mass, averaged over classes."""
    known = labelled(predictions, "ace")
    return _by_column(known, lambda stated, truth: mass_error(stated, truth, bins))


def tace(predictions: Predictions, *, bins: int = 15, threshold: float = 1e-3) -> float:
    """As :func:`ace` over the probabilities above the threshold, weights |B|/(n K); zero where none is above it."""
    known = labelled(predictions, "tace")

    def above(stated: FloatArray, truth: FloatArray) -> float:
        kept = stated > threshold
        return mass_error(stated[kept], truth[kept], bins) * float(kept.mean())

    return _by_column(known, above)
