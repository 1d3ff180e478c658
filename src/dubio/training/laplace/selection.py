"""Choose the prior precision and the noise scale of a Laplace approximation.

The prior precision δ maximises the evidence (marginal likelihood),

    log p(D | δ) ≈ log p(D | θ*) − ½ δ ‖θ*‖² − ½ [log det(N·F + δ·I) − P log δ]

with θ* the P weights that are Gaussian. It is exact where the likelihood is Gaussian in the weights and θ* their
posterior mean. In the eigenbasis the determinant is a sum of logarithms, so that a value of δ costs one pass over P
numbers. Otherwise δ, and the scale, minimise the validation loss of a few draws on a logarithmic grid.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple

from torch import Tensor

from dubio.core.errors import TrainingFailed, UserError
from dubio.inference.augmentation import Views
from dubio.inference.laplace import Block, LaplaceDraws, LaplaceGaussian
from dubio.inference.predictor import load_state
from dubio.inference.samples import state_of
from dubio.inference.weight_draws import WeightDraws, draw_generator
from dubio.networks.network import Model
from dubio.training.batch_norm import batch_norm_layers, normalised_share, refresh_draws
from dubio.training.collectors import FinishContext
from dubio.training.validation import posterior_nll

LOWEST_PRIOR, HIGHEST_PRIOR = 1e-4, 1e8
"""Range of the prior precisions."""

STEPS_PER_DECADE = 4
REFINEMENTS = 24
"""Golden-section steps around the best of the grid: to 1e-5 of a decade."""

GOLDEN = (math.sqrt(5.0) - 1.0) / 2.0


def log_evidence(blocks: Sequence[Block], prior: float, *, log_likelihood: float, squared_norm: float) -> float:
    """Return the approximate log p(D | δ).

    Args:
        blocks: The curvature N·F of each layer.
        prior: δ.
        log_likelihood: log p(D | θ*) over all training examples.
        squared_norm: ‖θ*‖² of the weights that have a block.
    """
    determinant, count = 0.0, 0
    for block in blocks:
        precision = block.precision(prior)
        determinant += float(precision.log().sum())
        count += precision.numel()
    return log_likelihood - 0.5 * prior * squared_norm - 0.5 * (determinant - count * math.log(prior))


def best_prior(blocks: Sequence[Block], *, squared_norm: float) -> float:
    """Return the δ with the largest evidence: the best on a logarithmic grid, refined by golden-section search."""

    def score(exponent: float) -> float:
        return log_evidence(blocks, 10.0**exponent, log_likelihood=0.0, squared_norm=squared_norm)

    low, high = math.log10(LOWEST_PRIOR), math.log10(HIGHEST_PRIOR)
    steps = round((high - low) * STEPS_PER_DECADE)
    best = max((low + i / STEPS_PER_DECADE for i in range(steps + 1)), key=score)
    return float(10.0 ** _golden(score, best - 1.0 / STEPS_PER_DECADE, best + 1.0 / STEPS_PER_DECADE))


def _golden(score: Callable[[float], float], low: float, high: float) -> float:
    """Return the maximiser between two exponents by golden-section search."""
    lower, upper = high - GOLDEN * (high - low), low + GOLDEN * (high - low)
    lower_score, upper_score = score(lower), score(upper)
    for _ in range(REFINEMENTS):
        if lower_score >= upper_score:
            high, upper, upper_score = upper, lower, lower_score
            lower = high - GOLDEN * (high - low)
            lower_score = score(lower)
        else:
            low, lower, lower_score = lower, upper, upper_score
            upper = low + GOLDEN * (high - low)
            upper_score = score(upper)
    return 0.5 * (low + high)


COARSE = 0.5
"""Decades between the values tried first."""

FINE = 0.25
"""Decades on both sides of the best of them, tried next."""

End = Literal["low", "high"]


class Minimum(NamedTuple):
    """The minimiser of a search.

    Attributes:
        value: The value.
        at_bound: The end of the range whose score is as small, so that a better value may lie beyond it; None where the
            minimum lies inside.
    """

    value: float
    at_bound: End | None = None


def minimise_on_log_grid(score: Callable[[float], float], low: float, high: float) -> Minimum:
    """Return the value with the smallest score: of half-decades in a range, then of quarter-decades beside the best.

    Where an end of the half-decades is the best of them, the quarter-decade beyond it is tried, too.

    Args:
        score: Called once per value; a score that is not a number is never the smallest.
        low: The smallest value of the coarse grid.
        high: The largest value of the coarse grid.

    Raises:
        TrainingFailed: When no value has a finite score.
    """

    def evaluated(*exponents: float) -> dict[float, float]:
        values = {exponent: score(10.0**exponent) for exponent in exponents}
        return {exponent: math.inf if math.isnan(value) else value for exponent, value in values.items()}

    steps = round((math.log10(high) - math.log10(low)) / COARSE)
    coarse = [math.log10(low) + i * COARSE for i in range(steps + 1)]
    scores = evaluated(*coarse)
    best = min(scores, key=scores.__getitem__)
    scores |= evaluated(best - FINE, best + FINE)
    smallest = min(scores, key=scores.__getitem__)
    if not math.isfinite(scores[smallest]):
        raise TrainingFailed(f"no value from {low:g} to {high:g} gives a finite score; is the network trained at all?")
    ends: dict[End, float] = {"low": coarse[0] - FINE, "high": coarse[-1] + FINE}
    hit = [end for end, exponent in ends.items() if scores.get(exponent, math.inf) <= scores[smallest]]
    return Minimum(float(10.0**smallest), hit[0] if hit else None)


TRIAL_DRAWS = 10
"""Weight draws for each value; always the same ones, so that values differ in nothing else."""

TRIAL_EXAMPLES = 512
"""Training examples for batch-norm statistics during the search."""

TRIED = 9
"""Approximate number of scales that are tried, for cost estimates."""


class Trials:
    """Draws around a model's weights, and their validation loss."""

    def __init__(self, model: Model, context: FinishContext, *, refreshes: bool, norm_examples: int = 0) -> None:
        """Prepare draws around the model's present weights.

        Args:
            model: With its weights; :meth:`reset` restores them.
            context: Data, device, seed.
            refreshes: Whether random weights come before batch-norm, so that each draw needs its own statistics.
            norm_examples: Largest number of training examples that the statistics of the final draws are of; 0 for all.
        """
        self._model, self._context = model, context
        self._start = state_of(model)
        self._refreshes = refreshes and bool(batch_norm_layers(model))
        self._norm_examples = norm_examples

    @staticmethod
    def passes(model: Model, draws: int, norm_examples: int, examples: int) -> float:
        """Return the largest number of passes over the training data that a search and the draws take."""
        if not batch_norm_layers(model):
            return 0
        final, trial = (normalised_share(most, examples) for most in (norm_examples, TRIAL_EXAMPLES))
        return draws * final + TRIED * TRIAL_DRAWS * trial

    def nll(self, gaussian: LaplaceGaussian, views: Views | None) -> float:
        """Return the validation loss of a few pooled draws; not a number where a draw cannot predict."""
        context, trial = self._context, self._draws(gaussian, TRIAL_DRAWS, TRIAL_EXAMPLES, views)
        if context.val is None:
            raise UserError("laplace: scale and prior cannot be chosen without validation examples.")
        return posterior_nll(LaplaceDraws(trial), context.val, seed=context.seed, device=context.device)

    def draws(self, gaussian: LaplaceGaussian, count: int) -> WeightDraws:
        """Return ``count`` draws, each with batch-norm statistics of ``norm_examples`` training examples."""
        return self._draws(gaussian, count, self._norm_examples, None)

    def reset(self) -> None:
        """Restore the model's weights."""
        load_state(self._model, self._start)

    def _draws(self, gaussian: LaplaceGaussian, count: int, most: int, views: Views | None) -> WeightDraws:
        seed = self._context.seed
        buffers: list[dict[str, Tensor]] = [{} for _ in range(count)]
        if self._refreshes:
            makers = [lambda k=k: gaussian.draw(draw_generator(seed, k)) for k in range(count)]
            load_state(self._model, self._start)
            buffers = refresh_draws(self._model, makers, self._context, most)
        varying = gaussian.point.keys() | buffers[0].keys()
        fixed = {name: tensor.cpu() for name, tensor in self._start.items() if name not in varying}
        return WeightDraws(self._model, gaussian, seed, fixed, tuple(buffers), 0, views)
