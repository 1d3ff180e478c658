"""Where the uncertainty of sampled predictions comes from: entropies and the parts of the total variance.

All parts describe the samples as they were drawn, before any temperature. With p_s the predictive of sample s and p̄ the
mean over samples (T §II-C, eq. 3)::

    H(p̄)            = mean_s H(p_s)          + mutual information
    mean_k p̄(1−p̄)  = mean_s mean_k p_s(1−p_s) + mean_k Var_s p_s
    Var_s p_s       = Var_m p̄_m               + mean_m Var_{s in m} p_s       (between and within members)
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from weakref import WeakKeyDictionary

import numpy as np

from dubio.pooling import FloatArray, log_sigmoid, log_softmax, row_blocks
from dubio.registry import metric
from dubio.types import IntArray, Metric, Predictions

ROUNDING = 1e-12
"""Differences of entropies and variances below this are rounding error of the pooling, and are zero."""


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
        within_members: The part that is left within members.
    """

    pooled_entropy: FloatArray
    expected_entropy: FloatArray
    mutual_information: FloatArray
    total_variance: FloatArray
    expected_variance: FloatArray
    sample_variance: FloatArray
    between_members: FloatArray
    within_members: FloatArray


_KNOWN: WeakKeyDictionary[Predictions, Decomposition] = WeakKeyDictionary()


def decompose(predictions: Predictions) -> Decomposition:
    """Decompose the uncertainty of every row in one pass; asked again for the same predictions, it is remembered."""
    known = _KNOWN.get(predictions)
    if known is None:
        names = [field.name for field in fields(Decomposition)]
        parts = {name: np.empty(len(predictions)) for name in names}
        for rows in row_blocks(predictions.samples, len(predictions), predictions.class_count):
            logits = predictions.logits[:, rows].astype(np.float64)
            found = _entropies(logits, predictions.target == "multilabel")
            probs = found.pop("probs")
            found |= _variances(probs, predictions.member)
            for name in names:
                parts[name][rows] = found[name]
        known = _KNOWN[predictions] = Decomposition(**parts)
    return known


def _entropies(logits: FloatArray, per_label: bool) -> dict[str, FloatArray]:
    """Entropies of a block [S, n, K], and the probabilities [S, n, K]."""
    sides = [log_sigmoid(logits), log_sigmoid(-logits)] if per_label else [log_softmax(logits)]
    total, expected = np.zeros(logits.shape[1]), np.zeros(logits.shape[1])
    for logs in sides:
        probs = np.exp(logs)
        mean = probs.mean(axis=0)
        with np.errstate(divide="ignore"):
            total += _minus_p_log_p(mean, np.log(mean)).sum(axis=-1)
        expected += _minus_p_log_p(probs, logs).sum(axis=-1).mean(axis=0)
    information = total - expected
    information[information < ROUNDING] = 0.0
    return {
        "pooled_entropy": total,
        "expected_entropy": expected,
        "mutual_information": information,
        "probs": np.exp(sides[0]) if per_label else probs,
    }


def _variances(probs: FloatArray, member: IntArray) -> dict[str, FloatArray]:
    """The parts of the total variance of a block [S, n, K], averaged over classes."""
    mean = probs.mean(axis=0)
    between = np.zeros(probs.shape[1])
    within = np.zeros(probs.shape[1])
    for which in np.unique(member):
        own = probs[member == which]
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
    """−p log p, zero where p is; the floor is below the log of the smallest double and only replaces −inf."""
    return -probs * np.maximum(logs, -1e4)


def _mean_of(part: str, summary: str) -> Metric:
    """The mean of one part over rows, as a descriptive metric: it says what a model is like, not how good."""
    return Metric(
        name=f"mean_{part}",
        better="lower",
        compute=lambda predictions: float(getattr(decompose(predictions), part).mean()),
        per_example=lambda predictions: np.asarray(getattr(decompose(predictions), part)),
        comparable=False,
        why_not="It describes how uncertain a model is, and neither more nor less of it is better by itself.",
        summary=summary,
    )


@metric("mean_total_variance")
def mean_total_variance() -> Metric:
    """Mean over rows of mean_k p̄(1 − p̄), the total variance."""
    return _mean_of("total_variance", "Mean total variance of the predictive.")


@metric("mean_expected_variance")
def mean_expected_variance() -> Metric:
    """Mean over rows of mean_s mean_k p_s(1 − p_s), the part that averaging cannot remove."""
    return _mean_of("expected_variance", "Mean variance within a single sample's predictive.")


@metric("mean_sample_variance")
def mean_sample_variance() -> Metric:
    """Mean over rows of mean_k Var_s p_s, the part that samples disagree on."""
    return _mean_of("sample_variance", "Mean variance between samples.")


@metric("mean_between_members")
def mean_between_members() -> Metric:
    """Mean over rows of the variance between members."""
    return _mean_of("between_members", "Mean variance between members.")


@metric("mean_within_members")
def mean_within_members() -> Metric:
    """Mean over rows of the variance within members."""
    return _mean_of("within_members", "Mean variance within members.")
