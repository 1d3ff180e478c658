"""From sampled logits to log-probabilities: the one place where samples are pooled.

The predictive of a method with S samples is the *mean of probabilities*, p̄ = (1/S) Σ_s p_s, never the softmax of mean
logits. It is computed in log space, log p̄ = logsumexp_s log p_s − log S, so that p = 0 and p = 1 stay exact, and in
blocks of rows that fit the cache.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.floating]

BLOCK_BYTES = 1 << 20
"""Bytes of float64 logits that one block of rows may hold."""


def row_blocks(samples: int, rows: int, classes: int, *, block_bytes: int = BLOCK_BYTES) -> Iterator[slice]:
    """Slices over rows such that one block of all samples and classes stays small.

    Args:
        samples: Samples a row.
        rows: Rows in all.
        classes: Classes a row.
        block_bytes: Bytes of float64 values a block may hold.
    """
    step = max(1, block_bytes // max(1, 8 * samples * classes))
    for start in range(0, rows, step):
        yield slice(start, min(rows, start + step))


def log_softmax(logits: FloatArray) -> FloatArray:
    """Row-wise log-softmax over the last axis; −inf logits give −inf, never NaN."""
    top = np.max(logits, axis=-1, keepdims=True)
    shifted = logits - np.where(np.isfinite(top), top, 0.0)
    with np.errstate(divide="ignore"):
        out: FloatArray = shifted - np.log(np.sum(np.exp(shifted), axis=-1, keepdims=True))
    return out


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


def pool_softmax(logits: FloatArray, temperature: float) -> FloatArray:
    """log p̄ of a block [S, n, K] of softmax logits, at a temperature applied after pooling."""
    logs = log_softmax(logits.astype(np.float64))
    pooled = logs[0] if len(logs) == 1 else log_mean_exp(logs)
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
