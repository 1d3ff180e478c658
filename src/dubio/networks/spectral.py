"""Spectral normalisation: weights with a bounded largest singular value (SNGP, text paper appendix C).

A stage names the layers whose weight may be bounded in its attribute ``bounds``; the edit never guesses by layer
type. The weight in use is

    W · min(1, s/σ̂),    σ̂ = uᵀ W v by power iteration,

so that a weight already below the bound is unchanged (torch's own parametrisation always divides by σ̂).

For a convolution, W is the kernel reshaped to ``[out, in · kernel positions]``. An input position enters at most
k = ``kernel positions`` windows, so the norm of the whole convolution (stride 1, zero padding) is at most √k · s,
whatever the size of its input.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, cast

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils import parametrize

from dubio.core.errors import UserError
from dubio.core.specs import part
from dubio.core.validate import PositiveFloat
from dubio.networks.network import Edit, Model, Stage

FIRST_ITERATIONS = 50
"""Power iterations before training; from then on the vectors follow the weights."""


class SpectralBound(nn.Module):
    """W → W · min(1, s/σ̂). A training pass first moves u and v by one power iteration; in eval mode they are fixed."""

    u: Tensor
    v: Tensor

    def __init__(self, weight: Tensor, s: float) -> None:
        """Bound a weight ``[out, …]`` by ``s``, starting near its first singular pair."""
        super().__init__()
        self.s = s
        matrix = weight.detach().flatten(1)
        self.register_buffer("u", functional.normalize(torch.randn(matrix.shape[0]), dim=0))
        self.register_buffer("v", functional.normalize(torch.randn(matrix.shape[1]), dim=0))
        for _ in range(FIRST_ITERATIONS):
            self.iterate(matrix)

    def forward(self, weight: Tensor) -> Tensor:
        """Return the weight in use."""
        matrix = weight.flatten(1)
        if self.training:
            self.iterate(matrix.detach())
        # copies, because the buffers may move again before the backward pass
        sigma = torch.dot(self.u.clone(), matrix @ self.v.clone())
        return weight * (self.s / sigma.clamp_min(torch.finfo(sigma.dtype).tiny)).clamp_max(1.0)

    @torch.no_grad()
    def iterate(self, matrix: Tensor) -> None:
        """Run one power iteration: v ← Wᵀu/‖Wᵀu‖, u ← Wv/‖Wv‖."""
        self.v.copy_(functional.normalize(matrix.T @ self.u, dim=0))
        self.u.copy_(functional.normalize(matrix @ self.v, dim=0))


@part("spectral_norm")
@dataclass(frozen=True)
class SpectralNorm(Edit):
    """An edit that bounds the largest singular value of every offered weight by ``s``."""

    s: PositiveFloat = 1.0

    random: ClassVar[bool] = False

    def apply(self, model: Model) -> None:
        """Bound every weight that the model offers, each with singular vectors of its own.

        Raises:
            UserError: When it offers none.
        """
        layers = list(bounded_layers(model))
        if not layers:
            others = "methods that need none are 'gp-head', and 'posthoc' with scores=['density']"
            raise UserError(f"this network offers no weight for 'spectral_norm'; {others}.")
        for layer in layers:
            bound = SpectralBound(cast(Tensor, layer.weight), self.s)
            parametrize.register_parametrization(layer, "weight", bound)


def bounded_layers(model: nn.Module) -> Iterator[nn.Module]:
    """Return the layers that the stages of a model name in ``bounds``, in the order of its modules."""
    stages = [module for module in model.modules() if isinstance(module, Stage)]
    return (stage.get_submodule(name) for stage in stages for name in stage.bounds)
