"""The largest sums over windows of words, with a gradient that visits only the windows that won.

A convolution over words adds k gathered rows of products per window, and a maximum over time keeps one window per map.
Bias and ReLU are monotone and act after the maximum (see :mod:`dubio.networks.textcnn`). Of all sums only the winners
have a gradient: k rows of products per text and map, where the maps themselves, their ReLU, masks and maximum would
each pass on a dense array ``[B, windows, F]``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import torch
from torch import Tensor
from torch.autograd import Function
from torch.nn import functional

Dropped = Sequence[Tensor | None]
"""Per kernel, which sums ``[B, windows, F]`` are dropped; None for none of them."""

FAR = 2.0**100
"""Larger than any sum: what is subtracted from those that are dropped."""


def largest_sums(
    products: Tensor, places: Tensor, lengths: Tensor, kernels: Sequence[int], dropped: Dropped
) -> tuple[Tensor, ...]:
    """Return max_t Σ_j P_j[token(b, t + j)] of each kernel, ``[B, F]``, over the windows within a text.

    Args:
        products: ``[U, Σ size · F]``: of each distinct token its products with the words of every kernel, side by side.
        places: ``[B, L]`` positions into them, at least as wide as the widest kernel.
        lengths: ``[B]`` words of each text; a text shorter than a kernel has one window.
        kernels: Words per window.
        dropped: The sums that do not take part.

    Returns:
        One maximum per kernel; −∞ where every window is dropped. Of equal sums the first receives the gradient.
    """
    tops = _LargestSums.apply(products, places, lengths, tuple(kernels), tuple(dropped))  # type: ignore[no-untyped-call]
    return cast(tuple[Tensor, ...], tops)


class _LargestSums(Function):
    """:func:`largest_sums` and its gradient."""

    @staticmethod
    def forward(
        ctx: Any, products: Tensor, places: Tensor, lengths: Tensor, kernels: tuple[int, ...], dropped: Dropped
    ) -> tuple[Tensor, ...]:
        """Add the rows of every window and keep the largest sums and where they are."""
        width = sum(kernels)
        table = products.view(products.shape[0] * width, -1)
        rows, first = places * width, 0
        tops, winners = [], []
        for size, mask in zip(kernels, dropped, strict=True):
            bags = rows.unfold(1, size, 1) + torch.arange(first, first + size)
            sums = functional.embedding_bag(bags.reshape(-1, size), table, mode="sum")
            sums = sums.view(len(places), -1, table.shape[1])
            past = (torch.arange(sums.shape[1]) > (lengths[:, None] - size).clamp_min(0))[:, :, None]
            sums.masked_fill_(past, -torch.inf)
            if mask is not None:  # filling by a random mask takes three times as long as adding it
                sums.add_(mask, alpha=-FAR)
            top, at = sums.max(dim=1)
            tops.append(top.masked_fill_(top < -FAR / 2, -torch.inf))
            winners.append(at)
            first += size
        ctx.kernels, ctx.shape = kernels, table.shape
        ctx.save_for_backward(rows, *winners)
        return tuple(tops)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None, None, None]:
        """Add each maximum's gradient to the products of its winning window."""
        rows, *winners = ctx.saved_tensors
        count, maps = ctx.shape
        total, columns, first = gradients[0].new_zeros(count * maps), torch.arange(maps), 0
        for size, at, gradient in zip(ctx.kernels, winners, gradients, strict=True):
            steps = torch.arange(size)[None, :, None]
            chosen = rows.gather(1, (at[:, None, :] + steps).flatten(1)).view(len(at), size, maps) + (steps + first)
            values = gradient[:, None, :].expand(-1, size, -1)
            total.index_add_(0, (chosen * maps + columns).reshape(-1), values.reshape(-1))
            first += size
        return total.view(count // sum(ctx.kernels), -1), None, None, None, None
