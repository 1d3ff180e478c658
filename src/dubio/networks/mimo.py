"""MIMO (Havasi et al., 2021): one network with M inputs and M outputs, whose members train as independent ones.

The first layer reads M examples, their channels side by side, and each of M heads answers about its own one. In
training the M inputs are different examples, shuffled independently; at prediction all are the example in question.
Two settings help a network that is small for its data:

- *batch repetition* r: every example is in the batch r times, with other partners;
- *input repetition* ρ: a fraction ρ of the rows has the same example in all inputs.

Every example is r times the input of every member, so that the loss of an example is the mean over r·M rows. MIMO adds
(M − 1)·C·k_h·k_w·outputs weights to the first layer and (M − 1)·(width + 1)·K to a softmax head.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, cast

import torch
from torch import Tensor, nn

from dubio.core.errors import UserError
from dubio.core.specs import part
from dubio.core.validate import Positive, at_least, at_most
from dubio.networks.members import (
    Arrangement,
    MemberEdit,
    RepeatFeatures,
    check_unchanged,
    own_heads,
    set_members,
    widen,
)
from dubio.networks.network import Model, Stage
from dubio.networks.rank_one import offered_layers


class JoinInputs(Stage):
    """The inputs of all members, their channels side by side; an example alone is repeated for each member."""

    def __init__(self, members: int) -> None:
        """Join the inputs of ``members``."""
        super().__init__()
        self.members = members

    def forward(self, h: Tensor) -> Tensor:
        """Return ``[B, M · channels, …]``."""
        if self.training:  # arranged already
            return h
        if not isinstance(h, Tensor) or h.ndim < 2 or not h.is_floating_point():
            raise UserError("mimo: needs inputs [batch, channels, …] of numbers, which can be laid side by side.")
        return torch.cat([h] * self.members, dim=1)


class Shuffled(Arrangement):
    """Different examples for the members of a row, each example r times for every member."""

    def __init__(self, join: JoinInputs, repetitions: int, repeated_inputs: float) -> None:
        """Arrange batches for a network that begins with this stage."""
        super().__init__()
        self._join = (join,)  # in a tuple: it is registered where it runs
        self.repetitions, self.repeated_inputs = repetitions, repeated_inputs
        self.passes = float(repetitions)

    def forward(self, batch: Any, examples: int) -> tuple[Any, Tensor]:
        """Return rows of M examples each, and the example of each row and member."""
        members = self._join[0].members
        order = torch.cat([torch.randperm(examples, generator=self.generator) for _ in range(self.repetitions)])
        shuffled = len(order) - round(self.repeated_inputs * len(order))
        permutations = [torch.randperm(shuffled, generator=self.generator) for _ in range(members)]
        own = torch.stack([torch.cat([order[:shuffled][p], order[shuffled:]]) for p in permutations], dim=1)
        inputs = cast(Tensor, batch)
        return torch.cat([inputs[index.to(inputs.device)] for index in own.unbind(1)], dim=1), own.flatten()


@part("mimo")
@dataclass(frozen=True)
class MIMO(MemberEdit):
    """Several inputs and outputs.

    Attributes:
        size: M, the number of members.
        repetitions: r, how often an example is in the batch.
        repeated_inputs: ρ, the fraction of rows with the same example in all inputs.
    """

    size: Positive = 3
    repetitions: Positive = 1
    repeated_inputs: Annotated[float, at_least(0), at_most(1)] = 0.0

    def apply(self, model: Model) -> None:
        """Widen the first layer and give each member a head.

        Raises:
            UserError: When the first layer is neither dense nor a 2-D convolution, or the head has no dense layer.
        """
        check_unchanged("mimo", model)
        layer = _first_layer(model)
        own_heads("mimo", model, self.size, model.network.width)
        outputs, inputs = layer.weight.shape[:2]
        widen(layer, inputs=self.size * inputs, outputs=outputs, members=1)
        del layer.member_axes, layer.members
        if isinstance(layer, nn.Linear):
            layer.in_features = self.size * inputs
        else:
            layer.in_channels = self.size * inputs
        join, network = JoinInputs(self.size), model.network
        network.stages = nn.ModuleList([join, *network.stages, RepeatFeatures(self.size)])
        network.arrangement = Shuffled(join, self.repetitions, self.repeated_inputs)
        set_members(model, self.size)


def _first_layer(model: Model) -> nn.Linear | nn.Conv2d:
    """Return the layer that reads the data.

    Raises:
        UserError: Naming the first module with weights where it is no such layer.
    """
    offered = dict(offered_layers(model.network, "network"))
    for path, module in model.network.named_modules(prefix="network"):
        if not any(True for _ in module.parameters(recurse=False)):
            continue
        if path in offered and type(module) in (nn.Linear, nn.Conv2d) and getattr(module, "groups", 1) == 1:
            return cast(nn.Linear, module)
        kinds = "a dense layer or an ungrouped 2-D convolution, which reads the inputs of all members at once"
        raise UserError(f"mimo: the first layer must be {kinds}; {path} is a {type(module).__name__}.")
    raise UserError("mimo: this network has no layer before its head.")
