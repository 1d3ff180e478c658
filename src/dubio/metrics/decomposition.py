"""Decomposition of the uncertainty of sampled predictions: entropies and the parts of the total variance.

All parts describe the samples as they were drawn, before any temperature. With p_s the predictive of sample s and p̄ the
mean over samples (T §II-C, eq. 3)::

    H(p̄)            = mean_s H(p_s)          + mutual information
    mean_k p̄(1−p̄)  = mean_s mean_k p_s(1−p_s) + mean_k Var_s p_s
    Var_s p_s       = Var_m p̄_m               + mean_m Var_{s in m} p_s       (between and within members)

One block of rows is decomposed at a time. The fast pass takes one exponential per value and no logarithm: H(p_s) =
log t − Σ_k e_k z_k / t, Σ_k p² = Σ_k e²/t². Where these differences would lose digits (a nearly certain row, samples
that nearly agree) the row is done again by the plain pass, which takes the logarithm of every probability and centres
before it squares.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from dubio.core.passes import (
    Exponentials,
    Scratch,
    exponentials,
    log_sigmoid,
    log_softmax,
    mean_over_samples,
    over_rows,
    row_blocks,
    row_products,
)
from dubio.core.predictions import Predictions
from dubio.core.types import FloatArray, IntArray

ROUNDING = 1e-12
"""Differences of entropies and variances below this are rounding error of the pooling, and are zero."""

SMALL_ENTROPY = 1e-6
SMALL_VARIANCE = 1e-8
"""Below these the fast pass, whose rounding error is about 1e-15, is not trusted with seven digits."""

_FLOOR = float(np.finfo(np.float64).tiny)

Parts = dict[str, FloatArray]
Members = list[IntArray]
"""Which samples each member has."""


def members_of(member: IntArray) -> Members:
    """Return the samples of each member, from the member ``[S]`` of each sample."""
    return [np.flatnonzero(member == which) for which in np.unique(member)]


@dataclass(frozen=True, eq=False)
class Moments:
    """Moments of each row from the fast pass, every array ``[N]``; sums are over classes.

    Attributes:
        expected: mean_s H(p_s).
        pooled: H(p̄).
        total: Σ p̄(1 − p̄).
        squares: mean_s Σ p_s².
        of_mean: Σ p̄².
        of_centres: Σ_m share_m Σ p̄_m², where members have several samples.
    """

    expected: FloatArray
    pooled: FloatArray
    total: FloatArray
    squares: FloatArray
    of_mean: FloatArray
    of_centres: FloatArray

    @classmethod
    def empty(cls, rows: int) -> Moments:
        """Return moments of zero for a number of rows."""
        return cls(*(np.zeros(rows) for _ in range(6)))

    def fill(self, rows: slice, block: NDArray[Any], members: Members, scratch: Scratch) -> None:
        """Find the moments of these rows from their softmax logits [S, n, K]."""
        terms = exponentials(block, scratch)
        samples = len(terms.totals)
        self.expected[rows] = (np.log(terms.totals) - _weighted_logits(terms) / terms.totals).mean(axis=0)
        self.squares[rows] = (row_products(terms.values, terms.values) / np.square(terms.totals)).mean(axis=0)
        mean = mean_over_samples(terms)
        self.total[rows] = row_products(mean, 1.0 - mean)
        if samples == 1:
            return
        self.of_mean[rows] = row_products(mean, mean)
        if 1 < len(members) < samples:
            for own in members:
                centre = mean_over_samples(Exponentials(terms.logits, terms.values[own], terms.totals[own]))
                self.of_centres[rows] += len(own) / samples * row_products(centre, centre)
        logs = np.maximum(mean, _FLOOR)  # zero times a finite logarithm; a p that is not zero is above the floor
        self.pooled[rows] = -row_products(mean, np.log(logs, out=logs))

    def parts(self, classes: int, members: Members) -> Parts:
        """Return the parts of the uncertainty of every row."""
        samples = sum(len(own) for own in members)
        between, within = np.zeros_like(self.squares), np.zeros_like(self.squares)
        if 1 < len(members) < samples:
            between, within = self.of_centres - self.of_mean, self.squares - self.of_centres
        elif len(members) > 1:
            between = self.squares - self.of_mean
        elif samples > 1:
            within = self.squares - self.of_mean
        pooled = self.expected.copy() if samples == 1 else self.pooled
        return {
            "pooled_entropy": pooled,
            "expected_entropy": self.expected,
            "mutual_information": _information(pooled, self.expected),
            "total_variance": self.total / classes,
            "expected_variance": (1.0 - self.squares) / classes,
            "sample_variance": (between + within) / classes,
            "between_members": between / classes,
            "within_members": within / classes,
        }

    def doubtful(self, parts: Parts, classes: int, members: Members) -> IntArray:
        """Return the rows of which some part is too close to zero to have seven right digits."""
        least = SMALL_VARIANCE * self.squares / classes
        terms = (self.expected < SMALL_ENTROPY) | (parts["expected_variance"] < SMALL_VARIANCE / classes)
        if len(members) > 1:
            terms |= parts["between_members"] < least
        if any(len(own) > 1 for own in members):
            terms |= parts["within_members"] < least
        return np.flatnonzero(terms)


def _weighted_logits(terms: Exponentials) -> FloatArray:
    """Return Σ_k e_k z_k, ``[S, n]``; a logit of −inf has e = 0 and adds nothing."""
    with np.errstate(invalid="ignore"):
        products = row_products(terms.values, terms.logits)
    if not np.isfinite(products).all():
        np.copyto(terms.logits, 0.0, where=terms.values == 0.0)
        products = row_products(terms.values, terms.logits)
    return products


def plain_parts(logits: FloatArray, members: Members, *, per_label: bool) -> Parts:
    """Return the parts of a block [S, n, K] from log-probabilities; of a softmax, or of one sigmoid per label."""
    sides = [log_sigmoid(logits), log_sigmoid(-logits)] if per_label else [log_softmax(logits)]
    total, expected = np.zeros(logits.shape[1]), np.zeros(logits.shape[1])
    for logs in sides:
        probs = np.exp(logs)
        mean = probs.mean(axis=0)
        with np.errstate(divide="ignore"):
            total += _minus_p_log_p(mean, np.log(mean)).sum(axis=-1)
        expected += _minus_p_log_p(probs, logs).sum(axis=-1).mean(axis=0)
    return {
        "pooled_entropy": total,
        "expected_entropy": expected,
        "mutual_information": _information(total, expected),
    } | _variances(np.exp(sides[0]), members)


def _information(total: FloatArray, expected: FloatArray) -> FloatArray:
    information = total - expected
    information[information < ROUNDING] = 0.0
    return information


def _variances(probs: FloatArray, members: Members) -> Parts:
    """Return the parts of the total variance of a block [S, n, K], averaged over classes."""
    mean = probs.mean(axis=0)
    between = np.zeros(probs.shape[1])
    within = np.zeros(probs.shape[1])
    for which in members:
        own = probs[which]
        centre = own.mean(axis=0)
        share = len(own) / len(probs)
        between += share * ((centre - mean) ** 2).mean(axis=-1)
        within += share * ((own - centre) ** 2).mean(axis=0).mean(axis=-1)
    between[between < ROUNDING**2] = 0.0  # squares: the rounding error of a probability, squared
    within[within < ROUNDING**2] = 0.0
    return {
        "total_variance": (mean * (1 - mean)).mean(axis=-1),
        "expected_variance": (probs * (1 - probs)).mean(axis=0).mean(axis=-1),
        "sample_variance": between + within,
        "between_members": between,
        "within_members": within,
    }


def _minus_p_log_p(probs: FloatArray, logs: FloatArray) -> FloatArray:
    """Return −p log p, zero where p is; the floor is below the log of the smallest double and only replaces −inf."""
    return -probs * np.maximum(logs, -1e4)


@dataclass(frozen=True, eq=False)
class Decomposition:
    """The uncertainty of each row and its parts, every array ``[N]``.

    Attributes:
        pooled_entropy: H(p̄); multi-label: the sum of Bernoulli entropies.
        expected_entropy: mean_s H(p_s).
        mutual_information: Their difference, never negative.
        total_variance: mean_k p̄_k(1 − p̄_k).
        expected_variance: mean_s mean_k p_s,k(1 − p_s,k).
        sample_variance: mean_k Var_s p_s,k.
        between_members: The part of ``sample_variance`` that members disagree on; zero for one member.
        within_members: The part within members.
    """

    pooled_entropy: FloatArray
    expected_entropy: FloatArray
    mutual_information: FloatArray
    total_variance: FloatArray
    expected_variance: FloatArray
    sample_variance: FloatArray
    between_members: FloatArray
    within_members: FloatArray


_REMEMBERED: WeakKeyDictionary[Predictions, Decomposition] = WeakKeyDictionary()


def decompose(predictions: Predictions) -> Decomposition:
    """Decompose the uncertainty of every row in one pass, remembered for the same predictions."""
    decomposition = _REMEMBERED.get(predictions)
    if decomposition is None:
        parts = _plain(predictions) if predictions.target == "multilabel" else _fast(predictions)
        decomposition = _REMEMBERED[predictions] = Decomposition(**parts)
    return decomposition


def forget(predictions: Predictions) -> None:
    """Forget the decomposition of these predictions."""
    _REMEMBERED.pop(predictions, None)


def _plain(predictions: Predictions) -> Parts:
    """Return the parts of multi-label predictions."""
    members = members_of(predictions.member)
    parts: Parts = {field.name: np.empty(len(predictions)) for field in fields(Decomposition)}

    def work(rows: slice, scratch: Scratch) -> None:
        terms = plain_parts(predictions.logits[:, rows].astype(np.float64), members, per_label=True)
        for name, values in parts.items():
            values[rows] = terms[name]

    over_rows(predictions.logits, work)
    return parts


def _fast(predictions: Predictions) -> Parts:
    """Return the parts of multi-class predictions: by moments, and once more where those lose digits."""
    members, logits = members_of(predictions.member), predictions.logits
    moments = Moments.empty(len(predictions))
    over_rows(logits, lambda rows, scratch: moments.fill(rows, logits[:, rows], members, scratch))
    parts = moments.parts(predictions.class_count, members)
    again = moments.doubtful(parts, predictions.class_count, members)
    for block in row_blocks(predictions.samples, len(again), predictions.class_count):
        terms = plain_parts(logits[:, again[block]].astype(np.float64), members, per_label=False)
        for name, values in parts.items():
            values[again[block]] = terms[name]
    return parts
