"""From a trained model to the blocks of its Laplace approximation: all layers, or the last one alone.

The curvature of the last layer is exact, because it is a logistic regression on the features that reach it. With
features a (and a 1 for the bias) and logits W a, the Hessian of −log p(y) in W is Λ ⊗ a aᵀ whatever the label: the
generalised Gauss-Newton matrix is the Hessian itself, and no backward pass is needed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Literal, cast

import numpy as np
import torch
from torch import Tensor

from dubio.core.errors import UserError
from dubio.inference.batches import EVALUATION_BATCH, LabelledRows, collate, to_device
from dubio.inference.laplace import Block, Damping, diagonal_block, full_block, kronecker_block
from dubio.networks.linear_maps import WeightMatrix, linear_maps
from dubio.networks.network import Model
from dubio.training.collectors import FinishContext
from dubio.training.laplace.curvature import (
    Factors,
    diagonal,
    float64_zeros,
    hessian,
    hessian_diagonal,
    hessian_sum,
    is_exact,
    kronecker,
    link_of,
    log_likelihood,
    passed_once,
    record_passes,
    with_ones,
)

Structure = Literal["kron", "diag", "last-full", "last-kron", "last-diag"]

LAST = "head.linear"
"""Path of the last layer in a model with a softmax or sigmoid head."""

FULL_PARAMETERS = 1 << 13
"""Largest number of weights of a last layer with a full Hessian: 512 MB in double precision."""

PROBE_ROWS = (2, 3)
"""Examples of the batches that show which layers are passed, and how."""


@dataclass(frozen=True, eq=False)
class Curvature:
    """The curvature of a model's likelihood at its weights.

    Attributes:
        blocks: One per layer, N times the mean Fisher in its eigenbasis.
        log_likelihood: Σ log p(y) over the training examples.
        facts: For the record: which weights are random, which are fixed, how the sum over classes was taken.
    """

    blocks: tuple[Block, ...]
    log_likelihood: float
    facts: dict[str, Any]


def curvature_blocks(
    model: Model, structure: Structure, damping: Damping, context: FinishContext, *, kfac_sums: bool = False
) -> Curvature:
    """Return the blocks of a structure.

    Raises:
        UserError: See :func:`check_structure`.
    """
    check_structure(model, structure)
    last = structure.startswith("last-")
    layers = last_layer(model) if last else _layers(model, context)
    blocks, likelihood = _blocks(model, layers, structure, damping, context, kfac_sums)
    exact = last or is_exact(context.train.classes)
    return Curvature(blocks, likelihood, {**_coverage(model, layers), "classes": "exact" if exact else "drawn labels"})


def check_structure(model: Model, structure: Structure) -> None:
    """Refuse a model that has no such curvature, as far as that is known without data.

    Raises:
        UserError: For a head without linear logits, a network with several sets of outputs, weights that are random
            already, or too large a last layer.
    """
    link_of(model.head)
    if model.network.sets > 1:
        raise UserError(f"laplace: needs one set of logits per example; this network gives {model.network.sets}.")
    if model.gaussians():
        raise UserError("laplace: this model's weights are Gaussian already; leave the edit gaussian_weights out.")
    if structure.startswith("last-"):
        rows, columns = last_layer(model)[LAST].size
        if structure == "last-full" and rows * columns > FULL_PARAMETERS:
            limit = f"takes at most {FULL_PARAMETERS} weights; the last layer has {rows} × {columns} = {rows * columns}"
            raise UserError(f"laplace: structure='last-full' {limit}: use 'last-kron'.")


def layers_of(model: Model, batches: Iterable[Any]) -> dict[str, WeightMatrix]:
    """Return the layers of the structures ``kron`` and ``diag`` by path.

    Args:
        model: The model.
        batches: A few examples, twice in different numbers: their shapes show which axis is the batch.

    Raises:
        UserError: When there is none.
    """
    layers = linear_maps(model)
    for batch in batches:
        layers = passed_once(model, layers, batch)
    if not layers:
        needs = "trainable nn.Linear or plain nn.Conv2d layers (one group, zero padding) that each pass uses once"
        raise UserError(f"laplace: no layer's weights could be random: structures 'kron' and 'diag' need {needs}.")
    return layers


def last_layer(model: Model) -> dict[str, WeightMatrix]:
    """Return the last layer by its path.

    Raises:
        UserError: When the head has no trainable dense layer.
    """
    link_of(model.head)
    layers = linear_maps(model)
    if LAST not in layers:
        kind = "a trainable nn.Linear with a bias whose outputs are the logits"
        raise UserError(f"laplace: a structure 'last-…' needs a last layer, {kind}: use 'kron' or 'diag'.")
    return {LAST: layers[LAST]}


def _layers(model: Model, context: FinishContext) -> dict[str, WeightMatrix]:
    """Return the layers that the training examples pass."""
    data = context.train.encoded
    probes = (np.arange(min(count, len(data))) for count in PROBE_ROWS)
    return layers_of(model, (to_device(collate(data, rows), context.device) for rows in probes))


def _blocks(
    model: Model, layers: dict[str, WeightMatrix], structure: Structure, damping: Damping, context: FinishContext,
    sums: bool,
) -> tuple[tuple[Block, ...], float]:  # fmt: skip
    """Return the blocks of the layers, and Σ log p(y)."""
    data, batch, device, seed = context.train, context.batch, context.device, context.seed
    examples = len(data.encoded)
    if structure == "last-full":
        fisher, likelihood = last_full(model, data, device=device)
        return (full_block(layers[LAST], fisher, examples),), likelihood
    if structure in ("kron", "last-kron"):
        factors, likelihood = (
            kronecker(model, layers, data, batch=batch, device=device, seed=seed)
            if structure == "kron"
            else last_kronecker(model, data, device=device)
        )
        pairs = ((layers[path], factor) for path, factor in factors.items())
        blocks = (kronecker_block(m, f.inputs, f.outputs, examples, damping, sums=sums) for m, f in pairs)
        return tuple(blocks), likelihood
    diagonals, likelihood = (
        diagonal(model, layers, data, batch=batch, device=device, seed=seed)
        if structure == "diag"
        else last_diagonal(model, data, device=device)
    )
    return tuple(diagonal_block(layers[path], values, examples) for path, values in diagonals.items()), likelihood


def last_kronecker(model: Model, data: LabelledRows, *, device: torch.device) -> tuple[dict[str, Factors], float]:
    """Return A = mean a aᵀ and G = mean Λ of the last layer by its path, and Σ log p(y)."""
    matrix = last_layer(model)[LAST]
    rows, columns = matrix.size
    inputs, outputs = float64_zeros(columns, columns, device), float64_zeros(rows, rows, device)
    total = 0.0
    for a, logits, likelihood in _last_passes(model, matrix, data, device):
        inputs += a.T @ a
        outputs += hessian_sum(logits, link_of(model.head))
        total += likelihood
    return {LAST: Factors(inputs / len(data.encoded), outputs / len(data.encoded))}, total


def last_diagonal(model: Model, data: LabelledRows, *, device: torch.device) -> tuple[dict[str, Tensor], float]:
    """Return the diagonal ``[out, in + 1]`` of the last layer by its path, mean Λ_kk a_i², and Σ log p(y)."""
    matrix = last_layer(model)[LAST]
    values, total = float64_zeros(*matrix.size, device), 0.0
    for a, logits, likelihood in _last_passes(model, matrix, data, device):
        values += hessian_diagonal(logits, link_of(model.head)).T @ a**2
        total += likelihood
    return {LAST: values / len(data.encoded)}, total


def last_full(model: Model, data: LabelledRows, *, device: torch.device) -> tuple[Tensor, float]:
    """Return the mean Hessian ``[P, P]``, weights in the order of the rows of ``[out, in + 1]``, and Σ log p(y)."""
    matrix = last_layer(model)[LAST]
    rows, columns = matrix.size
    size = rows * columns
    blocks, total = float64_zeros(size, size, device).reshape(rows, columns, rows, columns), 0.0
    for a, logits, likelihood in _last_passes(model, matrix, data, device):
        curvature = hessian(logits, link_of(model.head))
        for k in range(rows):
            for j in range(k + 1):
                block = (a * curvature[:, k, j, None]).T @ a
                blocks[k, :, j] += block
                if j < k:
                    blocks[j, :, k] += block
        total += likelihood
    return blocks.reshape(size, size) / len(data.encoded), total


@torch.no_grad()
def _last_passes(
    model: Model, matrix: WeightMatrix, data: LabelledRows, device: torch.device
) -> Iterator[tuple[Tensor, Tensor, float]]:
    """Return for each batch the last layer's inputs ``[B, in + 1]``, the logits ``[B, K]`` and Σ log p(y)."""
    model.eval()
    link = link_of(model.head)
    for _, batch, labels in data.batches(EVALUATION_BATCH, device):
        with record_passes(model, {LAST: matrix}) as passes:
            logits = model(batch)
        features = cast(Tensor, passes[LAST][-1].inputs)
        yield with_ones(features, matrix), logits, log_likelihood(logits, labels, link)


def _coverage(model: Model, layers: dict[str, WeightMatrix]) -> dict[str, Any]:
    """Return which weights are random, and which stay at their point."""
    random = {name for matrix in layers.values() for name in matrix.names}
    parameters = {name: p.numel() for name, p in model.named_parameters() if p.requires_grad}
    return {
        "random": sorted(random),
        "random_parameters": sum(parameters[name] for name in random),
        "fixed": sorted(parameters.keys() - random),
        "fixed_parameters": sum(count for name, count in parameters.items() if name not in random),
    }
