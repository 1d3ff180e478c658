"""A variational Bayesian last layer: Gaussian weights, trained by a bound on the evidence that needs no samples.

Harrison, Willes and Snoek (2024), the discriminative classifier. With a the features and a 1 for the bias, logits are

    z = W a + ε,   w_k ~ q = N(w̄_k, S_k),   ε_k ~ N(0, σ_k²),   z_k ~ N(m_k, v_k),   m = W̄ a,   v_k = aᵀ S_k a + σ_k².

Since E log Σ_k exp z_k ≤ log Σ_k E exp z_k, the evidence of N examples has the lower bound

    Σ_n (m_ny − log Σ_k exp(m_nk + ½ v_nk)) − Σ_k KL(q_k ‖ N(0, s·I)) + log p(σ²),

whose last term is the inverse Wishart density of the noise up to a constant,
½(ν + K + 1) Σ_k log σ_k⁻² − ½ s₀ Σ_k σ_k⁻². The loss is its negative, divided by N. For labels that do not exclude each
other, each is a class against a logit of 0: y m − log(1 + exp(m + ½ v)).

A sample of the prediction is softmax(z) with z drawn from N(m, v) for each example; without samples the prediction is
that of the mean-field logits m/√(1 + (π/8) v), in one pass.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional

from dubio.core.errors import UserError
from dubio.core.specs import part
from dubio.core.types import Target
from dubio.core.validate import PositiveFloat
from dubio.networks.heads.head import MEAN_FIELD, Head, link_for
from dubio.networks.network import HeadModule, Link, Scores

Covariance = Literal["dense", "diagonal"]

DENSE_ELEMENTS = 1 << 25
"""Largest number of elements of dense covariances, 128 MB: a class has the square of its inputs."""

FIRST_LOG_NOISE = -1.0
"""log σ_k to start from."""


class VariationalHead(HeadModule):
    """The last layer; ``linear`` holds W̄ and its bias. A pass gives m and aᵀ S a side by side, ``[B, 2K]``."""

    broadcasts = True  # m and v are the same for all samples

    def __init__(self, width: int, classes: int, options: Variational) -> None:
        """Start at S_k = I/(width + 1), so that aᵀ S a is the mean square of the inputs."""
        super().__init__()
        self.options, self.link, self.sample_normals = options, options.link, classes
        size = width + 1
        self.linear = nn.Linear(width, classes)
        self.log_diagonal = nn.Parameter(torch.full((classes, size), -0.5 * math.log(size)))
        self.lower = nn.Parameter(torch.zeros(classes, size, size)) if options.covariance == "dense" else None
        self.log_noise = nn.Parameter(torch.full((classes,), FIRST_LOG_NOISE))

    def adopt(self, layer: nn.Linear | None) -> None:
        """Take a module's own last layer as W̄.

        Raises:
            UserError: When it has none.
        """
        if layer is None:
            kind = "an nn.Linear with a bias whose outputs are the module's"
            reason = self.missing or "this one has none"
            raise UserError(f"network: a variational last layer is around the last layer, {kind}; {reason}.")
        self.linear = layer

    def factors(self) -> Tensor:
        """Return the factors L_k of S_k = L_k L_kᵀ: lower triangles ``[K, D, D]``, or diagonals ``[K, D]``."""
        diagonal = torch.exp(self.log_diagonal)
        return diagonal if self.lower is None else torch.tril(self.lower, -1) + torch.diag_embed(diagonal)

    def weight_variance(self, features: Tensor) -> Tensor:
        """Return aᵀ S_k a, ``[B, K]``."""
        a, factors = functional.pad(features, (0, 1), value=1.0), self.factors()
        if self.lower is None:
            return a.square() @ factors.square().T
        return torch.einsum("bd,kde->bke", a, factors).square().sum(-1)

    def forward(self, features: Tensor) -> Tensor:
        """Return m and aᵀ S a."""
        return torch.cat([self.linear(features), self.weight_variance(features)], dim=-1)

    def moments(self, output: Tensor) -> tuple[Tensor, Tensor]:
        """Return m and v, ``[B, K]``."""
        mean, of_weights = output.chunk(2, dim=-1)
        return mean, of_weights + torch.exp(2.0 * self.log_noise)

    def loss(self, output: Tensor, labels: Tensor) -> Tensor:
        """Return the negative of an example's term of the bound, which bounds −E log p(y) from above."""
        mean, variance = self.moments(output)
        raised = mean + 0.5 * variance
        if self.link == "sigmoid":
            return (functional.softplus(raised) - labels.to(mean.dtype) * mean).sum(-1)
        return torch.logsumexp(raised, dim=-1) - mean.gather(-1, labels[:, None]).squeeze(-1)

    def scores(self, output: Tensor) -> Scores:
        """Return the logits of every given sample, or mean-field logits and the mean over classes of aᵀ S_k a."""
        mean, variance = self.moments(output)
        if self.given is None:
            of_weights = output.chunk(2, dim=-1)[1].mean(-1)
            return Scores(mean / torch.sqrt(1.0 + MEAN_FIELD * variance), model_variance=of_weights)
        samples = len(self.given) // len(mean)
        return Scores(mean.repeat(samples, 1) + variance.sqrt().repeat(samples, 1) * self.given)

    def divergence(self) -> Tensor:
        """Return Σ_k KL(q_k ‖ N(0, s·I)) = ½ Σ_k [(tr S_k + ‖w̄_k‖²)/s − D + D log s − log det S_k]."""
        prior, size = self.options.prior_variance, self.log_diagonal.numel()
        squares = self.factors().square().sum() + self.linear.weight.square().sum() + self.linear.bias.square().sum()
        return 0.5 * (squares / prior + size * (math.log(prior) - 1.0)) - self.log_diagonal.sum()

    def noise_density(self) -> Tensor:
        """Return the logarithm of the inverse Wishart density of diag(σ²), up to a constant."""
        options, classes = self.options, len(self.log_noise)
        precision = torch.exp(-2.0 * self.log_noise).sum()
        return -(options.noise_freedom + classes + 1) * self.log_noise.sum() - 0.5 * options.noise_scale * precision

    def penalty(self, examples: int) -> Tensor:
        """Return the divergence and the noise's prior, divided by the number of training examples."""
        return (self.divergence() - self.noise_density()) / examples

    def undecayed(self) -> Iterable[nn.Parameter]:
        """Return all parameters: their prior is part of the penalty."""
        return self.parameters()


@part("variational_last_layer")
@dataclass(frozen=True)
class Variational:
    """A Gaussian last layer and noise on its logits.

    Attributes:
        covariance: S_k in full (``dense``), or its diagonal alone.
        prior_variance: s, the prior variance of every weight.
        noise_scale: s₀, the scale of the noise's inverse Wishart prior.
        noise_freedom: ν, its degrees of freedom.
        link: Softmax over classes, or one sigmoid per label; set by the task's target.
    """

    random: ClassVar[bool] = True

    covariance: Covariance = "dense"
    prior_variance: PositiveFloat = 1.0
    noise_scale: PositiveFloat = 1.0
    noise_freedom: PositiveFloat = 1.0
    link: Link = "softmax"

    def for_target(self, target: Target) -> Head:
        """Return the same head with the link of the target."""
        return replace(self, link=link_for(target))

    def build(self, width: int, classes: int) -> HeadModule:
        """Return the module.

        Raises:
            UserError: When dense covariances would be too large.
        """
        elements = classes * (width + 1) ** 2
        if self.covariance == "dense" and elements > DENSE_ELEMENTS:
            size = f"{classes} classes of {width + 1} × {width + 1} = {elements:,} elements"
            limit = f"at most {DENSE_ELEMENTS:,} are allowed; use covariance='diagonal'"
            raise UserError(f"covariance='dense' would have {size}; {limit}.")
        return VariationalHead(width, classes, self)
