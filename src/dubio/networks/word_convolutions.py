"""Stages shared by the networks that convolve over words: embedding, products per token, maximum over time.

A convolution is linear in each token's embedding. Where no noise acts on its inputs, the products are computed once per
distinct token of the batch, and the convolution becomes gathers and adds (:func:`convolve_tokens`). A training step
needs of the sums only the largest of each map: the convolutions leave the adding to the maximum (:class:`Unsummed`).
Noise on the inputs multiplies the channels of a text: the products are then those of each distinct token of every text.

Fixed dropout acts on every position before the maximum. Because the masks are independent, the largest survivor is the
G-th largest value with G geometric: sampling G among the sorted largest values is exact in distribution (see
:meth:`dubio.networks.noise.Dropout.survivor`).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, Self, cast

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from dubio.networks.linear_maps import Inputs, LinearMap
from dubio.networks.network import Stage, TokenBatch, joined
from dubio.networks.noise import Dropout, Site
from dubio.networks.window_maxima import Dropped, largest_sums

if TYPE_CHECKING:
    from dubio.networks.rank_one import RankOne


BLOCK_WORDS = 1 << 13
"""Words of noisy texts whose products are held at once: 16 MB in float32 for 100 maps of five words."""


class Words(NamedTuple):
    """Embedded texts: ``vectors [U, E]`` of the distinct tokens, ``places [B, L]`` into them, ``lengths [B]``."""

    vectors: Tensor
    places: Tensor
    lengths: Tensor

    def repeat(self, times: int) -> Words:
        """Return the texts ``times`` times, one copy after another."""
        return Words(self.vectors, self.places.repeat(times, 1), self.lengths.repeat(times))

    def interleave(self, times: int) -> Words:
        """Return each text ``times`` times, its copies side by side."""
        rows, lengths = (tensor.repeat_interleave(times, dim=0) for tensor in (self.places, self.lengths))
        return Words(self.vectors, rows, lengths)

    def footprint(self) -> int:
        """Return the number of elements that one more copy adds to memory."""
        return self.places.numel() * self.vectors.shape[1]


class Maps(NamedTuple):
    """Feature maps of every kernel, each ``[B, windows, F]``, zero where a window holds no token."""

    values: tuple[Tensor, ...]

    def repeat(self, times: int) -> Self:
        """Return the maps ``times`` times, one copy after another."""
        return type(self)(tuple(value.repeat(times, 1, 1) for value in self.values))

    def footprint(self) -> int:
        """Return the number of elements that one more copy adds to memory."""
        return sum(value.numel() for value in self.values)


class Unsummed(NamedTuple):
    """Convolutions before their windows are added up, for a training step on the CPU.

    Attributes:
        vectors: ``[rows, E]`` words for all kernels, or one tensor per kernel.
        places: ``[B, L]`` rows of them.
        lengths: ``[B]`` words of each text.
        weights: ``[size, F, E / groups]`` of every kernel.
        biases: ``[F]`` of every kernel.
        groups: Groups of maps, each with its own channels of the words.
    """

    vectors: tuple[Tensor, ...]
    places: Tensor
    lengths: Tensor
    weights: tuple[Tensor, ...]
    biases: tuple[Tensor, ...]
    groups: int = 1

    @property
    def kernels(self) -> tuple[int, ...]:
        """Words per window."""
        return tuple(len(weight) for weight in self.weights)

    def maxima(self, dropped: Dropped) -> list[Tensor]:
        """Return relu(max over time of the maps) of every kernel, ``[B, F]``; 0 where every window is dropped."""
        shared = len(self.vectors) == 1
        readers = [slice(None)] if shared else [slice(i, i + 1) for i in range(len(self.weights))]
        tops: list[Tensor] = []
        for vectors, own in zip(self.vectors, readers, strict=True):
            tops += self._tops(vectors, self.weights[own], dropped[own])
        return [torch.relu(top + bias) for top, bias in zip(tops, self.biases, strict=True)]

    def _tops(self, vectors: Tensor, weights: Sequence[Tensor], dropped: Dropped) -> list[Tensor]:
        """Return the largest sums of the kernels that read these words, group by group."""
        sizes = [len(weight) for weight in weights]
        blocks = []
        for group, channels in enumerate(vectors.chunk(self.groups, dim=1)):
            own = [weight.chunk(self.groups, dim=1)[group] for weight in weights]
            masks = [None if mask is None else mask.chunk(self.groups, dim=2)[group] for mask in dropped]
            rows = (torch.cat(own) if len(own) > 1 else own[0]).flatten(0, 1)
            blocks.append(largest_sums(channels, rows, self.places, self.lengths, sizes, masks))
        return [torch.cat(tops, dim=1) if len(tops) > 1 else tops[0] for tops in zip(*blocks, strict=True)]


class Ranked(Maps):
    """The largest values over time of each map, ``[B, F, depth]``, largest first."""

    def footprint(self) -> int:
        """Return the number of elements that one more copy adds to memory: one pick per map, the ranks are shared."""
        return sum(value[:, :, 0].numel() for value in self.values)


class Embed(Stage):
    """Vectors of the distinct tokens; that of PAD is and stays zero."""

    def __init__(self, vocabulary: int, width: int) -> None:
        """Make a uniform embedding whose row 0, PAD, is zero."""
        super().__init__()
        self.table = nn.Embedding(vocabulary, width, padding_idx=0)
        with torch.no_grad():
            self.table.weight.uniform_(-0.05, 0.05)
            self.table.weight[0].zero_()

    def forward(self, batch: TokenBatch) -> Words:
        """Look up each distinct token once."""
        return Words(self.table(batch.distinct), batch.places, batch.lengths)


class WordConvolutions(Stage):
    """Parallel convolutions over windows of words, then ReLU; a subclass holds their weights.

    Attributes:
        kernels: Words per window of each.
        factors: Rank-one factors of members for each kernel (:class:`~dubio.networks.rank_one.RankOne`), or None.
    """

    batched_over_weights = False  # embedding_bag has no batching rule
    factors: nn.ModuleList | None

    kernels: tuple[int, ...]
    sites: nn.ModuleList
    marks: nn.ModuleList

    def join(self, inputs: int, marks: Sequence[LinearMap]) -> None:
        """Make the site over each kernel's input channels, and the marks of the kernels' outputs."""
        weights, accepts = [partial(self.penalised, i) for i in range(len(marks))], ("concrete_dropout",)
        self.sites = nn.ModuleList(
            Site(f"K{i + 1}", inputs, accepts=accepts, weights=own, spatial=True) for i, own in enumerate(weights)
        )
        self.marks = nn.ModuleList(marks)
        self.factors = None

    def forward(self, texts: Words) -> Maps | Unsummed:
        """Return the feature maps of every kernel; in a training step what their maxima need, with noise the maxima."""
        places = widened(texts.places, self.kernels)
        if self._adds_later(texts.vectors):
            return self._unsummed(texts, places)
        if self._ranks_now(texts.vectors):
            return self._ranked(texts, places)
        if self.is_noisy():
            channels = functional.embedding(places, texts.vectors).transpose(1, 2)
            totals = [self._noisy(i, cast(Tensor, site(channels))) for i, site in enumerate(self.sites)]
        else:
            totals = [self.by_token(i, texts.vectors, places) for i in range(len(self.kernels))]
        return Maps(tuple(rectified(t, texts.lengths, size) for t, size in zip(totals, self.kernels, strict=True)))

    def channels(self) -> tuple[int, int]:
        """Return the numbers of inputs and of maps of a kernel."""
        raise NotImplementedError

    def _noisy(self, index: int, channels: Tensor) -> Tensor:
        if self.factors is None:
            return self.by_position(index, channels)
        factors, bias = cast("RankOne", self.factors[index]), self.kernel(index)[1]
        return factors.outputs(self.by_position(index, factors.inputs(channels, 1)) - bias, -1, bias)

    def is_noisy(self) -> bool:
        """Return whether inputs or weights are random in the next pass."""
        noises = [cast(Site, site).noise for site in self.sites]
        return self.draws_weights() or any(noise is not None and noise.active for noise in noises)

    def draws_weights(self) -> bool:
        """Return whether weights are random in the next pass; not by default."""
        return False

    def _adds_later(self, vectors: Tensor) -> bool:
        """Return whether this is a training step on the CPU in which nobody looks at the sums themselves."""
        return self.training and torch.is_grad_enabled() and self._hides_sums(vectors)

    def _ranks_now(self, vectors: Tensor) -> bool:
        """Return whether this is a noisy prediction on the CPU, of which only the largest sum of each map is needed.

        Dropout of the maps would need several of them, but a recipe has one edit that drops inputs.
        """
        return not (self.training or torch.is_grad_enabled()) and self.is_noisy() and self._hides_sums(vectors)

    def _hides_sums(self, vectors: Tensor) -> bool:
        """Return whether nobody looks at the sums, of weights that are not drawn, on the CPU."""
        watched = any(mark._forward_hooks for mark in self.marks) or self.factors is not None
        return vectors.is_cpu and not (watched or self.draws_weights())

    def _unsummed(self, texts: Words, places: Tensor) -> Unsummed:
        """Return each distinct token once, or with noise each distinct token of every text, once per kernel."""
        weights, biases = self._weights()
        if self.is_noisy():
            return self._multiplied(Words(texts.vectors, places, texts.lengths), self._noise_factors(texts))
        return Unsummed((texts.vectors,), places, texts.lengths, weights, biases, self.groups)

    def _ranked(self, texts: Words, places: Tensor) -> Ranked:
        """Return the largest sum of every map; the products of a block of texts are held at once."""
        factors, size = self._noise_factors(texts), max(1, BLOCK_WORDS // places.shape[1])
        blocks = []
        for start in range(0, len(places), size):
            rows = slice(start, start + size)
            block = Words(texts.vectors, places[rows], texts.lengths[rows])
            unsummed = self._multiplied(block, [own[rows] for own in factors])
            blocks.append(unsummed.maxima([None] * len(self.kernels)))
        return Ranked(tuple(torch.cat(tops).unsqueeze(-1) for tops in zip(*blocks, strict=True)))

    def _weights(self) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...]]:
        """Return the weights and the biases of all kernels."""
        weights, biases = zip(*(self.kernel(i) for i in range(len(self.kernels))), strict=True)
        return weights, biases

    def _noise_factors(self, texts: Words) -> list[Tensor]:
        """Return what the noise of each kernel multiplies the channels of every text by: what it makes of ones."""
        ones = texts.vectors.new_ones(len(texts.places), texts.vectors.shape[1])
        return [cast(Tensor, site(ones)) for site in self.sites]

    def _multiplied(self, texts: Words, factors: Sequence[Tensor]) -> Unsummed:
        """Return each distinct token of every text, once per kernel, multiplied by the text's factors."""
        owners, tokens, places = by_text(texts.places, len(texts.vectors))
        vectors = functional.embedding(tokens, texts.vectors)
        noisy = tuple(vectors * functional.embedding(owners, own) for own in factors)
        return Unsummed(noisy, places, texts.lengths, *self._weights(), self.groups)

    def penalised(self, index: int) -> tuple[Tensor]:
        """Return the weight of a kernel, for edits whose penalty needs it."""
        raise NotImplementedError

    def kernel(self, index: int) -> tuple[Tensor, Tensor]:
        """Return a kernel as ``[size, F, E / groups]``, and its bias."""
        raise NotImplementedError

    def by_position(self, index: int, channels: Tensor) -> Tensor:
        """Convolve over positions of ``channels [B, E, L]``; return ``[B, windows, F]`` with the bias."""
        raise NotImplementedError

    def by_token(self, index: int, vectors: Tensor, places: Tensor) -> Tensor:
        """Convolve by products once per distinct token; return ``[B, windows, F]`` with the bias."""
        (weight, bias), size = self.kernel(index), self.kernels[index]
        matrix = weight.flatten(0, 1).t()
        if self.factors is not None:
            factors = cast("RankOne", self.factors[index])
            return factors.outputs(convolve_tokens(*factors.spread(vectors, places), matrix, size), -1, bias)
        total = convolve_tokens(vectors, places, matrix, size)
        return cast(Tensor, self.marks[index](total, windows(vectors, places, size))) + bias


def glorot_uniform(weight: Tensor, size: int, inputs: int, maps: int) -> None:
    """Draw the first weights of a kernel of ``size`` words."""
    bound = math.sqrt(6.0 / (size * (inputs + maps)))
    nn.init.uniform_(weight, -bound, bound)


class PickOverTime(Stage):
    """The largest survivor of each map, ``[B, kernels·F]``."""

    broadcasts = True

    def __init__(self, kernels: tuple[int, ...], maps: int) -> None:
        """Make the dropout sites of the maps."""
        super().__init__()
        self.sites = nn.ModuleList(Site(f"K{i + 1}.maps", maps, accepts=("dropout",)) for i, _ in enumerate(kernels))

    def forward(self, ranked: Ranked) -> Tensor:
        """Concatenate the picks of all kernels."""
        picks = [self._pick(v, cast(Site, s)) for v, s in zip(ranked.values, self.sites, strict=True)]
        return joined(picks, self.groups)

    def _pick(self, values: Tensor, site: Site) -> Tensor:
        noise = site.noise
        if not isinstance(noise, Dropout) or noise.given is None:
            return values[:, :, 0]
        rows, width, depth = values.shape
        ranks = noise.survivor(depth).reshape(-1, rows, width, 1)
        # one value more than there are, zero: nothing survived
        scaled = functional.pad(values, (0, 1)) / (1.0 - noise.p)
        return scaled.expand(len(ranks), rows, width, depth + 1).gather(-1, ranks).reshape(-1, width)


class RankOverTime(Stage):
    """The largest values of each map: one for a plain maximum, several where dropout will choose among them.

    Zero stands both for a dropped value and for padding, which is right because maps are never negative.
    """

    def __init__(self, pick: PickOverTime) -> None:
        """Rank for the stage that picks; its sites determine the depth."""
        super().__init__()
        self._pick = (pick,)  # in a tuple, so that its sites are registered once, where the noise acts

    def forward(self, maps: Maps | Unsummed) -> Ranked:
        """Return the largest values, down to the depth that the noise can reach; of a training step the largest."""
        if isinstance(maps, Unsummed):
            return Ranked(tuple(self._trained(maps)))
        if isinstance(maps, Ranked):
            return maps
        return Ranked(tuple(self._rank(v, noise) for v, noise in zip(maps.values, self._noises(), strict=True)))

    def _rank(self, values: Tensor, noise: Dropout | None) -> Tensor:
        if noise is not None and noise.training:
            uniforms = torch.rand(values.shape, generator=noise.generator).to(values.device)
            return (values * (uniforms >= noise.p)).amax(dim=1).unsqueeze(-1) / (1.0 - noise.p)
        return largest(values, 1 if noise is None else noise.depth())

    def _trained(self, maps: Unsummed) -> Iterator[Tensor]:
        """Return the largest survivor of each map, ``[B, F, 1]`` per kernel."""
        noises = [noise if noise is not None and noise.training else None for noise in self._noises()]
        texts, width = maps.places.shape
        shapes = [(texts, width - size + 1, len(bias)) for size, bias in zip(maps.kernels, maps.biases, strict=True)]
        dropped = [noise.dropped(shape) if noise else None for noise, shape in zip(noises, shapes, strict=True)]
        for top, noise in zip(maps.maxima(dropped), noises, strict=True):
            yield (top if noise is None else top / (1.0 - noise.p)).unsqueeze(-1)

    def depths(self) -> list[int]:
        """Return how many of the largest values of each map the noise can reach at prediction."""
        return [1 if noise is None else noise.depth() for noise in self._noises()]

    def _noises(self) -> list[Dropout | None]:
        noises = [cast(Site, site).noise for site in self._pick[0].sites]
        return [noise if isinstance(noise, Dropout) else None for noise in noises]


def largest(values: Tensor, depth: int) -> Tensor:
    """Return the largest values over time, ``[B, T, F]`` → ``[B, F, min(depth, T)]``, largest first."""
    depth = min(depth, values.shape[1])
    if depth == 1:
        return values.amax(dim=1).unsqueeze(-1)
    if not values.is_cpu or values.requires_grad:
        return values.transpose(1, 2).topk(depth, dim=-1).values
    # The same values: numpy's vectorised sort of all takes an eighth of the time of topk, which goes one by one.
    ordered = np.ascontiguousarray(values.numpy().transpose(0, 2, 1))
    ordered.sort(axis=-1)
    return torch.from_numpy(ordered[:, :, : -depth - 1 : -1].copy())


def windows(vectors: Tensor, places: Tensor, size: int) -> Inputs:
    """Return a function of rows that gives a kernel's inputs: the vectors of each window's words, side by side."""
    return lambda rows: functional.embedding(places[rows].unfold(1, size, 1), vectors).flatten(2)


def widened(places: Tensor, kernels: tuple[int, ...]) -> Tensor:
    """Return positions padded to the widest kernel where texts are shorter."""
    short = max(kernels) - places.shape[1]
    return functional.pad(places, (0, short)) if short > 0 else places


def by_text(places: Tensor, count: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return the distinct tokens of every text, one text after another, and where they stand.

    Args:
        places: ``[B, L]`` tokens, numbers below ``count``.
        count: Number of tokens.

    Returns:
        ``[P]`` texts, ``[P]`` tokens, and ``[B, L]`` positions into both.
    """
    keys = places + (torch.arange(len(places)) * count)[:, None]
    present = torch.zeros(len(places) * count, dtype=torch.bool)
    present[keys.flatten()] = True
    pairs = present.nonzero().flatten()
    ranks = present.cumsum(0).sub_(1)
    return pairs.div(count, rounding_mode="floor"), pairs.remainder(count), ranks[keys]


def convolve_tokens(vectors: Tensor, places: Tensor, matrix: Tensor, size: int) -> Tensor:
    """Convolve by products once per distinct token, gathered and added: out[b, t] = Σ_j P_j[token(b, t + j)].

    Args:
        vectors: ``[U, E]`` embeddings of the distinct tokens.
        places: ``[B, L]`` positions into them.
        matrix: The kernel as ``[E, size·F]``.
        size: Words per window.

    Returns:
        ``[B, windows, F]``, without bias.
    """
    return gather_windows((vectors @ matrix).reshape(-1, matrix.shape[1] // size), places, size)


def gather_windows(products: Tensor, places: Tensor, size: int) -> Tensor:
    """Return each window's sum of products, ``[B, windows, F]``; row u·size + j of the products is P_j of token u."""
    bags = places.unfold(1, size, 1) * size + torch.arange(size, device=places.device)
    total = functional.embedding_bag(bags.reshape(-1, size), products, mode="sum")
    return total.reshape(*bags.shape[:2], products.shape[1])


def rectified(total: Tensor, lengths: Tensor, size: int) -> Tensor:
    """Return the ReLU of maps, zero for windows past a text's end; the first window always counts."""
    count = (lengths - size + 1).clamp_min(1)
    real = torch.arange(total.shape[1], device=total.device) < count[:, None]
    return torch.relu(total) * real[:, :, None]
