"""Weight states made ready to predict, so few of them at once that their number does not decide what is held."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from dubio.inference.augmentation import Views
from dubio.inference.engine import PREPARED_ELEMENTS, State, fixed, over_states, shared_prefix, single_pass
from dubio.inference.posterior import Rows, Sampled, concatenate
from dubio.networks.draws import BlockDraws
from dubio.networks.heads.head import Scores
from dubio.networks.network import Model

HELD_ELEMENTS = 1 << 27
"""How many weights a part may hold, 512 MB in float32: three networks of 36 million."""

StateMaker = Callable[[], State]


class PredictionNoise(NamedTuple):
    """What is random when weight states predict.

    Attributes:
        samples: Noise draws a state; 0 is a deterministic pass.
        views: Random views of each example, or None.
    """

    samples: int = 0
    views: Views | None = None

    @property
    def each(self) -> int:
        """Samples a state."""
        return max(1, self.samples) * (self.views.each if self.views else 1)


def predict_states(
    model: Model, states: Sequence[StateMaker], seed: int, noise: PredictionNoise
) -> StatePredictor | ChunkedPredictor:
    """Weight states, held at once where they are few or small, else in parts.

    How many are held together depends on their number and size alone. What they predict depends on neither: every state
    has draws of its own.

    Args:
        model: The module they belong to; put in eval mode.
        states: Each makes one when it is asked for.
        seed: Where noise comes from.
        noise: What is random.
    """
    model.eval()
    more = np.random.SeedSequence(seed).generate_state(len(states), np.uint64)[1:]
    draws = [BlockDraws(seed), *(BlockDraws(int(one)) for one in more)]
    size = sum(tensor.numel() for tensor in model.state_dict().values())
    few = max(1, HELD_ELEMENTS // max(1, size))
    room = PREPARED_ELEMENTS // len(states)  # the states share the room for what is computed ahead

    def part(first: int) -> StatePredictor:
        some = [make() for make in states[first : first + few]]
        return StatePredictor(model, some, draws[first : first + few], noise, room)

    if len(states) <= few:
        return part(0)
    return ChunkedPredictor([partial(part, first) for first in range(0, len(states), few)], len(states) * noise.each)


class StatePredictor:
    """Weight states that are held at once."""

    def __init__(
        self, model: Model, states: Sequence[State], draws: Sequence[BlockDraws], noise: PredictionNoise, room: int
    ) -> None:
        """Predict with these states, each with draws of its own and room for what is computed ahead."""
        self._model, self._draws, self._noise = model, draws, noise
        own = model.state_dict()
        device = next(model.parameters()).device
        # copied, for what is stored may be a file's memory, in another precision, aligned otherwise
        self._states = [{n: t.to(device, own[n].dtype, copy=True) for n, t in state.items()} for state in states]
        self._ready = [self._fixed(state, room) for state in self._states]
        self.member = (0,) * (len(states) * noise.each)

    def _fixed(self, state: State, room: int) -> Model:
        load_state(self._model, state)
        return fixed(self._model, self._noise.samples, room)

    @torch.inference_mode()
    def predict(self, batch: Any, rows: Rows) -> Sampled:
        """Every state's samples on a batch."""
        model, noise = self._model, self._noise
        prepared = any(ready is not model for ready in self._ready)
        if noise == PredictionNoise() and len(self._states) > 1 and model.head.outputs_logits and not prepared:
            return Sampled(over_states(model, self._states, batch))
        parts = []
        for state, ready, draws in zip(self._states, self._ready, self._draws, strict=True):
            if len(self._states) > 1:
                load_state(model, state)  # also into the head, which every prepared model shares
            parts.append(self._one(ready, batch, rows, draws))
        return concatenate(parts)

    def _one(self, model: Model, batch: Any, rows: Rows, draws: BlockDraws) -> Sampled:
        samples, views = self._noise
        chunks = (
            shared_prefix(model, batch, draws, rows, samples)
            if views is None
            else self._of_views(model, views, batch, rows, draws)
        )
        shape = (-1, len(rows), chunks[0].logits.shape[-1])
        return concatenate(
            [
                Sampled(
                    chunk.logits.reshape(shape),
                    None if chunk.data_variance is None else chunk.data_variance.reshape(shape),
                    None if chunk.model_variance is None else chunk.model_variance.reshape(shape[:2]),
                )
                for chunk in chunks
            ]
        )

    def _of_views(self, model: Model, views: Views, batch: Tensor, rows: Rows, draws: BlockDraws) -> list[Scores]:
        """One pass a view, each with draws of its own: nothing is shared where the inputs differ."""
        samples, chunks = self._noise.samples, []
        for index in range(max(1, samples) * views.each):
            width = views.augmentation.width
            uniforms = draws.rows("view", "uniform", width, range(index, index + 1), rows)[0]
            view = views.augmentation.apply(batch, uniforms.to(batch.device))
            sample = index // views.each if samples else None
            chunks.append(single_pass(model, view, draws, rows, sample))
        return chunks


class ChunkedPredictor:
    """Weight states of which only some are held at once."""

    def __init__(self, makers: Sequence[Callable[[], StatePredictor]], samples: int) -> None:
        """Predict with what these make, one after another."""
        self._makers = makers
        self.member = (0,) * samples

    def parts(self) -> Iterator[StatePredictor]:
        """Each part, made when its turn comes."""
        return (make() for make in self._makers)

    def predict(self, batch: Any, rows: Rows) -> Sampled:
        """Every state's samples on a batch; for many batches :meth:`parts` makes each state once, not once a batch."""
        return concatenate([part.predict(batch, rows) for part in self.parts()])


def load_state(model: Model, state: State) -> None:
    """Put a weight state into a model; every name must match."""
    model.load_state_dict(dict(state), strict=True)
