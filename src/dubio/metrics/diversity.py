"""Descriptions of uncertainty: how much members or samples differ (T §IV-D1), and the parts of the total variance.

Units are members where there are several (each the mean of its samples), else samples. With weights w_u (a unit's share
of the samples) and p̄ = Σ_u w_u p_u::

    diversity     = mean_i Σ_u w_u KL(p_u ‖ p̄)
    pairwise_kl   = mean_i mean_{u ≠ v} KL(p_u ‖ p_v)            +inf where one gives zero to what another does not
    disagreement  = mean_i mean_{u ≠ v} 1[decision of u ≠ decision of v]

Multi-label: KL is summed over labels, disagreement averaged over them. The parts of the variance are those of
:func:`dubio.metrics.decomposition.decompose`, averaged over rows. None of these says how good a model is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from itertools import pairwise

import numpy as np

from dubio.core.passes import TIE, log_mean_exp, log_sigmoid, log_softmax, row_blocks
from dubio.core.predictions import Predictions
from dubio.core.types import FloatArray
from dubio.metrics.decomposition import decompose
from dubio.metrics.metric import metric

AMBIGUOUS = (
    "Members may differ because they are good at different things or because they are bad; read it beside accuracy."
)
DESCRIBES = "It describes how uncertain a model is, and neither more nor less of it is better by itself."

_diversity_metric = partial(metric, better="higher", needs={"samples"}, mean=True, why_not=AMBIGUOUS)


@_diversity_metric("diversity")
def diversity(p: Predictions) -> FloatArray:
    """Mean KL from each member (or sample) to their mean, Σ_u w_u KL(p_u ‖ p̄)."""
    return _by_rows(p, _to_mean)


@_diversity_metric("pairwise_kl")
def pairwise_kl(p: Predictions) -> FloatArray:
    """Mean KL over ordered pairs of members (or samples)."""
    return _by_rows(p, _between_pairs)


@_diversity_metric("disagreement")
def disagreement(p: Predictions) -> FloatArray:
    """Share of pairs of members (or samples) that decide differently."""
    return _by_rows(p, _differing)


_VARIANCES = {
    "total_variance": "Mean over rows of mean_k p̄(1 − p̄), the total variance.",
    "expected_variance": "Mean over rows of mean_s mean_k p_s(1 − p_s), the part that averaging cannot remove.",
    "sample_variance": "Mean over rows of mean_k Var_s p_s, the part that samples disagree on.",
    "between_members": "Mean over rows of the variance between members.",
    "within_members": "Mean over rows of the variance within members.",
}


def _mean_variance(name: str, description: str) -> None:
    """Register the mean over rows of one part of the total variance."""

    def mean(p: Predictions) -> FloatArray:
        return np.asarray(getattr(decompose(p), name))

    mean.__doc__ = description
    metric(f"mean_{name}", better="lower", mean=True, why_not=DESCRIBES)(mean)


for _name, _description in _VARIANCES.items():
    _mean_variance(_name, _description)


def _by_rows(predictions: Predictions, measure: Callable[[list[FloatArray], FloatArray], FloatArray]) -> FloatArray:
    values = np.empty(len(predictions))
    for rows, sides, weights in _units(predictions):
        values[rows] = measure(sides, weights)
    return values


def _units(predictions: Predictions) -> Iterator[tuple[slice, list[FloatArray], FloatArray]]:
    """Yield blocks of rows with log-probabilities [U, n, K] of units (multi-label: of yes and of no), and weights."""
    members = np.unique(predictions.member)
    for rows in row_blocks(predictions.samples, len(predictions), predictions.class_count):
        logits = predictions.logits[:, rows].astype(np.float64)
        several = predictions.target == "multilabel"
        sides = [log_sigmoid(logits), log_sigmoid(-logits)] if several else [log_softmax(logits)]
        if len(members) == 1:
            yield rows, sides, np.full(predictions.samples, 1 / predictions.samples)
            continue
        own = [predictions.member == which for which in members]
        pooled = [np.stack([log_mean_exp(side[samples]) for samples in own]) for side in sides]
        yield rows, pooled, np.array([samples.mean() for samples in own])


def _to_mean(sides: list[FloatArray], weights: FloatArray) -> FloatArray:
    total = np.zeros(sides[0].shape[1])
    for logs in sides:
        probs = np.exp(logs)
        mean = np.einsum("u,unk->nk", weights, probs)
        with np.errstate(divide="ignore"):
            pooled = np.maximum(np.log(mean), -1e4)  # where every unit says zero it is multiplied by zero
        total += np.einsum("u,unk,unk->n", weights, probs, np.maximum(logs, -1e4) - pooled)
    return np.maximum(total, 0.0)


def _between_pairs(sides: list[FloatArray], weights: FloatArray) -> FloatArray:
    """Return Σ_{u≠v} Σ_k p_u (log p_u − log p_v) = U Σ_u Σ_k p_u log p_u − Σ_k (Σ_u p_u)(Σ_v log p_v), linear in U."""
    units = len(weights)
    total = np.zeros(sides[0].shape[1])
    for logs in sides:
        probs = np.exp(logs)
        summed = probs.sum(axis=0)
        own = np.einsum("unk,unk->n", probs, np.maximum(logs, -1e4))
        with np.errstate(invalid="ignore"):
            cross = np.where(summed > 0, summed * logs.sum(axis=0), 0.0).sum(axis=-1)
        total += units * own - cross
    return np.maximum(total, 0.0) / (units * (units - 1))


def _differing(sides: list[FloatArray], weights: FloatArray) -> FloatArray:
    units = len(weights)
    if len(sides) == 2:
        yes = (sides[0] > sides[1] + TIE).sum(axis=0)
        return np.asarray((2 * yes * (units - yes) / (units * (units - 1))).mean(axis=-1))
    logs = sides[0]
    chosen = np.argmax(logs >= logs.max(axis=-1, keepdims=True) - TIE, axis=-1)
    in_order = np.sort(chosen, axis=0)
    # Pairs that agree: every position in a run of equal decisions agrees with those before it in the run.
    agreeing, run = np.zeros(chosen.shape[1]), np.zeros(chosen.shape[1])
    for before, after in pairwise(in_order):
        run = np.where(before == after, run + 1, 0)
        agreeing += run
    return np.asarray(1.0 - agreeing / (units * (units - 1) / 2))
