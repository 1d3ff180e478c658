"""Batch-norm statistics of weights that no training step has used.

An average or a draw of weights has no running statistics: they are computed from the training data.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from dubio.inference.augmentation import augment
from dubio.inference.batches import LabelledRows, collate, to_device, training_rows
from dubio.inference.engine import State
from dubio.inference.predictor import HELD_ELEMENTS, StateMaker
from dubio.networks.network import Model
from dubio.training.collectors import FinishContext


def batch_norm_layers(model: nn.Module) -> dict[str, _BatchNorm]:
    """Return the layers with running statistics by name."""
    layers = {name: module for name, module in model.named_modules() if isinstance(module, _BatchNorm)}
    return {name: layer for name, layer in layers.items() if layer.track_running_stats}


def statistics(model: nn.Module) -> dict[str, Tensor]:
    """Return a copy of the running statistics of every layer, by their names in the model's state."""
    layers = batch_norm_layers(model).items()
    named = ((f"{path}.{name}", t) for path, layer in layers for name, t in layer.named_buffers(recurse=False))
    return {name: tensor.detach().cpu().clone() for name, tensor in named}


def least_batch(model: nn.Module) -> int:
    """Return the smallest size of a training batch: one value has no variance."""
    return 2 if batch_norm_layers(model) else 1


def with_examples(context: FinishContext, most: int) -> FinishContext:
    """Return a context whose training data are at most that many examples, chosen by its seed; 0 for all of them."""
    count = len(context.train.encoded)
    if not 0 < most < count:
        return context
    rng = np.random.Generator(np.random.PCG64(np.random.SeedSequence(context.seed)))
    rows = np.sort(rng.permutation(count)[:most])
    few = LabelledRows(context.train.encoded.take(rows), context.train.labels[rows], context.train.classes)
    return replace(context, train=few)


def normalised_share(most: int, examples: int) -> float:
    """Return the share of the training examples that :func:`with_examples` leaves."""
    return min(most or examples, examples) / max(1, examples)


def refresh(model: Model, context: FinishContext) -> None:
    """Replace every layer's running statistics by those of the training data under the model's weights.

    One pass in shuffled batches, each normalised by its own statistics as in training, everything else (dropout) as in
    evaluation. A layer's mean and unbiased variance are those of all values it sees, pooled over batches:
    μ = Σ n_b μ_b/n and σ² = Σ ((n_b − 1) σ_b² + n_b (μ_b − μ)²)/(n − 1), with σ_b² the unbiased variance in a batch.
    For a first layer these are the statistics of the whole data, whatever the batches. A model without batch-norm is
    unchanged, and no example is read.

    Args:
        model: With its weights; left in evaluation mode.
        context: The training data, batch size, device and augmentation; the seed fixes the order and the views.
    """
    _refresh(model, [{name: p.detach() for name, p in model.named_parameters()}], context)


def refresh_draws(
    model: Model, draws: Sequence[StateMaker], context: FinishContext, most: int = 0
) -> list[dict[str, Tensor]]:
    """Return the statistics of each of many weights; a batch is read and augmented once for all that fit in memory.

    Args:
        model: The module of the weights; its own weights are unchanged, its statistics are those of the last draw.
        draws: Functions that make the trained parameters of one draw each.
        context: The training data, batch size, device and augmentation.
        most: Largest number of training examples to use; 0 for all.

    Returns:
        What :func:`refresh` gives for each of them; nothing for a model without batch-norm.
    """
    if not batch_norm_layers(model):
        return [{} for _ in draws]
    context = with_examples(context, most)
    size = sum(p.numel() for p in model.parameters())
    count = max(1, HELD_ELEMENTS // max(1, size))
    refreshed: list[dict[str, Tensor]] = []
    for first in range(0, len(draws), count):
        refreshed += _refresh(model, [make() for make in draws[first : first + count]], context)
    return refreshed


@torch.no_grad()
def _refresh(model: Model, weights: Sequence[State], context: FinishContext) -> list[dict[str, Tensor]]:
    """Return the statistics of each of the weights; those of the last stay in the model, which keeps its weights."""
    layers = list(batch_norm_layers(model).values())
    model.eval()
    if not layers:
        return [{} for _ in weights]
    order = np.random.Generator(np.random.PCG64(np.random.SeedSequence(context.seed)))
    batches = training_rows(context.train.encoded, context.batch, order, least=least_batch(model))
    generator = torch.Generator().manual_seed(context.seed)
    steps = _normalising_steps(model)
    moments = [[_Moments() for _ in layers] for _ in weights]
    on_device = [{name: tensor.to(context.device) for name, tensor in state.items()} for state in weights]
    with _record_moments(layers) as record_into, _exchange_weights(model) as put:
        for rows in batches:
            batch = to_device(collate(context.train.encoded, rows), context.device)
            batch = augment(context.augmentation, batch, generator)
            for state, state_moments in zip(on_device, moments, strict=True):
                put(state)
                record_into(state_moments)
                value = batch
                for step in steps:
                    value = step(value)
    refreshed = []
    for state_moments in moments:
        for layer, layer_moments in zip(layers, state_moments, strict=True):
            layer_moments.store_in(layer, len(batches))
        refreshed.append(statistics(model))
    return refreshed


class _Moments:
    """Count, mean and summed squared deviations of the inputs of a layer, per channel, in float64."""

    def __init__(self) -> None:
        self.count, self.mean, self.squares = 0, torch.zeros(()), torch.zeros(())

    def add(self, count: int, mean: Tensor, variance: Tensor) -> None:
        """Merge a batch of ``count`` values per channel, with this mean and unbiased variance."""
        mean, squares = mean.to(torch.float64), variance.to(torch.float64) * (count - 1)
        total, step = self.count + count, mean - self.mean
        self.squares = self.squares + squares + step.square() * (self.count * count / total)
        self.mean = self.mean + step * (count / total)
        self.count = total

    def store_in(self, layer: _BatchNorm, batches: int) -> None:
        """Set the layer's mean and unbiased variance; a layer without inputs is unchanged."""
        if not self.count:
            return
        layer.running_mean.copy_(self.mean)  # type: ignore[union-attr]
        layer.running_var.copy_(self.squares / (self.count - 1))  # type: ignore[union-attr]
        layer.num_batches_tracked.fill_(batches)  # type: ignore[union-attr]


@contextmanager
def _record_moments(layers: list[_BatchNorm]) -> Iterator[Callable[[list[_Moments]], None]]:
    """Let layers normalise by their batch and record its statistics; afterwards they are as before.

    With a momentum of 1 a layer's running statistics are those of its last batch, which it has computed anyway.
    """
    current: list[_Moments] = []
    before = [layer.momentum for layer in layers]

    def record(index: int, layer: Any, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        count = inputs[0].numel() // inputs[0].shape[1]
        current[index].add(count, layer.running_mean, layer.running_var)

    def record_into(moments: list[_Moments]) -> None:
        current[:] = moments

    hooks = [layer.register_forward_hook(partial(record, index)) for index, layer in enumerate(layers)]
    for layer in layers:
        layer.train()
        layer.momentum = 1.0
    try:
        yield record_into
    finally:
        for layer, momentum in zip(layers, before, strict=True):
            layer.eval()
            layer.momentum = momentum
        for hook in hooks:
            hook.remove()


@contextmanager
def _exchange_weights(model: Model) -> Iterator[Callable[[State], None]]:
    """Exchange the model's weights by reference, without copying; afterwards it has its own again."""
    parameters = dict(model.named_parameters())
    own = {name: p.data for name, p in parameters.items()}

    def put(weights: State) -> None:
        for name, tensor in weights.items():
            parameters[name].data = tensor

    try:
        yield put
    finally:
        put(own)


def _normalising_steps(model: Model) -> list[nn.Module]:
    """Return the steps up to the last with batch-norm: later ones change no statistics."""
    steps = model.steps
    return steps[: 1 + max(i for i, step in enumerate(steps) if batch_norm_layers(step))]
