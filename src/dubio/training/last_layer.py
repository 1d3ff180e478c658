"""Curvature of the last layer alone, exact: it is a logistic regression on the features that reach it.

With features a (and a 1 for the bias) and logits W a, the Hessian of −log p(y) in W is Λ ⊗ a aᵀ whatever the label:
the generalised Gauss-Newton matrix is the Hessian itself. Nothing is passed back through the network.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from dubio.core.errors import UserError
from dubio.inference.batches import collate, prediction_rows
from dubio.networks.linear_maps import WeightMatrix, linear_maps
from dubio.networks.network import Model
from dubio.training.curvature import Factors, with_ones
from dubio.training.labelled import EVALUATION_BATCH, Labelled, to_device
from dubio.training.output_curvature import hessian, hessian_diagonal, hessian_sum, link_of, log_likelihood
from dubio.training.watching import watched

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


def last_kronecker(model: Model, data: Labelled, *, device: torch.device) -> tuple[Factors, float]:
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


def last_diagonal(model: Model, data: Labelled, *, device: torch.device) -> tuple[Tensor, float]:
    """The diagonal ``[out, in + 1]``: mean Λ_kk a_i², and Σ log p(y)."""
    matrix = last_layer(model)[LAST]
    found, total = _zeros(*matrix.size, device), 0.0
    for a, logits, likelihood in _passes(model, matrix, data, device):
        found += hessian_diagonal(logits, link_of(model.head)).T @ a**2
        total += likelihood
    return found / len(data.encoded), total


def last_full(model: Model, data: Labelled, *, device: torch.device) -> tuple[Tensor, float]:
    """The mean Hessian ``[P, P]``, weights in the order of the rows of ``[out, in + 1]``, and Σ log p(y)."""
    matrix = last_layer(model)[LAST]
    rows, columns = matrix.size
    found, total = _zeros(rows * columns, rows * columns, device).reshape(rows, columns, rows, columns), 0.0
    for a, logits, likelihood in _passes(model, matrix, data, device):
        curved = hessian(logits, link_of(model.head))
        for k in range(rows):
            for j in range(k + 1):
                block = (a * curved[:, k, j, None]).T @ a
                found[k, :, j] += block
                if j < k:
                    found[j, :, k] += block
        total += likelihood
    return found.reshape(rows * columns, rows * columns) / len(data.encoded), total


def _zeros(rows: int, columns: int, device: torch.device) -> Tensor:
    return torch.zeros(rows, columns, dtype=torch.float64, device=device)


@torch.no_grad()
def _passes(
    model: Model, matrix: WeightMatrix, data: Labelled, device: torch.device
) -> Iterator[tuple[Tensor, Tensor, float]]:
    """Of each batch the last layer's inputs ``[B, in + 1]``, the logits ``[B, K]`` and Σ log p(y)."""
    model.eval()
    link = link_of(model.head)
    for rows in prediction_rows(data.encoded, EVALUATION_BATCH):
        with watched(model, {LAST: matrix}) as calls:
            logits = model(to_device(collate(data.encoded, rows), device))
        features = calls[LAST].inputs
        assert isinstance(features, Tensor)
        labels = torch.from_numpy(data.labels[rows]).to(device)
        yield with_ones(features, matrix), logits, log_likelihood(logits, labels, link)
