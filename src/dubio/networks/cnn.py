"""A small convolutional network for small images."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from dubio.core.registry import network
from dubio.core.validate import Positive
from dubio.networks.convolutions import channel_site
from dubio.networks.network import Dense, Network, Sizes, Stage


class ConvBlock(Stage):
    """A site over input channels, a 3×3 convolution, a ReLU and, where the image allows, 2×2 max-pooling."""

    bounds = ("conv",)

    def __init__(self, name: str, inputs: int, outputs: int, *, accepts: tuple[str, ...], pool: int) -> None:
        """Make a block whose input channels are the site ``name``."""
        super().__init__()
        self.conv = nn.Conv2d(inputs, outputs, 3, padding=1)
        self.site = channel_site(name, self.conv, accepts=accepts)
        self.pool = pool

    def forward(self, h: Tensor) -> Tensor:
        """Return pool(relu(conv(noise(h))))."""
        h = torch.relu(self.conv(self.site(h)))
        return nn.functional.max_pool2d(h, self.pool) if self.pool > 1 else h


@network("cnn", inputs="image")
def cnn(shape: tuple[int, ...], *, channels: Sizes = (16, 32), dense: Positive = 64) -> Network:
    """Convolutions 3×3 with pooling, then one dense layer.

    Fixed dropout acts before the dense layer and before the head; concrete dropout also at the inputs of every
    convolution except the first, whose inputs are the data.

    Args:
        shape: (channels, height, width).
        channels: Maps of each convolution.
        dense: Units of the dense layer.
    """
    stages: list[nn.Module] = []
    inputs, height, width = shape
    for i, outputs in enumerate(channels):
        pool = 2 if min(height, width) >= 4 else 1
        accepts = ("concrete_dropout",) if i else ()
        stages.append(ConvBlock(f"conv{i + 1}", inputs, outputs, accepts=accepts, pool=pool))
        inputs, height, width = outputs, height // pool, width // pool
    last = Dense("dense", inputs * height * width, dense, accepts=("dropout", "concrete_dropout"))
    return Network([*stages, nn.Flatten(), last], dense)
