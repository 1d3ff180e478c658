"""Convolutions over words whose weights are fixed: products once a vocabulary entry, then gathers, adds and maxima.

A convolution is linear in each token's embedding, Σ_j x(t + j)·W_j, so that P_j = E·W_j, one row a vocabulary entry,
is all that its weights are needed for. What is left for a text is to gather and add k rows a window. The bias is the
same for every window and ReLU is monotone, so both act after the maximum over windows, on one value a map: the largest
of relu(s + b) are relu(b + the largest of s). Windows past a text's end hold the entry END, whose products are −∞: they
never win, and no mask is needed. Every sum has the same terms in the same order whatever batch the text is in.

TextCNN: embeddings, parallel convolutions over word windows, a maximum over time (text paper, Fig. 2a).

A convolution is linear in each token's embedding, so where no noise acts on its inputs the products are computed
once a distinct token of the batch and the convolution becomes gathers and adds. At prediction the weights are fixed:
the products are then computed once a vocabulary entry (:class:`GatherOverTime`). Fixed dropout acts on every
position before the maximum; since the masks are independent, the largest survivor is the G-th largest value with G
geometric, and sampling G from the sorted largest values is exact in distribution (see
:meth:`dubio.networks.noise.Dropout.survivor`).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple, cast

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from dubio.core.errors import UserError
from dubio.core.registry import network
from dubio.networks.linear_maps import Inputs, LinearMap
from dubio.networks.network import Network, Stage
from dubio.networks.noise import Dropout, Site

BLOCK_ELEMENTS = 1 << 19
"""Sums over windows that are held at once, for as many texts as that allows: 2 MB in float32, about a core's cache."""


class TokenProducts:
    """Embedding and convolutions of fixed weights, as gathers and adds.

    Attributes:
        sizes: Words a window, a kernel each.
        products: A kernel each, ``[(V + 1)·size, F]``: row ``v·size + j`` is P_j of entry v; entry V is END.
        biases: A kernel each, ``[F]``.
    """

    def __init__(self, table: Tensor, weights: Sequence[Tensor], biases: Sequence[Tensor]) -> None:
        """Compute the products; the weights may change afterwards.

        Args:
            table: ``[V, E]`` embeddings; row 0, PAD, is zero.
            weights: A kernel each, ``[size, E, F]``.
            biases: A kernel each, ``[F]``.
        """
        with torch.no_grad():
            self.sizes = [len(weight) for weight in weights]
            self.products = [products_of(table, weight) for weight in weights]
            self.biases = [bias.clone() for bias in biases]
        self._end = len(table)

    def ranked(self, tokens: Tensor, lengths: Tensor, depths: Sequence[int]) -> tuple[Tensor, ...]:
        """The largest values over time of every map, ``[B, F, depth]`` a kernel, largest first.

        Args:
            tokens: ``[B, L]`` vocabulary entries, PAD past a text's end.
            lengths: ``[B]`` tokens of each text.
            depths: How many values are wanted, a kernel each; fewer come where the batch has fewer windows.
        """
        short = max(0, max(self.sizes) - tokens.shape[1])
        # int32 halves what is read of the indices; a table that fits into memory has far fewer than 2³¹ rows.
        ids = functional.pad(tokens.to(torch.int32), (0, short))
        kernels = zip(self.sizes, self.products, self.biases, depths, strict=True)
        return tuple(self._ranked(ids, lengths, *kernel) for kernel in kernels)

    def _ranked(self, tokens: Tensor, lengths: Tensor, size: int, products: Tensor, bias: Tensor, depth: int) -> Tensor:
        """relu(bias + the largest sums) of one kernel, block of texts by block of texts."""
        kept = min(depth, tokens.shape[1] - size + 1)
        reach = lengths.clamp_min(size)  # a text shorter than the kernel has one window, filled up with PAD
        rows = max(1, BLOCK_ELEMENTS // (tokens.shape[1] * products.shape[1]))
        out = []
        for start in range(0, len(tokens), rows):
            ends = reach[start : start + rows]
            sums = self._sums(tokens[start : start + rows, : int(ends.max())], ends, size, products)
            top = torch.relu(largest(sums, kept) + bias[:, None])
            out.append(functional.pad(top, (0, kept - top.shape[2])))
        return torch.cat(out)

    def _sums(self, tokens: Tensor, ends: Tensor, size: int, products: Tensor) -> Tensor:
        """Σ_j P_j[token(b, t + j)], ``[B, windows, F]``; −∞ for a window that reaches past a text's end."""
        past = torch.arange(tokens.shape[1], device=tokens.device) >= ends[:, None]
        places = tokens.masked_fill(past, self._end) * size
        windows = places.unfold(1, size, 1) + torch.arange(size, dtype=places.dtype, device=places.device)
        sums = functional.embedding_bag(windows.reshape(-1, size), products, mode="sum")
        return sums.reshape(len(tokens), -1, products.shape[1])


def products_of(table: Tensor, weight: Tensor) -> Tensor:
    """``[(V + 1)·size, F]``: row v·size + j is E_v·W_j; the rows of entry V are −∞."""
    size, inputs, maps = weight.shape
    out = table.new_full((len(table) + 1, size * maps), -torch.inf)
    torch.mm(table, weight.transpose(0, 1).reshape(inputs, -1), out=out[:-1])
    return out.reshape(-1, maps)


def elements(vocabulary: int, sizes: Iterable[int], maps: int) -> int:
    """How many numbers the products of a vocabulary are."""
    return (vocabulary + 1) * sum(sizes) * maps


def largest(values: Tensor, depth: int) -> Tensor:
    """The largest values over time, ``[B, T, F]`` → ``[B, F, min(depth, T)]``, largest first."""
    depth = min(depth, values.shape[1])
    if depth == 1:
        return values.amax(dim=1).unsqueeze(-1)
    if not values.is_cpu or values.requires_grad:
        return values.transpose(1, 2).topk(depth, dim=-1).values
    # The same values: numpy's vectorised sort of all takes an eighth of the time of topk, which goes one by one.
    ordered = np.ascontiguousarray(values.numpy().transpose(0, 2, 1))
    ordered.sort(axis=-1)
    return torch.from_numpy(ordered[:, :, : -depth - 1 : -1].copy())


class Words(NamedTuple):
    """Embedded texts: ``vectors [U, E]`` of the distinct tokens, ``places [B, L]`` into them, ``lengths [B]``."""

    vectors: Tensor
    places: Tensor
    lengths: Tensor

    def repeat(self, times: int) -> Words:
        """The same texts again and again, sample by sample."""
        return Words(self.vectors, self.places.repeat(times, 1), self.lengths.repeat(times))

    def footprint(self) -> int:
        """Elements that one repetition adds to what is held at once."""
        return self.places.numel() * self.vectors.shape[1]


class Maps(NamedTuple):
    """Feature maps a kernel, each ``[B, windows, F]``, zero where a window holds no real token."""

    values: tuple[Tensor, ...]

    def repeat(self, times: int) -> Maps:
        """The same maps again and again, sample by sample."""
        return Maps(tuple(value.repeat(times, 1, 1) for value in self.values))

    def footprint(self) -> int:
        """Elements that one repetition adds to what is held at once."""
        return sum(value.numel() for value in self.values)


class Ranked(NamedTuple):
    """The largest values over time of each map, ``[B, F, depth]``, largest first."""

    values: tuple[Tensor, ...]

    def repeat(self, times: int) -> Ranked:
        """The same values again and again, sample by sample."""
        return Ranked(tuple(value.repeat(times, 1, 1) for value in self.values))

    def footprint(self) -> int:
        """Elements that one repetition adds to what is held at once: one pick a map, the ranks are shared."""
        return sum(value[:, :, 0].numel() for value in self.values)


class Tokens(NamedTuple):
    """What the embedding stage takes: distinct token ids, places and lengths (a ``TokenBatch`` is one)."""

    distinct: Tensor
    places: Tensor
    lengths: Tensor


class Embed(Stage):
    """Vectors of the distinct tokens; PAD is the zero vector and stays it."""

    def __init__(self, vocabulary: int, width: int) -> None:
        """Make a uniform embedding whose row 0, PAD, is zero."""
        super().__init__()
        self.table = nn.Embedding(vocabulary, width, padding_idx=0)
        with torch.no_grad():
            self.table.weight.uniform_(-0.05, 0.05)
            self.table.weight[0].zero_()

    def forward(self, batch: Tokens) -> Words:
        """Look up each distinct token once."""
        return Words(self.table(batch.distinct), batch.places, batch.lengths)

    def prepared(self, following: Sequence[nn.Module], limit: int) -> list[nn.Module] | None:
        """This stage and those that follow, for weights that no longer change; None where nothing is gained.

        Args:
            following: The next stages; no noise will act in them.
            limit: Largest number of elements that may be computed ahead.
        """
        match following:
            case [Convolve() as convolve, RankOverTime() as rank, *rest]:
                entries = self.table.num_embeddings
                if elements(entries, convolve.kernels, convolve.maps) <= limit:
                    return [GatherOverTime(self, convolve, rank), *rest]
        return None


class Convolve(Stage):
    """Parallel convolutions over windows of words, then ReLU."""

    batched_over_weights = False  # embedding_bag has no batching rule

    def __init__(self, inputs: int, maps: int, kernels: tuple[int, ...]) -> None:
        """Make one convolution a kernel size, with Glorot-uniform weights."""
        super().__init__()
        self.kernels = kernels
        self.maps = maps
        self.weights = nn.ParameterList(nn.Parameter(torch.empty(size, inputs, maps)) for size in kernels)
        self.biases = nn.ParameterList(nn.Parameter(torch.zeros(maps)) for _ in kernels)
        for size, weight in zip(kernels, self.weights, strict=True):
            bound = math.sqrt(6.0 / (size * (inputs + maps)))
            nn.init.uniform_(weight, -bound, bound)
        self.sites = nn.ModuleList(
            Site(
                f"K{i + 1}",
                inputs,
                accepts=("concrete_dropout",),
                weights=lambda weight=weight: (weight,),  # type: ignore[misc]
                spatial=True,
            )
            for i, weight in enumerate(self.weights)
        )
        self.marks = nn.ModuleList(
            LinearMap(f"weights.{i}", f"biases.{i}", outputs_last=True) for i, _ in enumerate(kernels)
        )

    def forward(self, words: Words) -> Maps:
        """Feature maps of every kernel."""
        noises = [cast(Site, site).noise for site in self.sites]
        noisy = any(noise is not None and noise.active for noise in noises)
        return Maps(self.by_position(words) if noisy else self.by_token(words))

    def by_token(self, words: Words) -> tuple[Tensor, ...]:
        """Products once a distinct token, gathered and added: out[b, t] = Σ_j P_j[token(b, t + j)]."""
        tokens, inputs = words.vectors.shape
        places = self._widened(words.places)
        out = []
        for size, weight, bias, mark in zip(self.kernels, self.weights, self.biases, self.marks, strict=True):
            products = (words.vectors @ weight.transpose(0, 1).reshape(inputs, -1)).reshape(tokens * size, self.maps)
            bags = places.unfold(1, size, 1) * size + torch.arange(size, device=places.device)
            total = functional.embedding_bag(bags.reshape(-1, size), products, mode="sum")
            total = mark(total.reshape(*bags.shape[:2], self.maps), windows(words.vectors, places, size))
            out.append(self._finished(total, bias, words.lengths, size))
        return tuple(out)

    def by_position(self, words: Words) -> tuple[Tensor, ...]:
        """An ordinary convolution over positions, with noise on each kernel's input channels."""
        vectors = functional.embedding(self._widened(words.places), words.vectors)
        channels = vectors.transpose(1, 2)
        out = []
        for size, weight, bias, site in zip(self.kernels, self.weights, self.biases, self.sites, strict=True):
            total = functional.conv1d(site(channels), weight.permute(2, 1, 0))
            out.append(self._finished(total.transpose(1, 2), bias, words.lengths, size))
        return tuple(out)

    def _widened(self, places: Tensor) -> Tensor:
        """A text shorter than the widest kernel is padded to it."""
        short = max(self.kernels) - places.shape[1]
        return functional.pad(places, (0, short)) if short > 0 else places

    def _finished(self, total: Tensor, bias: Tensor, lengths: Tensor, size: int) -> Tensor:
        """ReLU, and zero for the windows past a text's end; the first window always counts."""
        windows = (lengths - size + 1).clamp_min(1)
        real = torch.arange(total.shape[1], device=total.device) < windows[:, None]
        return torch.relu(total + bias) * real[:, :, None]


class PickOverTime(Stage):
    """The largest survivor of each map, ``[B, kernels·F]``."""

    broadcasts = True

    def __init__(self, kernels: tuple[int, ...], maps: int) -> None:
        """Make the dropout sites of the maps."""
        super().__init__()
        self.sites = nn.ModuleList(Site(f"K{i + 1}.maps", maps, accepts=("dropout",)) for i, _ in enumerate(kernels))

    def forward(self, ranked: Ranked) -> Tensor:
        """Concatenate over kernels."""
        picked = [self._pick(v, cast(Site, s)) for v, s in zip(ranked.values, self.sites, strict=True)]
        return torch.cat(picked, dim=1)

    def _pick(self, values: Tensor, site: Site) -> Tensor:
        noise = site.noise
        if not isinstance(noise, Dropout) or noise.given is None:
            return values[:, :, 0]
        rows, width, depth = values.shape
        ranks = noise.survivor(depth).reshape(-1, rows, width, 1)
        # One value more than there are, zero: nothing survived.
        scaled = functional.pad(values, (0, 1)) / (1.0 - noise.p)
        return scaled.expand(len(ranks), rows, width, depth + 1).gather(-1, ranks).reshape(-1, width)


class RankOverTime(Stage):
    """The largest values of each map: one for a plain maximum, several where dropout will choose among them.

    Zero stands both for a dropped value and for padding, which is right because maps are never negative.
    """

    def __init__(self, pick: PickOverTime) -> None:
        """Rank for the stage that picks; its sites say how deep."""
        super().__init__()
        self._pick = (pick,)  # in a tuple, so that its sites are registered once, where the noise acts

    def forward(self, maps: Maps) -> Ranked:
        """Keep as many of the largest values as the noise can reach."""
        sites = self._pick[0].sites
        return Ranked(tuple(self._rank(v, cast(Site, s)) for v, s in zip(maps.values, sites, strict=True)))

    def _rank(self, values: Tensor, site: Site) -> Tensor:
        noise = site.noise
        if isinstance(noise, Dropout) and noise.training:
            drawn = torch.rand(values.shape, generator=noise.generator).to(values.device)
            return (values * (drawn >= noise.p)).amax(dim=1).unsqueeze(-1) / (1.0 - noise.p)
        return largest(values, _depth(site))

    def depths(self) -> list[int]:
        """How many of the largest values of each map the noise can reach at prediction."""
        return [_depth(cast(Site, site)) for site in self._pick[0].sites]


def windows(vectors: Tensor, places: Tensor, size: int) -> Inputs:
    """What a kernel of this size multiplies: the vectors of the words in each window, side by side."""
    return lambda rows: functional.embedding(places[rows].unfold(1, size, 1), vectors).flatten(2)


def _depth(site: Site) -> int:
    return site.noise.depth() if isinstance(site.noise, Dropout) else 1


class GatherOverTime(Stage):
    """:class:`Embed`, :class:`Convolve` and :class:`RankOverTime` in one, for weights that no longer change."""

    def __init__(self, embed: Embed, convolve: Convolve, rank: RankOverTime) -> None:
        """Compute the products of every vocabulary entry from the stages' present weights."""
        super().__init__()
        self._products = TokenProducts(embed.table.weight, list(convolve.weights), list(convolve.biases))
        self._rank = (rank,)  # in a tuple: what it holds is registered elsewhere

    def forward(self, batch: Tokens) -> Ranked:
        """The largest values over time of every map."""
        tokens = batch.distinct[batch.places]
        return Ranked(self._products.ranked(tokens, batch.lengths, self._rank[0].depths()))


@network("textcnn", inputs="text")
def textcnn(
    shape: tuple[int, ...],
    *,
    embedding: int = 300,
    maps: int = 100,
    kernels: tuple[int, ...] = (3, 4, 5),
) -> Network:
    """Embedding → convolutions k = 3, 4, 5 → ReLU → max over time, as in the text paper.

    Args:
        shape: (vocabulary size,), PAD and UNK included.
        embedding: Width of a word vector.
        maps: Feature maps a kernel.
        kernels: Window sizes.
    """
    if not kernels or min(kernels) < 1:
        raise UserError(f"textcnn: kernels must name at least one window of at least one word; given {list(kernels)}.")
    pick = PickOverTime(kernels, maps)
    stages = [Embed(shape[0], embedding), Convolve(embedding, maps, kernels), RankOverTime(pick), pick]
    return Network(stages, maps * len(kernels))
