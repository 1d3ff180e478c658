"""Pre-activation residual networks for small images (He et al., 2016b): `preresnet`, of depths 20, 110, 164 and others.

A 3×3 convolution to 16 channels, three groups of n blocks with 16, 32 and 64 channels (the second and third begin with
stride 2), batch-norm, ReLU and the average over all positions. A block adds to its input what batch-norm, ReLU and
convolutions make of it: two 3×3 convolutions (*basic*, depth 6n + 2), or 1×1, 3×3 and 1×1 to four times the channels
(*bottleneck*, depth 9n + 2). Where the shapes differ, the input passes a 1×1 convolution.

The networks of the pitfalls paper come from a family of programs that takes bottlenecks from depth 44 on. Its
PreResNet-110 is therefore a bottleneck network of 1.15 million parameters, not He et al.'s basic one of 1.73 million.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor, nn

from dubio.core.errors import UserError
from dubio.core.registry import network
from dubio.networks.convolutions import ChannelsLast, NormPool, Stem, group_blocks, residual_layers
from dubio.networks.network import Network, Stage

Block = Literal["basic", "bottleneck"]

FIRST_CHANNELS = 16
CHANNELS = (16, 32, 64)
BOTTLENECK_DEPTH = 44
"""From this depth on blocks are bottlenecks by default."""

LAYERS: dict[Block, int] = {"basic": 6, "bottleneck": 9}
"""Layers that one more block in each of the three groups adds to the depth."""


class PreBlock(Stage):
    """h plus convolutions of relu(norm(h)), each behind a site over its input channels."""

    def __init__(self, name: str, inputs: int, layers: Sequence[tuple[int, int, int]]) -> None:
        """Make a block whose sites begin with ``name``.

        Args:
            name: The block's name.
            inputs: Channels that come in.
            layers: Kernel, channels and stride of each convolution.
        """
        super().__init__()
        convs, sites, shortcut = residual_layers(name, inputs, layers)
        self.norms = nn.ModuleList(nn.BatchNorm2d(conv.in_channels) for conv in convs)
        self.convs, self.sites = nn.ModuleList(convs), nn.ModuleList(sites)
        self.shortcut = shortcut
        self.bounds = (*(f"convs.{i}" for i in range(len(layers))), *(() if shortcut is None else ("shortcut",)))

    def forward(self, h: Tensor) -> Tensor:
        """Return shortcut(h) + the convolutions."""
        branch = h
        for norm, site, conv in zip(self.norms, self.sites, self.convs, strict=True):
            branch = conv(site(torch.relu(norm(branch))))
        return branch + (h if self.shortcut is None else self.shortcut(h))


@network("preresnet", inputs="image")
def preresnet(shape: tuple[int, ...], *, depth: int = 110, block: Block | None = None) -> Network:
    """A pre-activation residual network for small images, such as PreResNet-110, -164 or -20.

    Concrete dropout acts on the input channels of every convolution except the first and the shortcuts; fixed dropout,
    which the paper does not use in these networks, before the head only.

    Args:
        shape: (channels, height, width).
        depth: 6n + 2 with basic blocks, 9n + 2 with bottlenecks.
        block: Kind of block; by default basic below depth 44 and bottleneck from there on, as in the paper.
    """
    kind: Block = block or ("basic" if depth < BOTTLENECK_DEPTH else "bottleneck")
    count = _blocks(depth, kind)
    stages: list[nn.Module] = [ChannelsLast(), Stem(shape[0], FIRST_CHANNELS)]
    inputs = FIRST_CHANNELS
    for group, name, stride in group_blocks([count] * len(CHANNELS)):
        layers = _layers(kind, CHANNELS[group], stride=stride)
        stages.append(PreBlock(name, inputs, layers))
        inputs = layers[-1][1]
    return Network([*stages, NormPool(inputs)], inputs)


@network("preresnet-164", inputs="image")
def preresnet_164(shape: tuple[int, ...], *, depth: int = 164, block: Block | None = None) -> Network:
    """PreResNet-164 under its own name, so that one benchmark can have it beside PreResNet-110.

    Args:
        shape: (channels, height, width).
        depth: As of ``preresnet``.
        block: As of ``preresnet``.
    """
    return preresnet(shape, depth=depth, block=block)


def _layers(kind: Block, channels: int, *, stride: int) -> tuple[tuple[int, int, int], ...]:
    """Return kernel, channels and stride of each convolution of a block."""
    if kind == "basic":
        return (3, channels, stride), (3, channels, 1)
    return (1, channels, 1), (3, channels, stride), (1, 4 * channels, 1)


def _blocks(depth: int, kind: Block) -> int:
    """Return the number of blocks per group.

    Raises:
        UserError: For a depth that no number of blocks gives, with the nearest that exist.
    """
    layers = LAYERS[kind]
    if depth < layers + 2 or (depth - 2) % layers:
        below = max(1, (depth - 2) // layers) * layers + 2
        depths = f"{layers}n + 2 with {kind} blocks, such as {below} or {below + layers}"
        raise UserError(f"preresnet: depth must be {depths}; given {depth}.")
    return (depth - 2) // layers
