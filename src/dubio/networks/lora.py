"""Low-rank adapters: a pre-trained network stays as it is, and its dense layers learn a change of rank r.

Hu et al. (2022): for a layer with the frozen weight W ``[out, in]``,

    y = W h + b + (α/r) B A h,   A ``[r, in]``, B ``[out, r]``,

A starts as the weight of a dense layer and B at 0, so that the network starts as it was. A layer adds r·(in + out)
weights. A and B are layers of their own, which everything that works on dense layers finds: their curvature, say, for a
Laplace approximation (Yang et al., 2024). The layer with W + (α/r) B A is the same function (:meth:`~Adapted.merged`).

A stage names the layers that may have an adapter in its attribute ``adapts``. The head is trained in full.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from dubio.core.errors import UserError
from dubio.core.specs import part
from dubio.core.validate import Positive, PositiveFloat
from dubio.networks.network import Edit, Model, Stage, UnfitWidth, kind_of

ADAPTER = ("down", "up")
"""The names of A and B in a layer."""


class Adapted(nn.Linear):
    """A frozen dense layer with an adapter.

    Attributes:
        down: A.
        up: B.
        factor: α/r.
    """

    down: nn.Linear
    up: nn.Linear
    factor: float

    def adapt(self, rank: int, factor: float) -> None:
        """Add an adapter that changes nothing yet."""
        self.down = nn.Linear(self.in_features, rank, bias=False)
        self.up = nn.Linear(rank, self.out_features, bias=False)
        nn.init.zeros_(self.up.weight)
        self.factor = factor

    def forward(self, h: Tensor) -> Tensor:
        """Return W h + b + (α/r) B A h."""
        change: Tensor = self.up(self.down(h))
        return super().forward(h) + self.factor * change

    def merged(self, state: Mapping[str, Tensor], path: str) -> Tensor:
        """Return W + (α/r) B A from a weight state in which this layer has a path."""
        low, high = (state[f"{path}.{name}.weight"] for name in ADAPTER)
        return torch.addmm(state[f"{path}.weight"], high, low, alpha=self.factor)


@part("lora")
@dataclass(frozen=True)
class LowRankAdapters(Edit):
    """An adapter for every layer that the network offers; all other weights of the network are frozen.

    Attributes:
        rank: r.
        alpha: α; the change of a layer is scaled by α/r.
    """

    random: ClassVar[bool] = False

    rank: Positive = 8
    alpha: PositiveFloat = 16.0

    def apply(self, model: Model) -> None:
        """Freeze the network and add the adapters; a layer changes its class in place, its weights keep their names.

        Raises:
            UserError: When the network offers no layer, or one that is no plain dense layer, or has no last layer that
                is trained in full.
        """
        if model.head.missing:
            raise UserError(f"lora: needs a last nn.Linear, which is trained in full; {model.head.missing}.")
        layers = dict(adapted_layers(model.network, "network"))
        if not layers:
            offered = "bert offers query and value of each block that is trained (trainable_layers)"
            own = "your own module its nn.Linear layers before the last one"
            raise UserError(f"this network offers no layer for low-rank adapters: {offered}, {own}.")
        model.network.requires_grad_(False)
        for path, layer in layers.items():
            if type(layer) is not nn.Linear:
                raise UserError(f"lora: {path} is {kind_of(layer)}; adapters need plain dense layers.")
            self._check_rank(path, layer)
            layer.__class__ = Adapted
            assert isinstance(layer, Adapted)
            layer.adapt(self.rank, self.alpha / self.rank)

    def _check_rank(self, path: str, layer: nn.Linear) -> None:
        inputs, outputs = layer.in_features, layer.out_features
        if self.rank > min(inputs, outputs):
            limit = f"rank must be at most the smaller side of a layer, {min(inputs, outputs)}; given {self.rank}"
            raise UnfitWidth(f"lora: {path} has {inputs} inputs and {outputs} outputs; {limit}.")


def adapted_layers(root: nn.Module, name: str) -> Iterator[tuple[str, nn.Module]]:
    """Return the layers that stages offer for adapters, with their paths, in the order of the modules."""
    stages = [(path, module) for path, module in root.named_modules(prefix=name) if isinstance(module, Stage)]
    return ((f"{path}.{layer}", stage.get_submodule(layer)) for path, stage in stages for layer in stage.adapts)


def merged_state(model: Model, state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return a weight state of the same model without adapters: their changes added to the weights."""
    merged = dict(state)
    for path, layer in model.named_modules():
        if isinstance(layer, Adapted):
            merged[f"{path}.weight"] = layer.merged(state, path)
            for name in ADAPTER:
                del merged[f"{path}.{name}.weight"]
    return merged
