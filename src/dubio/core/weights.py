"""Weights of examples: how often every example counts in each of several replicates.

A metric is a function of predictions and weights. With the default, :data:`ONCE`, every example counts once and the
value is that of the predictions; the bootstrap passes many columns of counts and gets many values at once.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dubio.core.errors import UserError

Values = NDArray[np.floating[Any]]
"""One value per replicate, ``[R]``."""


@dataclass(frozen=True, eq=False)
class Weights:
    """How often every example counts in each of several replicates.

    Attributes:
        counts: ``[N, R]``, one row per example and one column per replicate: whole numbers, or real ones where
            examples count in part.
        each_once: Whether there is one replicate and every example counts once in it.
    """

    counts: NDArray[Any]
    each_once: bool = False

    @classmethod
    def of(cls, rows: NDArray[Any]) -> Weights:
        """Make weights from whole numbers ``[R, N]``, one row per replicate."""
        columns = np.asarray(rows).T
        return cls(np.ascontiguousarray(columns.astype(np.min_scalar_type(int(columns.max())))))

    @classmethod
    def once(cls, rows: int) -> Weights:
        """Make the weights with which each of ``rows`` examples counts once."""
        return cls(np.ones((rows, 1), dtype=np.uint8), each_once=True)

    def __len__(self) -> int:
        """Return R, the number of replicates."""
        return int(self.counts.shape[1])

    @cached_property
    def real(self) -> Values:
        """The counts as real numbers, ``[N, R]``."""
        return self.counts.astype(np.float64, copy=False)

    @cached_property
    def totals(self) -> Values:
        """The weight of all examples of each replicate, ``[R]``."""
        if len(self) == 1:
            return np.array([self.counts.sum(dtype=np.float64)])
        return self.sums(np.ones(len(self.counts)))

    def sums(self, values: NDArray[Any]) -> Values:
        """Return Σ_i count_i · value_i of each replicate, ``[R]``."""
        if self.each_once:
            return np.array([values.sum(dtype=np.float64)])
        if len(self) == 1:  # a matrix product would start threads for it
            return np.array([(values * self.real[:, 0]).sum()])
        return np.asarray(values.astype(np.float64, copy=False) @ self.real)

    def mean(self, values: NDArray[Any]) -> Values:
        """Return the weighted mean of one value per example, ``[R]``.

        It is infinite where an infinite value counts, and NaN where infinite values of both signs do.

        Raises:
            UserError: When a value is NaN and some replicate may leave it out.
        """
        if self.each_once:
            return np.array([values.mean()], dtype=np.float64)
        finite = np.isfinite(values)
        if finite.all():
            return self.sums(values) / self.totals
        if np.isnan(values).any():
            raise UserError(f"contributions must not be NaN; example {int(np.isnan(values).argmax())} is.")
        means = self.sums(np.where(finite, values, 0.0)) / self.totals
        with np.errstate(invalid="ignore"):
            for end in (np.inf, -np.inf):
                means += np.where(self.sums(values == end) > 0, end, 0.0)
        return means

    def take(self, rows: NDArray[Any]) -> Weights:
        """Return the weights of these examples."""
        return Weights(self.counts[rows], self.each_once)

    def scaled(self, factors: NDArray[Any]) -> Weights:
        """Return real weights: every count times a factor, ``[N, R]``."""
        return Weights(self.real * factors)

    def replicates(self) -> Iterator[NDArray[np.int64]]:
        """Yield the rows of each replicate, repeated as often as they count."""
        rows = np.arange(len(self.counts), dtype=np.int64)
        for column in self.counts.T:
            yield np.repeat(rows, column.astype(np.int64))


ONCE = Weights.once(0)
"""The default weights of every metric: each example counts once, whatever their number."""
