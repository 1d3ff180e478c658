"""Convolutions over words whose weights are fixed: products once a vocabulary entry, then gathers, adds and maxima.

A convolution is linear in each token's embedding, Σ_j x(t + j)·W_j, so that P_j = E·W_j, one row a vocabulary entry,
is all that its weights are needed for. What is left for a text is to gather and add k rows a window. The bias is the
same for every window and ReLU is monotone, so both act after the maximum over windows, on one value a map: the largest
of relu(s + b) are relu(b + the largest of s). Windows past a text's end hold the entry END, whose products are −∞: they
never win, and no mask is needed. Every sum has the same terms in the same order whatever batch the text is in.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

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
