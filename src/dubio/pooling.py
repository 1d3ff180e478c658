"""From sampled logits to log-probabilities: the one place where samples are pooled.

The predictive of a method with S samples is the *mean of probabilities*, p̄ = (1/S) Σ_s p_s, never the softmax of mean
logits. p = 0 and p = 1 stay exact; a mean too small for a double is found in log space, log p̄ = logsumexp_s log p_s −
log S. Work is done in blocks of rows that fit the cache.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dubio.blocks import BLOCK_BYTES, FloatArray, Room, row_blocks
from dubio.exponentials import exponentials, mean_over_samples

__all__ = [
    "BLOCK_BYTES",
    "FloatArray",
    "log_mean_exp",
    "log_sigmoid",
    "log_softmax",
    "pool_sigmoid",
    "pool_softmax",
    "row_blocks",
]

TINY = 1e-280
"""Mean probabilities below this are found again in log space: they may have lost samples that are too small."""


def log_softmax(logits: FloatArray) -> FloatArray:
    """Row-wise log-softmax over the last axis; −inf logits give −inf, never NaN."""
    top = np.max(logits, axis=-1, keepdims=True)
    shifted = logits - np.where(np.isfinite(top), top, 0.0)
    with np.errstate(divide="ignore"):
        shifted -= np.log(np.sum(np.exp(shifted), axis=-1, keepdims=True))
    return shifted


def log_sigmoid(logits: FloatArray) -> FloatArray:
    """log σ(z) = −log(1 + e^{−z}), without overflow; −inf gives −inf."""
    return -np.logaddexp(0.0, -logits)


def log_mean_exp(values: FloatArray) -> FloatArray:
    """log of the mean of exponentials over the first axis."""
    top = np.max(values, axis=0, keepdims=True)
    safe = np.where(np.isfinite(top), top, 0.0)
    with np.errstate(divide="ignore"):
        out: FloatArray = np.log(np.mean(np.exp(values - safe), axis=0)) + safe[0]
    return out


def pool_softmax(logits: NDArray[Any], temperature: float, room: Room | None = None) -> FloatArray:
    """log p̄ of a block [S, n, K] of softmax logits, at a temperature applied after pooling.

    Args:
        logits: Every row of every sample has a finite one.
        temperature: Applied to log p̄.
        room: Memory to work in.
    """
    if len(logits) == 1:
        pooled = log_softmax(logits[0].astype(np.float64))
    else:
        mean = mean_over_samples(exponentials(logits, Room() if room is None else room))
        lost = (mean < TINY).any(axis=1)
        with np.errstate(divide="ignore"):
            pooled = np.log(mean, out=mean)
        if lost.any():
            pooled[lost] = log_mean_exp(log_softmax(logits[:, lost].astype(np.float64)))
    return pooled if temperature == 1.0 else log_softmax(pooled / temperature)


def pool_sigmoid(logits: FloatArray, temperature: float) -> tuple[FloatArray, FloatArray]:
    """(log p̄, log(1 − p̄)) of a block [S, n, K] of per-label logits, at a temperature applied after pooling."""
    wide = logits.astype(np.float64)
    yes, no = log_mean_exp(log_sigmoid(wide)), log_mean_exp(log_sigmoid(-wide))
    if temperature == 1.0:
        return yes, no
    with np.errstate(invalid="ignore"):
        odds = (yes - no) / temperature
    return log_sigmoid(odds), log_sigmoid(-odds)
