"""Spectral normalisation: weights whose largest singular value stays below a bound (SNGP, text paper appendix C).

A network names the layers whose weight may be bounded, in the attribute ``bounds`` of a stage; the edit fills those
and guesses nothing by layer type. The weight in use is

    W · min(1, s/σ̂),    σ̂ = uᵀ W v by power iteration,

so that a weight already below the bound stays as it is (torch's own parametrisation always divides by σ̂).

Of a convolution, W is the kernel reshaped to ``[out, in · kernel positions]``. An input position enters at most
k = ``kernel positions`` windows, so the norm of the whole convolution (stride 1, zero padding) is at most √k · s. The
same value bounds the layer whatever the size of its input.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils import parametrize

from dubio.core.errors import UserError
from dubio.core.specs import name_of, part

FIRST_ITERATIONS = 50
"""Power iterations before training: the vectors follow the weights from then on."""


class SpectralBound(nn.Module):
    """W → W · min(1, s/σ̂). A training pass first moves u and v by one power iteration; in eval mode they are fixed."""

    u: Tensor
    v: Tensor

    def __init__(self, weight: Tensor, s: float) -> None:
        """Bound a weight ``[out, …]`` by ``s``, with vectors close to its own first singular pair."""
        super().__init__()
        self.s = s
        matrix = weight.detach().flatten(1)
        self.register_buffer("u", functional.normalize(torch.randn(matrix.shape[0]), dim=0))
        self.register_buffer("v", functional.normalize(torch.randn(matrix.shape[1]), dim=0))
        for _ in range(FIRST_ITERATIONS):
            self.iterate(matrix)

    def forward(self, weight: Tensor) -> Tensor:
        """The weight in use."""
        matrix = weight.flatten(1)
        if self.training:
            self.iterate(matrix.detach())
        # copies, because the buffers may move again before the backward pass
        sigma = torch.dot(self.u.clone(), matrix @ self.v.clone())
        return weight * (self.s / sigma.clamp_min(torch.finfo(sigma.dtype).tiny)).clamp_max(1.0)

    @torch.no_grad()
    def iterate(self, matrix: Tensor) -> None:
        """v ← Wᵀu/‖Wᵀu‖, u ← Wv/‖Wv‖."""
        self.v.copy_(functional.normalize(matrix.T @ self.u, dim=0))
        self.u.copy_(functional.normalize(matrix @ self.v, dim=0))


@runtime_checkable
class WeightEdit(Protocol):
    """Acts on the weights that a network offers in ``bounds``, not on noise sites."""

    def bound(self, weight: Tensor) -> nn.Module:
        """What stands between a stored weight and the one in use."""
        ...


@part("spectral_norm")
@dataclass(frozen=True)
class SpectralNorm:
    """Largest singular value at most ``s``, for every weight that the network offers."""

    s: float = 1.0

    def __post_init__(self) -> None:
        if not self.s > 0.0:
            raise UserError(f"spectral_norm: s must be positive; given {self.s}.")

    def bound(self, weight: Tensor) -> nn.Module:
        """A bound with singular vectors of its own."""
        return SpectralBound(weight, self.s)


def bounded_layers(model: nn.Module) -> Iterator[nn.Module]:
    """The layers that the stages of a model name in ``bounds``, in the order of its modules."""
    for module in list(model.modules()):
        for name in getattr(module, "bounds", ()):
            yield module.get_submodule(name)


def fill_weights(model: nn.Module, edit: WeightEdit) -> None:
    """Put an edit on every weight that the model offers.

    Raises:
        UserError: When it offers none.
    """
    layers = list(bounded_layers(model))
    if not layers:
        raise UserError(
            f"this network offers no weight for {name_of(edit)!r}; textcnn-v2, mlp and cnn do. "
            "The method 'gp-head' asks for none."
        )
    for layer in layers:
        weight = layer.weight
        assert isinstance(weight, Tensor)
        parametrize.register_parametrization(layer, "weight", edit.bound(weight))
