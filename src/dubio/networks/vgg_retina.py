"""The VGG variant of the retina paper: 13 convolutions in five groups, for fundus photographs.

A 3×3 convolution with b filters and stride 2, then groups of b, b | 2b, 2b | 4b ×4 | 8b ×4 filters, max-pooling 3×3
with stride 2 between groups, and averages and maxima over all positions side by side. Leaky ReLU with slope 0.2,
Glorot-uniform weights. b = 32 has 2.66 million parameters; b = 22 with Gaussian weights, a mean and a deviation each,
is the paper's twin of about the same budget.
"""

from __future__ import annotations

from typing import Annotated

from torch import Tensor, nn
from torch.nn import functional

from dubio.core.registry import network
from dubio.core.validate import Positive, between
from dubio.networks.convolutions import channel_site, draw_first, glorot, sides_after, unit_site
from dubio.networks.network import Network, Stage, joined

SLOPE = 0.2
GROUPS = ((1, 1), (1, 2), (2, 2), (4, 4), (8, 4))
"""For each group, its filters in units of the base and its number of convolutions."""
SMALLEST_POOLED = 4
"""Maps with a smaller side are not pooled, which concerns only images below 64 pixels."""


class RetinaConv(Stage):
    """A site over input channels, a 3×3 convolution and a leaky ReLU."""

    bounds = ("conv",)

    def __init__(self, name: str, inputs: int, outputs: int, *, accepts: tuple[str, ...], stride: int) -> None:
        """Make a layer whose input channels are the site ``name``."""
        super().__init__()
        self.conv = nn.Conv2d(inputs, outputs, 3, stride=stride, padding=1)
        draw_first(self.conv, glorot)
        self.site = channel_site(name, self.conv, accepts=accepts)

    def forward(self, h: Tensor) -> Tensor:
        """Return leaky(conv(noise(h)))."""
        return functional.leaky_relu(self.conv(self.site(h)), SLOPE)


class DropAndPool(Stage):
    """Fixed dropout of single units of a convolution's output, as in the paper, then max-pooling at a group's end.

    A separate stage, so that the convolution before the first dropout runs once for all samples.
    """

    def __init__(self, name: str, channels: int, sides: tuple[int, ...], *, stride: int) -> None:
        """Make the site ``name`` over all units of maps of these sides; pool only with a stride above 1."""
        super().__init__()
        self.site = unit_site(name, channels, sides)
        self.stride = stride

    def forward(self, h: Tensor) -> Tensor:
        """Return pool(noise(h))."""
        h = self.site(h.flatten(1)).reshape(h.shape)
        return functional.max_pool2d(h, 3, stride=self.stride, padding=1) if self.stride > 1 else h


class GlobalPools(Stage):
    """The average and the maximum of every map, ``[B, 2C]``."""

    def forward(self, h: Tensor) -> Tensor:
        """Return averages, then maxima."""
        return joined([h.mean(dim=(2, 3)), h.amax(dim=(2, 3))], self.groups)


@network("vgg-retina", inputs="image")
def vgg_retina(
    shape: tuple[int, ...], *, base: Positive = 32, groups: Annotated[int, between(2, len(GROUPS))] = 5
) -> Network:
    """The VGG variant of the retina paper.

    Fixed dropout acts on the units of every convolution's output except the last; concrete dropout on the input
    channels of every convolution except the first, whose inputs are the data. Both act before the head.

    Args:
        shape: (channels, height, width).
        base: b, the filters of the first groups.
        groups: Number of groups, at most five; fewer for small images.
    """
    stages: list[nn.Module] = []
    inputs, sides = shape[0], shape[1:]
    layers = [(base * times, i == many - 1) for times, many in GROUPS[:groups] for i in range(many)]
    for i, (outputs, ends_group) in enumerate(layers):
        accepts = ("concrete_dropout",) if i else ()
        stages.append(RetinaConv(f"conv{i + 1}", inputs, outputs, accepts=accepts, stride=1 if i else 2))
        inputs, sides = outputs, sides_after(sides, 1 if i else 2)
        if i < len(layers) - 1:
            stride = 2 if ends_group and min(sides) >= SMALLEST_POOLED else 1
            stages.append(DropAndPool(f"conv{i + 1}.units", outputs, sides, stride=stride))
            sides = sides_after(sides, stride)
    return Network([*stages, GlobalPools()], 2 * inputs)
