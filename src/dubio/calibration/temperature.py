"""Temperature scaling: one number, fitted by maximum likelihood to the log of the averaged probabilities.

Tempering multiplies the log of the *averaged* probabilities (multi-label: the log-odds of every label) by b = 1/T and
normalises again. With z = log p̄ the log-likelihood of one example and its derivatives are

    multi-class   ℓ(b) = b·z_y − log Σ_k exp(b·z_k),    ℓ′ = z_y − E_b[z],   ℓ″ = −Var_b[z]
    multi-label   ℓ(b) = Σ_k log σ(b·u_k), u_k = ±logit p̄_k,  ℓ′ = Σ_k u_k σ(−b·u_k),  ℓ″ = −Σ_k u_k² σ(b·u_k)σ(−b·u_k)

so the likelihood is concave in b: its slope is brought to zero by Newton's method, inside a bracket that shrinks with
every evaluation. Where the likelihood keeps rising up to the end of the allowed range (every example right: no finite
optimum) the end is returned and reported. Everything works on blocks of rows that stay in the cache.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import sqrt
from typing import Literal, NamedTuple, Protocol

import numpy as np

from dubio.core.passes import TIE, RowSums, log_sigmoid, row_blocks, row_products, sums_of_others
from dubio.core.predictions import Predictions
from dubio.core.types import BoolArray, EmptyDecision, FloatArray, IntArray
from dubio.metrics.decisions import decided
from dubio.metrics.quantities import mean_over_asserted
from dubio.metrics.requirements import labelled
from dubio.metrics.scoring import brier_of_classes, brier_of_labels, nll_of_labels

FLOOR = 1e-12
"""Probabilities below this are raised to it while a temperature is fitted, and only then."""

LOG_FLOOR = float(np.log(FLOOR))
LARGEST_ODDS = float(np.log1p(-FLOOR)) - LOG_FLOOR
"""Log-odds of a label whose probability, or that of its absence, is at the floor."""

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
    """Labelled predictions in the form that the likelihood of b needs.

    Attributes:
        margins: Multi-class: log p̄ less its largest value in the row. Multi-label: the log-odds. ``[N, K]`` float64.
        labels: ``[N]`` class index, or multi-hot ``[N, K]``.
        multilabel: Whether every label is its own Bernoulli.
        empty_decision: As of the predictions.
    """

    margins: FloatArray
    labels: IntArray
    multilabel: bool
    empty_decision: EmptyDecision = "empty"

    def __len__(self) -> int:
        return len(self.labels)

    def floored(self) -> Evidence:
        """Return the same with probabilities raised to ``FLOOR``; itself where none is below it."""
        if self.multilabel:
            inside = (np.abs(self.margins) <= LARGEST_ODDS).all()
            return self if inside else replace(self, margins=np.clip(self.margins, -LARGEST_ODDS, LARGEST_ODDS))
        # margins are relative to the top class, so the floor is placed relative to log p̄ of that class
        top = -np.log(_row_sums(self.margins))
        lowest = LOG_FLOOR - top
        inside = (self.margins.min(axis=1) >= lowest).all()
        return self if inside else replace(self, margins=np.maximum(self.margins, lowest[:, None]))

    def take(self, rows: IntArray) -> Evidence:
        """Return the evidence of these rows."""
        return replace(self, margins=self.margins[rows], labels=self.labels[rows])

    def wrong(self) -> BoolArray:
        """Return which examples are decided wrongly, whatever b; multi-label: whose set of labels does not match."""
        if self.multilabel:
            decisions = decided(self.margins > TIE, self.margins, self.empty_decision)
            return np.asarray((decisions != (self.labels == 1)).any(axis=1))
        chosen = np.empty(len(self), dtype=np.int64)
        for rows in row_blocks(1, len(self), self.margins.shape[1]):
            chosen[rows] = np.argmax(self.margins[rows] >= -TIE, axis=1)
        return np.asarray(chosen != self.labels)

    def terms(self, b: float) -> Terms:
        """Return log-likelihood, slope and curvature of every example at b."""
        return Terms(*self._by_block(_sigmoid_terms if self.multilabel else _softmax_terms, b))

    def scores(self, b: float) -> Scores:
        """Return negative log-likelihood, Brier score and doubt of every example when tempered with b."""
        return Scores(*self._by_block(_sigmoid_scores if self.multilabel else _softmax_scores, b))

    def _by_block(self, compute: Callable[[FloatArray, IntArray, float], Terms | Scores], b: float) -> FloatArray:
        """Return three numbers per example, ``[3, N]``, computed on blocks of rows that stay in the cache."""
        result = np.empty((3, len(self)))
        for rows in row_blocks(1, *self.margins.shape, block_bytes=BLOCK_BYTES):
            result[:, rows] = compute(self.margins[rows], self.labels[rows], b)
        return result


def evidence_of(predictions: Predictions) -> Evidence:
    """Return the evidence of the labelled examples.

    Raises:
        UserError: When no example is labelled.
    """
    rows = labelled(predictions, "a temperature")
    if rows.target == "multilabel":
        return Evidence(rows.log_probs - rows.log_complements, rows.labels, True, rows.empty_decision)
    return evidence_of_log_probs(rows.log_probs, rows.labels)


def evidence_of_log_probs(log_probs: FloatArray, labels: IntArray) -> Evidence:
    """Return the evidence of multi-class log-probabilities ``[N, K]`` with labels ``[N]``."""
    margins = np.empty_like(log_probs)
    for rows in row_blocks(1, *log_probs.shape, block_bytes=BLOCK_BYTES):
        margins[rows] = log_probs[rows] - log_probs[rows].max(axis=1, keepdims=True)
    return Evidence(margins, labels, False)


def _row_sums(margins: FloatArray) -> FloatArray:
    total = np.empty(len(margins))
    for rows in row_blocks(1, len(margins), margins.shape[1], block_bytes=BLOCK_BYTES):
        total[rows] = np.exp(margins[rows]) @ np.ones(margins.shape[1])
    return total


def _softmax_terms(margins: FloatArray, labels: IntArray, b: float) -> Terms:
    ones = np.ones(margins.shape[1])
    weights = b * margins
    np.exp(weights, out=weights)
    total = weights @ ones
    own = margins[np.arange(len(labels)), labels]
    weights *= margins
    first = (weights @ ones) / total
    second = row_products(weights, margins) / total
    return Terms(b * own - np.log(total), own - first, np.minimum(first * first - second, 0.0))


def _softmax_scores(margins: FloatArray, labels: IntArray, b: float) -> Scores:
    sums, starts = RowSums(len(margins)), np.arange(0, margins.size, margins.shape[1])
    sums.chosen, sums.highest[:] = margins.argmax(axis=1), 0.0  # of margins, the highest is zero at every b
    sums.margin[:] = b * margins.ravel()[starts + labels]
    sums.others[:], sums.squares[:] = sums_of_others(b * margins, starts + sums.chosen)
    summary = sums.summary(labels)
    return Scores(-summary.log_label, brier_of_classes(summary, labels), summary.complement)


def _sigmoid_terms(odds: FloatArray, labels: IntArray, b: float) -> Terms:
    signed = np.where(labels == 1, odds, -odds)
    right, wrong = log_sigmoid(b * signed), log_sigmoid(-b * signed)
    slope = signed * np.exp(wrong)
    curvature = -signed * slope * np.exp(right)
    return Terms(right.sum(axis=1), slope.sum(axis=1), curvature.sum(axis=1))


def _sigmoid_scores(odds: FloatArray, labels: IntArray, b: float) -> Scores:
    yes, no = log_sigmoid(b * odds), log_sigmoid(-b * odds)
    doubt = mean_over_asserted(yes, no, no)
    return Scores(nll_of_labels(yes, no, labels), brier_of_labels(np.exp(yes), labels), doubt)


LOWEST, HIGHEST = 0.01, 100.0
"""The range of b = 1/T; that of T is the same."""

NEWTON_TOLERANCE = 3e-4
"""Relative length of a Newton step that ends the search; what is left after it is about its square."""
TOLERANCE = 1e-9
"""The same for a step that is not Newton's."""
MAX_ITERATIONS = 100
PATIENCE = 4
"""Newton steps before one that does not halve the last is replaced."""

Bound = Literal["lowest", "highest"]


@dataclass(frozen=True)
class Temperature:
    """A fitted temperature.

    Attributes:
        temperature: T; predictions are divided by it in log space. Above one: they were overconfident.
        at_bound: Which end of the allowed range of T was hit, where one was: there is no optimum inside it.
        iterations: Evaluations of the likelihood.
        nll_before: Mean negative log-likelihood at T = 1, of the probabilities as they are (not floored).
        nll_after: The same at the fitted temperature; never above ``nll_before``.
        floored: Whether some probability was raised to the floor for the fit.
        declined: Whether the fit came out worse than T = 1 on the probabilities as they are, which only the floor can
            cause, so that T = 1 is returned.
    """

    temperature: float
    at_bound: Bound | None
    iterations: int
    nll_before: float
    nll_after: float
    floored: bool
    declined: bool


@dataclass(frozen=True)
class Root:
    """Where the slope of a concave likelihood vanishes, or the end of the range it pushes against."""

    b: float
    at_bound: Bound | None
    iterations: int


def fit_temperature(predictions: Predictions) -> Temperature:
    """Fit one temperature to labelled predictions by maximum likelihood.

    A likelihood that does not depend on b at all (uniform predictions) gives T = 1.

    Args:
        predictions: Multi-class, ordinal or multi-label; unlabelled examples are left out.

    Raises:
        UserError: When no example is labelled.
    """
    evidence = evidence_of(predictions)
    floored = evidence.floored()
    root = solve(floored)
    before, after = (float(evidence.scores(b).nll.mean()) for b in (1.0, root.b))
    raised, worse = floored is not evidence, after > before
    if worse:  # because of the floor or, without it, by rounding: the optimum is T = 1 to the last digits
        root, after = Root(1.0, None, root.iterations), before
    return Temperature(1.0 / root.b, root.at_bound, root.iterations, before, after, raised, worse and raised)


def apply_temperature(predictions: Predictions, temperature: float) -> Predictions:
    """Return the same predictions, tempered once more: temperatures multiply."""
    return replace(predictions, temperature=predictions.temperature * temperature)


class Likelihood(Protocol):
    """A concave likelihood of b: of evidence, or of anything else with such terms."""

    def terms(self, b: float) -> Terms:
        """Return terms at b, of which slope and curvature are summed."""
        ...


def solve(evidence: Likelihood, *, start: float = 1.0) -> Root:
    """Find the root of the slope of the (floored) likelihood by safeguarded Newton steps.

    Args:
        evidence: With finite margins.
        start: The first b.
    """
    bracket = Bracket()
    b, stride = min(max(start, LOWEST), HIGHEST), np.inf
    for iteration in range(1, MAX_ITERATIONS + 1):
        terms = evidence.terms(b)
        slope, curvature = float(terms.slope.sum()), float(terms.curvature.sum())
        if slope >= 0.0 and b == HIGHEST:
            return Root(b, "lowest", iteration)
        if slope <= 0.0 and b == LOWEST:
            return Root(b, "highest", iteration)
        if slope == 0.0:
            return Root(b, None, iteration)
        bracket = bracket.shrunk(b, slope)
        proposal = newton_step(b, slope, curvature)
        # Newton creeps where the likelihood is nearly straight: steps that stop shrinking are replaced
        slow = iteration > PATIENCE and abs(proposal - b) > 0.5 * stride
        following = bracket.inside(float(np.copysign(np.inf, slope)) if slow else proposal)
        stride = abs(following - b)
        if stride <= (NEWTON_TOLERANCE if following == proposal else TOLERANCE) * b:
            return Root(following, None, iteration)
        b = following
    return Root(b, None, MAX_ITERATIONS)


@dataclass(frozen=True)
class Bracket:
    """An interval that holds the root; an end is ``known`` once the slope there points inwards."""

    low: float = LOWEST
    high: float = HIGHEST
    low_known: bool = False
    high_known: bool = False

    def shrunk(self, b: float, slope: float) -> Bracket:
        """Return the bracket that the slope at b leaves."""
        if slope > 0.0:
            return replace(self, low=b, low_known=True)
        return replace(self, high=b, high_known=True)

    def inside(self, proposal: float) -> float:
        """Return the proposal or, where it leaves the bracket, an end not yet tried, else the geometric middle."""
        if self.low < proposal < self.high:
            return proposal
        tried, end = (self.low_known, self.low) if proposal <= self.low else (self.high_known, self.high)
        return sqrt(self.low * self.high) if tried else end


def newton_step(b: float, slope: float, curvature: float) -> float:
    """Return Newton's b − ℓ′/ℓ″, infinite in the slope's direction where the likelihood is locally straight."""
    if curvature >= 0.0:
        return float(np.copysign(np.inf, slope))
    with np.errstate(over="ignore"):
        return b - slope / curvature
