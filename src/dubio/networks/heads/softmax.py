"""The softmax head: one class of several."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from dubio.core.specs import part
from dubio.core.types import Target
from dubio.networks.heads.head import Head, HeadModule, LinearHead, categorical_loss
from dubio.networks.heads.sigmoid import Sigmoid


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
