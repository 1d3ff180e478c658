"""p-values of rank tests over every exchange of equal methods, which their approximations miss for few blocks.

Equal methods may be exchanged in any block. Friedman's χ² grows with S = Σ_j (R_j − R̄)², R_j the sum of the ranks of
method j, so that its exact p is the share of the (k!)^N exchanges of ranks within blocks whose S is at least as large
(Friedman 1937; Hollander, Wolfe and Chicken, "Nonparametric Statistical Methods", 3rd ed., 7.1). Ties, and ranks that
are averaged over metrics or test sets, are exchanged as they are. With the χ² distribution two equal methods on four
blocks are called different in 12.5 %, three on three blocks by Iman and Davenport's F in 19 %.

Sums are counted block by block: S is the same whatever the order of the R_j, so that sums in ascending order stand for
all their orders, and are few. Where they are many, exchanges are drawn, and p = (1 + b)/(1 + n) for b of n drawn with
an S at least as large, which never falls below the exact level on average (Phipson and Smyth 2010). Of more than
:data:`MANY` blocks χ² is right to half a percentage point (see ``tests/statistics/test_exchanges.py``).

Wilcoxon's signed-rank test exchanges two methods in a block by the sign of their difference. Its p is exact over all
2^n signs of the n differences that are not zero, by convolution of the doubled ranks, which are whole numbers with ties
in size, too.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from itertools import permutations

import numpy as np
from scipy import stats

from dubio.core.types import FloatArray, IntArray

MANY = 30
"""Blocks above which Friedman's χ² has its χ² distribution, where sums are too many to count."""

DRAWS = 9_999
"""Exchanges that are drawn where sums are too many to count: 0.05 is estimated within 0.004."""

MOST_SUMS = 250_000
"""Sums that are counted at most, over all blocks: about 30 ms."""

MOST_METHODS = 7
"""Methods whose orders are listed at most, 5,040 of them."""

SCALES = 1_000
"""The largest denominator of ranks that are counted as whole numbers."""

MANY_SIGNS = 50
"""Differences above which the signed-rank statistic is taken as normal, as by scipy."""

Blocks = tuple[tuple[float, ...], ...]
"""The ranks in every block, in ascending order, and the blocks too: what a distribution over exchanges depends on."""


@dataclass(frozen=True, eq=False)
class Exchanges:
    """S over the exchanges of equal methods.

    Attributes:
        squares: Values of S, ascending.
        tails: The share of exchanges with at least such an S.
        beyond: The p-value of an S above all of them: those that were drawn may miss it.
        draws: The number of exchanges that were drawn; None where all were counted.
    """

    squares: FloatArray
    tails: FloatArray
    beyond: float = 0.0
    draws: int | None = None

    def p(self, square: float) -> float:
        """Return the share of exchanges with an S at least this large; one that is smaller by rounding counts."""
        index = int(np.searchsorted(self.squares, square * (1 - 1e-9)))
        return float(self.tails[index]) if index < len(self.squares) else self.beyond


def exchanges(ranks: FloatArray) -> Exchanges | None:
    """Return the distribution of S over exchanges within blocks; None for more than :data:`MANY` blocks not counted.

    Args:
        ranks: ``[blocks, methods]``.
    """
    rows, _ = _scaled(ranks)
    return _exchanges(tuple(sorted(tuple(sorted(row)) for row in rows.tolist() if len(set(row)) > 1)))


def exchange_p(ranks: FloatArray, over: Exchanges) -> float:
    """Return the p-value of Friedman's test of these ranks."""
    return over.p(float(_squares(_scaled(ranks)[0].sum(axis=0))))


def least_difference(ranks: FloatArray, alpha: float) -> float | None:
    """Return the least difference of the mean ranks of two methods that is significant; None where none is.

    Of two methods S = (R_1 − R_2)²/2.
    """
    over, (rows, scale) = exchanges(ranks), _scaled(ranks)
    significant = np.empty(0) if over is None else over.squares[over.tails <= alpha]
    return float(np.sqrt(2 * significant[0])) / (scale * len(rows)) if len(significant) else None


def _scaled(ranks: FloatArray) -> tuple[FloatArray, int]:
    """Return ranks times the least number that makes all of them whole, and that number; as they are where none does.

    The sums of whole numbers are compared exactly.
    """
    scales = np.arange(1, SCALES + 1)
    products = np.unique(ranks.round(9))[:, None] * scales
    are_whole = np.abs(products - np.rint(products)).max(axis=0) < 1e-6
    if not are_whole.any():
        return ranks.round(9), 1
    scale = int(scales[are_whole.argmax()])
    return np.rint(ranks * scale), scale


def _squares(sums: FloatArray | IntArray) -> FloatArray:
    """Return S of sums ``[…, methods]``; of whole numbers no sum is rounded."""
    methods = sums.shape[-1]
    centred = methods * sums - sums.sum(axis=-1, keepdims=True)
    return np.asarray(np.square(centred, dtype=np.float64).sum(axis=-1) / methods**2)


@lru_cache(maxsize=256)
def _exchanges(blocks: Blocks) -> Exchanges | None:
    """Return the distribution of S; methods without ties have the same one in every table of that size."""
    if not blocks:
        return Exchanges(np.zeros(1), np.ones(1))
    counted = _counted(blocks)
    if counted is not None:
        return counted
    return _drawn(blocks) if len(blocks) <= MANY else None


def _counted(blocks: Blocks) -> Exchanges | None:
    """Return the distribution of S over all exchanges; None where there are too many sums."""
    methods = len(blocks[0])
    base = int(sum(row[-1] for row in blocks)) + 1
    are_whole = all(rank.is_integer() for row in blocks for rank in row)
    if methods > MOST_METHODS or base**methods >= 2**62 or not are_whole:
        return None
    digits = np.array([base**digit for digit in range(methods)], dtype=np.int64)
    sums: IntArray = np.array([blocks[0]], dtype=np.int64)
    shares: FloatArray = np.ones(1)
    most = MOST_SUMS
    for row in blocks[1:]:
        orders = _orders(row)
        most -= len(sums) * len(orders)
        if most < 0:
            return None
        every = np.sort((sums[:, None] + orders).reshape(-1, methods), axis=1)
        _, first, index = np.unique(every @ digits, return_index=True, return_inverse=True)
        sums = every[first]
        shares = np.asarray(np.bincount(index, np.repeat(shares / len(orders), len(orders))), dtype=np.float64)
    squares, index = np.unique(_squares(sums), return_inverse=True)
    tails = np.cumsum(np.asarray(np.bincount(index, shares), dtype=np.float64)[::-1])[::-1]
    return Exchanges(squares, np.minimum(tails, 1.0))


@lru_cache(maxsize=64)
def _orders(row: tuple[float, ...]) -> IntArray:
    """Return the different orders of ranks, all equally likely: equal ranks double every one alike."""
    return np.array(sorted(set(permutations(row))), dtype=np.int64)


def _drawn(blocks: Blocks) -> Exchanges:
    """Return the distribution of S over exchanges that are drawn, the same whenever it is asked for."""
    rng, sums = np.random.default_rng(0), np.zeros((DRAWS, len(blocks[0])))
    for row in blocks:
        sums += rng.permuted(np.tile(np.asarray(row), (DRAWS, 1)), axis=1)
    tails = (1 + np.arange(DRAWS, 0, -1)) / (1 + DRAWS)
    return Exchanges(np.sort(_squares(sums)), tails, 1 / (1 + DRAWS), DRAWS)


def signed_rank_p(differences: FloatArray) -> float:
    """Return the two-sided p of Wilcoxon's signed-rank test, exact for up to :data:`MANY_SIGNS` that are not zero.

    With W⁺ the sum of the ranks of |d_i| with d_i > 0, T that of all, and every sign as likely as its opposite,
    p = min(1, 2 P(W⁺ ≥ max(w⁺, T − w⁺))). Differences of zero are left out (Wilcoxon 1945), and ties in size share the
    mean of their ranks.

    Args:
        differences: Of two methods, one per block.
    """
    own = differences[differences != 0.0]
    if not len(own):
        return 1.0
    if len(own) > MANY_SIGNS:
        return float(stats.wilcoxon(own).pvalue)
    doubled = np.rint(2 * stats.rankdata(np.abs(own))).astype(np.int64)
    total = int(doubled.sum())
    shares = np.zeros(total + 1)
    shares[0] = 1.0
    for rank in doubled.tolist():
        shares[rank:] = (shares[rank:] + shares[: total + 1 - rank]) / 2
        shares[:rank] /= 2
    positive = int(doubled[own > 0.0].sum())
    return min(1.0, 2.0 * float(shares[max(positive, total - positive) :].sum()))
