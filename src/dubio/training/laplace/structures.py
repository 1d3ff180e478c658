"""Curvature of the last layer alone, exact: it is a logistic regression on the features that reach it.

With features a (and a 1 for the bias) and logits W a, the Hessian of −log p(y) in W is Λ ⊗ a aᵀ whatever the label:
the generalised Gauss-Newton matrix is the Hessian itself. Nothing is passed back through the network.

From a trained model to the blocks of its Laplace approximation, by structure.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from dubio.core.errors import UserError
from dubio.inference.batches import EVALUATION_BATCH, LabelledRows, collate, prediction_rows, to_device
from dubio.inference.laplace import Block, Damping, diagonal_block, full_block, kronecker_block
from dubio.networks.linear_maps import WeightMatrix, linear_maps
from dubio.networks.network import Model
from dubio.training.collectors import FinishContext
from dubio.training.laplace.curvature import (
    Factors,
    diagonal,
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

LAST = "head.linear"
"""Where the last layer is in a model whose head is softmax or sigmoid."""

FULL_PARAMETERS = 1 << 13
"""A last layer of more weights than this has too large a full Hessian: 512 MB in double precision."""


def last_layer(model: Model) -> dict[str, WeightMatrix]:
    """The last layer by its path.

    Raises:
        UserError: When the head has no dense layer of its own that is trained.
    """
    link_of(model.head)
    found = linear_maps(model)
    if LAST not in found:
        raise UserError(
            f"laplace: the head ({type(model.head).__name__}) has no trainable nn.Linear 'linear', which a structure "
            "'last-…' is of: use 'kron' or 'diag'."
        )
    return {LAST: found[LAST]}


def check_full(matrix: WeightMatrix) -> None:
    """Refuse a last layer whose full Hessian is too large.

    Raises:
        UserError: When it is.
    """
    rows, columns = matrix.size
    if rows * columns > FULL_PARAMETERS:
        raise UserError(
            f"laplace: structure='last-full' holds the Hessian of the last layer's {rows * columns} weights "
            f"({rows} × {columns}) as one matrix; at most {FULL_PARAMETERS} weights are allowed: use 'last-kron'."
        )


def last_kronecker(model: Model, data: LabelledRows, *, device: torch.device) -> tuple[Factors, float]:
    """A = mean a aᵀ, G = mean Λ, and Σ log p(y)."""
    matrix = last_layer(model)[LAST]
    rows, columns = matrix.size
    inputs, outputs = _zeros(columns, columns, device), _zeros(rows, rows, device)
    total = 0.0
    for a, logits, likelihood in _passes(model, matrix, data, device):
        inputs += a.T @ a
        outputs += hessian_sum(logits, link_of(model.head))
        total += likelihood
    return Factors(inputs / len(data.encoded), outputs / len(data.encoded)), total


def last_diagonal(model: Model, data: LabelledRows, *, device: torch.device) -> tuple[Tensor, float]:
    """The diagonal ``[out, in + 1]``: mean Λ_kk a_i², and Σ log p(y)."""
    matrix = last_layer(model)[LAST]
    found, total = _zeros(*matrix.size, device), 0.0
    for a, logits, likelihood in _passes(model, matrix, data, device):
        found += hessian_diagonal(logits, link_of(model.head)).T @ a**2
        total += likelihood
    return found / len(data.encoded), total


def last_full(model: Model, data: LabelledRows, *, device: torch.device) -> tuple[Tensor, float]:
    """The mean Hessian ``[P, P]``, weights in the order of the rows of ``[out, in + 1]``, and Σ log p(y)."""
    matrix = last_layer(model)[LAST]
    rows, columns = matrix.size
    found, total = _zeros(rows * columns, rows * columns, device).reshape(rows, columns, rows, columns), 0.0
    for a, logits, likelihood in _passes(model, matrix, data, device):
        curvature_blocks = hessian(logits, link_of(model.head))
        for k in range(rows):
            for j in range(k + 1):
                block = (a * curvature_blocks[:, k, j, None]).T @ a
                found[k, :, j] += block
                if j < k:
                    found[j, :, k] += block
        total += likelihood
    return found.reshape(rows * columns, rows * columns) / len(data.encoded), total


def _zeros(rows: int, columns: int, device: torch.device) -> Tensor:
    return torch.zeros(rows, columns, dtype=torch.float64, device=device)


@torch.no_grad()
def _passes(
    model: Model, matrix: WeightMatrix, data: LabelledRows, device: torch.device
) -> Iterator[tuple[Tensor, Tensor, float]]:
    """Of each batch the last layer's inputs ``[B, in + 1]``, the logits ``[B, K]`` and Σ log p(y)."""
    model.eval()
    link = link_of(model.head)
    for rows in prediction_rows(data.encoded, EVALUATION_BATCH):
        with record_passes(model, {LAST: matrix}) as calls:
            logits = model(to_device(collate(data.encoded, rows), device))
        features = calls[LAST].inputs
        assert isinstance(features, Tensor)
        labels = torch.from_numpy(data.labels[rows]).to(device)
        yield with_ones(features, matrix), logits, log_likelihood(logits, labels, link)


Structure = Literal["kron", "diag", "last-full", "last-kron", "last-diag"]

LOOKED_AT = (2, 3)
"""Examples of the batches that show which layers are passed, and how."""


@dataclass(frozen=True, eq=False)
class Curvature:
    """The curvature of a model's likelihood at its weights.

    Attributes:
        blocks: One a layer, N times the mean Fisher in its eigenbasis.
        log_likelihood: Σ log p(y) over the training examples.
        facts: What a record says of it: which weights are random, which are not, how the sum over classes was taken.
    """

    blocks: tuple[Block, ...]
    log_likelihood: float
    facts: dict[str, Any]


def curvature_blocks(model: Model, structure: Structure, damping: Damping, context: FinishContext) -> Curvature:
    """The blocks of a structure.

    Raises:
        UserError: For a head without such a curvature, weights that are random already, or too large a last layer.
    """
    check_structure(model, structure)
    last = structure.startswith("last-")
    layers = last_layer(model) if last else _layers(model, context)
    blocks, likelihood = (_last if last else _all)(model, layers, structure, damping, context)
    exact = last or is_exact(context.train.classes)
    return Curvature(blocks, likelihood, {**_coverage(model, layers), "classes": "exact" if exact else "drawn labels"})


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
