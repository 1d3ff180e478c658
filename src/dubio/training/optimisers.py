"""Optimisers as values: the steps of the weights and their decay; Adam, AdamW, SGD, and one for Gaussian weights."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol

import torch
from torch import Generator, nn, optim
from torch.optim import Optimizer

from dubio.core.errors import UserError
from dubio.core.specs import name_of, part
from dubio.core.validate import PositiveFloat
from dubio.networks.network import Edit, Model


def _plain(function: Callable[..., Any]) -> Any:
    """Return a function of a torch optimiser without its decorators, which import the compiler of torch."""
    return inspect.unwrap(function)


class PlainOptimizer(Optimizer):
    """The base of torch's optimisers, never compiled.

    Torch keeps its compiler away from these functions with decorators that import it when they are first called. That
    takes every process longer than many a small training, for a compiler that sees none of these steps.
    """

    add_param_group = _plain(Optimizer.add_param_group)
    zero_grad = _plain(Optimizer.zero_grad)
    state_dict = _plain(Optimizer.state_dict)
    load_state_dict = _plain(Optimizer.load_state_dict)


class AdamSteps(PlainOptimizer, optim.Adam):
    """Steps of torch's Adam."""

    step = torch.no_grad()(_plain(optim.Adam.step))


class AdamWSteps(PlainOptimizer, optim.AdamW):
    """Steps of torch's AdamW."""

    step = torch.no_grad()(_plain(optim.AdamW.step))


class SGDSteps(PlainOptimizer, optim.SGD):
    """Steps of torch's stochastic gradient descent."""

    step = torch.no_grad()(_plain(optim.SGD.step))


class Optimiser(Protocol):
    """An optimiser as a slot value.

    Attributes:
        draws_noise: Whether its steps are noisy at a positive temperature.
    """

    draws_noise: ClassVar[bool] = False

    @property
    def lr(self) -> float:
        """The full learning rate."""

    @property
    def l2(self) -> float:
        """Weight of ½‖θ‖² in the loss: the prior N(0, 1/(N·l2)) of every weight; 0 by default."""
        return 0.0

    def build(self, model: Model) -> Optimizer:
        """Return a torch optimiser of the model's parameters."""

    def set_factor(self, optimiser: Optimizer, factor: float) -> None:
        """Multiply the learning rate, of which a group's ``rate`` is a multiple, by a schedule's factor."""
        for group in optimiser.param_groups:
            group["lr"] = self.lr * factor * group.get("rate", 1.0)

    def begin_epoch(self, optimiser: Optimizer, *, temperature: float, examples: int, generator: Generator) -> None:
        """Prepare an epoch; only an optimiser that draws noise does anything.

        Args:
            optimiser: The torch optimiser.
            temperature: The schedule's temperature in this epoch.
            examples: Number of training examples, over which the loss is a mean.
            generator: Source of the noise.
        """
        return None


@part("adam")
@dataclass(frozen=True)
class Adam(Optimiser):
    """Adam, fused.

    Attributes:
        lr: Learning rate.
        l2: Weight of ½‖θ‖² in the loss.
        shrink: θ ← (1 − shrink)·θ in each step, not multiplied by the learning rate (text paper's decoupled decay).
    """

    lr: PositiveFloat = 1e-3
    l2: float = 0.0
    shrink: float = 0.0

    def __post_init__(self) -> None:
        if self.l2 and self.shrink:
            raise UserError("adam: l2 and shrink are two ways to decay weights; give one of them.")

    def build(self, model: Model) -> Optimizer:
        """Return fused Adam, or fused AdamW when weights shrink."""
        if self.shrink:
            return AdamWSteps(parameter_groups(model, self.shrink / self.lr), lr=self.lr, fused=True)
        return AdamSteps(parameter_groups(model, self.l2), lr=self.lr, fused=True)

    def set_factor(self, optimiser: Optimizer, factor: float) -> None:
        """Scale the rate; AdamW multiplies its decay by the rate, so that the decay is divided by it."""
        for group in optimiser.param_groups:
            group["lr"] = self.lr * factor
            if self.shrink and group["decays"] and factor > 0.0:
                group["weight_decay"] = self.shrink / group["lr"]


@part("adamw")
@dataclass(frozen=True)
class AdamW(Optimiser):
    """AdamW, fused: θ ← (1 − lr·decay)·θ each step."""

    lr: PositiveFloat = 1e-3
    decay: float = 1e-2

    def build(self, model: Model) -> Optimizer:
        """Return fused AdamW."""
        return AdamWSteps(parameter_groups(model, self.decay), lr=self.lr, fused=True)


@part("sgd")
@dataclass(frozen=True)
class SGD(Optimiser):
    """Stochastic gradient descent with momentum; ``l2`` is the weight of ½‖θ‖² in the loss."""

    lr: PositiveFloat = 0.1
    momentum: float = 0.9
    nesterov: bool = False
    l2: float = 0.0

    def build(self, model: Model) -> Optimizer:
        """Return fused SGD."""
        groups = parameter_groups(model, self.l2)
        return SGDSteps(groups, lr=self.lr, momentum=self.momentum, nesterov=self.nesterov, fused=True)


def parameter_groups(model: Model, decay: float) -> list[dict[str, Any]]:
    """Return two groups: weights with decay, parameters of noise (learned drop rates, log σ) and some heads without."""
    of_noise: list[nn.Parameter] = [p for noise in model.noises() for p in noise.parameters()]
    of_noise += [*(layer.log_sigma for layer in model.gaussians()), *model.head.undecayed()]
    noise_ids = {id(p) for p in of_noise}
    weights = [p for p in model.parameters() if id(p) not in noise_ids and p.requires_grad]
    groups = [{"params": weights, "weight_decay": decay, "decays": True}]
    if of_noise:
        groups.append({"params": of_noise, "weight_decay": 0.0, "decays": False})
    return groups


class JointSteps(PlainOptimizer):
    """Several optimisers of different parameters as one: they share its groups and its state.

    Attributes:
        parts: The optimisers.
    """

    def __init__(self, parts: Sequence[Optimizer]) -> None:
        """Join optimisers that have not taken a step yet."""
        super().__init__([group for optimiser in parts for group in optimiser.param_groups], {})
        self.parts = tuple(parts)
        self._join()

    def _join(self) -> None:
        first = 0
        for optimiser in self.parts:
            optimiser.state = self.state
            optimiser.param_groups = self.param_groups[first : first + len(optimiser.param_groups)]
            first += len(optimiser.param_groups)

    def step(self, closure: None = None) -> None:  # type: ignore[override]
        """Take a step with each."""
        for optimiser in self.parts:
            optimiser.step()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Load a state and share it again."""
        super().load_state_dict(state_dict)
        self._join()


@part("mean_and_scale")
@dataclass(frozen=True)
class MeanAndScale(Optimiser):
    """SGD or Adam for μ and all other weights; Adam with a constant rate and no decay for log σ.

    Attributes:
        mean: The optimiser of the means; its ``l2`` is the μ² part of the KL divergence.
        scale_lr: The rate of log σ, which no schedule changes.
    """

    mean: Adam | SGD = field(default_factory=SGD)
    scale_lr: PositiveFloat = 1e-3

    @property
    def lr(self) -> float:
        """The rate of the means."""
        return self.mean.lr

    @property
    def l2(self) -> float:
        """The decay of the means."""
        return self.mean.l2

    def build(self, model: Model) -> Optimizer:
        """Return both as one; refuse a model without Gaussian weights."""
        scales = [layer.log_sigma for layer in model.gaussians()]
        if not scales:
            raise UserError("mean_and_scale: this model has no Gaussian weights; add the edit gaussian_weights.")
        scale_ids = {id(p) for p in scales}
        mean = self.mean.build(model)
        for group in mean.param_groups:
            group["params"] = [p for p in group["params"] if id(p) not in scale_ids]
        mean.param_groups = [group for group in mean.param_groups if group["params"]]
        group = {"params": scales, "weight_decay": 0.0, "decays": False}
        return JointSteps([mean, AdamSteps([group], lr=self.scale_lr, fused=True)])

    def set_factor(self, optimiser: Optimizer, factor: float) -> None:
        """Scale the rate of the means."""
        if not isinstance(optimiser, JointSteps):
            raise TypeError(f"{type(optimiser).__name__} was not built here")
        self.mean.set_factor(optimiser.parts[0], factor)


def check_prior(name: str, edit: Edit, optimiser: Optimiser) -> None:
    """Refuse an optimiser whose weight decay is not that of an edit's prior.

    Args:
        name: The method's name, for the message.
        edit: The edit; one without a prior goes with every optimiser.
        optimiser: The optimiser of the means.

    Raises:
        UserError: When the μ² part of the KL divergence would be missing or a different one.
    """
    if edit.prior_decay is not None and optimiser.l2 != edit.prior_decay:
        prior = f"{name_of(edit)} has l2={edit.prior_decay}"
        other = f"optimiser {name_of(optimiser)!r} l2={optimiser.l2}"
        raise UserError(f"{name}: the prior of {prior}, the {other}; both must be the same.")
