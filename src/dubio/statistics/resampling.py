"""What a bootstrap draws: how often every unit comes up among as many draws, with replacement, as there are units.

The counts of one replicate follow the multinomial law of n draws over n units. They are not drawn one by one: counts
that are Poisson and independent are, given their sum m, the counts of m draws, whatever m is. So Poisson counts with a
mean a little below one are drawn for all units at once, and the n − m draws that are still missing are made singly.
Where the sum came out above n the replicate is drawn again, which changes how m is distributed and nothing else.

A Poisson count takes one random byte: ⌊256 p_k⌋ of the 256 bytes stand for the count k, and the few that are left over
call for a draw from what the whole numbers left of the law.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from dubio.core.predictions import Predictions
from dubio.core.types import FloatArray, IntArray

BLOCK_CELLS = 1 << 20
"""Counts in a block of replicates: large enough to work on many replicates at once, small enough for the cache."""

SHORTFALL = 3.0
"""How many standard deviations the sum of the Poisson counts is expected to fall short of the draws."""

FEW = 1000
"""Below this many units all draws are made singly: that takes no longer."""

UNDECIDED = 255
"""The mark of a byte that does not settle a count; no count comes near it."""


@dataclass(frozen=True, eq=False)
class Weights:
    """How often every example counts in each of several replicates.

    Attributes:
        counts: ``[N, R]``, whole numbers: a row an example, a column a replicate.
    """

    counts: NDArray[np.unsignedinteger]

    @classmethod
    def of(cls, rows: IntArray | FloatArray) -> Weights:
        """From an array ``[R, N]`` of whole numbers, a row a replicate."""
        whole = np.asarray(rows).T
        return cls(np.ascontiguousarray(whole.astype(np.min_scalar_type(int(whole.max())))))

    def __len__(self) -> int:
        return int(self.counts.shape[1])

    @cached_property
    def real(self) -> FloatArray:
        """The counts as real numbers, ``[N, R]``."""
        return self.counts.astype(np.float64)

    @cached_property
    def totals(self) -> FloatArray:
        """How many examples each replicate has, ``[R]``."""
        return self.sums(np.ones(len(self.counts)))

    def sums(self, values: FloatArray) -> FloatArray:
        """Σ_i count_i · value_i in each replicate, ``[R]``."""
        return np.asarray(values @ self.real)

    def replicates(self) -> Iterator[IntArray]:
        """The rows that each replicate holds, as often as it holds them."""
        rows = np.arange(len(self.counts), dtype=np.int64)
        for column in self.counts.T:
            yield np.repeat(rows, column.astype(np.int64))


@dataclass(frozen=True, eq=False)
class Units:
    """What is resampled: groups where there are any, else examples.

    Attributes:
        index: ``[N]``, the unit each example belongs to.
        count: How many units there are.
    """

    index: IntArray
    count: int

    def weights(self, replicates: int, seed: int) -> Iterator[Weights]:
        """Weights of every example, in blocks of replicates; the blocks do not change what is drawn."""
        generator = np.random.default_rng(seed)
        law = ShortPoisson.of(self.count)
        whole = self.count == len(self.index)
        block = max(1, BLOCK_CELLS // len(self.index))
        for start in range(0, replicates, block):
            drawn = np.empty((min(block, replicates - start), self.count), dtype=np.uint8)
            for row in drawn:
                law.fill(row, generator)
            counts = np.ascontiguousarray(drawn.T)
            yield Weights(counts if whole else counts[self.index])


def units_of(predictions: Predictions) -> Units:
    """The groups of the predictions, or its examples where it has none."""
    if predictions.group is None:
        return Units(np.arange(len(predictions), dtype=np.int64), len(predictions))
    names, index = np.unique(predictions.group, return_inverse=True)
    return Units(index.astype(np.int64), len(names))


@dataclass(frozen=True, eq=False)
class ShortPoisson:
    """A Poisson law with a mean somewhat below one, as a table of 256 bytes and a remainder.

    Attributes:
        mean: Its mean; zero for few units, where all draws are made singly.
        table: The count each byte stands for, or ``UNDECIDED``.
        remainder: ``[K]``, cumulated shares of the counts among the bytes that are undecided.
    """

    mean: float
    table: bytes
    remainder: FloatArray

    @classmethod
    def of(cls, units: int) -> ShortPoisson:
        """The law for this many units."""
        mean = 0.0 if units < FEW else max(0.0, 1.0 - SHORTFALL / float(np.sqrt(units)))
        shares = 256.0 * stats.poisson.pmf(np.arange(40), mean)
        settled = np.floor(shares).astype(np.int64)
        left = np.cumsum(shares - settled)
        table = np.full(256, UNDECIDED, dtype=np.uint8)
        table[: settled.sum()] = np.repeat(np.arange(40), settled)
        return cls(mean, table.tobytes(), left / left[-1] if left[-1] > 0 else left)

    def fill(self, row: NDArray[np.uint8], generator: np.random.Generator) -> None:
        """Fill a row, one count a unit, with the counts of as many draws as there are units."""
        row[:] = 0
        made = len(row) + 1 if self.mean > 0 else 0
        while made > len(row):
            made = self._start(row, generator)
        np.add.at(row, generator.integers(0, len(row), len(row) - made), np.uint8(1))

    def _start(self, row: NDArray[np.uint8], generator: np.random.Generator) -> int:
        """Fill a row with independent counts; their sum."""
        words = generator.bit_generator.random_raw(-(-len(row) // 8)).astype("<u8", copy=False)
        row[:] = np.frombuffer(words.tobytes().translate(self.table), dtype=np.uint8)[: len(row)]
        undecided = np.flatnonzero(row == UNDECIDED)
        row[undecided] = np.searchsorted(self.remainder, generator.random(len(undecided)), side="right")
        return int(row.sum(dtype=np.uint32))
