"""A small convolutional network beside a linear model of coarse pixels, for few images with noisy labels.

Convolutions alone learn a weak signal in noisy labels late, or not at all; logistic regression on some hundred averages
of pixels learns it at once. The head of this network sees both ("wide and deep", Cheng et al., 2016): the maps of three
3×3 convolutions with batch-norm, averaged over a grid of 4 × 4 cells, and the image averaged to 16 × 16 pixels. A
linear head starts as the logistic regression on these pixels, that of the baseline ``linear``, with weights 0 of the
maps (:func:`dubio.methods.fitting.start_linear`): what steps of training would learn late is there from the first one.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional

from dubio.core.errors import UserError
from dubio.core.registry import network
from dubio.networks.convolutions import ChannelsLast, channel_site, convolution
from dubio.networks.network import Network, Sizes, Stage

GRID = 4
"""Cells a side over which maps are averaged: they keep where something is."""

SIDE = 16
"""Pixels a side that the head sees, those of the baseline ``linear``."""

PIXEL_SCALE = 0.5
"""Factor of these pixels, whose channels are standardised: with rates for convolutions they are learned no faster."""


class NormConv(Stage):
    """A site over input channels, a 3×3 convolution, batch-norm, a ReLU and 2×2 max-pooling of maps above the grid."""

    bounds = ("conv",)

    def __init__(self, name: str, inputs: int, outputs: int, *, accepts: tuple[str, ...], stride: int) -> None:
        """Make a layer whose input channels are the site ``name``."""
        super().__init__()
        self.conv = convolution(inputs, outputs, 3, stride=stride)
        self.norm = nn.BatchNorm2d(outputs)
        self.site = channel_site(name, self.conv, accepts=accepts)

    def forward(self, h: Tensor) -> Tensor:
        """Return pool(relu(norm(conv(noise(h)))))."""
        h = torch.relu(self.norm(self.conv(self.site(h))))
        return functional.max_pool2d(h, 2) if min(h.shape[2:]) >= 2 * GRID else h


def block_of(sides: Sequence[int]) -> int:
    """Return how many pixels a side are averaged so that at most ``SIDE`` are left."""
    return -(-max(sides) // SIDE)


class MapsAndPixels(Stage):
    """Maps averaged over the grid and the image averaged to coarse pixels, side by side ``[B, width]``."""

    def __init__(self, layers: list[nn.Module]) -> None:
        """Make it of the layers whose maps are averaged."""
        super().__init__()
        self.layers = nn.Sequential(*layers)

    @property
    def groups(self) -> int:
        """Groups of channels: one, because pixels are no channels that the members of a packed ensemble could divide.

        Raises:
            UserError: When they are set.
        """
        return 1

    @groups.setter
    def groups(self, number: int) -> None:
        raise UserError("packed: cnn-linear gives its head pixels, which members cannot divide; use another network.")

    def forward(self, h: Tensor) -> Tensor:
        """Return averages of maps, then pixels."""
        pixels = functional.avg_pool2d(h, block_of(h.shape[2:]), ceil_mode=True)
        maps = functional.adaptive_avg_pool2d(self.layers(h), GRID)
        return torch.cat([maps.flatten(1), PIXEL_SCALE * pixels.flatten(1)], dim=1)


@network("cnn-linear", inputs="image", version=2)
def cnn_linear(shape: tuple[int, ...], *, channels: Sizes = (8, 16, 32)) -> Network:
    """A small convolutional network with batch-norm beside the image at 16 × 16 pixels.

    Fixed dropout acts before the head; concrete dropout there and on the input channels of every convolution except the
    first, whose inputs are the data.

    Args:
        shape: (channels, height, width).
        channels: Maps of each convolution; the first has stride 2.
    """
    layers: list[nn.Module] = [ChannelsLast()]
    for i, (inputs, outputs) in enumerate(zip((shape[0], *channels), channels, strict=False)):
        accepts = ("concrete_dropout",) if i else ()
        layers.append(NormConv(f"conv{i + 1}", inputs, outputs, accepts=accepts, stride=1 if i else 2))
    block = block_of(shape[1:])
    pixels = shape[0] * (-(-shape[1] // block)) * (-(-shape[2] // block))
    return Network([MapsAndPixels(layers)], channels[-1] * GRID**2 + pixels, pixels=PIXEL_SCALE)
