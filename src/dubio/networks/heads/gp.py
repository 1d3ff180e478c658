"""A Gaussian-process head by random Fourier features with a Laplace posterior: the last layer of SNGP.

With h the features (dropped out where the site is filled, then standardised by default), w features wide,

    φ(h) = √(2/D) · cos(h Ω + b),   Ω ~ N(0, 1/(ℓ² w)),  b ~ U(0, 2π),   both fixed,
    μ(h) = φ(h)ᵀ β,   k(h, h') = E φ(h)ᵀφ(h') = exp(−‖h − h'‖²/(2 ℓ² w)).

β is trained like any last layer. Its posterior precision, shared by all classes, is the exact sum over the training
examples of the last epoch,

    Σ⁻¹ = ridge · I + Σ_i c_i φ_i φ_iᵀ,   c_i = max_k p_ik (1 − p_ik)   (1 for the Gaussian likelihood),

each term taken when the example is learned from. SNGP's Laplace approximation has one precision per class, with
p_ik(1 − p_ik); the shared one, its published form for many classes, takes the largest of these, which is
p*(1 − p*) with p* = max_k p_ik where classes exclude each other: exact for two classes. The variance of an example's
logits is σ² = φᵀ Σ φ, and the prediction uses the mean-field logits μ/√(1 + (π/8) σ²).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional

from dubio.core.errors import TrainingFailed
from dubio.core.specs import part
from dubio.core.types import Target
from dubio.core.validate import Positive, PositiveFloat
from dubio.networks.heads.head import MEAN_FIELD, Head, link_for, linked_loss
from dubio.networks.network import HeadModule, Link, Scores
from dubio.networks.noise import Site

Likelihood = Literal["categorical", "gaussian"]
Scaling = Literal["standardised", "as_they_are"]


class RandomFeatureGPHead(HeadModule):
    """Random features, a linear output without bias, and its Laplace covariance.

    The output of a pass is φ, because losses and scores need more than logits.
    """

    frequencies: Tensor
    phases: Tensor
    precision: Tensor
    root: Tensor

    def __init__(self, width: int, classes: int, options: RandomFeatureGP) -> None:
        """Draw the random features; the covariance starts as that of the prior."""
        super().__init__()
        self.options, self.link = options, options.link
        size = options.features
        self.site = Site("head", width, accepts=("dropout", "concrete_dropout"), weights=lambda: (self.output.weight,))
        self.output = nn.Linear(size, classes, bias=False)
        self.register_buffer("frequencies", torch.randn(width, size) / (options.length_scale * math.sqrt(width)))
        self.register_buffer("phases", torch.rand(size) * (2.0 * math.pi))
        self.register_buffer("precision", torch.zeros(size, size), persistent=False)
        # R with Σ = RᵀR, so that no variance can be negative
        self.register_buffer("root", torch.eye(size) / math.sqrt(options.ridge))

    def forward(self, features: Tensor) -> Tensor:
        """Return φ, ``[B, D]``."""
        h = self.site(features)
        if self.options.scaling == "standardised":
            h = functional.layer_norm(h, h.shape[-1:])
        return math.sqrt(2.0 / self.options.features) * torch.cos(h @ self.frequencies + self.phases)

    def loss(self, output: Tensor, labels: Tensor) -> Tensor:
        """Return the cross-entropy of μ, summed over sigmoid labels; in training also update the precision."""
        logits = self.output(output)
        if self.training:
            self.add(output.detach(), logits.detach())
        return linked_loss(logits, labels, self.link)

    def scores(self, output: Tensor) -> Scores:
        """Return the mean-field logits μ/√(1 + (π/8) σ²), and σ²."""
        variance = (output @ self.root.T).square().sum(-1)
        return Scores(self.output(output) / torch.sqrt(1.0 + MEAN_FIELD * variance)[:, None], model_variance=variance)

    def begin_epoch(self) -> None:
        """Reset the sum of the last epoch."""
        self.precision.zero_()

    def end_epoch(self) -> None:
        """Invert the precision: Σ = (L Lᵀ)⁻¹ = RᵀR with R = L⁻¹, in double precision.

        Raises:
            TrainingFailed: When rounding has made the precision singular; a larger ridge helps.
        """
        precision = self.precision.double()
        precision.diagonal().add_(self.options.ridge)
        factor, failed = torch.linalg.cholesky_ex(precision)
        if int(failed):
            ridge = self.options.ridge
            raise TrainingFailed(f"the GP head's precision cannot be inverted with ridge {ridge}; give a larger ridge.")
        unit = torch.eye(len(precision), dtype=precision.dtype, device=precision.device)
        self.root.copy_(torch.linalg.solve_triangular(factor, unit, upper=False))

    @torch.no_grad()
    def add(self, features: Tensor, logits: Tensor) -> None:
        """Add c_i φ_i φ_iᵀ of a batch to the precision."""
        scaled = features
        if self.options.likelihood == "categorical":
            probs = torch.sigmoid(logits) if self.link == "sigmoid" else torch.softmax(logits, dim=-1)
            scaled = features * (probs * (1.0 - probs)).amax(dim=-1, keepdim=True).sqrt()
        self.precision.addmm_(scaled.T, scaled)


@part("random_feature_gp")
@dataclass(frozen=True)
class RandomFeatureGP:
    """The head of SNGP; dropout and concrete dropout act on the features that enter it.

    Attributes:
        features: Random Fourier features, D.
        ridge: Prior precision of β.
        length_scale: ℓ, in units of √width, in which two unrelated standardised rows are about √2 apart.
        likelihood: How much an example adds to the precision: c_i above, or 1 (``gaussian``).
        scaling: Whether each row of features is standardised (mean 0, deviation 1) before the kernel.
        link: Softmax over classes, or one sigmoid per label; set by the task's target.
    """

    features: Positive = 1024
    ridge: PositiveFloat = 1.0
    length_scale: PositiveFloat = 0.7
    likelihood: Likelihood = "categorical"
    scaling: Scaling = "standardised"
    link: Link = "softmax"

    def for_target(self, target: Target) -> Head:
        """Return the same head with the link of the target."""
        return replace(self, link=link_for(target))

    def build(self, width: int, classes: int) -> HeadModule:
        """Return the module."""
        return RandomFeatureGPHead(width, classes, self)
