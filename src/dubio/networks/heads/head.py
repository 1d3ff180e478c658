"""The contract of a head as a slot value, and the losses that heads share.

The module that a head builds is a :class:`~dubio.networks.network.HeadModule`.
"""

from __future__ import annotations

import math
from typing import Protocol

import torch
from torch import Tensor
from torch.nn import functional

from dubio.core.types import Target
from dubio.networks.network import HeadModule, Link

MEAN_FIELD = math.pi / 8.0
"""The factor c with E σ(z) ≈ σ(m/√(1 + c v)) for z ~ N(m, v) (MacKay, 1992)."""


class Head(Protocol):
    """A head as a slot value.

    A head whose samples differ says so in a class attribute ``random``.
    """

    def for_target(self, target: Target) -> Head:
        """Return the head of this kind that fits a target."""

    def build(self, width: int, classes: int) -> HeadModule:
        """Return a module from ``width`` features to ``classes`` classes."""


def bernoulli_loss(logits: Tensor, labels: Tensor) -> Tensor:
    """Return the binary cross-entropy of each label, ``[…, K]``."""
    return functional.binary_cross_entropy_with_logits(logits, labels.to(logits.dtype), reduction="none")


def categorical_loss(logits: Tensor, labels: Tensor) -> Tensor:
    """Return the cross-entropy of each example, ``[B]``."""
    return functional.cross_entropy(logits, labels, reduction="none")


def linked_loss(logits: Tensor, labels: Tensor, link: Link) -> Tensor:
    """Return the negative log-likelihood of each example, ``[B]``, summed over labels with a sigmoid each."""
    return bernoulli_loss(logits, labels).sum(-1) if link == "sigmoid" else categorical_loss(logits, labels)


def link_for(target: Target) -> Link:
    """Return softmax for classes that exclude each other, sigmoid for labels that do not."""
    return "sigmoid" if target == "multilabel" else "softmax"


def log_mean_exp(values: Tensor) -> Tensor:
    """Return the logarithm of the mean of exponentials over the first axis."""
    return torch.logsumexp(values, dim=0) - torch.log(torch.tensor(float(values.shape[0])))


def summed_likelihood(logits: Tensor, labels: Tensor) -> Tensor:
    """Return log Σ_s p_s(y) of logits ``[S, B, K]``: the torch twin of the pooling in :mod:`dubio.core.passes`.

    Less log S it is the log-likelihood of the mean of probabilities.

    Returns:
        ``[B]``, or ``[B, K]`` with one value per label where labels are multi-hot ``[B, K]``.
    """
    loss = bernoulli_loss if labels.ndim == 2 else categorical_loss
    return torch.logsumexp(torch.stack([-loss(sample, labels) for sample in logits]), dim=0)
