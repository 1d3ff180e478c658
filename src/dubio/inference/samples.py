"""A posterior of weight states: one for an ordinary fit, several for snapshots."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from torch import Tensor

from dubio.core.errors import UserError
from dubio.inference.augmentation import Views
from dubio.inference.engine import State
from dubio.inference.posterior import check_same_shapes
from dubio.inference.predictor import ChunkedPredictor, PredictionNoise, StatePredictor, predict_states
from dubio.networks.network import Model


@dataclass(frozen=True, eq=False)
class WeightSamples:
    """Equally likely weight states of one model.

    Attributes:
        model: The module that they belong to.
        states: The weight states, in the model's precision or the lower one in which they are stored.
        samples: Noise draws per state; 0 for a deterministic pass.
        views: Random views of each example, or None.
    """

    model: Model
    states: tuple[State, ...]
    samples: int = 0
    views: Views | None = None

    def draw(self, seed: int) -> StatePredictor | ChunkedPredictor:
        """Put the model in evaluation mode, with noise from this seed."""
        if not self.states:
            raise UserError("a posterior needs at least one weight state.")
        makers = [lambda state=state: state for state in self.states]
        return predict_states(self.model, makers, seed, PredictionNoise(self.samples, self.views))

    def __len__(self) -> int:
        return len(self.states)

    def weight_states(self) -> Iterator[State]:
        """Return the states."""
        return iter(self.states)

    def check_shapes(self, state: State) -> None:
        """Compare every state with the model's."""
        for k, own in enumerate(self.states):
            check_same_shapes(own, state, f"weight state {k}")

    def limit(self, most: int) -> WeightSamples:
        """Return at most ``most`` states, the latest; of a single state, noise draws, or views without noise.

        Snapshots are in the order of their training, whose first ones may hardly be trained.
        """
        if len(self.states) > 1:
            return replace(self, states=self.states[-most:])
        if self.samples == 0 and self.views is not None:
            return replace(self, views=replace(self.views, each=min(self.views.each, most)))
        return replace(self, samples=min(self.samples, most))

    def tensors(self) -> dict[str, Tensor]:
        """Return ``<state>/<name>`` → tensor."""
        return {f"{i}/{name}": tensor for i, state in enumerate(self.states) for name, tensor in state.items()}


@dataclass(frozen=True)
class StoredSamples:
    """The stored form of :class:`WeightSamples`."""

    def restore(self, tensors: Mapping[str, Tensor], model: Model, samples: int, views: Views | None) -> WeightSamples:
        """Return the posterior of stored tensors."""
        states: dict[int, dict[str, Tensor]] = {}
        for key, tensor in tensors.items():
            index, _, name = key.partition("/")
            states.setdefault(int(index), {})[name] = tensor
        return WeightSamples(model, tuple(states[i] for i in sorted(states)), samples, views)


def state_of(model: Model) -> dict[str, Tensor]:
    """Return a copy of a model's weights and buffers."""
    return {name: tensor.detach().clone() for name, tensor in model.state_dict().items()}
