"""The Laplace approximation as a distribution of weights: N(θ*, scale²·(N·F + δ·I)⁻¹) in blocks, one a layer.

Weights without a block (embeddings, batch-norm's, those of layers whose curvature was not asked for) stay at θ*.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import torch
from torch import Generator, Tensor

from dubio.inference.engine import State
from dubio.inference.laplace_blocks import Block, Damping, block_from
from dubio.networks.linear_maps import linear_maps
from dubio.networks.network import Model


@dataclass(frozen=True, eq=False)
class LaplaceGaussian:
    """A Gaussian around trained weights.

    Attributes:
        point: θ* of the weights that blocks are of, by name.
        blocks: The curvature of the layers whose weights are random.
        prior: δ, the precision of the prior.
        scale: What the deviation from θ* is multiplied by; 1 is the Laplace approximation itself.
    """

    point: State
    blocks: tuple[Block, ...]
    prior: float
    scale: float = 1.0

    def centre(self) -> dict[str, Tensor]:
        """θ*."""
        return dict(self.point)

    def draw(self, generator: Generator) -> dict[str, Tensor]:
        """θ* + scale·L⁻ᵀ z, with L Lᵀ the precision (see :mod:`dubio.inference.laplace_blocks`)."""
        state: dict[str, Tensor] = {}
        # a file gives its tensors back in any order
        for block in sorted(self.blocks, key=lambda block: block.matrix.weight):
            centre = block.matrix.gather(self.point)
            z = torch.randn(block.matrix.size, generator=generator)
            deviation = z * block.precision(self.prior).rsqrt().to(z.dtype)
            state |= block.matrix.scatter(centre + self.scale * block.rotated(deviation))
        return state

    def tensors(self) -> dict[str, Tensor]:
        """θ*, every block, δ and the scale."""
        named = {f"point/{name}": tensor for name, tensor in self.point.items()}
        for block in self.blocks:
            named |= {f"block/{block.matrix.weight}/{name}": tensor for name, tensor in block.tensors().items()}
        numbers = {"prior": self.prior, "scale": self.scale}
        return named | {name: torch.tensor(value, dtype=torch.float64) for name, value in numbers.items()}

    def squared_norm(self) -> float:
        """‖θ*‖²."""
        return sum(float(tensor.double().square().sum()) for tensor in self.point.values())

    def scaled(self, scale: float) -> LaplaceGaussian:
        """The same with another scale."""
        return replace(self, scale=scale)

    @classmethod
    def from_tensors(cls, tensors: Mapping[str, Tensor], model: Model, damping: Damping) -> LaplaceGaussian:
        """The distribution that :meth:`tensors` wrote."""
        point, parts = {}, dict[str, dict[str, Tensor]]()
        for key, tensor in tensors.items():
            kind, _, rest = key.partition("/")
            if kind == "point":
                point[rest] = tensor
            elif kind == "block":
                weight, _, name = rest.rpartition("/")
                parts.setdefault(weight, {})[name] = tensor
        matrices = {matrix.weight: matrix for matrix in linear_maps(model).values()}
        blocks = tuple(block_from(found, matrices[weight], damping) for weight, found in parts.items())
        return cls(point, blocks, float(tensors["prior"]), float(tensors["scale"]))
