"""Scores of predictions: accuracy, F1, AUROC of the classes, and the proper scoring rules nll and Brier."""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import numpy as np

from dubio.core.passes import Summary, row_blocks
from dubio.core.predictions import Predictions
from dubio.core.types import BoolArray, FloatArray, IntArray
from dubio.core.weights import ONCE, Values, Weights
from dubio.metrics.areas import ratio, roc_area
from dubio.metrics.decisions import (
    LOG_ODDS,
    binary_problems,
    correct,
    labels_above_half,
    predicted,
    predicted_labels,
)
from dubio.metrics.metric import metric, prepared
from dubio.metrics.ranking import Marked

OWN_TEMPERATURE = (
    "Log-likelihoods of models at their own temperatures mostly compare temperatures; calibrated_nll ranks."
)

_proper_score = partial(metric, better="lower", needs={"labels", "probs"}, mean=True)


@metric("accuracy", better="higher", needs={"labels"}, mean=True, version=2)
def accuracy(p: Predictions) -> FloatArray:
    """Share of rows whose most probable class is right; multi-label: whose whole set of labels is."""
    return correct(p).astype(np.float64)


@metric("error", better="lower", needs={"labels"}, mean=True, version=2)
def error(p: Predictions) -> FloatArray:
    """Share of rows whose decision is wrong, 1 − accuracy."""
    return 1.0 - correct(p)


@_proper_score("nll", why_not=OWN_TEMPERATURE, likelihood=True)
def nll(p: Predictions) -> FloatArray:
    """Negative log-likelihood, −mean log p̄_y in nats; +inf where a true class was given probability zero.

    Multi-label: the sum of binary cross-entropies.
    """
    if p.target != "multilabel":
        return -p.summary.log_label
    loss = np.empty(len(p))
    for rows in row_blocks(1, len(p), p.class_count):
        loss[rows] = nll_of_labels(p.log_probs[rows], p.log_complements[rows], p.labels[rows])
    return loss


def nll_of_labels(yes: FloatArray, no: FloatArray, labels: IntArray) -> FloatArray:
    """Return −Σ_k log of the probability of what is true, ``[N]``, from log p̄_k and log(1 − p̄_k)."""
    return np.asarray(-np.where(labels.astype(bool), yes, no).sum(axis=1))


@_proper_score("nll_per_label", targets={"multilabel"}, why_not=OWN_TEMPERATURE, likelihood=True)
def nll_per_label(p: Predictions) -> FloatArray:
    """Multi-label negative log-likelihood divided by the number of labels."""
    return nll.per_example(p) / p.class_count


@_proper_score("brier")
def brier(p: Predictions) -> FloatArray:
    """Brier score, mean_i Σ_k (1[y = k] − p̄_k)², between 0 and 2 (multi-label: K), not divided by K."""
    if p.target != "multilabel":
        return brier_of_classes(p.summary, p.labels)
    score = np.empty(len(p))
    for rows in row_blocks(1, len(p), p.class_count):
        score[rows] = brier_of_labels(p.probs[rows], p.labels[rows])
    return score


def brier_of_labels(probs: FloatArray, labels: IntArray) -> FloatArray:
    """Return Σ_k (y_k − p̄_k)², ``[N]``."""
    gap = probs - labels
    return np.asarray(np.einsum("nk,nk->n", gap, gap))


def brier_of_classes(summary: Summary, labels: IntArray) -> FloatArray:
    """Return Σ_k p̄_k² − 2 p̄_y + 1 or, where the decision is right, (1 − p̄_y)² + Σ_{k≠y} p̄_k²: no cancellation."""
    missed = np.square(summary.top) + 1.0 - 2.0 * np.exp(summary.log_label)
    own = np.where(summary.chosen == labels, np.square(summary.complement), missed)
    return np.asarray(own + summary.other_squares)


@_proper_score("brier_per_class")
def brier_per_class(p: Predictions) -> FloatArray:
    """Brier score divided by the number of classes."""
    return brier.per_example(p) / p.class_count


@metric("micro_f1", better="higher", needs={"labels"}, targets={"multilabel"}, version=2)
def micro_f1(p: Predictions, *, weights: Weights = ONCE) -> Values:
    """Multi-label F1 = 2TP / (2TP + FP + FN) over all labels; NaN where none is true or asserted anywhere."""
    return counts_of_labels(predicted_labels(p), p.labels.astype(bool), weights).micro_f1()


@metric("macro_f1", better="higher", needs={"labels"}, version=2)
def macro_f1(p: Predictions, *, weights: Weights = ONCE) -> Values:
    """Mean F1 of labels (or classes), without those neither true nor asserted in any row; NaN where all are."""
    if p.target == "multilabel":
        return counts_of_labels(predicted_labels(p), p.labels.astype(bool), weights).macro_f1()
    return _counts_of_classes(predicted(p), p.labels, p.class_count, weights).macro_f1()


_above_half = partial(metric, better="higher", needs={"labels"}, targets={"multilabel"})


@_above_half("accuracy_at_half", mean=True)
def accuracy_at_half(p: Predictions) -> FloatArray:
    """Share of rows whose labels above one half are the whole set, however rows without any are decided."""
    return np.asarray((labels_above_half(p) == p.labels.astype(bool)).all(axis=1), dtype=np.float64)


@_above_half("micro_f1_at_half")
def micro_f1_at_half(p: Predictions, *, weights: Weights = ONCE) -> Values:
    """Micro F1 of the labels above one half, however rows without any are decided."""
    return counts_of_labels(labels_above_half(p), p.labels.astype(bool), weights).micro_f1()


@_above_half("macro_f1_at_half")
def macro_f1_at_half(p: Predictions, *, weights: Weights = ONCE) -> Values:
    """Macro F1 of the labels above one half, however rows without any are decided."""
    return counts_of_labels(labels_above_half(p), p.labels.astype(bool), weights).macro_f1()


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
    """Order rows by the log-odds of each binary problem, and mark its positive side."""
    return [Marked.fewer(problem.scores, problem.positive, unit=LOG_ODDS) for problem in binary_problems(p)]


@metric("class_auroc", better="higher", needs={"labels", "two_classes", "probs"})
def class_auroc(p: Predictions, *, weights: Weights = ONCE) -> Values:
    """AUROC of class 1, of P(grade ≥ 2), or of one against the rest averaged; NaN where a class is absent."""
    return np.asarray(np.mean([roc_area(ranks, weights) for ranks in _class_ranks(p)], axis=0))
