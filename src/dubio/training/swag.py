"""Averages over the snapshots of a training: stochastic weight averaging, and the Gaussian around it (SWAG)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from dubio.core.errors import UserError
from dubio.core.specs import part
from dubio.inference.augmentation import Views
from dubio.inference.samples import WeightSamples, state_of
from dubio.inference.weight_draws import LowRankGaussian, WeightDraws, distribution_tensors, draw_generator, with_prefix
from dubio.networks.network import Model
from dubio.training.batch_norm import batch_norm_layers, refresh_draws, refresh_for
from dubio.training.collectors import Collected, Collector, FinishContext
from dubio.training.schedules import Schedule

MEAN, SQUARES, DEVIATION = "mean/", "squares/", "deviation/"
"""How the held tensors are named."""


@part("swa")
@dataclass(frozen=True)
class SWA(Collector):
    """The mean of every snapshot that the schedule marks, with batch-norm statistics of its own."""

    stops_early: ClassVar[bool] = False

    def init(self, model: Model) -> Collected:
        """No snapshot yet."""
        return Collected(facts={"snapshots": 0})

    def update(self, held: Collected, model: Model, *, epoch: int, val_nll: float, marked: bool) -> Collected:
        """Take a marked snapshot into the running mean."""
        if not marked:
            return held
        count = held.facts["snapshots"] + 1
        mean = _running_mean(with_prefix(MEAN, held.tensors), _trained(model), count)
        return Collected(_named(MEAN, mean), {"snapshots": count, "epoch": epoch})

    def finish(self, held: Collected, model: Model, context: FinishContext) -> WeightSamples:
        """The mean as one weight state."""
        _put(model, with_prefix(MEAN, held.tensors))
        refresh_for(model, context)
        return WeightSamples(model, (state_of(model),))

    def states(self, schedule: Schedule, epochs: int) -> int:
        """One, where there is anything to average."""
        return int(_marked(schedule, epochs) > 0)

    def passes(self, model: Model) -> int:
        """One, where batch-norm needs it."""
        return int(bool(batch_norm_layers(model)))


@part("swag")
@dataclass(frozen=True)
class SWAG(Collector):
    """A Gaussian around the mean of every snapshot that the schedule marks (Maddox et al., 2019).

    Its covariance is ½(diag(variance) + D Dᵀ/(K − 1)): the variance of the snapshots, and the deviations of the latest
    K of them from the running mean at their time. Mean and variance are kept by Welford's rule in float64, which
    subtracts no large squares from each other.

    Attributes:
        rank: K, at most; fewer where there are fewer snapshots.
        draws: Weights drawn from it, each with batch-norm statistics of its own.
    """

    rank: int = 20
    draws: int = 30

    stops_early: ClassVar[bool] = False
    continues: ClassVar[bool] = False

    def __post_init__(self) -> None:
        for name, least in (("rank", 2), ("draws", 1)):
            if getattr(self, name) < least:
                raise UserError(f"swag: {name} must be at least {least}; given {getattr(self, name)}.")

    def init(self, model: Model) -> Collected:
        """No snapshot yet."""
        return Collected(facts={"snapshots": 0})

    def update(self, held: Collected, model: Model, *, epoch: int, val_nll: float, marked: bool) -> Collected:
        """Take a marked snapshot into mean, variance and deviations; forget the oldest deviation."""
        if not marked:
            return held
        count = held.facts["snapshots"] + 1
        weights = _trained(model)
        before = with_prefix(MEAN, held.tensors)
        mean = _running_mean(before, weights, count)
        squares = {
            name: (held.tensors[f"{SQUARES}{name}"] + (new - before[name]) * (new - mean[name]))
            if before
            else torch.zeros_like(new)
            for name, new in weights.items()
        }
        deviations = {
            name: tensor
            for name, tensor in held.tensors.items()
            if name.startswith(DEVIATION) and int(name.split("/", 2)[1]) > count - self.rank
        }
        latest = {name: (new - mean[name]).to(torch.float32) for name, new in weights.items()}
        tensors = _named(MEAN, mean) | _named(SQUARES, squares) | deviations | _named(f"{DEVIATION}{count}/", latest)
        return Collected(tensors, {"snapshots": count, "epoch": epoch})

    def settled(self, held: Collected) -> tuple[str, ...]:
        """The deviations; mean and variance change with every snapshot."""
        return tuple(f"{DEVIATION}{k}/" for k in _latest(held, self.rank))

    def finish(self, held: Collected, model: Model, context: FinishContext) -> WeightDraws:
        """The Gaussian, and the batch-norm statistics of each draw; the model is left with the mean."""
        distribution = gaussian_of(held, self.rank)
        makers = [lambda k=k: distribution.draw(draw_generator(context.seed, k)) for k in range(self.draws)]
        buffers = refresh_draws(model, makers, context)
        drawn = {*distribution.mean, *buffers[0]}
        fixed = {name: tensor.cpu() for name, tensor in state_of(model).items() if name not in drawn}
        _put(model, distribution.mean)
        return WeightDraws(model, distribution, context.seed, fixed, tuple(buffers))

    def restore(self, tensors: Mapping[str, Tensor], model: Model, samples: int, views: Views | None) -> WeightDraws:
        """The Gaussian and its draws, read back."""
        distribution = LowRankGaussian.from_tensors(distribution_tensors(tensors))
        return WeightDraws.from_tensors(tensors, model, distribution, self.draws, samples, views)

    def states(self, schedule: Schedule, epochs: int) -> int:
        """The draws, where there are snapshots enough for a covariance."""
        return self.draws if _marked(schedule, epochs) > 1 else 0

    def stored(self, schedule: Schedule, epochs: int) -> float:
        """Mean, variance and deviations, however many draws."""
        return 2.0 + min(self.rank, _marked(schedule, epochs))

    def passes(self, model: Model) -> int:
        """One a draw, where batch-norm needs it."""
        return self.draws if batch_norm_layers(model) else 0


def gaussian_of(held: Collected, rank: int) -> LowRankGaussian:
    """The distribution that the snapshots so far amount to."""
    count = held.facts["snapshots"]
    mean = {name: tensor.to(torch.float32) for name, tensor in with_prefix(MEAN, held.tensors).items()}
    variance = {n: (t / count).clamp_min(0.0).to(torch.float32) for n, t in with_prefix(SQUARES, held.tensors).items()}
    kept = _latest(held, rank)
    deviations = {name: torch.stack([held.tensors[f"{DEVIATION}{k}/{name}"] for k in kept]) for name in mean}
    return LowRankGaussian(mean, variance, deviations)


def _latest(held: Collected, rank: int) -> range:
    """Which snapshots' deviations are held, counted from 1."""
    count = held.facts["snapshots"]
    return range(max(1, count - rank + 1), count + 1)


def _trained(model: Model) -> dict[str, Tensor]:
    """The parameters that are trained, in main memory and float64."""
    return {n: p.detach().to("cpu", torch.float64, copy=True) for n, p in model.named_parameters() if p.requires_grad}


def _running_mean(before: Mapping[str, Tensor], new: Mapping[str, Tensor], count: int) -> dict[str, Tensor]:
    """m ← m + (θ − m)/n."""
    return {name: before[name] + (tensor - before[name]) / count if before else tensor for name, tensor in new.items()}


def _put(model: Model, weights: Mapping[str, Tensor]) -> None:
    """Give a model's parameters these values; what is not among them stays."""
    parameters = dict(model.named_parameters())
    with torch.no_grad():
        for name, tensor in weights.items():
            parameters[name].copy_(tensor)


def _named(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {f"{prefix}{name}": tensor for name, tensor in tensors.items()}


def _marked(schedule: Schedule, epochs: int) -> int:
    """How many snapshots a schedule marks."""
    return sum(schedule.keeps_after(epoch, epochs) for epoch in range(1, epochs + 1))
