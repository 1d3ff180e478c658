"""Metrics as published, where a paper's formula or code is wrong: for reproducing, never for ranking.

Every metric here has a plain counterpart that does the right thing. None is computed or shown unless it is named, and
none may rank models. T is the study of text classification, P the study of ensembling, R the retina benchmark.

===================================  ==============================================================================
``nll_as_published``                 T, multi-label: rows divided by their sum, negatives ignored,
                                     −mean_i Σ_k y_k log(p̄_k / Σ_j p̄_j)
``ece_as_published``                 T: 100 bins
``ood_auroc_as_published``           T: in-distribution rows at the *mirrored* positions n − 1 − i of the OOD rows i
                                     (an index inverted bit by bit)
``ood_aupr_as_published``            T: the same rows, and 1 − average precision of confidence, OOD rows positive
``ood_correlation_as_published``     T: absolute; "entropy" is the expected entropy, "model_uncertainty" one of three
``mean_model_uncertainty_as_…``      T: by kind of method √Σ_k Var_s p_k (dropout), mean_k Var_s of the logits
                                     (heteroscedastic), or a variance over *classes* (ensemble): sharpness
``brier_as_published``               P's text: divided by the number of classes
``tace_as_published``                P eq. 2: divided by the number of bins once more
``aurc_as_published``                P: every ⌊n/1000⌋-th coverage summed by trapezoids and divided by 1000, whatever
                                     the number of coverages; defined from 1000 rows, right only where n ≈ 1000 k
``referral_…_as_published``          R: a fraction counts the smaller ones too, see below
===================================  ==============================================================================

R's metric objects were never reset between retained fractions, so the value at a fraction also counts every smaller
one. Given all rows at once, the accuracy object of the TensorFlow that R's code installs (2.6; not of 2.13) averages
the accuracies of its calls: with the fractions 0.5, 0.6, …, 1.0 in this order and c_j right of n_j = ⌊f_j N⌋ retained,

    accuracy at f_i = (1/i) Σ_{j ≤ i} c_j / n_j

The AUC is that of all rows of those fractions together, each as often as it was retained, by trapezoids over 200
thresholds.
:mod:`dubio.metrics.referral_curve` computes each fraction on its own.
"""

from __future__ import annotations

from functools import partial
from typing import Literal

import numpy as np

from dubio.core.errors import UserError
from dubio.core.passes import log_sigmoid, log_softmax, row_blocks
from dubio.core.predictions import Predictions
from dubio.core.types import BoolArray, FloatArray
from dubio.core.weights import ONCE, Values, Weights
from dubio.metrics.areas import auroc, average_precision, correlation
from dubio.metrics.calibration_error import ece, tace
from dubio.metrics.decisions import REFERABLE, correct
from dubio.metrics.decomposition import decompose
from dubio.metrics.metric import metric
from dubio.metrics.quantities import CONFIDENCE, QUANTITIES, Quantity, doubt, uncertainty
from dubio.metrics.ranking import ordered
from dubio.metrics.referral_curve import FRACTIONS
from dubio.metrics.requirements import require
from dubio.metrics.scoring import brier
from dubio.metrics.selective import expected_errors

WHY_NOT = "It repeats a published mistake, to trace published numbers; use its plain counterpart."

MethodKind = Literal["dropout", "heteroscedastic", "ensemble"]
PublishedQuantity = Literal["confidence", "entropy", "model_uncertainty", "mutual_information"]

STEPS = 1000
"""How many coverages P's code divides by, and meant to sum."""

THRESHOLDS = 200
"""Thresholds of R's area under the ROC curve."""

EDGE = 1e-7
"""How far the first and last threshold lie outside [0, 1]."""

_of_classes = partial(metric, why_not=WHY_NOT, needs={"labels"}, targets={"multiclass", "ordinal"})
_of_ood = partial(metric, why_not=WHY_NOT, needs={"ood"}, better="higher")


@metric(
    "nll_as_published", better="lower", needs={"labels"}, targets={"multilabel"}, why_not=WHY_NOT, mean=True,
    likelihood=True,
)  # fmt: skip
def nll_as_published(p: Predictions) -> FloatArray:
    """Multi-label likelihood of renormalised rows, negatives ignored (T's code).

    −mean_i Σ_k y_k log(p̄_k / Σ_j p̄_j); +inf where a true label has probability zero.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        logs = np.where(p.labels.astype(bool), p.log_probs - np.log(p.probs.sum(axis=1, keepdims=True)), 0.0)
    return np.asarray(-logs.sum(axis=1))


@_of_classes("ece_as_published", better="lower", interval="centred")
def ece_as_published(p: Predictions, *, weights: Weights = ONCE) -> Values:
    """Expected calibration error with 100 bins (T's code)."""
    return np.asarray(ece(p, bins=100, weights=weights))


@_of_classes("brier_as_published", better="lower", mean=True)
def brier_as_published(p: Predictions) -> FloatArray:
    """Brier score divided by the number of classes (P's text; its tables are not)."""
    return brier.per_example(p) / p.class_count


@_of_classes("tace_as_published", better="lower", interval="centred")
def tace_as_published(p: Predictions, *, bins: int = 15, threshold: float = 1e-3, weights: Weights = ONCE) -> Values:
    """Thresholded adaptive calibration error divided by the number of bins once more (P eq. 2)."""
    return np.asarray(tace(p, bins=bins, threshold=threshold, weights=weights)) / bins


@_of_classes("aurc_as_published", better="lower")
def aurc_as_published(p: Predictions) -> float:
    """Area under the risk–coverage curve with a wrong step (P's code).

    1 − trapezoids over every ⌊n/1000⌋-th accuracy of the retained, divided by 1000.

    Raises:
        UserError: With fewer than 1000 rows, where the step is zero.
    """
    step = len(p) // STEPS
    if step == 0:
        raise UserError(f"aurc_as_published cannot be computed: it needs at least {STEPS} rows; given {len(p)}.")
    errors = expected_errors(doubt(p), ~correct(p))
    retained = len(errors) - np.arange(1, len(errors), step)  # the least certain row is always left out
    accuracies = 1.0 - errors[retained - 1] / retained
    area = accuracies.sum() - (accuracies[0] + accuracies[-1]) / 2
    return 1.0 - float(area) / STEPS


def mirrored_rows(ood: BoolArray) -> tuple[BoolArray, FloatArray]:
    """Return which of the compared rows are OOD, and the row of each: OOD rows i against the rows n − 1 − i."""
    flagged = np.flatnonzero(ood)
    rows = np.concatenate([len(ood) - 1 - flagged, flagged])
    return np.arange(len(rows)) >= len(flagged), rows


@_of_ood("ood_auroc_as_published")
def ood_auroc_as_published(p: Predictions) -> float:
    """AUROC by confidence of the OOD rows i against the rows n − 1 − i (T's code); depends on the order of rows."""
    flag, rows = mirrored_rows(p.ood)
    return auroc(doubt_of_highest(p)[rows], flag)


@_of_ood("ood_aupr_as_published")
def ood_aupr_as_published(p: Predictions) -> float:
    """One minus the average precision of *confidence* with OOD rows positive, on the same rows (T's code)."""
    flag, rows = mirrored_rows(p.ood)
    return 1.0 - average_precision(-doubt_of_highest(p)[rows], flag)


def doubt_of_highest(predictions: Predictions) -> FloatArray:
    """Return 1 − max_k p̄_k, for several labels too (T's code takes the maximum there as well)."""
    if predictions.target != "multilabel":
        return doubt(predictions)
    highest = predictions.log_probs.argmax(axis=1)[:, None]
    return np.exp(np.take_along_axis(predictions.log_complements, highest, axis=1))[:, 0]


def model_uncertainty_as_published(predictions: Predictions, *, kind: MethodKind) -> FloatArray:
    """Return one of T's three quantities of one name, ``[N]``.

    Args:
        predictions: With at least two samples.
        kind: ``dropout``: √Σ_k Var_s p_s,k. ``heteroscedastic``: mean_k Var_s of the logits as they were stored.
            ``ensemble``: mean_s (Var_k p_s,k + (mean_k p_s,k)²) − (mean_k p̄_k)², the variance over classes.
    """
    require(predictions, {"samples"}, "model_uncertainty_as_published")
    if kind == "dropout":
        return np.sqrt(decompose(predictions).sample_variance * predictions.class_count)
    values = np.empty(len(predictions))
    for rows in row_blocks(predictions.samples, len(predictions), predictions.class_count):
        logits = predictions.logits[:, rows].astype(np.float64)
        if kind == "heteroscedastic":
            if not np.isfinite(logits).all():
                raise UserError("model_uncertainty_as_published(kind=heteroscedastic) needs finite logits.")
            values[rows] = logits.var(axis=0).mean(axis=-1)
        else:
            probs = np.exp(log_sigmoid(logits) if predictions.target == "multilabel" else log_softmax(logits))
            spread = probs.var(axis=-1) + probs.mean(axis=-1) ** 2
            values[rows] = spread.mean(axis=0) - probs.mean(axis=(0, -1)) ** 2
    return values


@_of_ood("ood_correlation_as_published")
def ood_correlation_as_published(
    p: Predictions, *, quantity: PublishedQuantity = "entropy", kind: MethodKind = "dropout"
) -> float:
    """Absolute point-biserial correlation of one of T's quantities with the OOD flag (T Figs 8 and 23)."""
    if quantity == "model_uncertainty":
        return abs(correlation(model_uncertainty_as_published(p, kind=kind), p.ood))
    plain = QUANTITIES["expected_entropy" if quantity == "entropy" else quantity]
    require(p, plain.needs, "ood_correlation_as_published")
    return abs(correlation(plain.compute(p), p.ood))


@metric("mean_model_uncertainty_as_published", better="lower", needs={"samples"}, why_not=WHY_NOT, mean=True)
def mean_model_uncertainty_as_published(p: Predictions, *, kind: MethodKind = "dropout") -> FloatArray:
    """Mean of one of T's three model uncertainties."""
    return model_uncertainty_as_published(p, kind=kind)


def retained_shares(predictions: Predictions, *, quantity: Quantity, retained: float, name: str) -> list[FloatArray]:
    """Return which rows were retained at every fraction up to one, each ``[N]``; tied rows share alike.

    Raises:
        UserError: For a fraction that R did not use, or where no row is retained.
    """
    if retained not in FRACTIONS:
        raise UserError(f"{name}: retained must be one of {', '.join(map(str, FRACTIONS))}; given {retained}.")
    ordering = ordered(uncertainty(predictions, quantity))
    numbers = [int(len(predictions) * fraction) for fraction in FRACTIONS[: FRACTIONS.index(retained) + 1]]
    if not any(numbers):
        raise UserError(f"{name} cannot be computed: of {len(predictions)} rows none is retained.")
    shares = (np.clip((number - ordering.starts) / ordering.sizes, 0.0, 1.0) for number in numbers if number)
    return [ordering.by_row(share) for share in shares]


@_of_classes("referral_accuracy_as_published", better="higher", version=2)
def referral_accuracy_as_published(p: Predictions, *, quantity: Quantity = CONFIDENCE, retained: float = 0.8) -> float:
    """Mean of the accuracies of the rows retained at this and every smaller fraction (R's code)."""
    shares = retained_shares(p, quantity=quantity, retained=retained, name="referral_accuracy_as_published")
    right = correct(p)
    return float(np.mean([share @ right / share.sum() for share in shares]))


@_of_classes("referral_auc_as_published", better="higher")
def referral_auc_as_published(p: Predictions, *, quantity: Quantity = CONFIDENCE, retained: float = 0.8) -> float:
    """AUC of the rows of all these fractions together, by trapezoids over 200 thresholds (R's code).

    Of class 1; R has two classes. With more: of P(grade ≥ 2) where they are ordered, else the mean over classes. Zero
    where a side is missing.
    """
    weights = np.sum(retained_shares(p, quantity=quantity, retained=retained, name="referral_auc_as_published"), axis=0)
    count = p.class_count
    if p.target == "ordinal" and count > REFERABLE:
        return threshold_auc(p.probs[:, REFERABLE:].sum(axis=1), p.labels >= REFERABLE, weights)
    sides = (1,) if count == 2 else range(count)
    return float(np.mean([threshold_auc(p.probs[:, k], p.labels == k, weights) for k in sides]))


def threshold_auc(scores: FloatArray, positive: BoolArray, weights: FloatArray) -> float:
    """Return trapezoids under the ROC curve at 200 equally spaced thresholds; a rate of nothing counts as zero."""
    inner = np.arange(1, THRESHOLDS - 1) / (THRESHOLDS - 1)
    thresholds = np.concatenate([[-EDGE], inner, [1.0 + EDGE]])
    above = scores[None, :] > thresholds[:, None]
    ups, downs = above @ (weights * positive), above @ (weights * ~positive)
    tpr = ups / ups[0] if ups[0] > 0 else np.zeros_like(ups)
    fpr = downs / downs[0] if downs[0] > 0 else np.zeros_like(downs)
    return float(np.sum((fpr[:-1] - fpr[1:]) * (tpr[:-1] + tpr[1:]) / 2))
