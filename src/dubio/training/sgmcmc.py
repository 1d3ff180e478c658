"""Stochastic-gradient Markov chain Monte Carlo: optimisers whose noisy steps sample weights.

The loss is a mean over N training examples, L(θ), plus ½ l2 ‖θ‖²; the posterior at temperature T is
exp(−(N/T)·(L(θ) + ½ l2 ‖θ‖²)), in which l2 stands for the prior N(0, 1/(N·l2)) of every weight. The noise of a step has
the scale that makes this, and not a sharper one, the stationary distribution of small steps. At temperature 0 the steps
are ordinary gradient descent.

Only weights get noise: not the learned rates of noise sites, nor the padding row of an embedding.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Protocol

import torch
from torch import Generator, Tensor, nn
from torch.optim import Optimizer

from dubio.core.specs import part
from dubio.core.validate import PositiveFloat, above, at_least, at_most, below
from dubio.networks.network import Model
from dubio.training.optimisers import Optimiser, PlainOptimizer, parameter_groups


class NoisySteps(PlainOptimizer):
    """Steps of both samplers: their temperature and source of noise.

    Attributes:
        heat: T/N; 0 for steps without noise.
        generator: Source of the noise.
    """

    def __init__(self, groups: list[dict[str, Any]], *, lr: float, still: dict[int, int], inertia: float) -> None:
        """Make steps over parameter groups.

        Args:
            groups: Parameters with ``weight_decay`` and ``decays``; those that do not decay get no noise.
            lr: Learning rate.
            still: Row of a parameter that never moves, by the parameter's identity.
            inertia: The momentum of Langevin steps, which acts only without noise, or the friction α of Hamiltonian
                ones.
        """
        super().__init__(groups, {"lr": lr})
        self.heat = 0.0
        self.generator: Generator | None = None
        self._still, self._inertia = still, inertia

    def noise(self, p: Tensor, variance: float) -> Tensor:
        """Return normal noise for a parameter, zero in a row that never moves."""
        noise = torch.randn(p.shape, generator=self.generator, dtype=p.dtype, device=p.device)
        if (row := self._still.get(id(p))) is not None:
            noise[row] = 0.0
        return noise.mul_(math.sqrt(variance))

    def moving(self) -> Iterable[tuple[Tensor, Tensor, float, bool]]:
        """Return each parameter with a gradient, its gradient with decay, its rate, and whether it gets noise."""
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is not None:
                    gradient = p.grad.add(p, alpha=group["weight_decay"]) if group["weight_decay"] else p.grad
                    yield p, gradient, group["lr"], self.heat > 0.0 and group["decays"]


class LangevinSteps(NoisySteps):
    """Steps of SGLD; of gradient descent with momentum without noise."""

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        """θ ← θ − lr·g + √(2·lr·T/N)·ξ; without noise g is replaced by b ← momentum·b + g."""
        for p, gradient, lr, noisy in self.moving():
            if self._inertia and not self.heat:
                buffer = self.state[p].setdefault("momentum", torch.zeros_like(p))
                gradient = buffer.mul_(self._inertia).add_(gradient)
            p.add_(gradient, alpha=-lr)
            if noisy:
                p.add_(self.noise(p, 2.0 * lr * self.heat))


class HamiltonianSteps(NoisySteps):
    """Steps of SGHMC; of gradient descent with momentum 1 − α without noise."""

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        """v ← (1 − α)·v − lr·g + √(2·α·lr·T/N)·ξ; θ ← θ + v."""
        for p, gradient, lr, noisy in self.moving():
            velocity = self.state[p].setdefault("velocity", torch.zeros_like(p))
            velocity.mul_(1.0 - self._inertia).add_(gradient, alpha=-lr)
            if noisy:
                velocity.add_(self.noise(p, 2.0 * self._inertia * lr * self.heat))
            p.add_(velocity)


class Sampler(Optimiser, Protocol):
    """An optimiser whose steps sample weights."""

    draws_noise: ClassVar[bool] = True

    def begin_epoch(self, optimiser: Optimizer, *, temperature: float, examples: int, generator: Generator) -> None:
        """Set heat T/N and generator of noisy steps."""
        if not isinstance(optimiser, NoisySteps):
            raise TypeError(f"{type(optimiser).__name__} draws no noise")
        optimiser.heat, optimiser.generator = temperature / examples, generator


@part("sgld")
@dataclass(frozen=True)
class SGLD(Sampler):
    """Stochastic-gradient Langevin dynamics: θ ← θ − lr·∇(L + ½ l2 ‖θ‖²) + √(2·lr·T/N)·ξ.

    Attributes:
        lr: Learning rate, of a mean loss.
        l2: Weight of ½‖θ‖² in the loss: the prior N(0, 1/(N·l2)).
        momentum: Of the steps without noise. Noise of this scale with momentum would sample too narrow a distribution,
            so that momentum is reset and stops where noise begins.
        embedding_rate: Rate of embeddings as a multiple of ``lr``; a word moves only in the steps in which it occurs.
    """

    lr: PositiveFloat = 0.5
    l2: float = 0.0
    momentum: Annotated[float, at_least(0), below(1)] = 0.0
    embedding_rate: PositiveFloat = 1.0

    def build(self, model: Model) -> Optimizer:
        """Return Langevin steps over the model's parameters."""
        groups = rated_groups(model, self.l2, self.embedding_rate)
        return LangevinSteps(groups, lr=self.lr, still=padding_rows(model), inertia=self.momentum)

    def begin_epoch(self, optimiser: Optimizer, *, temperature: float, examples: int, generator: Generator) -> None:
        """Set the noise; reset the momentum if there is noise."""
        super().begin_epoch(optimiser, temperature=temperature, examples=examples, generator=generator)
        if temperature:
            optimiser.state.clear()


@part("sghmc")
@dataclass(frozen=True)
class SGHMC(Sampler):
    """Stochastic-gradient Hamiltonian Monte Carlo: v ← (1 − α)v − lr·∇(L + ½ l2 ‖θ‖²) + √(2·α·lr·T/N)·ξ, θ ← θ + v.

    Attributes:
        lr: Learning rate, of a mean loss; a long run of steps moves as far as gradient descent at lr/α.
        l2: Weight of ½‖θ‖² in the loss: the prior N(0, 1/(N·l2)).
        alpha: Friction; 1 − α is the momentum.
        embedding_rate: Rate of embeddings as a multiple of ``lr``; a word moves only in the steps in which it occurs.
    """

    lr: PositiveFloat = 0.05
    l2: float = 0.0
    alpha: Annotated[float, above(0), at_most(1)] = 0.1
    embedding_rate: PositiveFloat = 1.0

    def build(self, model: Model) -> Optimizer:
        """Return Hamiltonian steps over the model's parameters."""
        groups = rated_groups(model, self.l2, self.embedding_rate)
        return HamiltonianSteps(groups, lr=self.lr, still=padding_rows(model), inertia=self.alpha)


def padding_rows(model: nn.Module) -> dict[int, int]:
    """Return the padding row of each embedding, which stays zero, by the identity of its weights."""
    embeddings = [m for m in model.modules() if isinstance(m, nn.Embedding)]
    return {id(m.weight): m.padding_idx for m in embeddings if m.padding_idx is not None}


def rated_groups(model: Model, l2: float, embedding_rate: float) -> list[dict[str, Any]]:
    """Return the parameter groups, embeddings separate, each with its ``rate`` as a multiple of the learning rate.

    A constant multiple is a constant preconditioner: drift and noise variance are multiplied alike, and the sampled
    distribution is the same.
    """
    embeddings = {id(m.weight) for m in model.modules() if isinstance(m, nn.Embedding)}
    groups = []
    for group in parameter_groups(model, l2):
        for embedded, rate in ((False, 1.0), (True, embedding_rate)):
            params = [p for p in group["params"] if (id(p) in embeddings) == embedded]
            groups += [{**group, "params": params, "rate": rate}] if params else []
    return groups
