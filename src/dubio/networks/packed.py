"""Packed ensembles (Laurent et al., 2023): M narrow networks computed as one with grouped layers.

A layer of C_in inputs and C_out outputs becomes one of α·C_in inputs and α·C_out outputs in M·γ groups.
Member m is the m-th group of channels: a network of width α/M, of the same depth, with its own weights. The layer has

    α²·C_in·C_out·k_h·k_w / (M·γ)

weights and α·C_out biases. The first layer reads the data for all members at
once: C_in·α·C_out·k_h·k_w weights, no groups. Each member has a head of its own: M·(α·width/M + 1)·K weights for a
softmax. Texts: the embedding is α times as wide, and each member reads its own part of it. With M = α = γ = 1 it has
the plain network's architecture, and with its weights computes the same. Widths must divide: α·C is a multiple of M·γ
in every layer, so that members are exact and equal.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar, cast

import torch
from torch import Tensor, nn

from dubio.core.errors import UserError
from dubio.core.specs import part
from dubio.core.validate import Positive, PositiveFloat
from dubio.networks.members import (
    GroupMembers,
    MemberEdit,
    RepeatFeatures,
    check_unchanged,
    head_layers,
    is_frozen,
    of_members,
    own_heads,
    set_members,
    widen,
)
from dubio.networks.network import Model, Stage, UnfitWidth, contract, grouped, kind_of
from dubio.networks.noise import sites
from dubio.networks.rank_one import offered_layers
from dubio.networks.textcnn import Convolve
from dubio.networks.word_convolutions import Embed, WordConvolutions

NORMS = (nn.BatchNorm1d, nn.BatchNorm2d)

LARGEST_DENOMINATOR = 10**6
"""Of α as a fraction, where one of this size is the same float: 1.1 is 11/10, and 4/3 may be written as such."""


class GroupedLinear(nn.Linear):
    """A dense layer in groups, as a grouped convolution is: ``weight [outputs, inputs / groups]``."""

    groups: int

    def forward(self, h: Tensor) -> Tensor:
        """Return the outputs of every group of ``h [B, …, inputs]``, side by side."""
        weight, channels = grouped(self.weight, 0, self.groups), grouped(h, -1, self.groups)
        out = torch.einsum("...gi,goi->...go", channels, weight).flatten(-2)
        return out if self.bias is None else out + self.bias


@part("packed")
@dataclass(frozen=True)
class Packed(MemberEdit):
    """A packed ensemble of the network; its pre-trained stages, which offer no layer, stay shared.

    Attributes:
        size: M, the number of members.
        alpha: α, the width of all members together as a multiple of the network's.
        gamma: γ, the number of subgroups of a member's hidden layers.
    """

    redraws: ClassVar[str] = "every layer that it packs"

    size: Positive = 4
    alpha: PositiveFloat = 2.0
    gamma: Positive = 1

    def apply(self, model: Model) -> None:
        """Pack every stage behind the last that offers no layer for its weights.

        Raises:
            UserError: Naming a layer that mixes channels in another way, or whose width does not divide.
        """
        check_unchanged("packed", model)
        head_layers("packed", model)  # a last layer that cannot have members is not a layer to pack
        network = model.network
        stages = list(network.stages)
        shared = [i for i, stage in enumerate(stages) if _is_shared(stage)]
        first = True
        for i in range(shared[-1] + 1 if shared else 0, len(stages)):
            first = self._pack_stage(f"network.stages.{i}", stages[i], first=first)
        # without a layer of their own before the head members share its features
        width = network.width if first else self._member_width("network", network.width, "features")
        own_heads("packed", model, self.size, width)
        network.stages.append(RepeatFeatures(self.size) if first else GroupMembers(self.size))
        set_members(model, self.size, width=width)

    def _pack_stage(self, path: str, stage: nn.Module, *, first: bool) -> bool:
        """Pack the layers of a stage; return whether the first layer is still to come."""
        own = {id(layer) for _, layer in offered_layers(stage, path)}
        readers = contract(stage).readers
        for name, module in stage.named_modules(prefix=path):
            reads_inputs = first if readers is None else name.removeprefix(f"{path}.") in readers
            if isinstance(module, Stage) and not isinstance(module, Convolve):
                module.groups = self.size
            if isinstance(module, Convolve):
                self._pack_words(name, module)
            elif isinstance(module, Embed):
                self._pack_embedding(f"{name}.table", module.table)
                first = False
            elif isinstance(module, NORMS):
                if readers is None or not reads_inputs:  # one of the inputs is shared, as they are
                    self._pack_norm(name, module)
            elif id(module) in own and type(module) in (nn.Linear, nn.Conv2d):
                self._pack_layer(name, cast(nn.Linear, module), first=reads_inputs)
                first = False
            elif isinstance(module, WordConvolutions) or _has_other_weights(stage, name, path):
                raise UserError(f"packed: {name} {_unpackable(module)}.")
        for site in sites(stage):
            site.width = int(self._fraction() * site.width)
        return first

    def _pack_layer(self, path: str, layer: nn.Linear | nn.Conv2d, *, first: bool) -> None:
        outputs, inputs = layer.weight.shape[:2]
        if getattr(layer, "groups", 1) > 1:
            raise UserError(f"packed: {path} is a convolution in groups; it can pack ungrouped ones.")
        member_outputs = self._member_width(path, outputs, "outputs")
        groups = 1 if first else self.size * self.gamma
        own_inputs = inputs if first else self._member_width(path, inputs, "inputs") // self.gamma
        widen(layer, inputs=own_inputs, outputs=member_outputs, members=self.size)
        if isinstance(layer, nn.Conv2d):
            layer.in_channels, layer.out_channels, layer.groups = groups * own_inputs, len(layer.weight), groups
            return
        layer.in_features, layer.out_features = groups * own_inputs, len(layer.weight)
        if not first:
            layer.__class__ = GroupedLinear
            layer.groups = groups  # type: ignore[assignment]

    def _pack_norm(self, path: str, norm: nn.BatchNorm1d | nn.BatchNorm2d) -> None:
        norm.num_features = self.size * self._member_width(path, norm.num_features, "channels")
        for name in ("weight", "bias"):
            if getattr(norm, name) is not None:
                setattr(norm, name, nn.Parameter(torch.empty(norm.num_features)))
        norm.running_mean, norm.running_var = torch.zeros(norm.num_features), torch.ones(norm.num_features)
        norm.reset_parameters()
        of_members(norm, self.size, weight=0, bias=0, running_mean=0, running_var=0)

    def _pack_words(self, path: str, layer: Convolve) -> None:
        widths = (self._member_width(path, width, "channels") // self.gamma for width in layer.channels())
        layer.pack(self.size * self.gamma, *widths)
        for tensors, axis in ((layer.weights, 1), (layer.biases, 0)):
            of_members(tensors, self.size, **{str(i): axis for i in range(len(layer.kernels))})

    def _pack_embedding(self, path: str, table: nn.Embedding) -> None:
        width = self._member_width(path, table.embedding_dim, "columns")
        bound = float(table.weight.detach().abs().max())
        table.embedding_dim = self.size * width
        table.weight = nn.Parameter(table.weight.new_empty(table.num_embeddings, table.embedding_dim))
        nn.init.uniform_(table.weight, -bound, bound)
        with torch.no_grad():
            table.weight[0].zero_()
        of_members(table, self.size, weight=1)

    def _member_width(self, path: str, width: int, what: str) -> int:
        """Return α·width/M, the width of one member.

        Raises:
            UserError: When γ groups of it are not whole numbers.
        """
        total, parts = self._fraction() * width, self.size * self.gamma
        if total % parts:
            rule = f"alpha · {what} must be a multiple of size · gamma = {parts}"
            raise UnfitWidth(f"packed: {path} has {width} {what}; {rule}, and {self.alpha:g} · {width} is not.")
        return int(total) // self.size

    def _fraction(self) -> Fraction:
        """Return α as it was written: in floats 1.1 · 200 is not 220."""
        simple = Fraction(self.alpha).limit_denominator(LARGEST_DENOMINATOR)
        return simple if float(simple) == self.alpha else Fraction(repr(float(self.alpha)))


def _unpackable(layer: nn.Module) -> str:
    """Return why a layer with weights cannot be packed, as the end of a sentence about it."""
    if is_frozen(layer):
        return "is frozen (requires_grad=False); members need layers that are trained"
    kinds = "dense layers, ungrouped 2-D convolutions, batch-norm, and the layers of textcnn"
    if any(True for _ in layer.children()) and not hasattr(layer, "weight"):
        return f"is {kind_of(layer)} with parameters outside of its layers; it can pack {kinds}"
    return f"is {kind_of(layer)}; it can pack {kinds}, whose weights are parameters of their own"


def _is_shared(stage: nn.Module) -> bool:
    """Return whether a stage has weights and offers none of them, as the blocks of a pre-trained encoder."""
    if isinstance(stage, Embed) or offered_layers(stage, "") or all(isinstance(m, NORMS) for m in _weighted(stage)):
        return False
    return not isinstance(stage, Stage) or stage.uncertain is None


def _weighted(stage: nn.Module) -> list[nn.Module]:
    return [module for module in stage.modules() if any(True for _ in module.parameters(recurse=False))]


def _has_other_weights(stage: nn.Module, name: str, prefix: str) -> bool:
    """Return whether a module has weights of its own outside of layers that are packed as a whole."""
    names = name.removeprefix(prefix).lstrip(".").split(".")
    above = [stage.get_submodule(".".join(names[:i])) for i in range(len(names) + 1)]
    return next(iter(above[-1].parameters(recurse=False)), None) is not None and not any(
        isinstance(module, Embed | Convolve) for module in above
    )
