"""The heteroscedastic head: logits with learned, input-dependent noise (text paper, eq. 5)."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from dubio.core.specs import part
from dubio.core.types import Target
from dubio.core.validate import Positive
from dubio.networks.heads.head import Head, bernoulli_loss, link_for, log_mean_exp
from dubio.networks.network import HeadModule, Link, Scores
from dubio.networks.noise import Site


class HeteroscedasticHead(HeadModule):
    """Two layers, μ and log σ²; v = μ + σ·ε, integrated over draws of ε in every mode."""

    uncertain = ("mu", "log_variance")

    def __init__(self, width: int, classes: int, *, draws: int, link: Link) -> None:
        """Make both layers, each behind its own site, and one shared site for fixed dropout."""
        super().__init__()
        self.draws, self.link, self.normals = draws, link, draws * classes
        self.mu = nn.Linear(width, classes)
        self.log_variance = nn.Linear(width, classes)
        self.site = Site("head", width, accepts=("dropout",))
        self.mu_site = Site("mu", width, accepts=("concrete_dropout",), weights=lambda: (self.mu.weight,))
        sigma = self.log_variance
        self.sigma_site = Site("sigma", width, accepts=("concrete_dropout",), weights=lambda: (sigma.weight,))

    def forward(self, features: Tensor) -> Tensor:
        """Return μ and log σ² side by side, ``[B, 2K]``."""
        shared = self.site(features)
        return torch.cat([self.mu(self.mu_site(shared)), self.log_variance(self.sigma_site(shared))], dim=-1)

    def sampled(self, output: Tensor) -> Tensor:
        """Return logits v = μ + σ ε, ``[draws, B, K]``."""
        mu, log_variance = output.chunk(2, dim=-1)
        if self.given is not None:
            epsilon = self.given.reshape(mu.shape[0], self.draws, mu.shape[1]).transpose(0, 1)
        else:
            epsilon = torch.randn(self.draws, *mu.shape, generator=self.generator).to(mu.device)
        return mu + torch.exp(0.5 * log_variance) * epsilon

    def loss(self, output: Tensor, labels: Tensor) -> Tensor:
        """Return −[logsumexp_t log p_t(y) − log T], summed over labels for a sigmoid link."""
        logits = self.sampled(output)
        if self.link == "sigmoid":
            return -log_mean_exp(-bernoulli_loss(logits, labels.expand(logits.shape))).sum(-1)
        log_probs = torch.log_softmax(logits, dim=-1)
        index = labels.expand(self.draws, -1).unsqueeze(-1)
        return -log_mean_exp(log_probs.gather(-1, index).squeeze(-1))

    def scores(self, output: Tensor) -> Scores:
        """Return logits of the integrated probabilities (log p̄, or log p̄ − log(1 − p̄) per label), and σ²."""
        logits = self.sampled(output)
        variance = torch.exp(output.chunk(2, dim=-1)[1])
        if self.link == "softmax":
            return Scores(log_mean_exp(torch.log_softmax(logits, dim=-1)), variance)
        yes, no = (log_mean_exp(nn.functional.logsigmoid(side)) for side in (logits, -logits))
        return Scores(yes - no, variance)


@part("heteroscedastic")
@dataclass(frozen=True)
class Heteroscedastic:
    """Logits with input-dependent Gaussian noise.

    Attributes:
        draws: Draws of ε over which a prediction and a loss integrate (T).
        link: Softmax over classes, or one sigmoid per label; set by the task's target.
    """

    draws: Positive = 10
    link: Link = "softmax"

    def for_target(self, target: Target) -> Head:
        """Return the same head with the link of the target."""
        return replace(self, link=link_for(target))

    def build(self, width: int, classes: int) -> HeadModule:
        """Return the module."""
        return HeteroscedasticHead(width, classes, draws=self.draws, link=self.link)
