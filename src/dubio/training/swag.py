"""Averages over the snapshots of a training: stochastic weight averaging, and the Gaussian around it (SWAG)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, ClassVar

import torch
from torch import Tensor

from dubio.core.specs import added, part
from dubio.core.validate import NonNegative, Positive, at_least
from dubio.inference.posterior import Posterior
from dubio.inference.samples import WeightSamples, state_of
from dubio.inference.weight_draws import LowRankGaussian, StoredLowRank, WeightDraws, draw_generator, with_prefix
from dubio.networks.network import Model
from dubio.training.batch_norm import batch_norm_layers, normalised_share, refresh, refresh_draws
from dubio.training.collectors import Collected, Collector, Epoch, FinishContext, Last
from dubio.training.schedules import Schedule

MEAN, SQUARES, DEVIATION = "mean/", "squares/", "deviation/"
"""Prefixes of the collected tensors."""


@part("swa")
@dataclass(frozen=True)
class SWA(Collector):
    """The mean of all snapshots that the schedule marks, with its own batch-norm statistics."""

    stops_early: ClassVar[bool] = False

    def init(self, model: Model) -> Collected:
        """Return an empty collection."""
        return Collected(facts={"snapshots": 0})

    def update(self, collected: Collected, model: Model, epoch: Epoch) -> Collected:
        """Add a marked snapshot to the running mean."""
        if not epoch.marked:
            return collected
        count = collected.facts["snapshots"] + 1
        mean = _running_mean(with_prefix(MEAN, collected.tensors), _trained(model), count)
        return Collected(_named(MEAN, mean), {"snapshots": count, "epoch": epoch.number})

    def finish(self, collected: Collected, model: Model, context: FinishContext) -> Posterior:
        """Return the mean as one weight state."""
        _put(model, with_prefix(MEAN, collected.tensors))
        refresh(model, context)
        return WeightSamples(model, (state_of(model),))

    def states(self, schedule: Schedule, epochs: int) -> int:
        """Return 1 if there is a snapshot to average."""
        return int(schedule.snapshots(epochs) > 0)

    def passes(self, model: Model, examples: int) -> float:
        """Return 1 if batch-norm needs it."""
        return int(bool(batch_norm_layers(model)))


@part("centre")
@dataclass(frozen=True)
class Centre(Last):
    """The centre of the distribution that the fit before left, with its own batch-norm statistics.

    Of SWAG it is the mean of its snapshots, hence SWA: one tail serves both.
    """

    stops_early: ClassVar[bool] = False
    centres: ClassVar[bool] = True

    def finish(self, collected: Collected, model: Model, context: FinishContext) -> WeightSamples:
        """Return the weights that the model starts with as one weight state."""
        refresh(model, context)
        return super().finish(collected, model, context)

    def passes(self, model: Model, examples: int) -> float:
        """Return 1 if batch-norm needs it."""
        return int(bool(batch_norm_layers(model)))


@part("swag")
@dataclass(frozen=True)
class SWAG(SWA):
    """A Gaussian around the mean of all snapshots that the schedule marks (Maddox et al., 2019).

    Its covariance is ½(diag(variance) + D Dᵀ/(K − 1)): the variance of the snapshots, and the deviations of the latest
    K of them from the running mean at their time. Mean and variance are updated by Welford's rule in float64, which
    subtracts no large squares from each other.

    Attributes:
        rank: K, at most; smaller where there are fewer snapshots.
        draws: Number of weight draws, each with its own batch-norm statistics.
        norm_examples: Largest number of training examples that these statistics are of; 0 for all.
    """

    rank: Annotated[int, at_least(2)] = 20
    draws: Positive = 30
    norm_examples: NonNegative = added(0)  # noqa: RUF009

    continues: ClassVar[bool] = False

    def update(self, collected: Collected, model: Model, epoch: Epoch) -> Collected:
        """Add a marked snapshot to mean, variance and deviations; drop the oldest deviation."""
        if not epoch.marked:
            return collected
        count = collected.facts["snapshots"] + 1
        weights = _trained(model)
        before = with_prefix(MEAN, collected.tensors)
        mean = _running_mean(before, weights, count)
        squares = {name: torch.zeros_like(new) for name, new in weights.items()}
        if before:
            old = with_prefix(SQUARES, collected.tensors)
            squares = {n: old[n] + (new - before[n]) * (new - mean[n]) for n, new in weights.items()}
        facts = {"snapshots": count, "epoch": epoch.number}
        frozen = self.frozen(Collected(facts=facts))
        deviations = {name: tensor for name, tensor in collected.tensors.items() if name.startswith(frozen)}
        latest = {name: (new - mean[name]).to(torch.float32) for name, new in weights.items()}
        tensors = _named(MEAN, mean) | _named(SQUARES, squares) | deviations | _named(f"{DEVIATION}{count}/", latest)
        return Collected(tensors, facts)

    def frozen(self, collected: Collected) -> tuple[str, ...]:
        """Return the prefixes of the deviations; mean and variance change with every snapshot."""
        return tuple(f"{DEVIATION}{k}/" for k in _latest(collected, self.rank))

    def finish(self, collected: Collected, model: Model, context: FinishContext) -> WeightDraws:
        """Return the Gaussian with the batch-norm statistics of each draw; the model is left with the mean."""
        distribution = gaussian_of(collected, self.rank)
        makers = [lambda k=k: distribution.draw(draw_generator(context.seed, k)) for k in range(self.draws)]
        buffers = refresh_draws(model, makers, context, self.norm_examples)
        varying = {*distribution.mean, *buffers[0]}
        fixed = {name: tensor.cpu() for name, tensor in state_of(model).items() if name not in varying}
        _put(model, distribution.mean)
        return WeightDraws(model, distribution, context.seed, fixed, tuple(buffers))

    @property
    def form(self) -> StoredLowRank:
        """The Gaussian and the number of draws."""
        return StoredLowRank(self.draws)

    def states(self, schedule: Schedule, epochs: int) -> int:
        """Return the number of draws if there are enough snapshots for a covariance."""
        return self.draws if schedule.snapshots(epochs) > 1 else 0

    def stored(self, schedule: Schedule, epochs: int) -> float:
        """Return the size of mean, variance and deviations, whatever the number of draws."""
        return 2.0 + min(self.rank, schedule.snapshots(epochs))

    def passes(self, model: Model, examples: int) -> float:
        """Return one per draw over the examples of its statistics, if batch-norm needs it."""
        return self.draws * normalised_share(self.norm_examples, examples) if batch_norm_layers(model) else 0


def gaussian_of(collected: Collected, rank: int) -> LowRankGaussian:
    """Return the distribution of the snapshots so far."""
    count = collected.facts["snapshots"]
    mean = {name: tensor.to(torch.float32) for name, tensor in with_prefix(MEAN, collected.tensors).items()}
    squares = with_prefix(SQUARES, collected.tensors)
    variance = {name: (tensor / count).clamp_min(0.0).to(torch.float32) for name, tensor in squares.items()}
    latest = _latest(collected, rank)
    deviations = {name: torch.stack([collected.tensors[f"{DEVIATION}{k}/{name}"] for k in latest]) for name in mean}
    return LowRankGaussian(mean, variance, deviations)


def _latest(collected: Collected, rank: int) -> range:
    """Return the numbers, from 1, of the snapshots whose deviations are collected."""
    count = collected.facts["snapshots"]
    return range(max(1, count - rank + 1), count + 1)


def _trained(model: Model) -> dict[str, Tensor]:
    """Return the trained parameters in main memory and float64."""
    return {n: p.detach().to("cpu", torch.float64, copy=True) for n, p in model.named_parameters() if p.requires_grad}


def _running_mean(before: Mapping[str, Tensor], new: Mapping[str, Tensor], count: int) -> dict[str, Tensor]:
    """Return m + (θ − m)/n."""
    return {name: before[name] + (tensor - before[name]) / count if before else tensor for name, tensor in new.items()}


def _put(model: Model, weights: Mapping[str, Tensor]) -> None:
    """Set parameters of a model; those without a value stay."""
    parameters = dict(model.named_parameters())
    with torch.no_grad():
        for name, tensor in weights.items():
            parameters[name].copy_(tensor)


def _named(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {f"{prefix}{name}": tensor for name, tensor in tensors.items()}
