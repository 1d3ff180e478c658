"""TextCNN with 2-D convolutions over texts of a fixed length (TextCNNv2 of the text paper, appendix C).

A text is an image of ``length`` words by ``embedding`` values; a kernel spans k words and the whole embedding. Padding
up to the fixed length is masked out of the maximum, so that it need not be computed: texts are cut at the length,
and a batch is as wide as its longest text.

Its kernels accept spectral normalisation. A word is in at most k windows: a kernel bound of s bounds the convolution by
√k · s, and the maximum over time that follows does not increase distances.
"""

from __future__ import annotations

from typing import cast

from torch import Tensor, nn
from torch.nn import functional

from dubio.core.errors import UserError
from dubio.core.registry import network
from dubio.core.validate import Positive
from dubio.networks.gaussian_weights import GaussianLayer
from dubio.networks.linear_maps import LinearMap
from dubio.networks.network import Network, Sizes, Stage
from dubio.networks.word_convolutions import Embed, PickOverTime, RankOverTime, WordConvolutions, Words, glorot_uniform


class FixedLength(Stage):
    """Texts cut at a length; shorter ones are padded by the mask alone."""

    def __init__(self, length: int) -> None:
        """Cut at ``length`` texts."""
        super().__init__()
        self.length = length

    def forward(self, texts: Words) -> Words:
        """Return the first texts."""
        return Words(texts.vectors, texts.places[:, : self.length], texts.lengths.clamp_max(self.length))


class Convolve2d(WordConvolutions):
    """2-D convolutions, each k words by the whole embedding.

    The kernel spans the embedding, so the 2-D convolution over one channel is the 1-D one over its values.
    """

    def __init__(self, inputs: int, maps: int, kernels: tuple[int, ...]) -> None:
        """Make one convolution per kernel size, with Glorot-uniform weights."""
        super().__init__()
        self.kernels = kernels
        self.layers = nn.ModuleList(nn.Conv2d(1, maps, (size, inputs)) for size in kernels)
        self.bounds = tuple(f"layers.{i}" for i in range(len(kernels)))
        for i, size in enumerate(kernels):
            weight, bias = self._in_use(i)
            glorot_uniform(weight, size, inputs, maps)
            nn.init.zeros_(bias)
        marks = [LinearMap(f"layers.{i}.weight", f"layers.{i}.bias") for i in range(len(kernels))]
        self.join(inputs, marks)

    def channels(self) -> tuple[int, int]:
        """Return the numbers of inputs and of maps of a kernel."""
        maps, _, _, inputs = cast(nn.Conv2d, self.layers[0]).weight.shape
        return inputs, maps

    def penalised(self, index: int) -> tuple[Tensor]:
        """Return the weight of a kernel, of a Gaussian one its mean."""
        return (cast(nn.Conv2d, self.layers[index]).weight,)

    def draws_weights(self) -> bool:
        """Return whether weights are random in the next pass."""
        return any(isinstance(layer, GaussianLayer) and layer.training for layer in self.layers)

    def kernel(self, index: int) -> tuple[Tensor, Tensor]:
        """Return a kernel by its words, and its bias."""
        weight, bias = self._in_use(index)
        return weight[:, 0].transpose(0, 1), bias

    def by_position(self, index: int, channels: Tensor) -> Tensor:
        """Convolve over positions."""
        layer = self.layers[index]
        if isinstance(layer, GaussianLayer) and layer.training:  # which draws for itself
            return cast(Tensor, layer(channels.transpose(1, 2).unsqueeze(1))).squeeze(-1).transpose(1, 2)
        weight, bias = self._in_use(index)
        return functional.conv1d(channels, weight[:, 0].transpose(1, 2), bias).transpose(1, 2)

    def _in_use(self, index: int) -> tuple[Tensor, Tensor]:
        """Return a kernel's weight ``[F, 1, k, E]``, bounded or drawn if an edit does so, and its bias."""
        layer = cast(nn.Conv2d, self.layers[index])
        return layer.in_use if isinstance(layer, GaussianLayer) else layer.weight, cast(Tensor, layer.bias)


@network("textcnn-v2", inputs="text", version=4)
def textcnn_v2(
    shape: tuple[int, ...],
    *,
    length: int = 256,
    embedding: Positive = 300,
    maps: Positive = 100,
    kernels: Sizes = (3, 4, 5),
) -> Network:
    """Embedding → 2-D convolutions over a fixed length → ReLU → max over time; accepts spectral normalisation.

    Args:
        shape: (vocabulary size,), PAD and UNK included.
        length: Largest number of words that are read of a text.
        embedding: Width of a word vector.
        maps: Feature maps per kernel.
        kernels: Window sizes.
    """
    if length < max(kernels):
        raise UserError(f"textcnn-v2: length must be at least the widest kernel, {max(kernels)}; given {length}.")
    pick = PickOverTime(kernels, maps)
    stages = [Embed(shape[0], embedding), FixedLength(length), Convolve2d(embedding, maps, kernels)]
    return Network([*stages, RankOverTime(pick), pick], maps * len(kernels))
