"""VGG with batch-norm: groups of 3×3 convolutions with max-pooling between them, then two dense layers.

`vgg16-bn` is the CIFAR network of the pitfalls paper (Simonyan & Zisserman's configuration D with two hidden layers
of 512 units): 13 convolutions with bias, batch-norm behind each, five poolings; 15,253,578 parameters for colour
images of 32 pixels and ten classes. `vgg-small` is the same family for one core.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from dubio.core.errors import UserError
from dubio.core.registry import network
from dubio.core.validate import Positive
from dubio.networks.convolutions import ChannelsLast, channel_site, convolution
from dubio.networks.network import Dense, Network, Sizes, Stage

VGG16 = ((1, 2), (2, 2), (4, 3), (8, 3), (8, 3))
"""For each group, its channels in units of the first group's, and its number of convolutions."""


class ConvNorm(Stage):
    """A site over input channels, a 3×3 convolution, batch-norm, a ReLU and, at a group's end, 2×2 max-pooling."""

    bounds = ("conv",)

    def __init__(self, name: str, inputs: int, outputs: int, *, accepts: tuple[str, ...], pool: int) -> None:
        """Make a layer whose input channels are the site ``name``; it pools where ``pool`` is above 1."""
        super().__init__()
        self.conv = convolution(inputs, outputs, 3, bias=True)
        self.norm = nn.BatchNorm2d(outputs)
        self.site = channel_site(name, self.conv, accepts=accepts)
        self.pool = pool

    def forward(self, h: Tensor) -> Tensor:
        """Return pool(relu(norm(conv(noise(h)))))."""
        return rectified(self.norm(self.conv(self.site(h))), self.pool)


class FoldedConvNorm(Stage):
    """:class:`ConvNorm` without noise, with its batch-norm folded into the convolution.

    With mean m, variance v, gain g and shift β of the batch-norm: weights W·g/√(v + ε), biases (b − m)·g/√(v + ε) + β.
    """

    weight: Tensor
    bias: Tensor

    def __init__(self, layer: ConvNorm) -> None:
        """Take a layer's present weights."""
        super().__init__()
        conv, norm = layer.conv, layer.norm
        bias, mean, variance = (cast(Tensor, value) for value in (conv.bias, norm.running_mean, norm.running_var))
        scale = norm.weight * torch.rsqrt(variance + norm.eps)
        self.register_buffer("weight", (conv.weight * scale[:, None, None, None]).detach())
        self.register_buffer("bias", ((bias - mean) * scale + norm.bias).detach())
        self.pool, self.conv_groups = layer.pool, conv.groups

    def forward(self, h: Tensor) -> Tensor:
        """Return pool(relu(W ⋆ h + b))."""
        return rectified(functional.conv2d(h, self.weight, self.bias, padding=1, groups=self.conv_groups), self.pool)


class Pixels(ChannelsLast):
    """The first stage; for fixed weights it offers the convolutions with batch-norm folded in."""

    def prepared(self, following: Sequence[nn.Module], limit: int) -> list[nn.Module] | None:
        """Return folded convolutions, if their weights fit; 1.35 times as fast with the small network."""
        layers = [stage for stage in following if isinstance(stage, ConvNorm)]
        if not layers or sum(layer.conv.weight.numel() for layer in layers) > limit:
            return None
        if any(type(layer.conv) is not nn.Conv2d for layer in layers):  # an edit scales its channels
            return None
        return [self, *(FoldedConvNorm(stage) if isinstance(stage, ConvNorm) else stage for stage in following)]


def rectified(h: Tensor, pool: int) -> Tensor:
    """Return pool(relu(h)); the maximum first, which commutes with a ReLU and leaves it a quarter of the units."""
    return torch.relu(functional.max_pool2d(h, pool) if pool > 1 else h)


@network("vgg16-bn", inputs="image")
def vgg16_bn(shape: tuple[int, ...], *, base: Positive = 64, dense: Positive = 512) -> Network:
    """VGG16 with batch-norm: groups of b, b | 2b, 2b | 4b ×3 | 8b ×3 | 8b ×3 channels, two hidden layers.

    Fixed dropout acts before both hidden layers, as in the paper, and nowhere else; concrete dropout at the inputs of
    every layer except the first, whose inputs are the data.

    Args:
        shape: (channels, height, width).
        base: b, the channels of the first group.
        dense: Units of each hidden layer.
    """
    return _vgg(shape, [(base * times, many) for times, many in VGG16], dense)


@network("vgg-small", inputs="image")
def vgg_small(
    shape: tuple[int, ...],
    *,
    channels: Sizes = (16, 32, 64, 128),
    convolutions: Sizes = (1, 2, 2, 2),
    dense: Positive = 128,
) -> Network:
    """A small VGG with batch-norm: by default seven convolutions, an epoch of 4,000 CIFAR images in about four seconds.

    Noise acts as in vgg16-bn.

    Args:
        shape: (channels, height, width).
        channels: Channels of each group.
        convolutions: Number of convolutions of each group.
        dense: Units of each of the two hidden layers.
    """
    if len(channels) != len(convolutions):
        groups = f"{list(channels)} and {list(convolutions)}"
        raise UserError(f"vgg-small: channels and convolutions must name the same number of groups; given {groups}.")
    return _vgg(shape, list(zip(channels, convolutions, strict=True)), dense)


def _vgg(shape: tuple[int, ...], groups: Sequence[tuple[int, int]], dense: int) -> Network:
    """Return groups of (channels, convolutions), each pooled at its end if its maps have at least two pixels a side."""
    inputs, height, width = shape
    stages: list[nn.Module] = [Pixels()]
    for i, (outputs, many) in enumerate(groups):
        for j in range(many):
            pool = 2 if j == many - 1 and min(height, width) >= 2 else 1
            accepts = ("concrete_dropout",) if i or j else ()
            stages.append(ConvNorm(f"conv{i + 1}-{j + 1}", inputs, outputs, accepts=accepts, pool=pool))
            inputs, height, width = outputs, height // pool, width // pool
    both = ("dropout", "concrete_dropout")
    first = Dense("dense1", inputs * height * width, dense, accepts=both)
    second = Dense("dense2", dense, dense, accepts=both)
    return Network([*stages, nn.Flatten(), first, second], dense, before_head=("concrete_dropout",))
