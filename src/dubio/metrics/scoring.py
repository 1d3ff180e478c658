"""Scores of predictions: accuracy, F1, AUROC of the classes, and the proper scoring rules nll and Brier."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dubio.core.passes import row_blocks
from dubio.core.predictions import Predictions
from dubio.core.types import BoolArray, FloatArray, IntArray
from dubio.core.weights import ONCE, Values, Weights
from dubio.metrics.areas import ratio, roc_area
from dubio.metrics.decisions import LOG_ODDS, binary_problems, correct, predicted, predicted_labels
from dubio.metrics.metric import metric, prepared
from dubio.metrics.ranking import Marked

OWN_TEMPERATURE = (
    "Log-likelihoods of models at their own temperatures mostly compare temperatures; calibrated_nll ranks."
)


@metric("accuracy", better="higher", needs={"labels"}, mean=True, summary="Share of right decisions.")
def accuracy(p: Predictions) -> FloatArray:
    """Share of rows whose most probable class is right; multi-label: whose whole set of labels is."""
    return correct(p).astype(np.float64)


@metric("error", better="lower", needs={"labels"}, mean=True, summary="Share of wrong decisions.")
def error(p: Predictions) -> FloatArray:
    """Share of rows whose decision is wrong, 1 − accuracy."""
    return 1.0 - correct(p)


@metric(
    "nll",
    better="lower",
    needs={"labels", "probs"},
    mean=True,
    why_not=OWN_TEMPERATURE,
    summary="Negative log-likelihood in nats.",
)
def nll(p: Predictions) -> FloatArray:
    """Negative log-likelihood, −mean log p̄_y in nats; +inf where a true class was given probability zero.

    Multi-label: the sum of binary cross-entropies.
    """
    if p.target != "multilabel":
        return -p.summary.log_label
    loss = np.empty(len(p))
    for rows in row_blocks(1, len(p), p.class_count):
        truth = p.labels[rows].astype(bool)
        loss[rows] = -np.where(truth, p.log_probs[rows], p.log_complements[rows]).sum(axis=1)
    return loss


@metric(
    "nll_per_label",
    better="lower",
    needs={"labels", "probs"},
    targets={"multilabel"},
    mean=True,
    why_not=OWN_TEMPERATURE,
    summary="Binary cross-entropy, averaged over labels.",
)
def nll_per_label(p: Predictions) -> FloatArray:
    """Multi-label negative log-likelihood divided by the number of labels."""
    return nll.per_example(p) / p.class_count


@metric("brier", better="lower", needs={"labels", "probs"}, mean=True, summary="Brier score, from 0 to 2.")
def brier(p: Predictions) -> FloatArray:
    """Brier score, mean_i Σ_k (1[y = k] − p̄_k)², between 0 and 2 (multi-label: K), not divided by K."""
    if p.target != "multilabel":
        return _brier_of_classes(p)
    score = np.empty(len(p))
    for rows in row_blocks(1, len(p), p.class_count):
        gap = p.probs[rows] - p.labels[rows]
        score[rows] = np.einsum("nk,nk->n", gap, gap)
    return score


def _brier_of_classes(p: Predictions) -> FloatArray:
    """Return Σ_k p̄_k² − 2 p̄_y + 1 or, where the decision is right, (1 − p̄_y)² + Σ_{k≠y} p̄_k²: no cancellation."""
    summary = p.summary
    missed = np.square(summary.top) + 1.0 - 2.0 * np.exp(summary.log_label)
    own = np.where(summary.chosen == p.labels, np.square(summary.complement), missed)
    return np.asarray(own + summary.other_squares)


@metric(
    "brier_per_class",
    better="lower",
    needs={"labels", "probs"},
    mean=True,
    summary="Brier score divided by the number of classes.",
)
def brier_per_class(p: Predictions) -> FloatArray:
    """Brier score divided by the number of classes."""
    return brier.per_example(p) / p.class_count


@metric(
    "micro_f1",
    better="higher",
    needs={"labels"},
    targets={"multilabel"},
    summary="F1 over all decisions together.",
)
def micro_f1(p: Predictions, *, weights: Weights = ONCE) -> Values:
    """Multi-label F1 = 2TP / (2TP + FP + FN) over all labels; NaN where none is true or asserted anywhere."""
    return counts_of_labels(predicted_labels(p), p.labels.astype(bool), weights).micro_f1()


@metric("macro_f1", better="higher", needs={"labels"}, summary="F1 averaged over labels or classes.")
def macro_f1(p: Predictions, *, weights: Weights = ONCE) -> Values:
    """Mean F1 of labels (or classes), without those neither true nor asserted in any row; NaN where all are."""
    if p.target == "multilabel":
        return counts_of_labels(predicted_labels(p), p.labels.astype(bool), weights).macro_f1()
    return _counts_of_classes(predicted(p), p.labels, p.class_count, weights).macro_f1()


class Counts(NamedTuple):
    """True positives, and true positives twice with all errors (2TP + FP + FN), of each label or class, ``[K, R]``."""

    hits: FloatArray
    totals: FloatArray

    def micro_f1(self) -> Values:
        """Return F1 over all labels together."""
        return ratio(2 * self.hits.sum(axis=0), self.totals.sum(axis=0))

    def macro_f1(self) -> Values:
        """Return the mean F1 of the labels that occur."""
        present = self.totals > 0
        f1 = np.divide(2 * self.hits, self.totals, out=np.zeros_like(self.totals), where=present)
        return ratio(f1.sum(axis=0), present.sum(axis=0))


def counts_of_labels(asserted: BoolArray, truth: BoolArray, weights: Weights) -> Counts:
    """Return the counts of asserted against true labels, both ``[N, K]``."""
    hits = (asserted & truth).T.astype(np.float64) @ weights.real
    return Counts(hits, (asserted.T.astype(np.float64) + truth.T) @ weights.real)


def _counts_of_classes(chosen: IntArray, truth: IntArray, classes: int, weights: Weights) -> Counts:
    right = chosen == truth
    hits, totals = np.empty((2, len(weights), classes))
    for replicate, column in enumerate(weights.real.T):
        hits[replicate] = np.bincount(truth[right], weights=column[right], minlength=classes)
        totals[replicate] = np.bincount(chosen, column, classes) + np.bincount(truth, column, classes)
    return Counts(hits.T, totals.T)


@prepared
def _class_ranks(p: Predictions) -> list[Marked]:
    problems = binary_problems(p) if p.class_count > 1 or p.target == "multilabel" else []
    return [Marked.fewer(problem.scores, problem.positive, unit=LOG_ODDS) for problem in problems]


@metric(
    "class_auroc",
    better="higher",
    needs={"labels", "two_classes", "probs"},
    summary="Discrimination of the classes: AUROC.",
)
def class_auroc(p: Predictions, *, weights: Weights = ONCE) -> Values:
    """AUROC of class 1, of P(grade ≥ 2), or of one against the rest averaged; NaN where a class is absent."""
    areas = [roc_area(ranks, weights) for ranks in _class_ranks(p)]
    return np.asarray(np.mean(areas, axis=0)) if areas else np.full(len(weights), np.nan)
