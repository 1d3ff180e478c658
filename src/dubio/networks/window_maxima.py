"""The largest sums over windows of words, with a gradient that visits only the windows that won.

A convolution over words adds k gathered rows of products per window, and a maximum over time keeps one window per map.
Bias and ReLU are monotone and act after the maximum (see :mod:`dubio.networks.textcnn`). Of all sums only the winners
have a gradient: of text b and map f the k products x(b, t* + j)·w(j, f) of its winning window t*. With g the gradient
of the maxima,

    ∂w(j, f) = Σ_b g(b, f)·x(b, t*(b, f) + j),        ∂x(u) = Σ over (b, f, j) whose word is u of g(b, f)·w(j, f),

B·F·Σk weighted rows for either, whatever the length of the texts. The gradient of the products, ``[U, Σk·F]``, would be
zero nearly everywhere, and its two matrix products would take twice the time of the forward pass.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable
from torch.nn import functional

Dropped = Sequence[Tensor | None]
"""Per kernel, which sums ``[B, windows, F]`` are dropped; None for none of them."""

FAR = 2.0**100
"""Larger than any sum: what is subtracted from those that are dropped."""


def largest_sums(
    vectors: Tensor, weights: Tensor, places: Tensor, lengths: Tensor, kernels: Sequence[int], dropped: Dropped
) -> tuple[Tensor, ...]:
    """Return max_t Σ_j x(b, t + j)·w(j, f) of each kernel, ``[B, F]``, over the windows within a text.

    Args:
        vectors: ``[U, E]`` words x.
        weights: ``[Σ size · F, E]``: the rows w(j, f) of every kernel, one kernel after another.
        places: ``[B, L]`` positions into the words, at least as wide as the widest kernel.
        lengths: ``[B]`` words of each text; a text shorter than a kernel has one window.
        kernels: Words per window.
        dropped: The sums that do not take part.

    Returns:
        One maximum per kernel; −∞ where every window is dropped. Of equal sums the first receives the gradient.
    """
    tops = _LargestSums.apply(vectors, weights, places, lengths, tuple(kernels), tuple(dropped))  # type: ignore[no-untyped-call]
    return cast(tuple[Tensor, ...], tops)


class _LargestSums(Function):
    """:func:`largest_sums` and its gradient."""

    @staticmethod
    def forward(
        ctx: Any,
        vectors: Tensor,
        weights: Tensor,
        places: Tensor,
        lengths: Tensor,
        kernels: tuple[int, ...],
        dropped: Dropped,
    ) -> tuple[Tensor, ...]:
        """Add the products of every window and keep the largest sums and where they are."""
        width = sum(kernels)
        table = _products(vectors, weights).view(len(vectors) * width, -1)
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
        ctx.kernels = kernels
        ctx.save_for_backward(vectors, weights, places, *winners)
        return tuple(tops)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        """Add each maximum's gradient to the words and the weights of its winning window."""
        # detached: a table that requires a gradient is prepared for one, whatever the mode
        vectors, weights, places, *winners = (saved.detach() for saved in ctx.saved_tensors)
        tokens, factors = [], []  # of every row w(j, f) its B winners: which word, and the gradient of the maximum
        for size, at, gradient in zip(ctx.kernels, winners, gradients, strict=True):
            positions = (at[:, None, :] + torch.arange(size)[:, None]).flatten(1)
            tokens.append(places.gather(1, positions).t())
            factors.append(gradient.t().repeat(size, 1))
        winning, factors_of = torch.cat(tokens), torch.cat(factors)
        of_vectors = of_weights = None
        if ctx.needs_input_grad[0]:
            of_vectors = _added_by_word(weights, winning, factors_of, len(vectors))
        if ctx.needs_input_grad[1]:
            of_weights = functional.embedding_bag(winning, vectors, per_sample_weights=factors_of, mode="sum")
        return of_vectors, of_weights, None, None, None, None


def _products(vectors: Tensor, weights: Tensor) -> Tensor:
    """Return the products of every word with every row of the weights, ``[U, R]``.

    torch multiplies by MKL, which leaves half of the arithmetic of an AMD processor unused; oneDNN does not.
    """
    if vectors.dtype is not torch.float32 or not torch.backends.mkldnn.is_available():  # type: ignore[no-untyped-call]
        return vectors @ weights.t()
    return functional.linear(vectors.to_mkldnn(), weights).to_dense()


def _added_by_word(weights: Tensor, tokens: Tensor, factors: Tensor, count: int) -> Tensor:
    """Return ``[count, E]``: of every word u the sum of factors(r, b)·weights(r) over all (r, b) with tokens(r, b) = u.

    Args:
        weights: ``[R, E]``.
        tokens: ``[R, B]``.
        factors: ``[R, B]``.
        count: Number of words.
    """
    flat = tokens.flatten()
    # numpy sorts numbers of 16 bits by their digits, and divides by a constant, in a tenth of the time
    order = np.argsort(flat.numpy().astype(np.min_scalar_type(count)), kind="stable")
    starts = functional.pad(torch.bincount(flat, minlength=count).cumsum(0), (1, 0))
    return functional.embedding_bag(
        torch.from_numpy(order // tokens.shape[1]), weights, starts,
        per_sample_weights=factors.flatten().index_select(0, torch.from_numpy(order)),
        mode="sum", include_last_offset=True,
    )  # fmt: skip
