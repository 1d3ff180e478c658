"""Exponentials of a block of softmax logits, and sums over them, without an array more than is needed.

One exponential a value is all that pooling and entropies take: with e = exp(z) and t = Σ_k e_k, the probability is e/t
and its entropy log t − Σ_k e_k z_k / t. Logits within ±69 are not even shifted. Every row is summed on its own, so its
result does not depend on which block it is in.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dubio.blocks import FloatArray, Room

FAR = 69.0
"""Logits up to this size are exponentiated as they are: nothing overflows, and squares do not either."""

_LOW, _HIGH = float(np.exp(-FAR)), float(np.exp(FAR))


class Exponentials(NamedTuple):
    """Of a block: logits ``[S, n, K]`` in float64 (shifted where needed), their exponentials, and ``[S, n]`` totals."""

    logits: FloatArray
    values: FloatArray
    totals: FloatArray


def exponentials(block: NDArray[Any], room: Room) -> Exponentials:
    """The exponentials of logits ``[S, n, K]``; every row has a finite one."""
    logits, values = room.array("logits", block.shape), room.array("values", block.shape)
    np.copyto(logits, block)
    with np.errstate(over="ignore", under="ignore"):
        np.exp(logits, out=values)
        totals = row_sums(values)
        if not (totals.min() > _LOW and totals.max() < _HIGH):
            logits -= logits.max(axis=-1, keepdims=True)
            np.exp(logits, out=values)
            totals = row_sums(values)
    return Exponentials(logits, values, totals)


def row_sums(values: FloatArray) -> FloatArray:
    """Σ_k over the last axis."""
    return np.asarray(np.matmul(values[..., None, :], np.ones((values.shape[-1], 1), values.dtype))[..., 0, 0])


def row_products(first: FloatArray, second: FloatArray) -> FloatArray:
    """Σ_k a_k b_k over the last axis."""
    return np.asarray(np.matmul(first[..., None, :], second[..., :, None])[..., 0, 0])


def mean_over_samples(found: Exponentials) -> FloatArray:
    """p̄ = mean_s e_s / t_s of a block, ``[n, K]``."""
    weights = 1.0 / (found.totals * len(found.totals))
    return np.asarray(np.matmul(weights.T[:, None, :], found.values.transpose(1, 0, 2))[:, 0])
