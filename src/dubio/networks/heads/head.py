"""What every head offers: a part that builds a module, and the module's loss and logits."""

from __future__ import annotations

from typing import NamedTuple, Protocol

import torch
from torch import Generator, Tensor, nn
from torch.nn import functional

from dubio.core.types import Target
from dubio.networks.noise import Site


class Scores(NamedTuple):
    """What a head says of a batch: ``logits [B, K]`` and a variance, ``[B, K]`` if heteroscedastic, ``[B]`` of a GP."""

    logits: Tensor
    data_variance: Tensor | None = None
    model_variance: Tensor | None = None


class HeadModule(nn.Module):
    """The last step of a model.

    Attributes:
        normals: Standard normal draws that one prediction of one example needs; 0 for most heads.
        outputs_logits: Whether the output of a pass is the logits, so that weight states can be run at once.
        given: Those draws, ``[rows, normals]``, set by the engine.
        generator: Where draws come from while training.
    """

    normals = 0
    outputs_logits = False

    def __init__(self) -> None:
        """Start without draws."""
        super().__init__()
        self.given: Tensor | None = None
        self.generator: Generator | None = None

    def loss(self, output: Tensor, labels: Tensor) -> Tensor:
        """Negative log-likelihood of each example, ``[B]``."""
        raise NotImplementedError

    def scores(self, output: Tensor) -> Scores:
        """Logits whose softmax (or sigmoid) is the prediction."""
        raise NotImplementedError

    def begin_epoch(self) -> None:
        """Called before each pass over the training data."""

    def end_epoch(self) -> None:
        """Called after each pass over the training data, before validation scores it."""


class Head(Protocol):
    """A head as a slot value."""

    def for_target(self, target: Target) -> Head:
        """The head of this sort that fits a target."""
        ...

    def build(self, width: int, classes: int) -> HeadModule:
        """A module from ``width`` features to ``classes`` classes."""
        ...


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
        """Logits."""
        out: Tensor = self.linear(self.site(features))
        return out

    def scores(self, output: Tensor) -> Scores:
        """The logits as they are."""
        return Scores(output)


def bernoulli_loss(logits: Tensor, labels: Tensor) -> Tensor:
    """Binary cross-entropy of each label, ``[…, K]``."""
    return functional.binary_cross_entropy_with_logits(logits, labels.to(logits.dtype), reduction="none")


def categorical_loss(logits: Tensor, labels: Tensor) -> Tensor:
    """Cross-entropy of each example, ``[B]``."""
    return functional.cross_entropy(logits, labels, reduction="none")


def log_mean_exp(values: Tensor) -> Tensor:
    """Logarithm of the mean of exponentials over the first axis."""
    return torch.logsumexp(values, dim=0) - torch.log(torch.tensor(float(values.shape[0])))
