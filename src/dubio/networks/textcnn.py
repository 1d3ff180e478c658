"""TextCNN: embeddings, parallel convolutions over word windows, a maximum over time (text paper, Fig. 2a).

At prediction the weights are fixed, and the convolutions need them only as P_j = E·W_j, one row per vocabulary entry:
a convolution Σ_j x(t + j)·W_j then gathers and adds k rows per window (:class:`GatherOverTime`). The bias is the same
for every window and ReLU is monotone, so both act after the maximum over windows, on one value per map: the largest of
relu(s + b) are relu(b + the largest of s). Windows past a text's end hold the entry END, whose products are −∞: they
never win, and no mask is needed. Every sum has the same terms in the same order whatever batch the text is in.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from dubio.core.registry import network
from dubio.core.validate import Positive
from dubio.networks.linear_maps import LinearMap
from dubio.networks.network import Network, Sizes, Stage, TokenBatch, grouped
from dubio.networks.word_convolutions import (
    Embed,
    PickOverTime,
    Ranked,
    RankOverTime,
    WordConvolutions,
    gather_windows,
    glorot_uniform,
    largest,
    widened,
)

BLOCK_ELEMENTS = 1 << 19
"""Sums over windows that are held at once: 2 MB in float32, about a core's cache."""


class EmbedVocabulary(Embed):
    """An embedding that offers products of the whole vocabulary for fixed weights."""

    def prepared(self, following: Sequence[nn.Module], limit: int) -> list[nn.Module] | None:
        """Return one stage for embedding, convolution and ranking, if the products fit."""
        match following:
            case [Convolve() as convolve, RankOverTime() as rank, *others]:
                elements = (self.table.num_embeddings + 1) * sum(convolve.kernels) * convolve.maps
                if elements <= limit:
                    return [GatherOverTime(self, convolve, rank), *others]
        return None


class Convolve(WordConvolutions):
    """Convolutions whose weights are ``[size, F, E]``: the rows that products with words need, as they are stored."""

    def __init__(self, inputs: int, maps: int, kernels: tuple[int, ...]) -> None:
        """Make one convolution per kernel size, with Glorot-uniform weights."""
        super().__init__()
        self.kernels = kernels
        self.maps = maps
        self.weights = nn.ParameterList(nn.Parameter(torch.empty(size, maps, inputs)) for size in kernels)
        self.biases = nn.ParameterList(nn.Parameter(torch.zeros(maps)) for _ in kernels)
        for size, weight in zip(kernels, self.weights, strict=True):
            glorot_uniform(weight, size, inputs, maps)
        marks = [LinearMap(f"weights.{i}", f"biases.{i}", outputs=1) for i in range(len(kernels))]
        self.join(inputs, marks)

    def channels(self) -> tuple[int, int]:
        """Return the numbers of inputs and of maps of a kernel."""
        return self.weights[0].shape[2] * self.groups, self.maps

    def pack(self, groups: int, inputs: int, maps: int) -> None:
        """Make the convolutions grouped ones: weights ``[size, groups · maps, inputs]``, drawn anew for each group.

        Args:
            groups: Their number.
            inputs: Word channels of one group.
            maps: Feature maps of one group.
        """
        self.groups, self.maps = groups, groups * maps
        for i, size in enumerate(self.kernels):
            self.weights[i] = nn.Parameter(torch.empty(size, self.maps, inputs))
            self.biases[i] = nn.Parameter(torch.zeros(self.maps))
            for own in self.weights[i].detach().chunk(groups, dim=1):
                glorot_uniform(own, size, inputs, maps)

    def penalised(self, index: int) -> tuple[Tensor]:
        """Return the weight of a kernel."""
        return (self.weights[index],)

    def by_token(self, index: int, vectors: Tensor, places: Tensor) -> Tensor:
        """Convolve by products once per distinct token, of every group with its own channels."""
        if self.groups == 1:
            return super().by_token(index, vectors, places)
        products = grouped_products(vectors, self.weights[index], self.groups)
        return cast(Tensor, gather_windows(products, places, self.kernels[index]) + self.biases[index])

    def kernel(self, index: int) -> tuple[Tensor, Tensor]:
        """Return a kernel by its words, and its bias."""
        return self.weights[index], self.biases[index]

    def by_position(self, index: int, channels: Tensor) -> Tensor:
        """Convolve over positions."""
        (weight,), bias = self.penalised(index), self.biases[index]
        sums = functional.conv1d(channels, weight.permute(1, 2, 0), groups=self.groups)
        return cast(Tensor, sums.transpose(1, 2) + bias)


class GatherOverTime(Stage):
    """:class:`Embed`, :class:`Convolve` and :class:`RankOverTime` in one, for fixed weights.

    Its products are one tensor ``[(V + 1)·size, F]`` per kernel: row ``v·size + j`` is P_j of entry v; entry V is END.
    """

    def __init__(self, embed: Embed, convolve: Convolve, rank: RankOverTime) -> None:
        """Compute the products of every vocabulary entry from the stages' present weights."""
        super().__init__()
        self._rank = (rank,)  # in a tuple: its sites are registered where the noise acts
        with torch.no_grad():
            self._products = [_products(embed.table.weight, weight, convolve.groups) for weight in convolve.weights]
            self._biases = [bias.clone() for bias in convolve.biases]
        self._sizes = convolve.kernels
        self._end = embed.table.num_embeddings

    def forward(self, batch: TokenBatch) -> Ranked:
        """Return the largest values over time of every map; fewer than the depth where a batch has fewer windows."""
        tokens = batch.distinct[batch.places]
        # int32 halves what is read of the indices; a table that fits into memory has far fewer than 2³¹ rows
        ids = widened(tokens.to(torch.int32), self._sizes)
        kernels = zip(self._sizes, self._products, self._biases, self._rank[0].depths(), strict=True)
        return Ranked(tuple(self._ranked(ids, batch.lengths, *kernel) for kernel in kernels))

    def _ranked(self, tokens: Tensor, lengths: Tensor, size: int, products: Tensor, bias: Tensor, depth: int) -> Tensor:
        """Return relu(bias + the largest sums) of one kernel, computed in blocks of texts."""
        count = min(depth, tokens.shape[1] - size + 1)
        reach = lengths.clamp_min(size)  # a text shorter than the kernel has one window, filled up with PAD
        rows = max(1, BLOCK_ELEMENTS // (tokens.shape[1] * products.shape[1]))
        blocks = []
        for start in range(0, len(tokens), rows):
            ends = reach[start : start + rows]
            sums = self._sums(tokens[start : start + rows, : int(ends.max())], ends, size, products)
            top = torch.relu(largest(sums, count) + bias[:, None])
            blocks.append(functional.pad(top, (0, count - top.shape[2])))
        return torch.cat(blocks)

    def _sums(self, tokens: Tensor, ends: Tensor, size: int, products: Tensor) -> Tensor:
        """Return Σ_j P_j[token(b, t + j)], ``[B, windows, F]``; −∞ for a window that reaches past a text's end."""
        past = torch.arange(tokens.shape[1], device=tokens.device) >= ends[:, None]
        places = tokens.masked_fill(past, self._end) * size
        bags = places.unfold(1, size, 1) + torch.arange(size, dtype=places.dtype, device=places.device)
        sums = functional.embedding_bag(bags.reshape(-1, size), products, mode="sum")
        return sums.reshape(len(tokens), -1, products.shape[1])


def _products(table: Tensor, weight: Tensor, groups: int) -> Tensor:
    """Return ``[(V + 1)·size, F]``: row v·size + j is E_v·W_j; the rows of entry V are −∞."""
    size, maps, _ = weight.shape
    out = table.new_full((len(table) + 1, size * maps), -torch.inf)
    if groups == 1:
        torch.mm(table, weight.flatten(0, 1).t(), out=out[:-1])
    else:
        out[:-1] = grouped_products(table, weight, groups).reshape(len(table), -1)
    return out.reshape(-1, maps)


def grouped_products(vectors: Tensor, weight: Tensor, groups: int) -> Tensor:
    """Return ``[U·size, F]``: row u·size + j is x_u·W_j, each group of maps with its own group of channels."""
    own, channels = grouped(weight, 1, groups), grouped(vectors, 1, groups)
    return torch.einsum("ugi,jgfi->ujgf", channels, own).flatten(2).flatten(0, 1)


@network("textcnn", inputs="text", version=4)
def textcnn(
    shape: tuple[int, ...], *, embedding: Positive = 300, maps: Positive = 100, kernels: Sizes = (3, 4, 5)
) -> Network:
    """Embedding → convolutions k = 3, 4, 5 → ReLU → max over time, as in the text paper.

    Args:
        shape: (vocabulary size,), PAD and UNK included.
        embedding: Width of a word vector.
        maps: Feature maps per kernel.
        kernels: Window sizes.
    """
    pick = PickOverTime(kernels, maps)
    stages = [EmbedVocabulary(shape[0], embedding), Convolve(embedding, maps, kernels), RankOverTime(pick), pick]
    return Network(stages, maps * len(kernels))
