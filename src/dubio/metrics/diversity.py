"""Diversity: how much the members of an ensemble, or else the samples of one model, differ (T §IV-D1).

Units are members where there are several (each the mean of its samples), else samples. With weights w_u (a unit's share
of the samples) and p̄ = Σ_u w_u p_u::

    diversity     = mean_i Σ_u w_u KL(p_u ‖ p̄)
    pairwise_kl   = mean_i mean_{u ≠ v} KL(p_u ‖ p_v)            +inf where one gives zero to what another does not
    disagreement  = mean_i mean_{u ≠ v} 1[decision of u ≠ decision of v]

Multi-label: KL is summed over labels, disagreement averaged over them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise

import numpy as np

from dubio.core.passes import log_mean_exp, log_sigmoid, log_softmax, row_blocks
from dubio.core.predictions import Predictions
from dubio.core.registry import metric
from dubio.core.types import FloatArray, Metric
from dubio.metrics.needs import require
from dubio.metrics.outcomes import TIE


def diversity_per_example(predictions: Predictions) -> FloatArray:
    """Σ_u w_u KL(p_u ‖ p̄) of each row."""
    return _by_rows(predictions, "diversity", _to_mean)


def pairwise_kl_per_example(predictions: Predictions) -> FloatArray:
    """Mean KL over ordered pairs of units, of each row."""
    return _by_rows(predictions, "pairwise_kl", _between_pairs)


def disagreement_per_example(predictions: Predictions) -> FloatArray:
    """Share of pairs of units whose decisions differ, of each row."""
    return _by_rows(predictions, "disagreement", _differing)


def _by_rows(
    predictions: Predictions, name: str, measure: Callable[[list[FloatArray], FloatArray], FloatArray]
) -> FloatArray:
    require(predictions, {"samples"}, name)
    found = np.empty(len(predictions))
    for rows, sides, weights in _units(predictions):
        found[rows] = measure(sides, weights)
    return found


def _units(predictions: Predictions) -> Iterator[tuple[slice, list[FloatArray], FloatArray]]:
    """Blocks of rows with the log-probabilities [U, n, K] of each unit (multi-label: of yes and of no) and weights."""
    members = np.unique(predictions.member)
    for rows in row_blocks(predictions.samples, len(predictions), predictions.class_count):
        logits = predictions.logits[:, rows].astype(np.float64)
        if predictions.target == "multilabel":
            sides = [log_sigmoid(logits), log_sigmoid(-logits)]
        else:
            sides = [log_softmax(logits)]
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
            pooled = np.maximum(
                np.log(mean), -1e4
            )  # only where every unit says zero, and then it is multiplied by zero
        total += np.einsum("u,unk,unk->n", weights, probs, np.maximum(logs, -1e4) - pooled)
    return np.maximum(total, 0.0)


def _between_pairs(sides: list[FloatArray], weights: FloatArray) -> FloatArray:
    """Σ_{u≠v} Σ_k p_u (log p_u − log p_v) = U Σ_u Σ_k p_u log p_u − Σ_k (Σ_u p_u)(Σ_v log p_v), linear in U."""
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
    # Pairs that agree: every place in a run of equal decisions agrees with those before it in the run.
    agreeing, run = np.zeros(chosen.shape[1]), np.zeros(chosen.shape[1])
    for before, after in pairwise(in_order):
        run = np.where(before == after, run + 1, 0)
        agreeing += run
    return np.asarray(1.0 - agreeing / (units * (units - 1) / 2))


_WHY_NOT = (
    "Members may differ because they are good at different things or because they are bad; read it beside accuracy."
)


def _described(name: str, per_example: Callable[[Predictions], FloatArray], summary: str) -> Metric:
    return Metric(
        name,
        "higher",
        lambda p: float(per_example(p).mean()),
        per_example,
        frozenset({"samples"}),
        comparable=False,
        why_not=_WHY_NOT,
        summary=summary,
    )


@metric("diversity")
def diversity_metric() -> Metric:
    """Mean KL from each member (or sample) to their mean."""
    return _described("diversity", diversity_per_example, "Mean KL of members to their mean.")


@metric("pairwise_kl")
def pairwise_kl_metric() -> Metric:
    """Mean KL between pairs of members (or samples)."""
    return _described("pairwise_kl", pairwise_kl_per_example, "Mean KL between pairs of members.")


@metric("disagreement")
def disagreement_metric() -> Metric:
    """Share of pairs of members (or samples) that decide differently."""
    return _described("disagreement", disagreement_per_example, "Share of pairs that decide differently.")
