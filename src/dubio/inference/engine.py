"""The only file about speed: many samples of one network, or many networks on one batch.

*Same weights, different noise*: the steps before the first random one run once, the remaining ones S times
(:func:`shared_prefix`; its plain twin :func:`plain_passes` runs everything S times). With Gaussian weights a sample is
one set of weights, so the samples run one by one. *Different weights, same inputs*: the states are stacked and mapped
over, or looped over (:func:`stacked_states`, :func:`looped_states`); a static rule on shapes and device decides, never
a timing, so that results do not depend on load. Where only a linear head differs, the network before it runs once
(:func:`shared_body`). *Same weights, many batches*: values that depend on the weights alone are computed ahead
(:func:`fixed`; its plain twin is the model itself).
Tests hold every fast path equal to its twin.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.func import functional_call

from dubio.networks.draws import BlockDraws, Keys
from dubio.networks.network import Carried, Model, Network, Scores, contract, random_layers
from dubio.networks.noise import sites

State = Mapping[str, Tensor]
Rows = NDArray[np.int64] | Keys
"""The rows of a batch: example indices of a split, or hashes of their content."""

HEAD_DRAWS = "head.normals"

CHUNK_ELEMENTS = 1 << 22
"""Approximate number of activations that a pass over repeated samples may hold; more samples run in chunks."""

STACK_PARAMETERS = 1 << 18
"""States of at most this many parameters are stacked on a CPU: beyond it the batched products gain nothing there."""

PREPARED_ELEMENTS = 1 << 26
"""Largest number of elements computed ahead from fixed weights, 256 MB in float32: a TextCNN's vocabulary of 55,000 at
its default widths. A larger one is predicted by the ordinary stages, batch by batch."""


@torch.no_grad()
def fixed(model: Model, samples: int, limit: int = PREPARED_ELEMENTS) -> Model:
    """Return the model for weights that no longer change, with values that depend on them alone computed ahead.

    The first stage may offer such stages (:meth:`dubio.networks.network.Stage.prepared`). Whether they are used depends
    on shapes alone. A model whose first stage offers nothing is returned as it is.

    Args:
        model: In evaluation mode. The prepared stages keep its present weights; the head stays the model's own.
        samples: Noise draws of later predictions; 0 for deterministic passes.
        limit: Largest number of elements to compute ahead.
    """
    stages = list(model.network.stages)
    quiet = next((i for i, stage in enumerate(stages) if samples and _is_random(stage)), len(stages))
    prepared = contract(stages[0]).prepared(stages[1:quiet], limit) if quiet else None
    if prepared is None:
        return model
    network = Network([*prepared, *stages[quiet:]], model.network.width, sets=model.network.sets)
    return Model(network, model.head).eval()


def shared_prefix(model: Model, batch: Any, draws: BlockDraws, rows: Rows, samples: int) -> Scores:
    """Return the scores of ``samples`` noise draws; the steps before the first random one run once.

    Args:
        model: In evaluation mode, with its weights.
        batch: One batch.
        draws: Source of the noise.
        rows: The example index of each row of the batch.
        samples: Number of noise draws; 0 for one deterministic pass.

    Returns:
        Scores ``[samples · sets, B, …]``, the sets of a sample side by side.
    """
    if samples == 0:
        return single_pass(model, batch, draws, rows, None)
    with sampling(model):
        steps = model.steps
        first = next((i for i, step in enumerate(steps) if _is_random(step)), len(steps) - 1)
        value = batch
        for step in steps[:first]:
            value = step(value)
        size = 1 if model.gaussians() else _chunk_size(value, samples, contract(steps[first]).widens)
        chunks = [range(i, min(samples, i + size)) for i in range(0, samples, size)]
        return concatenate([_suffix(model, steps[first:], value, draws, rows, chunk) for chunk in chunks])


def plain_passes(model: Model, batch: Any, draws: BlockDraws, rows: Rows, samples: int) -> Scores:
    """Run the whole network once per sample, with the same draws: the plain twin of :func:`shared_prefix`."""
    if samples == 0:
        return single_pass(model, batch, draws, rows, None)
    return concatenate([single_pass(model, batch, draws, rows, sample) for sample in range(samples)])


def single_pass(model: Model, batch: Any, draws: BlockDraws, rows: Rows, sample: int | None) -> Scores:
    """Return the scores of one pass: with the draws of one sample, or deterministic for None."""
    if sample is None:
        return _head_scores(model, model.network(batch), draws, rows, range(1))
    with sampling(model):
        return _suffix(model, model.steps, batch, draws, rows, range(sample, sample + 1))


@contextmanager
def sampling(model: Model) -> Iterator[None]:
    """Make noise act at prediction inside this context; its draws are dropped at the end."""
    for noise in model.noises():
        noise.sampling = True
    model.head.sampling = True
    try:
        yield
    finally:
        model.head.sampling = False
        for noise in model.noises():
            noise.sampling, noise.given = False, None
        for layer in model.gaussians():
            layer.drawn_weight = None


@contextmanager
def one_thread() -> Iterator[None]:
    """Use one thread inside this context, as every worker does: the order of sums is then always the same."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _suffix(
    model: Model, steps: Sequence[nn.Module], value: Any, draws: BlockDraws, rows: Rows, chunk: range
) -> Scores:
    """Run the remaining steps on one copy of a value per sample of a chunk, each with its own draws."""
    device = _device(model)
    for site in model.sites():
        if site.noise is not None:
            uniforms = draws.rows(site.name, "uniform", site.noise.width * site.sets, chunk, rows)
            site.noise.given = uniforms.reshape(-1, site.noise.width).to(device)
    for layer in model.gaussians():
        (sample,) = chunk  # a sample is one set of weights
        layer.drawn_weight = layer.drawn(draws.shared(layer.path, layer.weight.numel(), sample).to(device))
    if not contract(steps[0]).broadcasts:
        value = repeat(value, len(chunk))
    for step in steps[:-1]:
        value = step(value)
    return _head_scores(model, value, draws, rows, chunk)


def _head_scores(model: Model, features: Tensor, draws: BlockDraws, rows: Rows, chunk: range) -> Scores:
    """Return the head's scores ``[samples · sets, B, …]``, given the normal draws over which it integrates."""
    head = model.head
    if count := head.sample_normals if head.sampling and not head.normals else head.normals:
        normals = draws.rows(HEAD_DRAWS, "normal", count * model.network.sets, chunk, rows)
        head.given = normals.reshape(-1, count).to(_device(model))
    try:
        scores = head.scores(head(model.rows(features)))
    finally:
        head.given = None
    by_sample = partial(model.by_sample, examples=len(rows))
    data, process = (None if v is None else by_sample(v) for v in (scores.data_variance, scores.model_variance))
    return Scores(by_sample(scores.logits), data, process, {name: by_sample(v) for name, v in scores.own.items()})


def repeat(value: Tensor | Carried, times: int) -> Any:
    """Return a batch value ``times`` times, one copy after another."""
    if times == 1:
        return value
    if isinstance(value, Tensor):
        return torch.cat([value] * times)  # unlike Tensor.repeat it keeps the order in memory, such as channels last
    return value.repeat(times)


def concatenate(parts: Sequence[Scores]) -> Scores:
    """Join the samples of several scores; a variance, or an uncertainty of their own, where every part has it."""
    if len(parts) == 1:
        return parts[0]
    logits, data, model, own = zip(*parts, strict=True)
    shared = [name for name in own[0] if all(name in named for named in own)]
    return Scores(
        torch.cat(logits),
        None if None in data else torch.cat(data),
        None if None in model else torch.cat(model),
        {name: torch.cat([named[name] for named in own]) for name in shared},
    )


def stacks(model: Model, states: Sequence[State], device: torch.device) -> bool:
    """Return whether weight states are stacked and mapped over rather than looped over: a static rule."""
    parameters = sum(tensor.numel() for tensor in states[0].values())
    batched = all(contract(step).batched_over_weights for step in model.steps)
    return len(states) > 1 and batched and (device.type != "cpu" or parameters <= STACK_PARAMETERS)


def over_states(model: Model, states: Sequence[State], batch: Any) -> Tensor:
    """Return deterministic logits ``[states · sets, B, K]`` of several weight states, by the static rule."""
    run = stacked_states if stacks(model, states, _device(model)) else looped_states
    output = run(model, states, batch)
    return model.by_sample(output.flatten(0, 1), output.shape[1] // model.network.sets)


def stacked_states(model: Model, states: Sequence[State], batch: Any) -> Tensor:
    """Return head outputs ``[states, rows, K]`` by mapping over a stack of the states' weights."""
    stack = {name: torch.stack([state[name] for state in states]) for name in states[0]}

    def output(state: State) -> Tensor:
        return cast(Tensor, functional_call(model, dict(state), (batch,)))

    return torch.vmap(output)(stack)


def looped_states(model: Model, states: Sequence[State], batch: Any) -> Tensor:
    """Return head outputs of one state after another: the plain twin of :func:`stacked_states`."""
    return torch.stack([cast(Tensor, functional_call(model, dict(state), (batch,))) for state in states])


def shared_body(model: Model, weights: Tensor, biases: Tensor, batch: Any) -> Tensor:
    """Return deterministic logits ``[states, B, K]`` of states that differ only in a linear head.

    The network runs once. Its plain twin is :func:`looped_states` of the whole states.

    Args:
        model: In evaluation mode, with the weights that the states share.
        weights: Of the head, ``[states, K, width]``.
        biases: Of the head, ``[states, K]``.
        batch: One batch.
    """
    return torch.matmul(model.network(batch), weights.transpose(1, 2)) + biases[:, None]


def _is_random(step: nn.Module) -> bool:
    """Return whether samples differ in a step: it has a filled site or random weights."""
    return any(site.noise is not None for site in sites(step)) or bool(random_layers(step))


def _chunk_size(value: Tensor | Carried, samples: int, widens: int) -> int:
    """Return how many samples run at once: bounded activations, the same on every machine."""
    elements = widens * (value.numel() if isinstance(value, Tensor) else value.footprint())
    return max(1, min(samples, CHUNK_ELEMENTS // max(1, elements)))


def _device(model: nn.Module) -> torch.device:
    return next(model.parameters()).device
