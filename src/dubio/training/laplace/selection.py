"""The evidence of a Laplace approximation, and the prior precision that makes it largest.

    log p(D | δ) ≈ log p(D | θ*) − ½ δ ‖θ*‖² − ½ [log det(N·F + δ·I) − P log δ]

with θ* the P weights that are Gaussian. It is exact where the likelihood is Gaussian in the weights and θ* their
posterior mean. In the eigenbasis the determinant is a sum of logarithms, so that a value of δ costs one pass over P
numbers.

A positive number chosen on a logarithmic grid.

Values of a Laplace approximation tried on validation data, and the draws of the value that is taken.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Literal, NamedTuple

import numpy as np
from torch import Tensor

from dubio.core.errors import TrainingFailed
from dubio.inference.augmentation import Views
from dubio.inference.batches import LabelledRows
from dubio.inference.laplace import Block, LaplaceDraws, LaplaceGaussian
from dubio.inference.predictor import load_state
from dubio.inference.samples import state_of
from dubio.inference.weight_draws import WeightDraws, draw_generator
from dubio.networks.network import Model
from dubio.training.batch_norm import batch_norm_layers, refresh_draws
from dubio.training.collectors import FinishContext
from dubio.training.validation import pooled_nll

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


COARSE = 0.5
"""Decades between the first values tried."""

FINE = 0.25
"""Decades to both sides of the best of them that are tried next."""

End = Literal["low", "high"]


class Minimum(NamedTuple):
    """The value that did best.

    Attributes:
        value: The value.
        at_bound: The end of all that may be tried that does as well, so that a better value may lie beyond it; None
            where the best lies between values that do worse.
    """

    value: float
    at_bound: End | None = None


def minimise_on_log_grid(score: Callable[[float], float], low: float, high: float) -> Minimum:
    """The value with the least score: of half-decades between two values, then of quarter-decades beside the best.

    Where an end of the half-decades is the best of them, the quarter-decade beyond it is tried too.

    Args:
        score: Asked once a value; a score that is not a number is never the least.
        low: The smallest value of the coarse grid.
        high: The largest value of the coarse grid.

    Raises:
        TrainingFailed: When no value has a finite score.
    """
    scores: dict[float, float] = {}

    def ask(exponent: float) -> None:
        found = score(10.0**exponent)
        scores[exponent] = math.inf if math.isnan(found) else found

    steps = round((math.log10(high) - math.log10(low)) / COARSE)
    coarse = [math.log10(low) + i * COARSE for i in range(steps + 1)]
    for exponent in coarse:
        ask(exponent)
    best = min(scores, key=scores.__getitem__)
    for beside in (best - FINE, best + FINE):
        ask(beside)
    least = min(scores, key=scores.__getitem__)
    if not math.isfinite(scores[least]):
        raise TrainingFailed(f"no value from {low:g} to {high:g} gives a finite score; is the network trained at all?")
    ends: dict[End, float] = {"low": coarse[0] - FINE, "high": coarse[-1] + FINE}
    hit = [end for end, exponent in ends.items() if scores.get(exponent, math.inf) <= scores[least]]
    return Minimum(float(10.0**least), hit[0] if hit else None)


TRIAL_DRAWS = 10
"""Weights drawn for each value that is tried; always the same ones, so that values differ in nothing else."""

TRIAL_EXAMPLES = 512
"""Training examples from which batch-norm takes its statistics while values are tried; afterwards all of them."""

TRIED = 9
"""Values of the scale that are tried, roughly, for what an estimate says."""


class Trials:
    """Draws around a model's weights, and how well they do."""

    def __init__(self, model: Model, context: FinishContext, *, refreshes: bool) -> None:
        """Draw around these weights.

        Args:
            model: With its weights; :meth:`leave` puts them back.
            context: Data, device, seed.
            refreshes: Whether drawn weights stand before batch-norm, whose statistics are then computed for each draw.
        """
        self._model, self._context = model, context
        self._start = state_of(model)
        self._refreshes = refreshes and bool(batch_norm_layers(model))
        rng = np.random.Generator(np.random.PCG64(np.random.SeedSequence(context.seed)))
        rows = np.sort(rng.permutation(len(context.train.encoded))[:TRIAL_EXAMPLES])
        self._few = LabelledRows(context.train.encoded.take(rows), context.train.labels[rows], context.train.classes)

    @staticmethod
    def passes(model: Model, draws: int) -> int:
        """Passes over the training data that a search and the draws take, at most."""
        return (draws + TRIED * TRIAL_DRAWS) if batch_norm_layers(model) else 0

    def nll(self, gaussian: LaplaceGaussian, views: Views | None) -> float:
        """Validation nll of a few draws, pooled; not a number where a draw cannot predict."""
        tried = self._draws(gaussian, TRIAL_DRAWS, self._few, views)
        return pooled_nll(LaplaceDraws(tried), self._context.val, seed=self._context.seed, device=self._context.device)

    def draws(self, gaussian: LaplaceGaussian, count: int) -> WeightDraws:
        """So many draws, the statistics of each from all training examples."""
        return self._draws(gaussian, count, self._context.train, None)

    def leave(self) -> None:
        """Put the weights back."""
        load_state(self._model, self._start)

    def _draws(self, gaussian: LaplaceGaussian, count: int, data: LabelledRows, views: Views | None) -> WeightDraws:
        seed = self._context.seed
        buffers: list[dict[str, Tensor]] = [{} for _ in range(count)]
        if self._refreshes:
            makers = [lambda k=k: gaussian.draw(draw_generator(seed, k)) for k in range(count)]
            load_state(self._model, self._start)
            buffers = refresh_draws(self._model, makers, replace(self._context, train=data))
        apart = gaussian.point.keys() | buffers[0].keys()
        fixed = {name: tensor.cpu() for name, tensor in self._start.items() if name not in apart}
        return WeightDraws(self._model, gaussian, seed, fixed, tuple(buffers), 0, views)
