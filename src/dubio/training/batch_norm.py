"""Batch normalisation around a training: the statistics of weights that no training step has seen, and its batches.

An average or a draw of weights has no running statistics of its own: they are computed anew from the training data.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from dubio.inference.augmentation import Augmentation, augment
from dubio.inference.batches import LabelledRows, collate, to_device, training_rows
from dubio.inference.engine import State
from dubio.inference.predictor import HELD_ELEMENTS, StateMaker
from dubio.networks.network import Model
from dubio.training.collectors import FinishContext


def batch_norm_layers(model: nn.Module) -> dict[str, _BatchNorm]:
    """The layers with running statistics, by name."""
    return {
        name: module
        for name, module in model.named_modules()
        if isinstance(module, _BatchNorm) and module.track_running_stats
    }


def statistics(model: nn.Module) -> dict[str, Tensor]:
    """A copy of the running statistics of every layer, under their names in the model's state."""
    return {
        f"{name}.{buffer}": tensor.detach().cpu().clone()
        for name, layer in batch_norm_layers(model).items()
        for buffer, tensor in layer.named_buffers(recurse=False)
    }


def least_batch(model: nn.Module) -> int:
    """The fewest examples a training batch may have: one value has no variance."""
    return 2 if batch_norm_layers(model) else 1


def refresh(
    model: Model,
    data: LabelledRows,
    *,
    batch: int,
    device: torch.device,
    seed: int,
    augmentation: Augmentation | None = None,
) -> None:
    """Replace every layer's running statistics by those of the training data under the model's weights.

    One pass in shuffled batches, each normalised by its own statistics as in training, everything else (dropout) as in
    evaluation. A layer's mean and unbiased variance are those of all values it sees, pooled over batches:
    μ = Σ n_b μ_b/n and σ² = Σ ((n_b − 1) σ_b² + n_b (μ_b − μ)²)/(n − 1), with σ_b² the unbiased variance in a batch.
    For a first layer these are the statistics of the whole data, whatever the batches. Without batch-norm nothing is
    done and no example is read.

    Args:
        model: With its weights; left in evaluation mode.
        data: The training examples.
        batch: Examples a batch.
        device: Where the model is.
        seed: Fixes the order of examples and their views.
        augmentation: The training's random views, or None.
    """
    refresh_for(model, FinishContext(data, data, device, seed, batch, augmentation))


def refresh_for(model: Model, context: FinishContext) -> None:
    """New statistics for weights that a collector made; for all it makes, the examples in the same order and views."""
    _refreshed(model, [{name: p.detach() for name, p in model.named_parameters()}], context)


def refresh_draws(model: Model, draws: Sequence[StateMaker], context: FinishContext) -> list[dict[str, Tensor]]:
    """The statistics of each of many weights, every batch read and augmented once for as many as are held together.

    Args:
        model: The module they belong to; its own weights are left as they were, its statistics are those of the last.
        draws: Each makes the trained parameters of one when it is asked for.
        context: The training data, and how it is read.

    Returns:
        What :func:`refresh_for` leaves for each of them alone; nothing for a model without batch-norm.
    """
    if not batch_norm_layers(model):
        return [{} for _ in draws]
    size = sum(p.numel() for p in model.parameters())
    few = max(1, HELD_ELEMENTS // max(1, size))
    found: list[dict[str, Tensor]] = []
    for first in range(0, len(draws), few):
        found += _refreshed(model, [make() for make in draws[first : first + few]], context)
    return found


@torch.no_grad()
def _refreshed(model: Model, weights: Sequence[State], context: FinishContext) -> list[dict[str, Tensor]]:
    """The statistics of each of these weights; those of the last are left in the model, which keeps its weights."""
    layers = list(batch_norm_layers(model).values())
    model.eval()
    if not layers:
        return [{} for _ in weights]
    order = np.random.Generator(np.random.PCG64(np.random.SeedSequence(context.seed)))
    batches = training_rows(context.train.encoded, context.batch, order, least=least_batch(model))
    generator = torch.Generator().manual_seed(context.seed)
    steps = _up_to_the_last(model)
    gathered = [[_Moments() for _ in layers] for _ in weights]
    held = [{name: tensor.to(context.device) for name, tensor in one.items()} for one in weights]
    with _listening(layers) as listen, _own_weights(model) as put:
        for rows in batches:
            batch = to_device(collate(context.train.encoded, rows), context.device)
            batch = augment(context.augmentation, batch, generator)
            for one, moments in zip(held, gathered, strict=True):
                put(one)
                listen(moments)
                value = batch
                for step in steps:
                    value = step(value)
    found = []
    for moments in gathered:
        for layer, seen in zip(layers, moments, strict=True):
            seen.give(layer, len(batches))
        found.append(statistics(model))
    return found


class _Moments:
    """Count, mean and summed squared deviations of the values a layer has seen, a channel each, in float64."""

    def __init__(self) -> None:
        self.count, self.mean, self.squares = 0, torch.zeros(()), torch.zeros(())

    def add(self, count: int, mean: Tensor, variance: Tensor) -> None:
        """Merge a batch of so many values a channel, with this mean and unbiased variance."""
        mean, squares = mean.to(torch.float64), variance.to(torch.float64) * (count - 1)
        if not self.count:
            self.count, self.mean, self.squares = count, mean, squares
            return
        total, step = self.count + count, mean - self.mean
        self.squares = self.squares + squares + step.square() * (self.count * count / total)
        self.mean = self.mean + step * (count / total)
        self.count = total

    def give(self, layer: _BatchNorm, batches: int) -> None:
        """Put mean and unbiased variance where the layer keeps them; a layer that saw nothing keeps what it has."""
        if not self.count:
            return
        layer.running_mean.copy_(self.mean)  # type: ignore[union-attr]
        layer.running_var.copy_(self.squares / (self.count - 1))  # type: ignore[union-attr]
        layer.num_batches_tracked.fill_(batches)  # type: ignore[union-attr]


@contextmanager
def _listening(layers: list[_BatchNorm]) -> Iterator[Callable[[list[_Moments]], None]]:
    """Layers normalise by their batch and tell its statistics to whom is listening; afterwards they are as before.

    With a momentum of 1 a layer's running statistics are those of its last batch, which it has computed anyway.
    """
    listeners: list[_Moments] = []
    before = [layer.momentum for layer in layers]

    def hear(place: int, layer: _BatchNorm, values: Tensor) -> None:
        count = values.numel() // values.shape[1]
        listeners[place].add(count, layer.running_mean, layer.running_var)  # type: ignore[arg-type]

    def listen(moments: list[_Moments]) -> None:
        listeners[:] = moments

    hooks = [
        layer.register_forward_hook(lambda layer, given, _, place=place: hear(place, layer, given[0]))
        for place, layer in enumerate(layers)
    ]
    for layer in layers:
        layer.train()
        layer.momentum = 1.0
    try:
        yield listen
    finally:
        for layer, momentum in zip(layers, before, strict=True):
            layer.eval()
            layer.momentum = momentum
        for hook in hooks:
            hook.remove()


@contextmanager
def _own_weights(model: Model) -> Iterator[Callable[[State], None]]:
    """Other weights are put in place of the model's by reference, without copying; afterwards it has its own again."""
    parameters = dict(model.named_parameters())
    own = {name: p.data for name, p in parameters.items()}

    def put(weights: State) -> None:
        for name, tensor in weights.items():
            parameters[name].data = tensor

    try:
        yield put
    finally:
        put(own)


def _up_to_the_last(model: Model) -> list[nn.Module]:
    """The steps up to the last that normalises: what comes after changes no statistics."""
    steps = model.steps
    return steps[: 1 + max(i for i, step in enumerate(steps) if batch_norm_layers(step))]
