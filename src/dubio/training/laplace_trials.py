"""Values of a Laplace approximation tried on validation data, and the draws of the value that is taken."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from torch import Tensor

from dubio.inference.augmentation import Views
from dubio.inference.drawn_states import load_state
from dubio.inference.laplace import LaplaceGaussian
from dubio.inference.laplace_draws import LaplaceDraws
from dubio.inference.points import state_of
from dubio.inference.weight_draws import WeightDraws, generator_of
from dubio.networks.network import Model
from dubio.training.batch_norm import normalised, refreshed_draws
from dubio.training.finishing import FinishContext
from dubio.training.labelled import Labelled
from dubio.training.pooled import pooled_nll

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
        self._refreshes = refreshes and bool(normalised(model))
        rng = np.random.Generator(np.random.PCG64(np.random.SeedSequence(context.seed)))
        rows = np.sort(rng.permutation(len(context.train.encoded))[:TRIAL_EXAMPLES])
        self._few = Labelled(context.train.encoded.take(rows), context.train.labels[rows], context.train.classes)

    @staticmethod
    def passes(model: Model, draws: int) -> int:
        """Passes over the training data that a search and the draws take, at most."""
        return (draws + TRIED * TRIAL_DRAWS) if normalised(model) else 0

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

    def _draws(self, gaussian: LaplaceGaussian, count: int, data: Labelled, views: Views | None) -> WeightDraws:
        seed = self._context.seed
        buffers: list[dict[str, Tensor]] = [{} for _ in range(count)]
        if self._refreshes:
            makers = [lambda k=k: gaussian.draw(generator_of(seed, k)) for k in range(count)]
            load_state(self._model, self._start)
            buffers = refreshed_draws(self._model, makers, replace(self._context, train=data))
        apart = gaussian.point.keys() | buffers[0].keys()
        fixed = {name: tensor.cpu() for name, tensor in self._start.items() if name not in apart}
        return WeightDraws(self._model, gaussian, seed, fixed, tuple(buffers), 0, views)
