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

from dataclasses import dataclass, replace
from math import sqrt
from typing import Literal, NamedTuple, Protocol

import numpy as np

from dubio.core.passes import TIE, row_blocks, row_products
from dubio.core.predictions import Predictions
from dubio.core.types import BoolArray, FloatArray, IntArray
from dubio.metrics.requirements import labelled

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
    """Labelled predictions in the form that the likelihood of b needs.

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
        """Return the same with probabilities raised to ``FLOOR``; itself where none is below it."""
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
        """Return the evidence of these rows."""
        return Evidence(self.margins[rows], self.labels[rows], self.multilabel)

    def wrong(self) -> BoolArray:
        """Return which examples are decided wrongly, whatever b; multi-label: whose set of labels does not match."""
        if self.multilabel:
            return np.asarray(((self.margins > TIE) != (self.labels == 1)).any(axis=1))
        decided = np.empty(len(self), dtype=np.int64)
        for rows in row_blocks(1, len(self), self.margins.shape[1]):
            decided[rows] = np.argmax(self.margins[rows] >= -TIE, axis=1)
        return np.asarray(decided != self.labels)

    def terms(self, b: float) -> Terms:
        """Return log-likelihood, slope and curvature of every example at b."""
        compute = _sigmoid_terms if self.multilabel else _softmax_terms
        count = len(self)
        result = Terms(np.empty(count), np.empty(count), np.empty(count))
        for rows in row_blocks(1, count, self.margins.shape[1], block_bytes=BLOCK_BYTES):
            result.value[rows], result.slope[rows], result.curvature[rows] = compute(
                self.margins[rows], self.labels[rows], b
            )
        return result

    def scores(self, b: float) -> Scores:
        """Return negative log-likelihood, Brier score and doubt of every example when tempered with b."""
        compute = _sigmoid_scores if self.multilabel else _softmax_scores
        count = len(self)
        result = Scores(np.empty(count), np.empty(count), np.empty(count))
        for rows in row_blocks(1, count, self.margins.shape[1], block_bytes=BLOCK_BYTES):
            result.nll[rows], result.brier[rows], result.doubt[rows] = compute(self.margins[rows], self.labels[rows], b)
        return result


def evidence_of(predictions: Predictions) -> Evidence:
    """Return the evidence of the labelled examples.

    Raises:
        UserError: When no example is labelled.
    """
    rows = labelled(predictions, "a temperature")
    if rows.target == "multilabel":
        return Evidence(rows.log_probs - rows.log_complements, rows.labels, True)
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
    # the top class weighs exactly one; summed without it, a tiny doubt loses no digits
    weights[np.arange(len(weights)), margins.argmax(axis=1)] = 0.0
    others = weights @ ones
    own = b * _at_labels(margins, labels)
    squares = (1.0 + np.square(weights, out=weights) @ ones) / np.square(1.0 + others)
    brier = np.maximum(squares - 2.0 * np.exp(own) / (1.0 + others) + 1.0, 0.0)
    return Scores(np.log1p(others) - own, brier, others / (1.0 + others))


def _tempered(margins: FloatArray, b: float) -> FloatArray:
    """Return exp(b·margins)."""
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
    return fit_evidence(evidence_of(predictions))


def fit_evidence(evidence: Evidence) -> Temperature:
    """Fit one temperature to evidence; see :func:`fit_temperature`."""
    floored = evidence.floored()
    root = solve(floored)
    before, after = (float(evidence.scores(b).nll.mean()) for b in (1.0, root.b))
    declined = after > before
    if declined and floored is evidence:  # rounding, not the floor: the optimum is T = 1 to the last digits
        root, declined, after = Root(1.0, None, root.iterations), False, before
    return Temperature(
        temperature=1.0 if declined else 1.0 / root.b,
        at_bound=None if declined else root.at_bound,
        iterations=root.iterations,
        nll_before=before,
        nll_after=before if declined else after,
        floored=floored is not evidence,
        declined=declined,
    )


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
