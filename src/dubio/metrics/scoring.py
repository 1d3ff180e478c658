"""How good predictions are: accuracy and F1, and the proper scoring rules nll and Brier."""

from __future__ import annotations

import numpy as np

from dubio.core.passes import row_blocks
from dubio.core.predictions import Predictions
from dubio.core.registry import metric
from dubio.core.types import FloatArray, Metric, Need, Target
from dubio.metrics.needs import labelled
from dubio.metrics.outcomes import correct, predicted, predicted_labels

_LABELS: frozenset[Need] = frozenset({"labels"})
_MULTILABEL: frozenset[Target] = frozenset({"multilabel"})


def accuracy(predictions: Predictions) -> float:
    """Share of labelled rows whose most probable class is right; multi-label: whose whole set of labels is."""
    return float(correct(labelled(predictions, "accuracy")).mean())


def nll_per_example(predictions: Predictions) -> FloatArray:
    """−log p̄_y of each labelled row, infinite where p̄_y is zero; multi-label: the sum of binary cross-entropies."""
    known = labelled(predictions, "nll")
    if known.target != "multilabel":
        return -known.summary.log_label
    loss = np.empty(len(known))
    for rows in row_blocks(1, len(known), known.class_count):
        truth = known.labels[rows].astype(bool)
        loss[rows] = -np.where(truth, known.log_probs[rows], known.log_complements[rows]).sum(axis=1)
    return loss


def nll(predictions: Predictions) -> float:
    """−mean log p̄_y in nats; +inf where a true class was given probability zero."""
    return float(nll_per_example(predictions).mean())


def brier_per_example(predictions: Predictions) -> FloatArray:
    """Σ_k (1[y = k] − p̄_k)² of each labelled row, between 0 and 2 (multi-label: K)."""
    known = labelled(predictions, "brier")
    if known.target != "multilabel":
        return _brier_of_classes(known)
    score = np.empty(len(known))
    for rows in row_blocks(1, len(known), known.class_count):
        gap = known.probs[rows] - known.labels[rows]
        score[rows] = np.einsum("nk,nk->n", gap, gap)
    return score


def _brier_of_classes(known: Predictions) -> FloatArray:
    """Σ_k p̄_k² − 2 p̄_y + 1, and, where the decision is right, (1 − p̄_y)² + Σ_{k≠y} p̄_k², which cancels nothing."""
    found = known.summary
    missed = np.square(found.top) + 1.0 - 2.0 * np.exp(found.log_label)
    return np.asarray(np.where(found.chosen == known.labels, np.square(found.complement), missed) + found.other_squares)


def brier(predictions: Predictions) -> float:
    """mean_i Σ_k (1[y = k] − p̄_k)², not divided by the number of classes."""
    return float(brier_per_example(predictions).mean())


def micro_f1(predictions: Predictions) -> float:
    """2TP / (2TP + FP + FN) over all labels together; NaN where no label is true or asserted anywhere."""
    hits, misses = _counts(predictions, "micro_f1")
    total = 2 * hits.sum() + misses.sum()
    return float(2 * hits.sum() / total) if total else float("nan")


def macro_f1(predictions: Predictions) -> float:
    """Mean of the F1 of labels (or classes), without those neither true nor asserted in any row; NaN where all are."""
    hits, misses = _counts(predictions, "macro_f1")
    totals = 2 * hits + misses
    seen = totals > 0
    return float((2 * hits[seen] / totals[seen]).mean()) if seen.any() else float("nan")


def _counts(predictions: Predictions, name: str) -> tuple[FloatArray, FloatArray]:
    """True positives, and false positives plus false negatives, of each label or class."""
    known = labelled(predictions, name)
    if known.target != "multilabel":
        classes, chosen = known.class_count, predicted(known)
        hits = np.bincount(known.labels[chosen == known.labels], minlength=classes).astype(float)
        said = np.bincount(chosen, minlength=classes) + np.bincount(known.labels, minlength=classes)
        return hits, said - 2 * hits
    asserted, truth = predicted_labels(known), known.labels.astype(bool)
    return (asserted & truth).sum(axis=0).astype(float), (asserted != truth).sum(axis=0).astype(float)


@metric("accuracy")
def accuracy_metric() -> Metric:
    """Share of right decisions; multi-label: exact match of the set of labels."""
    return Metric(
        "accuracy",
        "higher",
        accuracy,
        lambda p: correct(labelled(p, "accuracy")).astype(float),
        _LABELS,
        summary="Share of right decisions.",
    )


@metric("error")
def error_metric() -> Metric:
    """1 − accuracy."""
    return Metric(
        "error",
        "lower",
        lambda p: 1.0 - accuracy(p),
        lambda p: 1.0 - correct(labelled(p, "error")).astype(float),
        _LABELS,
        summary="Share of wrong decisions.",
    )


@metric("nll")
def nll_metric() -> Metric:
    """Negative log-likelihood, −mean log p̄_y in nats."""
    return Metric(
        "nll",
        "lower",
        nll,
        nll_per_example,
        _LABELS,
        comparable=False,
        why_not="Log-likelihoods of models at their own temperatures mostly compare temperatures; "
        "calibrated_nll ranks.",
        summary="Negative log-likelihood in nats.",
    )


@metric("nll_per_label")
def nll_per_label_metric() -> Metric:
    """Multi-label negative log-likelihood divided by the number of labels."""
    return Metric(
        "nll_per_label",
        "lower",
        lambda p: nll(p) / p.class_count,
        lambda p: nll_per_example(p) / p.class_count,
        _LABELS,
        _MULTILABEL,
        comparable=False,
        why_not="Log-likelihoods of models at their own temperatures mostly compare temperatures; "
        "calibrated_nll ranks.",
        summary="Binary cross-entropy, averaged over labels.",
    )


@metric("brier")
def brier_metric() -> Metric:
    """Brier score, mean Σ_k (1[y = k] − p̄_k)², between 0 and 2."""
    return Metric("brier", "lower", brier, brier_per_example, _LABELS, summary="Brier score, from 0 to 2.")


@metric("brier_per_class")
def brier_per_class_metric() -> Metric:
    """Brier score divided by the number of classes."""
    return Metric(
        "brier_per_class",
        "lower",
        lambda p: brier(p) / p.class_count,
        lambda p: brier_per_example(p) / p.class_count,
        _LABELS,
        summary="Brier score divided by the number of classes.",
    )


@metric("micro_f1")
def micro_f1_metric() -> Metric:
    """Multi-label F1 over all decisions together."""
    return Metric("micro_f1", "higher", micro_f1, None, _LABELS, _MULTILABEL, summary="F1 over all decisions together.")


@metric("macro_f1")
def macro_f1_metric() -> Metric:
    """F1 averaged over labels, or over classes."""
    return Metric("macro_f1", "higher", macro_f1, None, _LABELS, summary="F1 averaged over labels or classes.")
