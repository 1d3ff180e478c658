"""Predict with weight states, in chunks of bounded memory where they are many or large."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from dubio.inference.augmentation import Views
from dubio.inference.engine import (
    PREPARED_ELEMENTS,
    Rows,
    State,
    concatenate,
    fixed,
    over_states,
    shared_prefix,
    single_pass,
)
from dubio.networks.draws import BlockDraws
from dubio.networks.network import Model, Scores

HELD_ELEMENTS = 1 << 27
"""Weights that one chunk may hold, 512 MB in float32: three networks of 36 million parameters."""

StateMaker = Callable[[], State]


class PredictionNoise(NamedTuple):
    """The randomness of predictions with weight states.

    Attributes:
        samples: Noise draws per state; 0 for a deterministic pass.
        views: Random views of each example, or None.
    """

    samples: int = 0
    views: Views | None = None

    @property
    def passes(self) -> int:
        """Passes per state."""
        return max(1, self.samples) * (self.views.each if self.views else 1)


def as_it_is(model: Model) -> Model:
    """Return a model unchanged."""
    return model


def predict_states(
    model: Model,
    states: Sequence[StateMaker],
    seed: int,
    noise: PredictionNoise,
    complete: Callable[[Model], Model] = as_it_is,
) -> StatePredictor | ChunkedPredictor:
    """Return a predictor with weight states, all in memory where they are few or small, else in chunks.

    The size of a chunk depends on the number and size of the states alone. Predictions depend on neither, because every
    state has its own draws.

    Args:
        model: The module that the states belong to; put in evaluation mode.
        states: Functions that make one state each.
        seed: Seed of the noise.
        noise: What is random.
        complete: Makes the model that predicts of the model with one state's weights, such as with another head.
    """
    model.eval()
    further = np.random.SeedSequence(seed).generate_state(len(states), np.uint64)[1:]
    draws = [BlockDraws(seed), *(BlockDraws(int(state_seed)) for state_seed in further)]
    size = sum(tensor.numel() for tensor in model.state_dict().values())
    count = max(1, HELD_ELEMENTS // max(1, size))
    limit = PREPARED_ELEMENTS // len(states)  # the states share the memory for what is computed ahead

    def chunk(first: int) -> StatePredictor:
        chunk_states = [make() for make in states[first : first + count]]
        return StatePredictor(model, chunk_states, draws[first : first + count], noise, limit, complete)

    if len(states) <= count:
        return chunk(0)
    member = _members(model, len(states), noise)
    return ChunkedPredictor([partial(chunk, first) for first in range(0, len(states), count)], member)


class StatePredictor:
    """Predict with weight states that are all in memory."""

    def __init__(
        self,
        model: Model,
        states: Sequence[State],
        draws: Sequence[BlockDraws],
        noise: PredictionNoise,
        limit: int,
        complete: Callable[[Model], Model] = as_it_is,
    ) -> None:
        """Prepare the states, each with its own draws and at most ``limit`` elements computed ahead."""
        self._model, self._draws, self._noise = model, draws, noise
        own = model.state_dict()
        device = next(model.parameters()).device
        # copied, for what is stored may be a file's memory, in another precision, aligned otherwise
        self._states = [{n: t.to(device, own[n].dtype, copy=True) for n, t in state.items()} for state in states]
        self._ready = [complete(self._fixed(state, limit)) for state in self._states]
        self.member = _members(model, len(states), noise)

    def _fixed(self, state: State, limit: int) -> Model:
        load_state(self._model, state)
        return fixed(self._model, self._noise.samples, limit)

    @torch.inference_mode()
    def predict(self, batch: Any, rows: Rows) -> Scores:
        """Return the samples of every state on a batch."""
        model, noise = self._model, self._noise
        prepared = any(ready is not model for ready in self._ready)
        if noise == PredictionNoise() and len(self._states) > 1 and model.head.outputs_logits and not prepared:
            return Scores(over_states(model, self._states, batch))
        parts = []
        for state, ready, draws in zip(self._states, self._ready, self._draws, strict=True):
            if len(self._states) > 1:
                load_state(model, state)  # also into the head, which every prepared model shares
            if noise.views is None:
                parts.append(shared_prefix(ready, batch, draws, rows, noise.samples))
            else:
                parts += self._view_passes(ready, noise.views, batch, rows, draws)
        return concatenate(parts)

    def _view_passes(self, model: Model, views: Views, batch: Tensor, rows: Rows, draws: BlockDraws) -> list[Scores]:
        """Run one pass per view, each with its own draws: nothing is shared where the inputs differ."""
        samples, parts = self._noise.samples, []
        for index in range(self._noise.passes):
            width = views.augmentation.width
            uniforms = draws.rows("view", "uniform", width, range(index, index + 1), rows)[0]
            view = views.augmentation.apply(batch, uniforms.to(batch.device))
            sample = index // views.each if samples else None
            parts.append(single_pass(model, view, draws, rows, sample))
        return parts


class ChunkedPredictor:
    """Predict with weight states of which one chunk at a time is in memory."""

    def __init__(self, makers: Sequence[Callable[[], StatePredictor]], member: tuple[int, ...]) -> None:
        """Predict with the chunks that these functions make, one after another."""
        self._makers = makers
        self.member = member

    def chunks(self) -> Iterator[StatePredictor]:
        """Return each chunk, made when its turn comes."""
        return (make() for make in self._makers)

    def predict(self, batch: Any, rows: Rows) -> Scores:
        """Return every state's samples; for many batches, iterate over :meth:`chunks` to make each state once."""
        return concatenate([chunk.predict(batch, rows) for chunk in self.chunks()])


def load_state(model: Model, state: State) -> None:
    """Put a weight state into a model; every name must match."""
    model.load_state_dict(dict(state), strict=True)


def _members(model: Model, states: int, noise: PredictionNoise) -> tuple[int, ...]:
    """Return the member of each sample: the sets of a network's outputs are members, its states and draws are not."""
    return tuple(range(model.network.sets)) * (states * noise.passes)
