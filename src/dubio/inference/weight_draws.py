"""A posterior of weights drawn from a distribution: the distribution is stored, not the draws."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
import torch
from torch import Generator, Tensor

from dubio.core.errors import UserError
from dubio.inference.augmentation import Views
from dubio.inference.engine import State
from dubio.inference.posterior import check_same_shapes
from dubio.inference.predictor import ChunkedPredictor, PredictionNoise, StatePredictor, predict_states
from dubio.networks.network import Model

DISTRIBUTION, FIXED, DRAW, SEED = "distribution/", "fixed/", "draw/", "seed"
"""Names and prefixes of the stored tensors."""


class WeightDistribution(Protocol):
    """A distribution of the trained parameters."""

    def draw(self, generator: Generator) -> State:
        """Return one draw by parameter name; the generator is on the CPU."""

    def centre(self) -> State:
        """Return the centre of the distribution."""

    def tensors(self) -> dict[str, Tensor]:
        """Return the parameters of the distribution, for the store."""

    def check_shapes(self) -> None:
        """Refuse parameters whose shapes contradict each other.

        Raises:
            UserError: Naming the first one.
        """


@dataclass(frozen=True, eq=False)
class WeightDraws:
    """Equally likely draws from a distribution of weights; draw k is recomputed from (seed, k) whenever it is needed.

    Attributes:
        model: The module that they belong to.
        distribution: The distribution of the weights.
        seed: Seed of the draws.
        fixed: The part of the model's state that all draws share.
        buffers: For each draw, values that depend on its weights without being drawn: batch-norm statistics.
        samples: Noise draws per weight draw; 0 for a deterministic pass.
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
        """Put the model in evaluation mode, with noise from this seed and weights from their own."""
        makers = [lambda k=k: self.state(k) for k in range(len(self.buffers))]
        return predict_states(self.model, makers, seed, PredictionNoise(self.samples, self.views))

    def state(self, k: int) -> dict[str, Tensor]:
        """Return the weight state of draw k."""
        return {**self.fixed, **self.distribution.draw(draw_generator(self.seed, k)), **self.buffers[k]}

    def centre(self) -> State:
        """Return the state at the centre of the distribution, without the batch-norm statistics that it lacks."""
        return {**self.fixed, **self.distribution.centre()}

    def __len__(self) -> int:
        return len(self.buffers)

    def weight_states(self) -> Iterator[State]:
        """Return the weight state of every draw."""
        return (self.state(k) for k in range(len(self.buffers)))

    def check_shapes(self, state: State) -> None:
        """Compare the distribution with itself, and the first draw with the model's state."""
        self.distribution.check_shapes()
        check_same_shapes(self.state(0), state, "draw 0")
        for k, buffers in enumerate(self.buffers):
            check_same_shapes(buffers, self.buffers[0], f"draw {k}")

    def limit(self, most: int) -> WeightDraws:
        """Return at most ``most`` draws, the first ones."""
        return replace(self, buffers=self.buffers[:most])

    def tensors(self) -> dict[str, Tensor]:
        """Return the distribution, the shared state, the statistics of each draw, and the seed."""
        named = {f"{DISTRIBUTION}{name}": tensor for name, tensor in self.distribution.tensors().items()}
        named |= {f"{FIXED}{name}": tensor for name, tensor in self.fixed.items()}
        for k, buffers in enumerate(self.buffers):
            named |= {f"{DRAW}{k}/{name}": tensor for name, tensor in buffers.items()}
        return named | {SEED: torch.tensor(self.seed, dtype=torch.int64)}


def restore_draws(
    tensors: Mapping[str, Tensor],
    model: Model,
    distribution: WeightDistribution,
    draws: int,
    samples: int,
    views: Views | None,
) -> WeightDraws:
    """Return the draws of stored tensors, given their distribution."""
    buffers = tuple(with_prefix(f"{DRAW}{k}/", tensors) for k in range(draws))
    return WeightDraws(model, distribution, int(tensors[SEED]), with_prefix(FIXED, tensors), buffers, samples, views)


@dataclass(frozen=True, eq=False)
class LowRankGaussian:
    """A Gaussian with the covariance ½(diag(variance) + D Dᵀ/(K − 1)), as SWAG collects it.

    Attributes:
        mean: By parameter name.
        variance: The diagonal, by parameter name.
        deviations: The columns of D: K deviations ``[K, …]`` of each parameter.
    """

    mean: State
    variance: State
    deviations: State

    def __post_init__(self) -> None:
        if self.rank < 2:
            raise UserError(f"swag: a covariance needs at least 2 snapshots; given {self.rank}.")

    @property
    def rank(self) -> int:
        """K."""
        return len(next(iter(self.deviations.values())))

    def draw(self, generator: Generator) -> dict[str, Tensor]:
        """Return mean + (1/√2)(√variance ∘ z₁ + D z₂/√(K − 1)), standard normal z₁, z₂; all parameters share z₂."""
        z2 = torch.randn(self.rank, generator=generator).mul_(1.0 / math.sqrt(2.0 * (self.rank - 1))).tolist()
        state = {}
        for name, mean in sorted(self.mean.items()):  # a file gives its tensors back in any order
            z1 = torch.randn(mean.shape, generator=generator)
            weights = z1.mul_(self.variance[name].sqrt()).mul_(math.sqrt(0.5)).add_(mean)
            for factor, deviation in zip(z2, self.deviations[name], strict=True):
                weights.add_(deviation, alpha=factor)
            state[name] = weights
        return state

    def centre(self) -> State:
        """Return the mean."""
        return self.mean

    def check_shapes(self) -> None:
        """Compare variance and deviations with the mean."""
        check_same_shapes(self.variance, self.mean, "variance")
        for k in range(self.rank):
            check_same_shapes({n: t[k] for n, t in self.deviations.items()}, self.mean, f"deviation {k}")

    def tensors(self) -> dict[str, Tensor]:
        """Return ``mean/…``, ``variance/…`` and ``deviations/…``."""
        groups = {"mean": self.mean, "variance": self.variance, "deviations": self.deviations}
        return {f"{group}/{name}": tensor for group, named in groups.items() for name, tensor in named.items()}

    @classmethod
    def from_tensors(cls, tensors: Mapping[str, Tensor]) -> LowRankGaussian:
        """Return the distribution that :meth:`tensors` wrote."""
        return cls(*(with_prefix(f"{group}/", tensors) for group in ("mean", "variance", "deviations")))


@dataclass(frozen=True)
class StoredLowRank:
    """The stored form of draws from a :class:`LowRankGaussian`; ``draws`` is their number."""

    draws: int

    def restore(self, tensors: Mapping[str, Tensor], model: Model, samples: int, views: Views | None) -> WeightDraws:
        """Return the posterior of stored tensors."""
        distribution = LowRankGaussian.from_tensors(with_prefix(DISTRIBUTION, tensors))
        return restore_draws(tensors, model, distribution, self.draws, samples, views)


def draw_generator(seed: int, k: int) -> Generator:
    """Return the generator of draw k."""
    number = np.random.SeedSequence(seed, spawn_key=(k,)).generate_state(1, np.uint64)[0] >> np.uint64(1)
    return torch.Generator().manual_seed(int(number))


def with_prefix(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the tensors whose names start with a prefix, without it."""
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}
