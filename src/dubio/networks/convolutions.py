"""Parts shared by the batch-normalised convolutional networks: first weights, noise sites, first and last stages."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import cast

import torch
from torch import Tensor, nn

from dubio.networks.network import Stage
from dubio.networks.noise import Site

FirstWeights = Callable[[Tensor, Tensor | None], None]
"""A rule that draws a layer's weight and bias, in place."""


def convolution(inputs: int, outputs: int, kernel: int, *, stride: int = 1, bias: bool = False) -> nn.Conv2d:
    """Return a convolution whose maps change their sides only by the stride.

    Its weights start as N(0, 2/(k²·outputs)), He's rule with the fan-out, and a bias as 0.

    Args:
        inputs: Channels that come in.
        outputs: Channels that go out.
        kernel: k, the odd side of its window.
        stride: Its stride.
        bias: Whether it has one. Before batch-norm a bias changes nothing, but counts among the parameters.
    """
    layer = nn.Conv2d(inputs, outputs, kernel, stride=stride, padding=kernel // 2, bias=bias)
    draw_first(layer, he_fan_out)
    return layer


def draw_first(layer: nn.Conv2d, rule: FirstWeights) -> None:
    """Draw a layer's first weights by a rule, which it keeps for edits that draw them again."""
    rule(layer.weight, layer.bias)
    layer.first_weights = rule  # type: ignore[assignment]


def he_fan_out(weight: Tensor, bias: Tensor | None) -> None:
    """Draw weights from N(0, 2/(k²·outputs)); a bias is 0."""
    nn.init.kaiming_normal_(weight, mode="fan_out", nonlinearity="relu")
    if bias is not None:
        nn.init.zeros_(bias)


def glorot(weight: Tensor, bias: Tensor | None) -> None:
    """Draw weights uniformly within ±√(6/(k²·(inputs + outputs))); a bias is 0."""
    nn.init.xavier_uniform_(weight)
    if bias is not None:
        nn.init.zeros_(bias)


def channel_site(name: str, conv: nn.Conv2d, *, accepts: Iterable[str] = ("concrete_dropout",)) -> Site:
    """Return a site over the input channels of a convolution."""
    return Site(name, conv.in_channels, accepts=accepts, weights=lambda: (conv.weight,), spatial=True)


def unit_site(name: str, channels: int, sides: tuple[int, ...]) -> Site:
    """Return a site over all units of maps of these sides, for fixed dropout by :func:`over_units`."""
    return Site(name, channels * math.prod(sides), accepts=("dropout",))


def over_units(site: Site, h: Tensor) -> Tensor:
    """Return maps ``[B, C, H, W]`` with independent noise at every unit, in their order in memory."""
    if site.noise is None:
        return h
    in_memory = h.permute(0, 2, 3, 1)
    noisy: Tensor = site(in_memory.flatten(1))
    return noisy.reshape(in_memory.shape).permute(0, 3, 1, 2)


def residual_layers(
    name: str, inputs: int, layers: Sequence[tuple[int, int, int]]
) -> tuple[list[nn.Conv2d], list[Site], nn.Conv2d | None]:
    """Return the convolutions of a residual block, their sites, and the shortcut: a 1×1 convolution or None.

    Args:
        name: The block's name, with which those of its sites begin.
        inputs: Channels that come in.
        layers: Kernel, channels and stride of each convolution.
    """
    widths = (inputs, *(outputs for _, outputs, _ in layers))
    convs = [convolution(widths[i], out, k, stride=stride) for i, (k, out, stride) in enumerate(layers)]
    sites = [channel_site(f"{name}.conv{i + 1}", conv) for i, conv in enumerate(convs)]
    return convs, sites, shortcut(inputs, widths[-1], max(stride for _, _, stride in layers))


def shortcut(inputs: int, outputs: int, stride: int) -> nn.Conv2d | None:
    """Return the 1×1 convolution on the way around a block that changes the shape; None where it does not."""
    return None if inputs == outputs and stride == 1 else convolution(inputs, outputs, 1, stride=stride)


def group_blocks(blocks: Sequence[int]) -> Iterator[tuple[int, str, int]]:
    """Return group (from 0), name and stride of each block; every group but the first begins with stride 2."""
    for group, many in enumerate(blocks):
        for i in range(many):
            yield group, f"group{group + 1}.block{i + 1}", 2 if group and not i else 1


class ChannelsLast(Stage):
    """The first stage: channels last in memory, the order of fast convolutions on a CPU."""

    def forward(self, h: Tensor) -> Tensor:
        """Return the same values."""
        # by permuting, which can be mapped over
        return h.permute(0, 2, 3, 1).contiguous().permute(0, 3, 1, 2) if h.device.type == "cpu" else h


class Stem(Stage):
    """The first convolution, 3×3 without bias; no noise acts on its inputs, the data."""

    bounds = ("conv",)

    def __init__(self, inputs: int, outputs: int) -> None:
        """Make it from the data's channels."""
        super().__init__()
        self.conv = convolution(inputs, outputs, 3)

    def forward(self, h: Tensor) -> Tensor:
        """Return conv(h)."""
        return cast(Tensor, self.conv(h))


class NormPool(Stage):
    """The last stage of a pre-activation network: batch-norm, ReLU and the average over all positions."""

    def __init__(self, channels: int) -> None:
        """Make it for ``channels`` channels."""
        super().__init__()
        self.norm = nn.BatchNorm2d(channels)

    def forward(self, h: Tensor) -> Tensor:
        """Return mean(relu(norm(h)))."""
        return torch.relu(self.norm(h)).mean(dim=(2, 3))


def sides_after(sides: tuple[int, ...], stride: int) -> tuple[int, ...]:
    """Return the sides of the maps behind a convolution or window of this stride, padded to change them no further."""
    return tuple((side - 1) // stride + 1 for side in sides)
