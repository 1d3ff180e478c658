"""From a trained model to the blocks of its Laplace approximation, by structure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from dubio.data.batches import collate
from dubio.errors import UserError
from dubio.networks.linear_maps import WeightMatrix, linear_maps
from dubio.networks.network import Model
from dubio.posteriors.laplace_blocks import Block, Damping, diagonal_block, full_block, kronecker_block
from dubio.training.curvature import diagonal, is_exact, kronecker
from dubio.training.finishing import FinishContext
from dubio.training.labelled import to_device
from dubio.training.last_layer import LAST, last_diagonal, last_full, last_kronecker, last_layer
from dubio.training.output_curvature import link_of
from dubio.training.watching import passed_once

Structure = Literal["kron", "diag", "last-full", "last-kron", "last-diag"]


@dataclass(frozen=True, eq=False)
class Curved:
    """The curvature of a model's likelihood at its weights.

    Attributes:
        blocks: One a layer, N times the mean Fisher in its eigenbasis.
        log_likelihood: Σ log p(y) over the training examples.
        facts: What a record says of it: which weights are random, which are not, how the sum over classes was taken.
    """

    blocks: tuple[Block, ...]
    log_likelihood: float
    facts: dict[str, Any]


def curved(model: Model, structure: Structure, damping: Damping, context: FinishContext) -> Curved:
    """The blocks of a structure.

    Raises:
        UserError: For a head without such a curvature, weights that are random already, or too large a last layer.
    """
    link_of(model.head)
    if model.gaussians():
        raise UserError(
            "laplace: this model's weights are Gaussian already (gaussian_weights); leave that edit out, or use the "
            "method mean-field-vi."
        )
    last = structure.startswith("last-")
    layers = last_layer(model) if last else _layers(model, context)
    blocks, likelihood = (_last if last else _all)(model, layers, structure, damping, context)
    exact = last or is_exact(context.train.classes)
    return Curved(blocks, likelihood, {**_coverage(model, layers), "classes": "exact" if exact else "drawn labels"})


def _layers(model: Model, context: FinishContext) -> dict[str, WeightMatrix]:
    """The layers that a batch passes once."""
    few = np.arange(min(2, len(context.train.encoded)))
    batch = to_device(collate(context.train.encoded, few), context.device)
    return passed_once(model, linear_maps(model), batch)


def _all(
    model: Model, layers: dict[str, WeightMatrix], structure: Structure, damping: Damping, context: FinishContext
) -> tuple[tuple[Block, ...], float]:
    """Blocks of every layer."""
    data, device, seed = context.train, context.device, context.seed
    examples = len(data.encoded)
    if structure == "kron":
        factors, likelihood = kronecker(model, layers, data, batch=context.batch, device=device, seed=seed)
        pairs = ((layers[path], found) for path, found in factors.items())
        return tuple(kronecker_block(m, f.inputs, f.outputs, examples, damping) for m, f in pairs), likelihood
    found, likelihood = diagonal(model, layers, data, batch=context.batch, device=device, seed=seed)
    return tuple(diagonal_block(layers[path], values, examples) for path, values in found.items()), likelihood


def _last(
    model: Model, layers: dict[str, WeightMatrix], structure: Structure, damping: Damping, context: FinishContext
) -> tuple[tuple[Block, ...], float]:
    """The block of the last layer."""
    data, device, matrix = context.train, context.device, layers[LAST]
    examples = len(data.encoded)
    if structure == "last-kron":
        factors, likelihood = last_kronecker(model, data, device=device)
        return (kronecker_block(matrix, factors.inputs, factors.outputs, examples, damping),), likelihood
    if structure == "last-diag":
        values, likelihood = last_diagonal(model, data, device=device)
        return (diagonal_block(matrix, values, examples),), likelihood
    fisher, likelihood = last_full(model, data, device=device)
    return (full_block(matrix, fisher, examples),), likelihood


def _coverage(model: Model, layers: dict[str, WeightMatrix]) -> dict[str, Any]:
    """Which weights are random, and which stay at their point."""
    random = {name for matrix in layers.values() for name in matrix.names}
    parameters = {name: p.numel() for name, p in model.named_parameters() if p.requires_grad}
    return {
        "random": sorted(random),
        "random_parameters": sum(parameters[name] for name in random),
        "fixed": sorted(parameters.keys() - random),
        "fixed_parameters": sum(count for name, count in parameters.items() if name not in random),
    }
