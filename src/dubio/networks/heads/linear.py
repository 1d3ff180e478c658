"""Linear heads: softmax for classes that exclude each other, sigmoid for labels that do not."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor, nn

from dubio.core.errors import UserError
from dubio.core.specs import part
from dubio.core.types import Target
from dubio.networks.heads.head import Head, bernoulli_loss, categorical_loss
from dubio.networks.network import HeadModule, Scores
from dubio.networks.noise import Site


class LinearHead(HeadModule):
    """One linear layer behind one site."""

    outputs_logits = True
    uncertain = ("linear",)

    def __init__(self, width: int, classes: int) -> None:
        """Make the layer; its inputs are the site ``head``."""
        super().__init__()
        self.linear = nn.Linear(width, classes)
        self.site = Site("head", width, accepts=("dropout", "concrete_dropout"), weights=lambda: (self.linear.weight,))

    def forward(self, features: Tensor) -> Tensor:
        """Return logits."""
        logits: Tensor = self.linear(self.site(features))
        return logits

    def scores(self, output: Tensor) -> Scores:
        """Return the logits as they are."""
        return Scores(output)


class SoftmaxHead(LinearHead):
    """Linear logits with the cross-entropy of a softmax."""

    def loss(self, output: Tensor, labels: Tensor) -> Tensor:
        """Return −log softmax(z)_y."""
        return categorical_loss(output, labels)


class SigmoidHead(LinearHead):
    """Linear logits with one sigmoid per label."""

    link = "sigmoid"

    def loss(self, output: Tensor, labels: Tensor) -> Tensor:
        """Return the sum over labels of the binary cross-entropy."""
        return bernoulli_loss(output, labels).sum(-1)


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
        return SigmoidHead(width, classes)


@part("softmax")
@dataclass(frozen=True)
class Softmax:
    """One linear layer and a softmax; on a multi-label task its sigmoid counterpart."""

    def for_target(self, target: Target) -> Head:
        """Return this head, or the sigmoid head where labels do not exclude each other."""
        return Sigmoid() if target == "multilabel" else self

    def build(self, width: int, classes: int) -> HeadModule:
        """Return the module."""
        return SoftmaxHead(width, classes)
