"""The contracts of a posterior: draw it, predict with it, store it, restore it; and the mixture of several."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np
from torch import Tensor

from dubio.core.errors import UserError
from dubio.inference.augmentation import Views
from dubio.inference.engine import Rows, State, concatenate
from dubio.networks.network import Model, Scores


class Drawn(Protocol):
    """A posterior that is ready to predict: weights and buffers final.

    Attributes:
        member: The independent fit, or set of a network's outputs, that each sample belongs to.
    """

    member: tuple[int, ...]

    def predict(self, batch: Any, rows: Rows) -> Scores:
        """Return scores ``[S, B, …]`` on a batch; all noise is drawn from ``rows``, the example indices."""


@runtime_checkable
class Chunked(Protocol):
    """A drawn posterior whose weights do not all fit in memory at once."""

    def chunks(self) -> Iterator[Drawn]:
        """Return its samples in order, chunk by chunk; each chunk is made when its turn comes."""


def chunks_of(predictor: Drawn) -> Iterator[Drawn]:
    """Return the chunks of a drawn posterior; one that fits in memory is its only chunk."""
    return predictor.chunks() if isinstance(predictor, Chunked) else iter((predictor,))


class Posterior(Protocol):
    """The result of a fit."""

    def draw(self, seed: int) -> Drawn:
        """Fix every sample; the same seed gives the same samples."""

    def tensors(self) -> dict[str, Tensor]:
        """Return all weights and statistics by name, for the store."""


class Restored(Posterior, Protocol):
    """The posterior of one fit, read back from the store; its length is the number of weight states that predict."""

    @property
    def model(self) -> Model:
        """The module that the weights belong to."""

    def __len__(self) -> int: ...

    def weight_states(self) -> Iterator[State]:
        """Return every weight state that predicts."""

    def check_shapes(self, state: State) -> None:
        """Refuse tensors whose names or shapes do not fit the model's state, which a damaged file may hold.

        Raises:
            UserError: Naming the first tensor that differs.
        """

    def limit(self, most: int) -> Restored:
        """Return the posterior with at most ``most`` weight states, the latest, or noise draws of a single state."""


class StoredForm(Protocol):
    """How a posterior is read back from its stored tensors."""

    def restore(self, tensors: Mapping[str, Tensor], model: Model, samples: int, views: Views | None) -> Restored:
        """Return the posterior whose :meth:`Posterior.tensors` these are.

        Args:
            tensors: The stored tensors.
            model: The module that the weights belong to.
            samples: Noise draws per weight state; 0 for a deterministic pass.
            views: Random views of each example, or None.
        """


def check_same_shapes(tensors: State, expected: State, name: str) -> None:
    """Refuse tensors that differ in names or shapes from the expected ones.

    Raises:
        UserError: Naming the first tensor that differs.
    """
    for key in dict.fromkeys((*expected, *tensors)):
        own, right = (list(side[key].shape) if key in side else "none" for side in (tensors, expected))
        if own != right:
            raise UserError(f"{name}: {key} has shape {own}; it must be {right}.")


@dataclass(frozen=True, eq=False)
class Mixture:
    """A mixture of equally likely posteriors, each an independent fit: a deep ensemble."""

    parts: tuple[Posterior, ...]

    def draw(self, seed: int) -> MixturePredictor:
        """Draw every part with its own seed."""
        seeds = np.random.SeedSequence(seed).generate_state(len(self.parts), np.uint64)
        return MixturePredictor(tuple(posterior.draw(int(s)) for posterior, s in zip(self.parts, seeds, strict=True)))

    def tensors(self) -> dict[str, Tensor]:
        """Return ``<part>:<name>`` → tensor."""
        return {f"{i}:{name}": t for i, posterior in enumerate(self.parts) for name, t in posterior.tensors().items()}


class MixturePredictor:
    """A mixture that is ready to predict."""

    def __init__(self, parts: tuple[Drawn, ...]) -> None:
        """Predict with every part; the members of one part come after those of the parts before it."""
        self._parts = parts
        member: list[int] = []
        for predictor in parts:
            first = max(member, default=-1) + 1
            member += [first + index for index in predictor.member]
        self.member = tuple(member)

    def chunks(self) -> Iterator[Drawn]:
        """Return the chunks of every part."""
        return (chunk for predictor in self._parts for chunk in chunks_of(predictor))

    def predict(self, batch: Any, rows: Rows) -> Scores:
        """Return the samples of every part, one part after another."""
        return concatenate([predictor.predict(batch, rows) for predictor in self._parts])
