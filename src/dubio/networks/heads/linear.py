"""The sigmoid head: any number of labels, each on its own.

The softmax head: one class of several.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from dubio.core.errors import UserError
from dubio.core.specs import part
from dubio.core.types import Target
from dubio.networks.heads.head import Head, HeadModule, LinearHead, bernoulli_loss, categorical_loss


class SigmoidHead(LinearHead):
    """Linear logits, one sigmoid a label."""

    def loss(self, output: Tensor, labels: Tensor) -> Tensor:
        """Σ_k binary cross-entropy of label k."""
        return bernoulli_loss(output, labels).sum(-1)


@part("sigmoid")
@dataclass(frozen=True)
class Sigmoid:
    """One linear layer and a sigmoid a label, for multi-label tasks."""

    def for_target(self, target: Target) -> Head:
        """Itself, on a multi-label task only.

        Raises:
            UserError: On a task whose classes exclude each other, where it would not give probabilities.
        """
        if target != "multilabel":
            raise UserError(f"head 'sigmoid' is for multilabel tasks; this task is {target}: use 'softmax'.")
        return self

    def build(self, width: int, classes: int) -> HeadModule:
        """The module."""
        return SigmoidHead(width, classes)


class SoftmaxHead(LinearHead):
    """Linear logits with cross-entropy."""

    def loss(self, output: Tensor, labels: Tensor) -> Tensor:
        """−log softmax(z)_y."""
        return categorical_loss(output, labels)


@part("softmax")
@dataclass(frozen=True)
class Softmax:
    """One linear layer and a softmax; on a multi-label task its sigmoid counterpart."""

    def for_target(self, target: Target) -> Head:
        """Itself, or the sigmoid head where labels do not exclude each other."""
        return Sigmoid() if target == "multilabel" else self

    def build(self, width: int, classes: int) -> HeadModule:
        """The module."""
        return SoftmaxHead(width, classes)
