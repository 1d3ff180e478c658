"""The likelihood of pooled predictions as a function of one number, b = 1/T.

Tempering multiplies the log of the *averaged* probabilities (multi-label: the log-odds of every label) by b and
normalises again. With z = log p̄ the log-likelihood of one example and its derivatives are

    multi-class   ℓ(b) = b·z_y − log Σ_k exp(b·z_k),    ℓ′ = z_y − E_b[z],   ℓ″ = −Var_b[z]
    multi-label   ℓ(b) = Σ_k log σ(b·u_k), u_k = ±logit p̄_k,  ℓ′ = Σ_k u_k σ(−b·u_k),  ℓ″ = −Σ_k u_k² σ(b·u_k)σ(−b·u_k)

so the likelihood is concave in b. Everything here works on blocks of rows that stay in the cache.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from dubio.core.passes import row_blocks, row_products
from dubio.core.predictions import Predictions
from dubio.core.types import BoolArray, FloatArray, IntArray
from dubio.metrics.needs import labelled
from dubio.metrics.outcomes import TIE

FLOOR = 1e-12
"""Probabilities below this are raised to it while a temperature is fitted, and only then."""

LOG_FLOOR = float(np.log(FLOOR))

BLOCK_BYTES = 1 << 18
"""Bytes of margins a block holds, so that it and its exponentials stay in the second-level cache."""


class Terms(NamedTuple):
    """Per example: the log-likelihood at some b and its first two derivatives in b."""

    value: FloatArray
    slope: FloatArray
    curvature: FloatArray


class Scores(NamedTuple):
    """Per example at some b: negative log-likelihood, Brier score, and doubt (1 − confidence) in what is predicted."""

    nll: FloatArray
    brier: FloatArray
    doubt: FloatArray


@dataclass(frozen=True, eq=False)
class Evidence:
    """What the likelihood of b needs of a set of labelled predictions.

    Attributes:
        margins: Multi-class: log p̄ less its largest value in the row. Multi-label: the log-odds. ``[N, K]`` float64.
        labels: ``[N]`` class index, or multi-hot ``[N, K]``.
        multilabel: Whether every label is its own Bernoulli.
    """

    margins: FloatArray
    labels: IntArray
    multilabel: bool

    def __len__(self) -> int:
        return len(self.labels)

    def floored(self) -> Evidence:
        """The same with probabilities raised to ``FLOOR``; itself where none is below it."""
        if self.multilabel:
            limit = float(np.log1p(-FLOOR)) - LOG_FLOOR
            inside = bool((np.abs(self.margins) <= limit).all())
            return self if inside else Evidence(np.clip(self.margins, -limit, limit), self.labels, True)
        # margins are relative to the top class, so the floor is placed relative to log p̄ of that class
        top = -np.log(_row_sums(self.margins))
        lowest = LOG_FLOOR - top
        if bool((self.margins.min(axis=1) >= lowest).all()):
            return self
        return Evidence(np.maximum(self.margins, lowest[:, None]), self.labels, False)

    def take(self, rows: IntArray) -> Evidence:
        """The evidence of these rows."""
        return Evidence(self.margins[rows], self.labels[rows], self.multilabel)

    def wrong(self) -> BoolArray:
        """Which examples are decided wrongly, whatever b; multi-label: where the set of labels does not match."""
        if self.multilabel:
            return np.asarray(((self.margins > TIE) != (self.labels == 1)).any(axis=1))
        decided = np.empty(len(self), dtype=np.int64)
        for rows in row_blocks(1, len(self), self.margins.shape[1]):
            decided[rows] = np.argmax(self.margins[rows] >= -TIE, axis=1)
        return np.asarray(decided != self.labels)

    def terms(self, b: float) -> Terms:
        """Log-likelihood, slope and curvature of every example at b."""
        compute = _sigmoid_terms if self.multilabel else _softmax_terms
        count = len(self)
        result = Terms(np.empty(count), np.empty(count), np.empty(count))
        for rows in row_blocks(1, count, self.margins.shape[1], block_bytes=BLOCK_BYTES):
            result.value[rows], result.slope[rows], result.curvature[rows] = compute(
                self.margins[rows], self.labels[rows], b
            )
        return result

    def scores(self, b: float) -> Scores:
        """Negative log-likelihood, Brier score and doubt of every example when tempered with b."""
        compute = _sigmoid_scores if self.multilabel else _softmax_scores
        count = len(self)
        result = Scores(np.empty(count), np.empty(count), np.empty(count))
        for rows in row_blocks(1, count, self.margins.shape[1], block_bytes=BLOCK_BYTES):
            result.nll[rows], result.brier[rows], result.doubt[rows] = compute(
                self.margins[rows], self.labels[rows], b
            )
        return result


def evidence_of(predictions: Predictions) -> Evidence:
    """The evidence of the labelled examples.

    Raises:
        UserError: When no example is labelled.
    """
    known = labelled(predictions, "a temperature")
    if known.target == "multilabel":
        return Evidence(known.log_probs - known.log_complements, known.labels, True)
    return evidence_of_log_probs(known.log_probs, known.labels)


def evidence_of_log_probs(log_probs: FloatArray, labels: IntArray) -> Evidence:
    """The evidence of multi-class log-probabilities ``[N, K]`` with labels ``[N]``."""
    margins = np.empty_like(log_probs)
    for rows in row_blocks(1, *log_probs.shape, block_bytes=BLOCK_BYTES):
        margins[rows] = log_probs[rows] - log_probs[rows].max(axis=1, keepdims=True)
    return Evidence(margins, labels, False)


def _row_sums(margins: FloatArray) -> FloatArray:
    total = np.empty(len(margins))
    for rows in row_blocks(1, len(margins), margins.shape[1], block_bytes=BLOCK_BYTES):
        total[rows] = np.exp(margins[rows]) @ np.ones(margins.shape[1])
    return total


def _at_labels(values: FloatArray, labels: IntArray) -> FloatArray:
    return np.asarray(values[np.arange(len(labels)), labels])


def _softmax_terms(margins: FloatArray, labels: IntArray, b: float) -> Terms:
    ones = np.ones(margins.shape[1])
    weights = _tempered(margins, b)
    total = weights @ ones
    own = _at_labels(margins, labels)
    weights *= margins
    first = (weights @ ones) / total
    second = row_products(weights, margins) / total
    return Terms(b * own - np.log(total), own - first, np.minimum(first * first - second, 0.0))


def _softmax_scores(margins: FloatArray, labels: IntArray, b: float) -> Scores:
    ones = np.ones(margins.shape[1])
    weights = _tempered(margins, b)
    # the top class weighs exactly one; summed apart from the others, doubt keeps its digits where it is tiny
    weights[np.arange(len(weights)), margins.argmax(axis=1)] = 0.0
    rest = weights @ ones
    own = b * _at_labels(margins, labels)
    squares = (1.0 + np.square(weights, out=weights) @ ones) / np.square(1.0 + rest)
    brier = np.maximum(squares - 2.0 * np.exp(own) / (1.0 + rest) + 1.0, 0.0)
    return Scores(np.log1p(rest) - own, brier, rest / (1.0 + rest))


def _tempered(margins: FloatArray, b: float) -> FloatArray:
    """exp(b·margins)."""
    scaled = b * margins
    np.exp(scaled, out=scaled)
    return scaled


def _signed(odds: FloatArray, labels: IntArray) -> FloatArray:
    return np.where(labels == 1, odds, -odds)


def _sigmoid_terms(odds: FloatArray, labels: IntArray, b: float) -> Terms:
    signed = _signed(odds, labels)
    scaled = b * signed
    wrong = _sigmoid(-scaled)
    slope = signed * wrong
    curvature = -signed * slope * _sigmoid(scaled)
    return Terms(-np.logaddexp(0.0, -scaled).sum(axis=1), slope.sum(axis=1), curvature.sum(axis=1))


def _sigmoid_scores(odds: FloatArray, labels: IntArray, b: float) -> Scores:
    scaled = b * odds
    probs = _sigmoid(scaled)
    nll = np.logaddexp(0.0, -_signed(scaled, labels)).sum(axis=1)
    brier = np.square(labels - probs).sum(axis=1)
    asserted = odds > TIE
    none = ~asserted.any(axis=1)
    asserted[none, odds[none].argmax(axis=1)] = True
    doubt = (_sigmoid(-scaled) * asserted).sum(axis=1) / asserted.sum(axis=1)
    return Scores(nll, brier, doubt)


def _sigmoid(values: FloatArray) -> FloatArray:
    return np.exp(-np.logaddexp(0.0, -values))
