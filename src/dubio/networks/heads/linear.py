"""Linear heads: softmax for classes that exclude each other, sigmoid for labels that do not."""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from dubio.core.errors import UserError
from dubio.core.specs import part
from dubio.core.types import Target
from dubio.networks.heads.head import Head, linked_loss
from dubio.networks.network import HeadModule, Link, Scores
from dubio.networks.noise import Site


class LinearHead(HeadModule):
    """One linear layer behind one site, with the cross-entropy of a softmax or of one sigmoid per label."""

    outputs_logits = True
    uncertain = ("linear",)

    def __init__(self, width: int, classes: int, link: Link) -> None:
        """Make the layer; its inputs are the site ``head``."""
        super().__init__()
        self.link = link
        self.linear = nn.Linear(width, classes)
        self.site = Site("head", width, accepts=("dropout", "concrete_dropout"), weights=lambda: (self.linear.weight,))

    def forward(self, features: Tensor) -> Tensor:
        """Return logits."""
        return cast(Tensor, self.linear(self.site(features)))

    def scores(self, output: Tensor) -> Scores:
        """Return the logits as they are."""
        return Scores(output)

    def loss(self, output: Tensor, labels: Tensor) -> Tensor:
        """Return −log softmax(z)_y, or the sum over labels of the binary cross-entropy."""
        return linked_loss(output, labels, self.link)


@part("sigmoid")
@dataclass(frozen=True)
class Sigmoid:
    """One linear layer and a sigmoid per label, for multi-label tasks."""

    def for_target(self, target: Target) -> Head:
        """Return this head on a multi-label task.

        Raises:
            UserError: On a task whose classes exclude each other, where sigmoids give no probabilities.
        """
        if target != "multilabel":
            raise UserError(f"head 'sigmoid' is for multilabel tasks; this task is {target}: use 'softmax'.")
        return self

    def build(self, width: int, classes: int) -> HeadModule:
        """Return the module."""
        return LinearHead(width, classes, "sigmoid")


@part("softmax")
@dataclass(frozen=True)
class Softmax:
    """One linear layer and a softmax; on a multi-label task its sigmoid counterpart."""

    def for_target(self, target: Target) -> Head:
        """Return this head, or the sigmoid head where labels do not exclude each other."""
        return Sigmoid() if target == "multilabel" else self

    def build(self, width: int, classes: int) -> HeadModule:
        """Return the module."""
        return LinearHead(width, classes, "softmax")


class SoftmaxLabelsHead(LinearHead):
    """A softmax over labels that do not exclude each other, each scored as if it were a sigmoid."""

    outputs_logits = False

    def forward(self, features: Tensor) -> Tensor:
        """Return log p_k − log(1 − p_k) of p = softmax(z)."""
        return logits_of_softmax(super().forward(features))


def logits_of_softmax(z: Tensor) -> Tensor:
    """Return log p_k − log(1 − p_k) of p = softmax(z): z_k − log Σ_{j ≠ k} exp z_j."""
    top = functional.one_hot(z.argmax(-1), z.shape[-1]).bool()
    others = z.masked_fill(top, -torch.inf).logsumexp(-1, keepdim=True)
    log_p = torch.log_softmax(z, dim=-1).masked_fill(top, -1.0)  # 1 − p of the largest would be rounded to 0
    return torch.where(top, z - others, log_p - torch.log1p(-torch.exp(log_p)))


@part("softmax_on_labels")
@dataclass(frozen=True)
class SoftmaxOnLabels:
    """Erratum of the text paper's code: with concrete dropout, a softmax over labels that do not exclude each other."""

    def for_target(self, target: Target) -> Head:
        """Return this head on a multi-label task.

        Raises:
            UserError: On a task whose classes exclude each other, where a softmax is right.
        """
        if target != "multilabel":
            raise UserError(f"softmax_on_labels repeats a mistake of multilabel tasks; this task is {target}.")
        return self

    def build(self, width: int, classes: int) -> HeadModule:
        """Return the module."""
        return SoftmaxLabelsHead(width, classes, "sigmoid")
