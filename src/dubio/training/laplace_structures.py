"""From a trained model to the blocks of its Laplace approximation, by structure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from dubio.core.errors import UserError
from dubio.inference.batches import collate
from dubio.inference.laplace_blocks import Block, Damping, diagonal_block, full_block, kronecker_block
from dubio.networks.linear_maps import WeightMatrix, linear_maps
from dubio.networks.network import Model
from dubio.training.curvature import diagonal, is_exact, kronecker
from dubio.training.finishing import FinishContext
from dubio.training.labelled import to_device
from dubio.training.last_layer import LAST, check_full, last_diagonal, last_full, last_kronecker, last_layer
from dubio.training.output_curvature import link_of
from dubio.training.watching import passed_once

Structure = Literal["kron", "diag", "last-full", "last-kron", "last-diag"]

LOOKED_AT = (2, 3)
"""Examples of the batches that show which layers are passed, and how."""


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
    check_structure(model, structure)
    last = structure.startswith("last-")
    layers = last_layer(model) if last else _layers(model, context)
    blocks, likelihood = (_last if last else _all)(model, layers, structure, damping, context)
    exact = last or is_exact(context.train.classes)
    return Curved(blocks, likelihood, {**_coverage(model, layers), "classes": "exact" if exact else "drawn labels"})


def check_structure(model: Model, structure: Structure) -> None:
    """Refuse a model that has no such curvature, as far as can be told without data.

    Raises:
        UserError: For a head without such a curvature, weights that are random already, or too large a last layer.
    """
    link_of(model.head)
    if model.gaussians():
        raise UserError(
            "laplace: this model's weights are Gaussian already (gaussian_weights); leave that edit out, or use the "
            "method mean-field-vi."
        )
    if structure.startswith("last-"):
        matrix = last_layer(model)[LAST]
        if structure == "last-full":
            check_full(matrix)


def layers_of(model: Model, batches: Iterable[Any]) -> dict[str, WeightMatrix]:
    """The layers of the structures ``kron`` and ``diag``, by path.

    Args:
        model: The model.
        batches: A few examples, twice in different numbers: that tells what the batch axis is.

    Raises:
        UserError: When there is none.
    """
    found = linear_maps(model)
    for batch in batches:
        found = passed_once(model, found, batch)
    if not found:
        raise UserError(
            "laplace: the network has no layer whose weights could be random: structure 'kron' or 'diag' is of "
            "nn.Linear and plain nn.Conv2d layers (one group, padded by zeros), trainable, that a pass uses "
            "once, example by example."
        )
    return found


def _layers(model: Model, context: FinishContext) -> dict[str, WeightMatrix]:
    """Those that the training examples pass."""
    data = context.train.encoded
    few = (np.arange(min(count, len(data))) for count in LOOKED_AT)
    return layers_of(model, (to_device(collate(data, rows), context.device) for rows in few))


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
