"""Gaussian weights: a mean and a standard deviation for every weight of a layer (mean-field variational inference).

Every weight is independently W ~ N(μ, σ²); the prior is N(0, 1/(N·l2)), which corresponds to weight decay ``l2`` with
N training examples (pitfalls paper, eq. 12). Biases and batch-norm stay deterministic. A stage (or head) names the
layers that may become Gaussian in its attribute ``uncertain`` or, without one, in ``bounds``.

During training, outputs are drawn by one of three estimators, each with one set of draws per mini-batch:

- *Flipout* (Wen et al., 2018): one perturbation ΔW = σ∘ε of the batch, and for example b signs r_b, s_b = ±1 over
  output and input channels, W_b = μ + ΔW∘(r_b s_bᵀ), so that h_b W_b = h_b μ + r_b∘((s_b∘h_b) ΔW). Each example sees
  the marginal distribution of an independent draw; two examples' perturbations are uncorrelated, not independent.
- *Local reparameterisation* (Kingma et al., 2015): outputs are drawn, N(h μ, h² σ²). For dense layers it is exact; of
  a convolution every output has the right distribution, but the positions, which share the weights, are drawn
  independently: the expectation differs from that over weights.
- *Mixed*: local reparameterisation in dense layers, where it is exact and varies least, Flipout in convolutions.

At prediction no estimator is needed: sample s is *one* set of weights for all examples, μ + σ∘ε_s with ε_s from
(seed, s, layer). It is exact, does not depend on the batch, and costs one ordinary pass.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional

from dubio.core.errors import UserError
from dubio.core.specs import added, part
from dubio.core.validate import NonNegativeFloat, PositiveFloat, Share
from dubio.networks.network import Edit, Model, RandomWeights, Stage

Estimator = Literal["flipout", "local_reparameterisation", "mixed"]

LEAST_VARIANCE = 1e-20
"""An output that no input reaches has variance 0, whose root has no gradient."""


class GaussianLayer(RandomWeights):
    """A layer with Gaussian weights. ``weight`` is μ under its old name, so that a trained layer's μ fits.

    Attributes:
        options: Prior and estimator.
        exact: The unbiased estimator with the smallest variance for this kind of layer.
    """

    exact: ClassVar[Estimator]

    bias: Tensor | None
    options: GaussianWeights

    def become_gaussian(self, path: str, options: GaussianWeights) -> None:
        """Start with the present weight as μ and one σ for all weights."""
        self.path, self.options = path, options
        self.drawn_weight, self.generator = None, None
        self.log_sigma = nn.Parameter(torch.full_like(self.weight, options.log_sigma))

    def forward(self, h: Tensor) -> Tensor:
        """Return a random output during training, otherwise that of the weight in use."""
        if not self.training:
            return self.with_weight(h, self.in_use, self.bias)
        estimator = self.exact if self.options.estimator == "mixed" else self.options.estimator
        return self.flipout(h) if estimator == "flipout" else self.local_reparameterisation(h)

    @property
    def in_use(self) -> Tensor:
        """The weight of a prediction: that drawn for this sample, or μ."""
        return self.weight if self.drawn_weight is None else self.drawn_weight

    def drawn(self, normals: Tensor) -> Tensor:
        """Return μ + σ∘ε."""
        return torch.addcmul(self.weight, torch.exp(self.log_sigma), normals.reshape(self.weight.shape))

    def flipout(self, h: Tensor) -> Tensor:
        """Return the output under Flipout."""
        change = torch.exp(self.log_sigma) * self._normals(self.weight)
        inputs, outputs = self.channels()
        mean = self.with_weight(h, self.weight, self.bias)
        changed = self.with_weight(h * self._signs(h, inputs), change, None)
        return mean + changed * self._signs(changed, outputs)

    def local_reparameterisation(self, h: Tensor) -> Tensor:
        """Return an output drawn from its own distribution."""
        mean = self.with_weight(h, self.weight, self.bias)
        variance = self.with_weight(h * h, torch.exp(2.0 * self.log_sigma), None)
        return mean + variance.clamp_min(LEAST_VARIANCE).sqrt() * self._normals(mean)

    def penalty(self, examples: int, progress: float) -> Tensor:
        """Return (β/N)·KL without its μ² part, which is weight decay; β rises with the progress.

        With ``unscaled_kl`` the whole divergence counts N times: what weight decay has of μ² is (N − 1)/N too little.
        """
        options, precision = self.options, examples * self.options.l2
        beta = options.beta * (min(1.0, progress / options.anneal) if options.anneal else 1.0)
        if options.unscaled_kl:
            squares = 0.5 * (precision - options.l2) * self.weight.square().sum()
            return beta * divergence(self.log_sigma, precision) + squares
        return beta / examples * divergence(self.log_sigma, precision)

    def with_weight(self, h: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        """Return the layer's output for a given weight."""
        raise NotImplementedError

    def channels(self) -> tuple[int, int]:
        """Return the numbers of input and output channels (or features)."""
        raise NotImplementedError

    def shape_of_signs(self, h: Tensor, channels: int) -> tuple[int, ...]:
        """Return the shape of one sign per example and channel of ``h``, shared by all positions."""
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
        """Return h Wᵀ + b."""
        return functional.linear(h, weight, bias)

    def channels(self) -> tuple[int, int]:
        """Return the numbers of features."""
        return self.in_features, self.out_features

    def shape_of_signs(self, h: Tensor, channels: int) -> tuple[int, ...]:
        """Return ``[B, …, channels]``."""
        return (h.shape[0], *([1] * (h.ndim - 2)), channels)


class GaussianConv2d(GaussianLayer, nn.Conv2d):
    """A 2-D convolution with Gaussian weights."""

    exact = "flipout"

    def with_weight(self, h: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        """Return W ⋆ h + b."""
        out: Tensor = self._conv_forward(h, weight, bias)
        return out

    def channels(self) -> tuple[int, int]:
        """Return the numbers of channels."""
        return self.in_channels, self.out_channels

    def shape_of_signs(self, h: Tensor, channels: int) -> tuple[int, ...]:
        """Return ``[B, channels, 1, 1]``."""
        return (h.shape[0], channels, 1, 1)


KINDS: dict[type[nn.Module], type[GaussianLayer]] = {nn.Linear: GaussianLinear, nn.Conv2d: GaussianConv2d}


@part("gaussian_weights")
@dataclass(frozen=True)
class GaussianWeights(Edit):
    """Gaussian weights in every layer that the network and its head offer.

    Attributes:
        l2: λ of the prior N(0, 1/(N λ)); the optimiser's weight decay of μ must be the same.
        log_sigma: log σ to start from.
        beta: β, the weight of the KL divergence (except its μ² part); 1 is the evidence lower bound.
        anneal: β rises from 0 over this fraction of all steps; 0 applies it fully from the start.
        estimator: How outputs are drawn during training.
        unscaled_kl: Erratum of the retina benchmark's code: the KL divergence is added to the mean loss without 1/N.
    """

    random: ClassVar[bool] = True

    l2: PositiveFloat = 5e-5
    log_sigma: float = -5.0
    beta: NonNegativeFloat = 1.0
    anneal: Share = 0.0
    estimator: Estimator = "flipout"
    unscaled_kl: bool = added(False)

    @property
    def prior_decay(self) -> float:
        """λ: the decay of the means is part of the prior."""
        return self.l2

    def apply(self, model: Model) -> None:
        """Make the layers that a network and its head offer Gaussian.

        A layer changes its class in place: references to it, such as that of a noise site, stay valid, and its μ keeps
        the name under which an earlier fit stored it.

        Raises:
            UserError: When the network offers no layer, or one that cannot be Gaussian.
        """
        layers = list(uncertain_layers(model.network, "network"))
        if not layers and any(True for _ in model.network.parameters()):
            raise UserError("this network offers no plain nn.Linear or nn.Conv2d for 'gaussian_weights'.")
        for path, layer in (*layers, *uncertain_layers(model.head, "head")):
            kind = KINDS.get(type(layer))
            if kind is None:
                allowed = "plain dense layers and 2-D convolutions, without another edit such as spectral_norm"
                raise UserError(f"gaussian_weights: {path} is a {type(layer).__name__}; allowed are {allowed}.")
            layer.__class__ = kind
            assert isinstance(layer, GaussianLayer)
            layer.become_gaussian(path, self)


def uncertain_layers(root: nn.Module, name: str) -> Iterator[tuple[str, nn.Module]]:
    """Return the layers that stages offer for Gaussian weights, with their paths, in the order of the modules."""
    stages = [(path, module) for path, module in root.named_modules(prefix=name) if isinstance(module, Stage)]
    for path, stage in stages:
        for layer in stage.bounds if stage.uncertain is None else stage.uncertain:
            yield f"{path}.{layer}", stage.get_submodule(layer)


def divergence(log_sigma: Tensor, precision: float) -> Tensor:
    """Return KL(N(μ, σ²) ‖ N(0, 1/τ)) without its μ² part ½τ Σ μ²: Σ [½(τσ² − 1) − log σ − ½ log τ]."""
    terms = 0.5 * precision * torch.exp(2.0 * log_sigma) - log_sigma
    return terms.sum() - 0.5 * (1.0 + math.log(precision)) * log_sigma.numel()
