"""Optimisers as values: what moves the weights, with what decay."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

from torch import Generator, nn, optim
from torch.optim import Optimizer

from dubio.core.errors import UserError
from dubio.core.specs import part
from dubio.networks.gaussian_weights import gaussian_layers
from dubio.networks.network import Model


class Optimiser(Protocol):
    """An optimiser as a slot value.

    Attributes:
        draws_noise: Whether its steps are noisy where a schedule's temperature is not 0.
    """

    draws_noise: ClassVar[bool] = False

    def build(self, model: Model) -> Optimizer:
        """A torch optimiser over the model's parameters."""
        ...

    def set_factor(self, optimiser: Optimizer, factor: float) -> None:
        """Multiply the learning rate by a schedule's factor, keeping what is not scaled by it."""
        ...

    def begin_epoch(self, optimiser: Optimizer, *, temperature: float, examples: int, generator: Generator) -> None:
        """Make ready for an epoch; only an optimiser that draws noise has anything to do.

        Args:
            optimiser: The torch optimiser.
            temperature: What the schedule says of this epoch.
            examples: Training examples that the loss is a mean over.
            generator: Where noise comes from.
        """
        return None


@part("adam")
@dataclass(frozen=True)
class Adam(Optimiser):
    """Adam, fused.

    Attributes:
        lr: Learning rate.
        l2: Weight of ½‖θ‖² in the loss.
        shrink: θ ← (1 − shrink)·θ each step, not multiplied by the learning rate (text paper's decoupled decay).
    """

    lr: float = 1e-3
    l2: float = 0.0
    shrink: float = 0.0

    def __post_init__(self) -> None:
        check_rate("adam", self.lr)
        if self.l2 and self.shrink:
            raise UserError("adam: l2 and shrink are two ways to decay weights; give one of them.")

    def build(self, model: Model) -> Optimizer:
        """Fused Adam, or fused AdamW when weights shrink."""
        if self.shrink:
            return optim.AdamW(parameter_groups(model, self.shrink / self.lr), lr=self.lr, fused=True)
        return optim.Adam(parameter_groups(model, self.l2), lr=self.lr, fused=True)

    def set_factor(self, optimiser: Optimizer, factor: float) -> None:
        """Scale the rate; AdamW multiplies its decay by the rate, so the decay is divided by it."""
        for group in optimiser.param_groups:
            group["lr"] = self.lr * factor
            if self.shrink and group["decays"] and factor > 0.0:
                group["weight_decay"] = self.shrink / group["lr"]


@part("adamw")
@dataclass(frozen=True)
class AdamW(Optimiser):
    """AdamW, fused: θ ← (1 − lr·decay)·θ each step."""

    lr: float = 1e-3
    decay: float = 1e-2

    def __post_init__(self) -> None:
        check_rate("adamw", self.lr)

    def build(self, model: Model) -> Optimizer:
        """Fused AdamW."""
        return optim.AdamW(parameter_groups(model, self.decay), lr=self.lr, fused=True)

    def set_factor(self, optimiser: Optimizer, factor: float) -> None:
        """Scale the rate."""
        scale_rate(optimiser, self.lr * factor)


@part("sgd")
@dataclass(frozen=True)
class SGD(Optimiser):
    """Stochastic gradient descent with momentum; ``l2`` is the weight of ½‖θ‖² in the loss."""

    lr: float = 0.1
    momentum: float = 0.9
    nesterov: bool = False
    l2: float = 0.0

    def __post_init__(self) -> None:
        check_rate("sgd", self.lr)

    def build(self, model: Model) -> Optimizer:
        """Fused SGD."""
        return optim.SGD(
            parameter_groups(model, self.l2), lr=self.lr, momentum=self.momentum, nesterov=self.nesterov, fused=True
        )

    def set_factor(self, optimiser: Optimizer, factor: float) -> None:
        """Scale the rate."""
        scale_rate(optimiser, self.lr * factor)


def check_rate(name: str, rate: float, argument: str = "lr") -> None:
    """Refuse a rate that is not positive."""
    if not rate > 0.0:
        raise UserError(f"{name}: {argument} must be positive; given {rate}.")


def scale_rate(optimiser: Optimizer, lr: float) -> None:
    """Give every group this rate."""
    for group in optimiser.param_groups:
        group["lr"] = lr


def parameter_groups(model: Model, decay: float) -> list[dict[str, Any]]:
    """Weights with decay, parameters of noise (a learned drop rate, the log σ of Gaussian weights) without."""
    of_noise: list[nn.Parameter] = [p for noise in model.noises() for p in noise.parameters()]
    of_noise += [layer.log_sigma for layer in gaussian_layers(model)]
    known = {id(p) for p in of_noise}
    weights = [p for p in model.parameters() if id(p) not in known and p.requires_grad]
    groups = [{"params": weights, "weight_decay": decay, "decays": True}]
    if of_noise:
        groups.append({"params": of_noise, "weight_decay": 0.0, "decays": False})
    return groups
