"""The curvature of the likelihood in the logits: the innermost factor of the generalised Gauss-Newton matrix.

For a softmax, −∂²log p(y)/∂z² = Λ = diag(p) − p pᵀ; for sigmoids Λ = diag(p(1 − p)). Neither depends on the label, so
that the Gauss-Newton matrix Σ_n J_nᵀ Λ_n J_n is the Fisher information. A *root* of Λ is a set of vectors s_r with
Σ_r s_r s_rᵀ = Λ: one backward pass a vector gives the gradients whose products add up to it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import torch
from torch import Generator, Tensor, nn

from dubio.core.errors import UserError
from dubio.networks.heads.head import bernoulli_loss, categorical_loss
from dubio.networks.heads.sigmoid import SigmoidHead
from dubio.networks.heads.softmax import SoftmaxHead

Link = Literal["softmax", "sigmoid"]


def link_of(head: nn.Module) -> Link:
    """How a head turns logits into probabilities.

    Raises:
        UserError: For a head whose logits are not one linear layer's outputs.
    """
    if isinstance(head, SoftmaxHead):
        return "softmax"
    if isinstance(head, SigmoidHead):
        return "sigmoid"
    raise UserError(
        f"laplace: the head is a {type(head).__name__}; the Laplace approximation is made for the heads softmax and "
        "sigmoid, whose logits are one linear layer."
    )


def roots(logits: Tensor, link: Link) -> Iterator[Tensor]:
    """One exact root of Λ, a vector an example at a time, ``[B, K]``, K times.

    Softmax: s_k = √p_k (e_k − p); sigmoid: s_k = √(p_k(1 − p_k)) e_k.
    """
    classes = logits.shape[1]
    if link == "softmax":
        p = torch.softmax(logits, dim=1)
        for k in range(classes):
            unit = torch.zeros_like(p)
            unit[:, k] = 1.0
            yield p[:, k : k + 1].sqrt() * (unit - p)
    else:
        spread = (torch.sigmoid(logits) * torch.sigmoid(-logits)).sqrt()
        for k in range(classes):
            only = torch.zeros_like(spread)
            only[:, k] = spread[:, k]
            yield only


def drawn_roots(logits: Tensor, link: Link, draws: int, generator: Generator) -> Iterator[Tensor]:
    """A random root of Λ, right in expectation: (y − p)/√draws with labels y drawn from the model itself."""
    for _ in range(draws):
        if link == "softmax":
            p = torch.softmax(logits, dim=1)
            label = torch.multinomial(p.cpu(), 1, generator=generator).to(p.device)
            y = torch.zeros_like(p).scatter_(1, label, 1.0)
        else:
            p = torch.sigmoid(logits)
            y = (torch.rand(p.shape, generator=generator).to(p.device) < p).to(p.dtype)
        yield (y - p) / draws**0.5


def hessian(logits: Tensor, link: Link) -> Tensor:
    """Λ of each example, ``[B, K, K]``."""
    if link == "softmax":
        p = torch.softmax(logits, dim=1)
        return torch.diag_embed(p) - p[:, :, None] * p[:, None, :]
    return torch.diag_embed(torch.sigmoid(logits) * torch.sigmoid(-logits))


def hessian_diagonal(logits: Tensor, link: Link) -> Tensor:
    """The diagonal of Λ of each example, p(1 − p), ``[B, K]``."""
    p = torch.softmax(logits, dim=1) if link == "softmax" else torch.sigmoid(logits)
    return p * (1.0 - p)


def hessian_sum(logits: Tensor, link: Link) -> Tensor:
    """Σ Λ over a batch, ``[K, K]``, without holding each."""
    if link == "softmax":
        p = torch.softmax(logits, dim=1)
        return torch.diag(p.sum(dim=0)) - p.T @ p
    return torch.diag(hessian_diagonal(logits, link).sum(dim=0))


def log_likelihood(logits: Tensor, labels: Tensor, link: Link) -> float:
    """Σ log p(y) of a batch; labels that do not exclude each other are summed."""
    loss = categorical_loss(logits, labels) if link == "softmax" else bernoulli_loss(logits, labels)
    return -float(loss.to(torch.float64).sum())
