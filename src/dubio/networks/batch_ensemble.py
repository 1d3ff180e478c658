"""BatchEnsemble (Wen, Tran & Ba, 2020): members share every weight, up to two vectors each.

Member m has the weights W ∘ (s_m r_mᵀ), with its own r_m over a layer's inputs, s_m over its outputs and its
own bias. Every example is repeated for every member in training and at prediction; the loss is the mean over members. A
convolution from n to k channels has n·k·k_h·k_w + M·(n + k) weights and M·k biases instead of M·(n·k·k_h·k_w + k) in
all; a dense layer is one of a single position. Batch-norm is shared, as in edward2's wide residual network.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from dubio.core.errors import UserError
from dubio.core.specs import part
from dubio.core.validate import Positive
from dubio.networks.members import MemberEdit, SplitMembers, check_unchanged, split_rows
from dubio.networks.network import Model
from dubio.networks.rank_one import RankOne, offered_layers, scale_layer, stage_of

FirstFactors = Literal["signs", "normal", "ones"]


@part("batch_ensemble")
@dataclass(frozen=True)
class BatchEnsemble(MemberEdit):
    """Rank-one members in every dense layer and convolution that the network and its head offer.

    Attributes:
        size: M, the number of members.
        first: First values of r and s: random signs as in the paper; N(1, 0.5²), which disturbs pre-trained weights
            less; or ones, with which all members are the same.
    """

    size: Positive = 4
    first: FirstFactors = "signs"

    def apply(self, model: Model) -> None:
        """Give every offered layer its factors.

        Raises:
            UserError: When the model offers no layer, or one that cannot have factors.
        """
        check_unchanged("batch_ensemble", model)
        body, head = offered_layers(model.network, "network"), offered_layers(model.head, "head")
        if not body and not head:
            raise UserError("batch_ensemble: neither the network nor its head offers a dense layer or a convolution.")
        for path, layer in (*body, *head):
            scale_layer("batch_ensemble", path, layer, self.factors)
        index = stage_of(body[0][0]) if body else len(model.network.stages)
        split_rows(model, index, SplitMembers(self.size))

    def factors(self, inputs: int, outputs: int, bias: Tensor | None) -> RankOne:
        """Return the factors of a layer; every member begins with its bias."""
        r, s = (nn.Parameter(self._first(width)) for width in (inputs, outputs))
        return RankOne(r, s, None if bias is None else nn.Parameter(bias.detach().repeat(self.size, 1)))

    def _first(self, width: int) -> Tensor:
        if self.first == "ones":
            return torch.ones(self.size, width)
        if self.first == "normal":
            return 1.0 + 0.5 * torch.randn(self.size, width)
        return torch.randint(0, 2, (self.size, width)) * 2.0 - 1.0
