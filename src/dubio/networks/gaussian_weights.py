"""Gaussian weights: a mean and a deviation for every weight of a layer (mean-field variational inference).

Every weight is W ~ N(μ, σ²) on its own; the prior is N(0, 1/(N·l2)), the one that weight decay ``l2`` stands for with
N training examples (pitfalls paper, eq. 12). Biases and batch-norm stay as they are. A stage (or head) names the layers
that may become Gaussian in its attribute ``uncertain`` or, without one, in ``bounds``.

While training, outputs are drawn by one of these, each with one set of draws a mini-batch:

- *Flipout* (Wen et al., 2018): one perturbation ΔW = σ∘ε of the batch, and for example b signs r_b, s_b = ±1 over
  output and input channels, W_b = μ + ΔW∘(r_b s_bᵀ), so that h_b W_b = h_b μ + r_b∘((s_b∘h_b) ΔW). Each example sees
  the marginal distribution of an independent draw; two examples' perturbations are uncorrelated, not independent.
- *Local reparameterisation* (Kingma et al., 2015): outputs are drawn, N(h μ, h² σ²). For dense layers it is exact; of
  a convolution every output has its right distribution, but the positions, which share the weights, are drawn
  independently: another expectation than that over weights.
- *Mixed*: local reparameterisation in dense layers, where it is exact and varies least, Flipout in convolutions.

At prediction no estimator is needed: sample s is *one* set of weights, μ + σ∘ε_s with ε_s from (seed, s, layer), for
all examples. It is exact, never depends on the batch, costs one ordinary pass, and is one function of the posterior.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import ClassVar, Literal, get_args

import torch
from torch import Generator, Tensor, nn
from torch.nn import functional

from dubio.core.errors import UserError
from dubio.core.specs import part

Estimator = Literal["flipout", "local_reparameterisation", "mixed"]

LEAST_VARIANCE = 1e-20
"""Where no input reaches an output its variance is 0, of whose root there is no gradient."""


class GaussianLayer(nn.Module):
    """What Gaussian weights add to a layer. ``weight`` is μ, under its old name, so that a trained layer's μ fits.

    Attributes:
        log_sigma: log σ of each weight.
        options: Prior and estimator.
        place: The layer's path in its model, by which its draws are named.
        given: The weight drawn for the sample under way, set by the engine.
        generator: Where draws come from while training.
        exact: The estimator of the right expectation that varies least for this sort of layer.
    """

    exact: ClassVar[Estimator]

    weight: Tensor
    bias: Tensor | None
    log_sigma: nn.Parameter
    options: GaussianWeights
    place: str
    given: Tensor | None
    generator: Generator | None

    def become_gaussian(self, place: str, options: GaussianWeights) -> None:
        """Start with the present weight as μ and the same σ for all."""
        self.place, self.options = place, options
        self.given, self.generator = None, None
        self.log_sigma = nn.Parameter(torch.full_like(self.weight, options.log_sigma))

    def forward(self, h: Tensor) -> Tensor:
        """Random while training; otherwise with the weight in use."""
        if not self.training:
            return self.with_weight(h, self.in_use, self.bias)
        chosen = self.exact if self.options.estimator == "mixed" else self.options.estimator
        return self.flipped(h) if chosen == "flipout" else self.locally(h)

    @property
    def in_use(self) -> Tensor:
        """Outside training, the weight drawn for this sample, or μ."""
        return self.weight if self.given is None else self.given

    def drawn(self, normals: Tensor) -> Tensor:
        """μ + σ∘ε."""
        return torch.addcmul(self.weight, torch.exp(self.log_sigma), normals.reshape(self.weight.shape))

    def flipped(self, h: Tensor) -> Tensor:
        """The output under Flipout."""
        change = torch.exp(self.log_sigma) * self._normals(self.weight)
        inputs, outputs = self.channels()
        mean = self.with_weight(h, self.weight, self.bias)
        changed = self.with_weight(h * self._signs(h, inputs), change, None)
        return mean + changed * self._signs(changed, outputs)

    def locally(self, h: Tensor) -> Tensor:
        """The output, drawn itself."""
        mean = self.with_weight(h, self.weight, self.bias)
        variance = self.with_weight(h * h, torch.exp(2.0 * self.log_sigma), None)
        return mean + variance.clamp_min(LEAST_VARIANCE).sqrt() * self._normals(mean)

    def penalty(self, examples: int, progress: float) -> Tensor:
        """(β/N)·KL without its μ² part, which is weight decay; β as far as it has risen."""
        rise = min(1.0, progress / self.options.anneal) if self.options.anneal else 1.0
        return self.options.beta * rise / examples * divergence(self.log_sigma, examples * self.options.l2)

    def with_weight(self, h: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        """The layer's output for a given weight."""
        raise NotImplementedError

    def channels(self) -> tuple[int, int]:
        """Channels (or features) that come in and go out."""
        raise NotImplementedError

    def shape_of_signs(self, h: Tensor, channels: int) -> tuple[int, ...]:
        """One sign an example and channel of ``h``, alike at every position."""
        raise NotImplementedError

    def _signs(self, h: Tensor, channels: int) -> Tensor:
        shape = self.shape_of_signs(h, channels)
        return torch.randint(0, 2, shape, generator=self.generator).mul_(2).sub_(1).to(h)

    def _normals(self, like: Tensor) -> Tensor:
        return torch.randn(like.shape, generator=self.generator).to(like.device)


class GaussianLinear(GaussianLayer, nn.Linear):  # type: ignore[misc]  # torch does not say that bias may be None
    """A dense layer with Gaussian weights."""

    exact = "local_reparameterisation"

    def with_weight(self, h: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        """h Wᵀ + b."""
        return functional.linear(h, weight, bias)

    def channels(self) -> tuple[int, int]:
        """Features."""
        return self.in_features, self.out_features

    def shape_of_signs(self, h: Tensor, channels: int) -> tuple[int, ...]:
        """``[B, …, channels]``."""
        return (h.shape[0], *([1] * (h.ndim - 2)), channels)


class GaussianConv2d(GaussianLayer, nn.Conv2d):
    """A 2-D convolution with Gaussian weights."""

    exact = "flipout"

    def with_weight(self, h: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        """W ⋆ h + b."""
        out: Tensor = self._conv_forward(h, weight, bias)
        return out

    def channels(self) -> tuple[int, int]:
        """Channels."""
        return self.in_channels, self.out_channels

    def shape_of_signs(self, h: Tensor, channels: int) -> tuple[int, ...]:
        """``[B, channels, 1, 1]``."""
        return (h.shape[0], channels, 1, 1)


KINDS: dict[type[nn.Module], type[GaussianLayer]] = {nn.Linear: GaussianLinear, nn.Conv2d: GaussianConv2d}


@part("gaussian_weights")
@dataclass(frozen=True)
class GaussianWeights:
    """Gaussian weights in every layer that the network and its head offer.

    Attributes:
        l2: λ of the prior N(0, 1/(N λ)); the optimiser's weight decay of μ must be the same.
        log_sigma: log σ to start from.
        beta: β, the weight of the KL divergence (but for its μ² part); 1 is the evidence lower bound.
        anneal: β rises from 0 over this fraction of all steps; 0 has it whole from the start.
        estimator: How outputs are drawn while training.
    """

    l2: float = 5e-5
    log_sigma: float = -5.0
    beta: float = 1.0
    anneal: float = 0.0
    estimator: Estimator = "flipout"

    def __post_init__(self) -> None:
        if not self.l2 > 0.0:
            raise UserError(
                f"gaussian_weights: l2 must be positive, since the prior is N(0, 1/(N l2)); given {self.l2}."
            )
        if self.beta < 0.0:
            raise UserError(f"gaussian_weights: beta must be at least 0; given {self.beta}.")
        if not 0.0 <= self.anneal <= 1.0:
            raise UserError(f"gaussian_weights: anneal must lie between 0 and 1; given {self.anneal}.")
        if self.estimator not in get_args(Estimator):
            known = ", ".join(get_args(Estimator))
            raise UserError(f"gaussian_weights: estimator must be one of {known}; given {self.estimator!r}.")

    def put_on(self, network: nn.Module, head: nn.Module) -> None:
        """Make the offered layers of a network and its head Gaussian.

        A layer becomes Gaussian where it stands: whoever refers to it, such as a noise site to the weights it feeds,
        still does, and its μ keeps the name under which an earlier fit stored it.

        Raises:
            UserError: When the network offers none, or one of a sort that cannot be Gaussian.
        """
        found = list(offered(network, "network"))
        if not found:
            raise UserError(
                "this network offers no layer for 'gaussian_weights'; mlp, cnn, textcnn-v2 and all image networks do."
            )
        self.make_gaussian([*found, *offered(head, "head")])

    def make_gaussian(self, layers: Iterable[tuple[str, nn.Module]]) -> None:
        """Make these layers Gaussian, each given with its path, by which its draws are named.

        Raises:
            UserError: For one of a sort that cannot be Gaussian.
        """
        for place, layer in layers:
            kind = KINDS.get(type(layer))
            if kind is None:
                raise UserError(
                    f"gaussian_weights: {place} is a {type(layer).__name__}; only plain dense layers and 2-D "
                    "convolutions can have Gaussian weights, without another edit such as spectral_norm on them."
                )
            layer.__class__ = kind
            assert isinstance(layer, GaussianLayer)
            layer.become_gaussian(place, self)


def offered(root: nn.Module, name: str) -> Iterator[tuple[str, nn.Module]]:
    """The layers that may become Gaussian, with their paths, in the order of the modules."""
    for path, module in list(root.named_modules(prefix=name)):
        for own in getattr(module, "uncertain", getattr(module, "bounds", ())):
            yield f"{path}.{own}", module.get_submodule(own)


def gaussian_layers(root: nn.Module) -> list[GaussianLayer]:
    """The layers whose weights are Gaussian."""
    return [module for module in root.modules() if isinstance(module, GaussianLayer)]


def divergence(log_sigma: Tensor, precision: float) -> Tensor:
    """Σ [½(τσ² − 1) − log σ − ½ log τ]: KL(N(μ, σ²) ‖ N(0, 1/τ)) without its μ² part, ½τ Σ μ²."""
    each = 0.5 * precision * torch.exp(2.0 * log_sigma) - log_sigma
    return each.sum() - 0.5 * (1.0 + math.log(precision)) * log_sigma.numel()
