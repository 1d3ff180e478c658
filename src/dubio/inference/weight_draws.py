"""A posterior of weights drawn from a distribution: what is stored is the distribution, not the draws."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
import torch
from torch import Generator, Tensor

from dubio.core.errors import UserError
from dubio.inference.augmentation import Views
from dubio.inference.engine import State
from dubio.inference.predictor import ChunkedPredictor, PredictionNoise, StatePredictor, predict_states
from dubio.networks.network import Model

DISTRIBUTION, FIXED, DRAW, SEED = "distribution/", "fixed/", "draw/", "seed"
"""How the stored tensors of such a posterior are named."""


class WeightDistribution(Protocol):
    """A distribution of the parameters that were trained."""

    def draw(self, generator: Generator) -> State:
        """One draw, by parameter name; the generator is on the CPU."""
        ...

    def centre(self) -> State:
        """Its centre."""
        ...

    def tensors(self) -> dict[str, Tensor]:
        """What it is made of, for the store."""
        ...


@dataclass(frozen=True, eq=False)
class WeightDraws:
    """Equally likely draws from a distribution of weights; draw k is made again from (seed, k) whenever it is needed.

    Attributes:
        model: The module they belong to.
        distribution: What they are drawn from.
        seed: Fixes them.
        fixed: Everything of the model's state that is the same in every draw.
        buffers: Of each draw, what depends on its weights without being drawn: batch-norm statistics.
        samples: Noise draws a weight draw; 0 is a deterministic pass.
        views: Random views of each example, or None.
    """

    model: Model
    distribution: WeightDistribution
    seed: int
    fixed: State
    buffers: tuple[State, ...]
    samples: int = 0
    views: Views | None = None

    def draw(self, seed: int) -> StatePredictor | ChunkedPredictor:
        """Put the model in eval mode; noise will come from this seed, the weights from their own."""
        makers = [lambda k=k: self.state(k) for k in range(len(self.buffers))]
        return predict_states(self.model, makers, seed, PredictionNoise(self.samples, self.views))

    def state(self, k: int) -> dict[str, Tensor]:
        """The weight state of draw k."""
        return {**self.fixed, **self.distribution.draw(draw_generator(self.seed, k)), **self.buffers[k]}

    def limit(self, most: int) -> WeightDraws:
        """At most so many of the draws."""
        return replace(self, buffers=self.buffers[:most])

    def tensors(self) -> dict[str, Tensor]:
        """The distribution, what is the same in every draw, the statistics of each, and the seed."""
        named = {f"{DISTRIBUTION}{name}": tensor for name, tensor in self.distribution.tensors().items()}
        named |= {f"{FIXED}{name}": tensor for name, tensor in self.fixed.items()}
        for k, buffers in enumerate(self.buffers):
            named |= {f"{DRAW}{k}/{name}": tensor for name, tensor in buffers.items()}
        return named | {SEED: torch.tensor(self.seed, dtype=torch.int64)}

    @classmethod
    def from_tensors(
        cls,
        tensors: Mapping[str, Tensor],
        model: Model,
        distribution: WeightDistribution,
        draws: int,
        samples: int,
        views: Views | None = None,
    ) -> WeightDraws:
        """The posterior that :meth:`tensors` wrote, its distribution read already (see :func:`of_distribution`)."""
        buffers = tuple(with_prefix(f"{DRAW}{k}/", tensors) for k in range(draws))
        return cls(model, distribution, int(tensors[SEED]), with_prefix(FIXED, tensors), buffers, samples, views)


@dataclass(frozen=True, eq=False)
class LowRankGaussian:
    """A Gaussian with the covariance ½(diag(variance) + D Dᵀ/(K − 1)), as SWAG collects it.

    Attributes:
        mean: By parameter name.
        variance: The diagonal, likewise.
        deviations: The columns of D: K deviations ``[K, …]`` of each parameter.
    """

    mean: State
    variance: State
    deviations: State

    def __post_init__(self) -> None:
        if self.rank < 2:
            raise UserError(f"swag: at least 2 snapshots are needed for a covariance; given {self.rank}.")

    @property
    def rank(self) -> int:
        """K."""
        return len(next(iter(self.deviations.values())))

    def draw(self, generator: Generator) -> dict[str, Tensor]:
        """θ = mean + (1/√2)(√variance ∘ z₁ + D z₂/√(K − 1)), z₁ and z₂ standard normal, z₂ common to all parameters."""
        z2 = torch.randn(self.rank, generator=generator).mul_(1.0 / math.sqrt(2.0 * (self.rank - 1))).tolist()
        state = {}
        for name, mean in sorted(self.mean.items()):  # a file gives its tensors back in any order
            z1 = torch.randn(mean.shape, generator=generator)
            predict_states = z1.mul_(self.variance[name].sqrt()).mul_(math.sqrt(0.5)).add_(mean)
            for weight, deviation in zip(z2, self.deviations[name], strict=True):
                predict_states.add_(deviation, alpha=weight)
            state[name] = predict_states
        return state

    def centre(self) -> State:
        """The mean."""
        return self.mean

    def tensors(self) -> dict[str, Tensor]:
        """``mean/…``, ``variance/…``, ``deviations/…``."""
        parts = {"mean": self.mean, "variance": self.variance, "deviations": self.deviations}
        return {f"{part}/{name}": tensor for part, named in parts.items() for name, tensor in named.items()}

    @classmethod
    def from_tensors(cls, tensors: Mapping[str, Tensor]) -> LowRankGaussian:
        """The distribution that :meth:`tensors` wrote."""
        return cls(*(with_prefix(f"{part}/", tensors) for part in ("mean", "variance", "deviations")))


def draw_generator(seed: int, k: int) -> Generator:
    """Where draw k comes from."""
    number = np.random.SeedSequence(seed, spawn_key=(k,)).generate_state(1, np.uint64)[0] >> np.uint64(1)
    return torch.Generator().manual_seed(int(number))


def distribution_tensors(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Of a posterior's stored tensors, those of its distribution."""
    return with_prefix(DISTRIBUTION, tensors)


def with_prefix(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The tensors whose names start so, named by the rest."""
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}
