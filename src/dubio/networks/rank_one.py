"""Layers with rank-one factors for each member: the weight of member m is W ∘ (s_m r_mᵀ).

BatchEnsemble trains r and s (Wen et al., 2020); Masksembles fixes r to a binary mask and needs no s. Members are
rows: row i of a batch belongs to member i mod M. A prediction holds every example M times, the members of an example
side by side (:class:`~dubio.networks.members.SplitMembers`). The factors act on the inputs and outputs of the one
shared product (vectorised as BatchEnsemble is),

    y = ((x ∘ r_m) Wᵀ) ∘ s_m + b_m,

so that the weights of single members are never formed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from dubio.core.errors import UserError
from dubio.networks.network import Stage, kind_of
from dubio.networks.word_convolutions import WordConvolutions


class RankOne(nn.Module):
    """The factors of one layer.

    Attributes:
        r: ``[M, inputs]``.
        s: ``[M, outputs]``, or None where outputs are not scaled.
        bias: ``[M, outputs]``, or None where members share the layer's bias.
    """

    r: Tensor
    s: Tensor | None
    bias: Tensor | None

    def __init__(self, r: Tensor, s: Tensor | None = None, bias: Tensor | None = None) -> None:
        """Hold the factors as buffers, or as parameters where they are such."""
        super().__init__()
        for name, tensor in (("r", r), ("s", s), ("bias", bias)):
            if isinstance(tensor, nn.Parameter):
                self.register_parameter(name, tensor)
            else:
                self.register_buffer(name, tensor)

    def inputs(self, h: Tensor, axis: int) -> Tensor:
        """Return ``h [rows, …]`` with its channels, on this axis, scaled by r of each row's member."""
        return h * by_row(self.r, h, axis)

    def outputs(self, h: Tensor, axis: int, bias: Tensor | None) -> Tensor:
        """Return ``h`` scaled by s, with the members' own bias or the given one."""
        if self.s is not None:
            h = h * by_row(self.s, h, axis)
        if self.bias is not None:
            return h + by_row(self.bias, h, axis)
        return h if bias is None else h + bias.reshape([-1 if i == axis % h.ndim else 1 for i in range(h.ndim)])

    def spread(self, vectors: Tensor, places: Tensor) -> tuple[Tensor, Tensor]:
        """Return the vectors ``[M · U, E]`` of distinct tokens for every member, and each row's places among them."""
        scaled = (vectors * self.r[:, None]).flatten(0, 1)
        return scaled, places + len(vectors) * members_of(places, len(self.r))[:, None]


def members_of(h: Tensor, members: int) -> Tensor:
    """Return the member of each row."""
    return torch.arange(h.shape[0], device=h.device) % members


def by_row(factor: Tensor, h: Tensor, axis: int) -> Tensor:
    """Return the factors ``[M, C]`` of each row's member, shaped to act on this axis of ``h``."""
    rows = factor.index_select(0, members_of(h, len(factor)))
    return rows.reshape(h.shape[0], *(-1 if i == axis % h.ndim else 1 for i in range(1, h.ndim)))


class ScaledLinear(nn.Linear):
    """A dense layer with rank-one factors."""

    factors: RankOne

    def forward(self, h: Tensor) -> Tensor:
        """Return ((h ∘ r) Wᵀ) ∘ s + b."""
        return self.factors.outputs(functional.linear(self.factors.inputs(h, -1), self.weight), -1, self.bias)


class ScaledConv2d(nn.Conv2d):
    """A 2-D convolution with rank-one factors of its channels."""

    factors: RankOne

    def forward(self, h: Tensor) -> Tensor:
        """Return (W ⋆ (h ∘ r)) ∘ s + b."""
        out: Tensor = self._conv_forward(self.factors.inputs(h, 1), self.weight, None)
        return self.factors.outputs(out, 1, self.bias)


Factors = Callable[[int, int, Tensor | None], RankOne]
"""From a layer's inputs, outputs and bias to its factors; factors with a bias of their own replace the layer's."""

KINDS: dict[type[nn.Module], type[nn.Module]] = {nn.Linear: ScaledLinear, nn.Conv2d: ScaledConv2d}


def offered_layers(root: nn.Module, name: str) -> list[tuple[str, nn.Module]]:
    """Return the layers that the stages of a network or a head offer, in their order, with their paths.

    Convolutions over words are offered as one: they share their inputs, and compute products in their own way.
    """
    layers: list[tuple[str, nn.Module]] = []
    for path, stage in root.named_modules(prefix=name):
        if isinstance(stage, WordConvolutions):
            layers.append((path, stage))
        elif isinstance(stage, Stage):
            names = stage.bounds if stage.uncertain is None else stage.uncertain
            layers += [(f"{path}.{layer}", stage.get_submodule(layer)) for layer in names]
    return layers


def scale_layer(method: str, path: str, layer: nn.Module, factors: Factors) -> None:
    """Give a layer rank-one factors, in place: references to it stay valid.

    Args:
        method: The edit's name, for the message.
        path: The layer's path.
        layer: A dense layer, a 2-D convolution or convolutions over words.
        factors: Makes its factors.

    Raises:
        UserError: For a layer of another kind, or one that another edit has changed.
    """
    if isinstance(layer, WordConvolutions):
        kernels = range(len(layer.kernels))
        layer.factors = nn.ModuleList(factors(*layer.channels(), layer.kernel(i)[1]) for i in kernels)
        for i in kernels:
            if cast(RankOne, layer.factors[i]).bias is not None:
                layer.kernel(i)[1].requires_grad_(False)
        return
    kind = KINDS.get(type(layer))
    if kind is None or getattr(layer, "groups", 1) > 1:
        allowed = "dense layers and ungrouped 2-D convolutions, without another edit such as spectral_norm"
        raise UserError(f"{method}: {path} is {kind_of(layer)}; allowed are {allowed}.")
    layer.__class__ = kind
    scaled = cast(ScaledLinear, layer)
    outputs, inputs = scaled.weight.shape[:2]
    scaled.factors = factors(inputs, outputs, scaled.bias)
    if scaled.factors.bias is not None:
        scaled.register_parameter("bias", None)


def stage_of(path: str) -> int:
    """Return the index of the stage that holds a layer of the network, by the layer's path."""
    return int(path.split(".")[2])  # network.stages.<index>…
