"""The only file that knows about speed: many samples of one network, or many networks on one batch.

*Same weights, other noise*: the steps before the first active noise site run once, the rest S times
(:func:`shared_prefix`; its plain twin :func:`plain_passes` runs everything S times). Of Gaussian weights a sample is
one set: they are drawn a sample, and the samples run one by one. *Other weights, same inputs*: the states are
stacked and mapped over, or looped over (:func:`stacked_states`, :func:`looped_states`); a static rule on shapes and
device decides, never a timing, so that results do not depend on load. Where only a linear head differs, the network
before it runs once (:func:`shared_body`). *Same weights, many batches*: what depends on the weights alone is computed
ahead (:func:`fixed`; its plain twin is the model itself).
Tests hold every fast path equal to its twin.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.func import functional_call

from dubio.networks.draws import BlockDraws
from dubio.networks.gaussian_weights import gaussian_layers
from dubio.networks.network import Carried, Model, Network
from dubio.networks.noise import sites

State = Mapping[str, Tensor]
Rows = NDArray[np.int64]

HEAD_DRAWS = "head.normals"

CHUNK_ELEMENTS = 1 << 22
"""Roughly how many activations a pass over repeated samples may hold; more samples are run in chunks."""

STACK_PARAMETERS = 1 << 18
"""States of at most this many parameters are stacked on a CPU: beyond it the batched products gain nothing there."""

PREPARED_ELEMENTS = 1 << 26
"""How many numbers may be computed ahead from fixed weights, 256 MB in float32: a TextCNN's vocabulary of 55,000 at
its default widths. A larger one is predicted by the ordinary stages, batch by batch."""


@torch.no_grad()
def fixed(model: Model, samples: int, room: int = PREPARED_ELEMENTS) -> Model:
    """The same model for weights that no longer change, with what depends on them alone computed ahead.

    A first stage that can do so offers ``prepared(following, room)``: the stages to run in its place and that of
    ``following``, or None. Stages in which noise will act are not among ``following``. Whether it is used depends on
    shapes alone. A model whose stages offer nothing is given back as it is.

    Args:
        model: In eval mode, with its weights. What is computed ahead keeps them; the head stays the model's own.
        samples: Noise draws that will be asked for; 0 is a deterministic pass.
        room: How many numbers may be kept.
    """
    stages = list(model.network.stages)
    quiet = next((i for i, stage in enumerate(stages) if samples and _random(stage)), len(stages))
    prepare = getattr(stages[0], "prepared", None)
    ready = prepare(stages[1:quiet], room) if prepare is not None and quiet else None
    if ready is None:
        return model
    return Model(Network([*ready, *stages[quiet:]], model.network.width), model.head).eval()


def shared_prefix(model: Model, batch: Any, draws: BlockDraws, rows: Rows, samples: int) -> list[Any]:
    """Head outputs for ``samples`` noise draws, the part before the first active site computed once.

    Args:
        model: In eval mode, with its weights.
        batch: One batch.
        draws: Where noise comes from.
        rows: The example index of each row of the batch.
        samples: How many; 0 is one deterministic pass.

    Returns:
        Chunks ``[(sample, row)…]`` of head scores, flattened sample by sample.
    """
    if samples == 0:
        return [single_pass(model, batch, draws, rows, None)]
    with sampling(model):
        steps = model.steps
        first = next((i for i, step in enumerate(steps) if _random(step)), len(steps) - 1)
        value = batch
        for step in steps[:first]:
            value = step(value)
        chunk = 1 if model.gaussians() else _chunk(value, samples, getattr(steps[first], "widens", 1))
        parts = [range(i, min(samples, i + chunk)) for i in range(0, samples, chunk)]
        return [_suffix(model, steps[first:], value, draws, rows, part) for part in parts]


def plain_passes(model: Model, batch: Any, draws: BlockDraws, rows: Rows, samples: int) -> list[Any]:
    """The plain twin of :func:`shared_prefix`: the whole network once a sample, with the same draws."""
    if samples == 0:
        return [single_pass(model, batch, draws, rows, None)]
    return [single_pass(model, batch, draws, rows, sample) for sample in range(samples)]


def single_pass(model: Model, batch: Any, draws: BlockDraws, rows: Rows, sample: int | None) -> Any:
    """Head scores of the whole network once: with the draws of one sample, or deterministic for None."""
    if sample is None:
        return _head(model, model.network(batch), draws, rows, range(1))
    with sampling(model):
        return _suffix(model, model.steps, batch, draws, rows, range(sample, sample + 1))


@contextmanager
def sampling(model: Model) -> Iterator[None]:
    """Noise acts at prediction while this is open, and forgets what it was given afterwards."""
    for noise in model.noises():
        noise.sampling = True
    try:
        yield
    finally:
        for noise in model.noises():
            noise.sampling, noise.given = False, None
        for layer in model.gaussians():
            layer.given = None


@contextmanager
def one_thread() -> Iterator[None]:
    """One thread while this is open, as in every worker: the order of sums is then always the same."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _suffix(model: Model, steps: Sequence[nn.Module], value: Any, draws: BlockDraws, rows: Rows, part: range) -> Any:
    """The remaining steps on ``len(part)`` repetitions of a value, each with its own draws."""
    for site in model.sites():
        if site.noise is not None:
            given = draws.rows(site.name, "uniform", site.noise.width, part, rows)
            site.noise.given = given.flatten(0, 1).to(_device(model))
    for layer in model.gaussians():
        (sample,) = part  # a sample is one set of weights
        layer.given = layer.drawn(draws.shared(layer.place, layer.weight.numel(), sample).to(_device(model)))
    if not getattr(steps[0], "broadcasts", False):
        value = repeat(value, len(part))
    for step in steps[:-1]:
        value = step(value)
    return _head(model, value, draws, rows, part)


def _head(model: Model, features: Any, draws: BlockDraws, rows: Rows, part: range) -> Any:
    """Scores of the head, given the normal draws it integrates over."""
    head = model.head
    if head.normals:
        given = draws.rows(HEAD_DRAWS, "normal", head.normals, part, rows)
        head.given = given.flatten(0, 1).to(_device(model))
    try:
        return head.scores(head(features))
    finally:
        head.given = None


def repeat(value: Tensor | Carried, times: int) -> Any:
    """A batch value again and again, sample by sample."""
    if times == 1:
        return value
    if isinstance(value, Tensor):
        return torch.cat([value] * times)  # unlike Tensor.repeat it keeps the order in memory, such as channels last
    return value.repeat(times)


def stacks(model: Model, states: Sequence[State], device: torch.device) -> bool:
    """The static rule: whether weight states are stacked and mapped over rather than looped over."""
    parameters = sum(tensor.numel() for tensor in states[0].values())
    batched = all(getattr(step, "batched_over_weights", True) for step in model.steps)
    return len(states) > 1 and batched and (device.type != "cpu" or parameters <= STACK_PARAMETERS)


def over_states(model: Model, states: Sequence[State], batch: Any) -> Tensor:
    """Deterministic logits ``[states, B, K]`` of several weight states on one batch, by the static rule."""
    return (stacked_states if stacks(model, states, _device(model)) else looped_states)(model, states, batch)


def stacked_states(model: Model, states: Sequence[State], batch: Any) -> Tensor:
    """All states at once, mapped over a stack of their weights."""
    stack = {name: torch.stack([state[name] for state in states]) for name in states[0]}

    def one(state: State) -> Tensor:
        return cast(Tensor, functional_call(model, dict(state), (batch,)))

    return torch.vmap(one)(stack)


def looped_states(model: Model, states: Sequence[State], batch: Any) -> Tensor:
    """The plain twin of :func:`stacked_states`: one state after another."""
    return torch.stack([cast(Tensor, functional_call(model, dict(state), (batch,))) for state in states])


def shared_body(model: Model, weights: Tensor, biases: Tensor, batch: Any) -> Tensor:
    """Deterministic logits ``[states, B, K]`` of states that differ in a linear head alone: the network runs once.

    Its plain twin is :func:`looped_states` of the whole states.

    Args:
        model: In eval mode, with the weights that the states share.
        weights: Of the head, ``[states, K, width]``.
        biases: Of the head, ``[states, K]``.
        batch: One batch.
    """
    return torch.matmul(model.network(batch), weights.transpose(1, 2)) + biases[:, None]


def _random(step: nn.Module) -> bool:
    """Whether samples differ in a step: a site of it is filled, or a weight of it Gaussian."""
    return any(site.noise is not None for site in sites(step)) or bool(gaussian_layers(step))


def _chunk(value: Tensor | Carried, samples: int, widens: int) -> int:
    """How many samples may run at once: bounded activations, the same on every machine."""
    each = widens * (value.numel() if isinstance(value, Tensor) else value.footprint())
    return max(1, min(samples, CHUNK_ELEMENTS // max(1, each)))


def _device(model: nn.Module) -> torch.device:
    return next(model.parameters()).device
