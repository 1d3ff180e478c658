"""A posterior of weight states: one for an ordinary fit, several for snapshots."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from dubio.data.augmentation import Views
from dubio.engine import PREPARED_ELEMENTS, State, fixed, over_states, shared_prefix, single_pass
from dubio.errors import UserError
from dubio.heads.head import Scores
from dubio.networks.draws import BlockDraws
from dubio.networks.network import Model
from dubio.posteriors.posterior import Rows, Sampled, concatenated


@dataclass(frozen=True, eq=False)
class Points:
    """Equally likely weight states of one model.

    Attributes:
        model: The module they belong to.
        states: The weight states.
        samples: Noise draws a state; 0 is a deterministic pass.
        views: Random views of each example, or None.
    """

    model: Model
    states: tuple[State, ...]
    samples: int = 0
    views: Views | None = None

    def draw(self, seed: int) -> DrawnPoints:
        """Put the model in eval mode; noise will come from this seed."""
        if not self.states:
            raise UserError("a posterior needs at least one weight state.")
        self.model.eval()
        return DrawnPoints(self, seed)

    def tensors(self) -> dict[str, Tensor]:
        """``<state>/<name>`` → tensor."""
        return {f"{i}/{name}": tensor for i, state in enumerate(self.states) for name, tensor in state.items()}

    @classmethod
    def from_tensors(
        cls, tensors: Mapping[str, Tensor], model: Model, samples: int, views: Views | None = None
    ) -> Points:
        """The posterior that :meth:`tensors` wrote."""
        states: dict[int, dict[str, Tensor]] = {}
        for key, tensor in tensors.items():
            index, _, name = key.partition("/")
            states.setdefault(int(index), {})[name] = tensor
        return cls(model, tuple(states[i] for i in sorted(states)), samples, views)


class DrawnPoints:
    """Points made ready to predict."""

    def __init__(self, points: Points, seed: int) -> None:
        """Predict with these points and with draws of this seed, of every state its own."""
        self._points = points
        more = np.random.SeedSequence(seed).generate_state(len(points.states), np.uint64)[1:]
        self._draws = [BlockDraws(seed), *(BlockDraws(int(one)) for one in more)]
        device = next(points.model.parameters()).device
        self._states = [{name: tensor.to(device) for name, tensor in state.items()} for state in points.states]
        self._ready = [self._fixed(state) for state in self._states]
        each = points.views.each if points.views else 1
        self.member = (0,) * (len(points.states) * max(1, points.samples) * each)

    def _fixed(self, state: State) -> Model:
        """The model with this state; the states share the room for what is computed ahead."""
        load_state(self._points.model, state)
        return fixed(self._points.model, self._points.samples, PREPARED_ELEMENTS // len(self._states))

    @torch.inference_mode()
    def predict(self, batch: Any, rows: Rows) -> Sampled:
        """Every state's samples on a batch."""
        points = self._points
        if len(points.states) == 1:
            return self._one(self._ready[0], batch, rows, self._draws[0])
        prepared = any(model is not points.model for model in self._ready)
        if points.samples == 0 and points.views is None and points.model.head.outputs_logits and not prepared:
            return Sampled(over_states(points.model, self._states, batch))
        parts = []
        for state, model, draws in zip(self._states, self._ready, self._draws, strict=True):
            load_state(points.model, state)  # also into the head, which every prepared model shares
            parts.append(self._one(model, batch, rows, draws))
        return concatenated(parts)

    def _one(self, model: Model, batch: Any, rows: Rows, draws: BlockDraws) -> Sampled:
        points = self._points
        chunks = (
            shared_prefix(model, batch, draws, rows, points.samples)
            if points.views is None
            else self._of_views(points.views, batch, rows, draws)
        )
        shape = (-1, len(rows), chunks[0].logits.shape[-1])
        return concatenated(
            [
                Sampled(
                    chunk.logits.reshape(shape),
                    None if chunk.data_variance is None else chunk.data_variance.reshape(shape),
                    None if chunk.model_variance is None else chunk.model_variance.reshape(shape[:2]),
                )
                for chunk in chunks
            ]
        )

    def _of_views(self, views: Views, batch: Tensor, rows: Rows, draws: BlockDraws) -> list[Scores]:
        """One pass a view, each with draws of its own: nothing is shared where the inputs differ."""
        chunks = []
        for index in range(max(1, self._points.samples) * views.each):
            width = views.augmentation.width
            uniforms = draws.rows("view", "uniform", width, range(index, index + 1), rows)[0]
            view = views.augmentation.apply(batch, uniforms.to(batch.device))
            sample = index // views.each if self._points.samples else None
            chunks.append(single_pass(self._points.model, view, draws, rows, sample))
        return chunks


def state_of(model: Model) -> dict[str, Tensor]:
    """A copy of a model's weights and buffers."""
    return {name: tensor.detach().clone() for name, tensor in model.state_dict().items()}


def load_state(model: Model, state: State) -> None:
    """Put a weight state into a model; every name must match."""
    model.load_state_dict(dict(state), strict=True)
