"""ResNet-50 (He et al., 2016a) for images of about 224 pixels.

A 7×7 convolution to 64 channels with stride 2, batch-norm, ReLU, 3×3 max-pooling with stride 2, four groups of 3, 4, 6
and 3 bottleneck blocks with 64, 128, 256 and 512 channels (the output has four times that number), and the average
over all positions: 25,557,032 parameters with a head of 1,000 classes. The stride of a group's first block is that of
its 3×3 convolution, as in PyTorch's own models, which the pitfalls paper trained (He et al. had it in the 1×1 before).
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from dubio.core.registry import network
from dubio.core.validate import Positive
from dubio.networks.convolutions import ChannelsLast, convolution, group_blocks, residual_layers
from dubio.networks.network import Network, Sizes, Stage

EXPANSION = 4
"""Output channels of a bottleneck per inner channel."""


class WideStem(Stage):
    """A 7×7 convolution with stride 2, batch-norm, ReLU and 3×3 max-pooling with stride 2, on the data."""

    bounds = ("conv",)

    def __init__(self, inputs: int, outputs: int) -> None:
        """Make it from the data's channels."""
        super().__init__()
        self.conv = convolution(inputs, outputs, 7, stride=2)
        self.norm = nn.BatchNorm2d(outputs)

    def forward(self, h: Tensor) -> Tensor:
        """Return pool(relu(norm(conv(h))))."""
        # the maximum first, which commutes with a ReLU
        return torch.relu(functional.max_pool2d(self.norm(self.conv(h)), 3, stride=2, padding=1))


class Bottleneck(Stage):
    """relu(shortcut(h) + branch(h)): convolutions 1×1, 3×3 and 1×1, batch-norm behind each, ReLU between them.

    The shortcut is h itself or, where the shapes differ, a 1×1 convolution with batch-norm.
    """

    def __init__(self, name: str, inputs: int, channels: int, *, stride: int) -> None:
        """Make a block whose sites begin with ``name``."""
        super().__init__()
        layers = ((1, channels, 1), (3, channels, stride), (1, EXPANSION * channels, 1))
        convs, sites, shortcut = residual_layers(name, inputs, layers)
        self.convs = nn.ModuleList(convs)
        self.norms = nn.ModuleList(nn.BatchNorm2d(conv.out_channels) for conv in convs)
        self.sites = nn.ModuleList(sites)
        self.shortcut = shortcut
        self.shortcut_norm = None if shortcut is None else nn.BatchNorm2d(EXPANSION * channels)
        self.bounds = ("convs.0", "convs.1", "convs.2", *(() if shortcut is None else ("shortcut",)))

    def forward(self, h: Tensor) -> Tensor:
        """Return relu(branch + shortcut)."""
        branch = h
        for i, (site, conv, norm) in enumerate(zip(self.sites, self.convs, self.norms, strict=True)):
            branch = norm(conv(site(torch.relu(branch) if i else branch)))
        if self.shortcut is not None and self.shortcut_norm is not None:
            h = self.shortcut_norm(self.shortcut(h))
        return torch.relu(branch + h)


class Average(Stage):
    """The average of every map, ``[B, C]``."""

    def forward(self, h: Tensor) -> Tensor:
        """Return averages over all positions."""
        return h.mean(dim=(2, 3))


@network("resnet50", inputs="image")
def resnet50(shape: tuple[int, ...], *, base: Positive = 64, blocks: Sizes = (3, 4, 6, 3)) -> Network:
    """ResNet-50, for images of about 224 pixels.

    Concrete dropout acts on the input channels of every convolution except the first and the shortcuts; fixed dropout,
    which the paper does not use in this network, before the head only.

    Args:
        shape: (channels, height, width).
        base: Channels of the first convolution and inside the first group's blocks; each later group doubles them.
        blocks: Blocks of each group; (3, 4, 23, 3), for example, is ResNet-101.
    """
    stages: list[nn.Module] = [ChannelsLast(), WideStem(shape[0], base)]
    inputs = base
    for group, name, stride in group_blocks(blocks):
        stages.append(Bottleneck(name, inputs, base * 2**group, stride=stride))
        inputs = EXPANSION * base * 2**group
    return Network([*stages, Average()], inputs)
