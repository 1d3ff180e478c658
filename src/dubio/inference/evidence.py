"""The evidence of a Laplace approximation, and the prior precision that makes it largest.

    log p(D | δ) ≈ log p(D | θ*) − ½ δ ‖θ*‖² − ½ [log det(N·F + δ·I) − P log δ]

with θ* the P weights that are Gaussian. It is exact where the likelihood is Gaussian in the weights and θ* their
posterior mean. In the eigenbasis the determinant is a sum of logarithms, so that a value of δ costs one pass over P
numbers.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from dubio.inference.laplace_blocks import Block

LEAST, MOST = 1e-4, 1e8
"""Prior precisions that are looked at."""

STEPS_A_DECADE = 4
REFINEMENTS = 24
"""Golden-section steps around the best of the grid: to 1e-5 of a decade."""

GOLDEN = (math.sqrt(5.0) - 1.0) / 2.0


def log_evidence(blocks: Sequence[Block], prior: float, *, log_likelihood: float, squared_norm: float) -> float:
    """The approximate log p(D | δ).

    Args:
        blocks: The curvature N·F of each layer.
        prior: δ.
        log_likelihood: log p(D | θ*) over all training examples.
        squared_norm: ‖θ*‖² of the weights that the blocks are of.
    """
    determinant, count = 0.0, 0
    for block in blocks:
        precision = block.precision(prior)
        determinant += float(precision.log().sum())
        count += precision.numel()
    return log_likelihood - 0.5 * prior * squared_norm - 0.5 * (determinant - count * math.log(prior))


def best_prior(blocks: Sequence[Block], *, squared_norm: float) -> float:
    """The δ of the largest evidence: the best of a logarithmic grid, made finer by golden sections beside it."""

    def score(exponent: float) -> float:
        return log_evidence(blocks, 10.0**exponent, log_likelihood=0.0, squared_norm=squared_norm)

    low, high = math.log10(LEAST), math.log10(MOST)
    steps = round((high - low) * STEPS_A_DECADE)
    best = max((low + i / STEPS_A_DECADE for i in range(steps + 1)), key=score)
    return float(10.0 ** _golden(score, best - 1.0 / STEPS_A_DECADE, best + 1.0 / STEPS_A_DECADE))


def _golden(score: Callable[[float], float], low: float, high: float) -> float:
    """The place of the largest value between two places, by golden sections."""
    left, right = high - GOLDEN * (high - low), low + GOLDEN * (high - low)
    at_left, at_right = score(left), score(right)
    for _ in range(REFINEMENTS):
        if at_left >= at_right:
            high, right, at_right = right, left, at_left
            left = high - GOLDEN * (high - low)
            at_left = score(left)
        else:
            low, left, at_left = left, right, at_right
            right = low + GOLDEN * (high - low)
            at_right = score(right)
    return 0.5 * (low + high)
