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

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, cast

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
    is_frozen,
    own_heads,
    reading_layers,
    set_members,
    widen,
)
from dubio.networks.network import Model, Stage, kind_of
from dubio.networks.rank_one import offered_layers


class JoinInputs(Stage):
    """The inputs of all members, their channels side by side; an example alone is repeated for each member.

    Channels are the second axis. Of sequences ``[B, T, features]`` that a dense layer reads step by step they are the
    last one.

    Attributes:
        features: Inputs of the dense layers that read the data, before they were widened; 0 where convolutions do.
    """

    def __init__(self, members: int, features: int) -> None:
        """Join the inputs of ``members``."""
        super().__init__()
        self.members, self.features = members, features

    def joined(self, inputs: Sequence[Tensor]) -> Tensor:
        """Return the inputs of all members side by side."""
        by_step = inputs[0].ndim > 2 and inputs[0].shape[-1] == self.features
        return torch.cat(list(inputs), dim=-1 if by_step else 1)

    def forward(self, h: Tensor) -> Tensor:
        """Return ``[B, M · channels, …]``, or ``[B, T, M · features]``."""
        if self.training:  # arranged already
            return h
        if not isinstance(h, Tensor) or h.ndim < 2 or not h.is_floating_point():
            raise UserError("mimo: needs inputs [batch, channels, …] of numbers, which can be laid side by side.")
        return self.joined([h] * self.members)


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
        return self._join[0].joined([inputs[index.to(inputs.device)] for index in own.unbind(1)]), own.flatten()


@part("mimo")
@dataclass(frozen=True)
class MIMO(MemberEdit):
    """Several inputs and outputs.

    Attributes:
        size: M, the number of members.
        repetitions: r, how often an example is in the batch.
        repeated_inputs: ρ, the fraction of rows with the same example in all inputs.
    """

    redraws: ClassVar[str] = "the first layer and the last"

    size: Positive = 3
    repetitions: Positive = 1
    repeated_inputs: Annotated[float, at_least(0), at_most(1)] = 0.0

    def apply(self, model: Model) -> None:
        """Widen the layers that read the data and give each member a head.

        Raises:
            UserError: When the first layer is neither dense nor a 2-D convolution, the head has no dense layer, or it
                sees pixels beside the features.
        """
        check_unchanged("mimo", model)
        if model.network.pixels is not None:
            reason = "this network gives its head pixels, which members cannot share"
            raise UserError(f"mimo: {reason}; use another network.")
        layers = _first_layers(model)
        own_heads("mimo", model, self.size, model.network.width)
        dense = [layer.in_features for layer in layers if isinstance(layer, nn.Linear)]
        features = dense[0] if len(dense) == len(layers) else 0
        for layer in layers:
            self._widen(layer)
        join, network = JoinInputs(self.size, features), model.network
        network.stages = nn.ModuleList([join, *network.stages, RepeatFeatures(self.size)])
        network.arrangement = Shuffled(join, self.repetitions, self.repeated_inputs)
        set_members(model, self.size)

    def _widen(self, layer: nn.Linear | nn.Conv2d) -> None:
        outputs, inputs = layer.weight.shape[:2]
        widen(layer, inputs=self.size * inputs, outputs=outputs, members=1)
        del layer.member_axes, layer.members
        if isinstance(layer, nn.Linear):
            layer.in_features = self.size * inputs
        else:
            layer.in_channels = self.size * inputs


def _first_layers(model: Model) -> list[nn.Linear | nn.Conv2d]:
    """Return the layers that read the data, in most networks one.

    Raises:
        UserError: Naming the one that cannot read those of all members at once.
    """
    modules, offered = dict(model.named_modules()), dict(offered_layers(model.network, "network"))
    readers = {path: reads_all for path, reads_all in reading_layers(model).items() if path in modules}
    for path, reads_all in readers.items():
        layer = modules[path]
        if path not in offered or type(layer) not in (nn.Linear, nn.Conv2d) or getattr(layer, "groups", 1) > 1:
            kinds = "a dense layer or an ungrouped 2-D convolution, which reads the inputs of all members at once"
            reason = "frozen (requires_grad=False)" if is_frozen(layer) else kind_of(layer)
            raise UserError(f"mimo: the first layer must be {kinds}; {path} is {reason}.")
        if not reads_all:
            raise UserError(f"mimo: the inputs of all members lie side by side, so that the first layer must read them "
                            f"whole; {path} reads a part of them.")  # fmt: skip
    if not readers:
        raise UserError("mimo: no layer before the head reads the inputs, and them alone.")
    return [cast(nn.Linear, modules[path]) for path in readers]
