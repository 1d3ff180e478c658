"""Wide residual networks (Zagoruyko & Komodakis, 2016): `wrn`, WRN-28-10 by default.

A 3×3 convolution to 16 channels, three groups of n = (depth − 4)/6 blocks with 16k, 32k and 64k channels (the second
and third begin with stride 2), batch-norm, ReLU and the average over all positions. A block is

    h + conv₂(dropout(relu(norm₂(conv₁(relu(norm₁(h)))))))

with 3×3 convolutions without bias; where the shapes differ, a 1×1 convolution of relu(norm₁(h)) stands for h. WRN-28-10
has 36,479,194 parameters for ten classes. The programs of the pitfalls paper differ in details with little influence
on results (biases before batch-norm, the stride in conv₂, dropout before norm₂); this is the original.
"""

from __future__ import annotations

from typing import cast

import torch
from torch import Tensor, nn

from dubio.core.errors import UserError
from dubio.core.registry import network
from dubio.core.validate import Positive
from dubio.networks.convolutions import (
    ChannelsLast,
    NormPool,
    Stem,
    channel_site,
    convolution,
    group_blocks,
    over_units,
    shortcut,
    sides_after,
    unit_site,
)
from dubio.networks.network import Network, Stage

FIRST_CHANNELS = 16
CHANNELS = (16, 32, 64)
"""Channels of each group for k = 1."""


class WideBlock(Stage):
    """A basic block with fixed dropout of single units between its convolutions."""

    def __init__(self, name: str, inputs: int, outputs: int, *, stride: int, sides: tuple[int, ...]) -> None:
        """Make a block whose sites begin with ``name`` and whose maps come out with these sides."""
        super().__init__()
        self.norm1, self.norm2 = nn.BatchNorm2d(inputs), nn.BatchNorm2d(outputs)
        self.conv1 = convolution(inputs, outputs, 3, stride=stride)
        self.conv2 = convolution(outputs, outputs, 3)
        self.site1 = channel_site(f"{name}.conv1", self.conv1)
        self.units = unit_site(f"{name}.units", outputs, sides)
        self.site2 = channel_site(f"{name}.conv2", self.conv2)
        self.shortcut = shortcut(inputs, outputs, stride)
        self.bounds = ("conv1", "conv2", *(() if self.shortcut is None else ("shortcut",)))

    def forward(self, h: Tensor) -> Tensor:
        """Return the shortcut plus both convolutions."""
        active = torch.relu(self.norm1(h))
        around = h if self.shortcut is None else self.shortcut(active)
        branch = torch.relu(self.norm2(self.conv1(self.site1(active))))
        return around + cast(Tensor, self.conv2(self.site2(over_units(self.units, branch))))


@network("wrn", inputs="image")
def wrn(shape: tuple[int, ...], *, depth: int = 28, widen: Positive = 10) -> Network:
    """A wide residual network for small images, such as WRN-28-10 or WRN-16-2.

    Fixed dropout (p = 0.3 in the papers) acts only on single units between the convolutions of every block; concrete
    dropout on the input channels of every convolution except the first and the shortcuts, and before the head.

    Args:
        shape: (channels, height, width).
        depth: 6n + 4.
        widen: k, the factor of the number of channels.
    """
    if depth < 10 or (depth - 4) % 6:
        below = max(1, (depth - 4) // 6) * 6 + 4
        raise UserError(f"wrn: depth must be 6n + 4, such as {below} or {below + 6}; given {depth}.")
    stages: list[nn.Module] = [ChannelsLast(), Stem(shape[0], FIRST_CHANNELS)]
    inputs, sides = FIRST_CHANNELS, shape[1:]
    for group, name, stride in group_blocks([(depth - 4) // 6] * len(CHANNELS)):
        sides, outputs = sides_after(sides, stride), CHANNELS[group] * widen
        stages.append(WideBlock(name, inputs, outputs, stride=stride, sides=sides))
        inputs = outputs
    return Network([*stages, NormPool(inputs)], inputs, before_head=("concrete_dropout",))
