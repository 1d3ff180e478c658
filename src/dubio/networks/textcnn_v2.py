"""TextCNN with 2-D convolutions over texts of a fixed length (TextCNNv2 of the text paper, appendix C).

A text is an image of ``length`` words by ``embedding`` values; a kernel spans k words and the whole embedding. Padding
up to the fixed length is masked out of the maximum, so that it need not be computed: texts are cut at the length,
and a batch is as wide as its longest text.

Its kernels accept spectral normalisation. A word is in at most k windows: a kernel bound of s bounds the convolution by
√k · s, and the maximum over time that follows does not increase distances.
"""

from __future__ import annotations

import math
from typing import cast

from torch import Tensor, nn
from torch.nn import functional

from dubio.core.errors import UserError
from dubio.core.registry import network
from dubio.networks.gaussian_weights import GaussianLayer
from dubio.networks.linear_maps import LinearMap
from dubio.networks.network import Network, Stage
from dubio.networks.noise import Site
from dubio.networks.word_convolutions import (
    Embed,
    Maps,
    PickOverTime,
    RankOverTime,
    Words,
    check_kernels,
    convolve_tokens,
    rectified,
    widened,
    windows,
)


class FixedLength(Stage):
    """Texts cut at a length; shorter ones are padded by the mask alone."""

    def __init__(self, length: int) -> None:
        """Cut at ``length`` texts."""
        super().__init__()
        self.length = length

    def forward(self, texts: Words) -> Words:
        """Return the first texts."""
        return Words(texts.vectors, texts.places[:, : self.length], texts.lengths.clamp_max(self.length))


class Convolve2d(Stage):
    """Parallel 2-D convolutions, each k words by the whole embedding, then ReLU."""

    batched_over_weights = False  # embedding_bag has no batching rule

    def __init__(self, inputs: int, maps: int, kernels: tuple[int, ...]) -> None:
        """Make one convolution per kernel size, with Glorot-uniform weights."""
        super().__init__()
        self.kernels = kernels
        self.layers = nn.ModuleList(nn.Conv2d(1, maps, (size, inputs)) for size in kernels)
        self.bounds = tuple(f"layers.{i}" for i in range(len(kernels)))
        for size, weight, bias in self._in_use():
            bound = math.sqrt(6.0 / (size * (inputs + maps)))
            nn.init.uniform_(weight, -bound, bound)
            nn.init.zeros_(bias)
        self.sites = nn.ModuleList(
            Site(
                f"K{i + 1}",
                inputs,
                accepts=("concrete_dropout",),
                weights=lambda layer=layer: (layer.weight,),  # type: ignore[misc]
                spatial=True,
            )
            for i, layer in enumerate(self.layers)
        )
        self.marks = nn.ModuleList(LinearMap(f"layers.{i}.weight", f"layers.{i}.bias") for i, _ in enumerate(kernels))

    def forward(self, texts: Words) -> Maps:
        """Return the feature maps of every kernel."""
        places = widened(texts.places, self.kernels)
        sites = [cast(Site, site) for site in self.sites]
        noisy = any(site.noise is not None and site.noise.active for site in sites)
        noisy = noisy or any(isinstance(layer, GaussianLayer) and layer.training for layer in self.layers)
        totals = self._by_position(texts, places) if noisy else self._by_token(texts, places)
        return Maps(tuple(rectified(t, texts.lengths, size) for t, size in zip(totals, self.kernels, strict=True)))

    def _in_use(self) -> list[tuple[int, Tensor, Tensor]]:
        """Return size, weight ``[F, 1, k, E]`` (bounded or drawn, if an edit does so) and bias of each kernel."""
        layers = [cast(nn.Conv2d, layer) for layer in self.layers]
        weights = [layer.in_use if isinstance(layer, GaussianLayer) else layer.weight for layer in layers]
        biases = [cast(Tensor, layer.bias) for layer in layers]
        return list(zip(self.kernels, weights, biases, strict=True))

    def _by_token(self, texts: Words, places: Tensor) -> list[Tensor]:
        """Convolve by products once per distinct token."""
        totals = []
        for (size, weight, bias), mark in zip(self._in_use(), self.marks, strict=True):
            matrix = weight[:, 0].permute(2, 1, 0).reshape(weight.shape[3], -1)
            total = convolve_tokens(texts.vectors, places, matrix, size)
            totals.append(mark(total, windows(texts.vectors, places, size)) + bias)
        return totals

    def _by_position(self, texts: Words, places: Tensor) -> list[Tensor]:
        """Convolve over positions, with noise on each kernel's input channels, the values of the embedding.

        The kernel spans the embedding, so the 2-D convolution over one channel is the 1-D one over its values.
        """
        channels = functional.embedding(places, texts.vectors).transpose(1, 2)
        totals = []
        for (_, weight, bias), layer, site in zip(self._in_use(), self.layers, self.sites, strict=True):
            h = site(channels)
            if isinstance(layer, GaussianLayer) and layer.training:  # which draws for itself
                totals.append(layer(h.transpose(1, 2).unsqueeze(1)).squeeze(-1).transpose(1, 2))
            else:
                totals.append(functional.conv1d(h, weight[:, 0].transpose(1, 2), bias).transpose(1, 2))
        return totals


@network("textcnn-v2", inputs="text")
def textcnn_v2(
    shape: tuple[int, ...],
    *,
    length: int = 256,
    embedding: int = 300,
    maps: int = 100,
    kernels: tuple[int, ...] = (3, 4, 5),
) -> Network:
    """Embedding → 2-D convolutions over a fixed length → ReLU → max over time; accepts spectral normalisation.

    Args:
        shape: (vocabulary size,), PAD and UNK included.
        length: Largest number of words that are read of a text.
        embedding: Width of a word vector.
        maps: Feature maps per kernel.
        kernels: Window sizes.
    """
    check_kernels("textcnn-v2", kernels)
    if length < max(kernels):
        raise UserError(f"textcnn-v2: length must be at least the widest kernel, {max(kernels)}; given {length}.")
    pick = PickOverTime(kernels, maps)
    stages = [
        Embed(shape[0], embedding),
        FixedLength(length),
        Convolve2d(embedding, maps, kernels),
        RankOverTime(pick),
        pick,
    ]
    return Network(stages, maps * len(kernels))
