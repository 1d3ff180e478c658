"""Rows of an array that stays in its file: what is too large for memory is read row by row, when it is asked for."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

BLOCK_BYTES = 1 << 26
"""So much is read at a time where everything must be seen once."""


@dataclass(frozen=True, eq=False)
class MappedRows:
    """Some rows of a memory-mapped array, in some order; choosing rows reads nothing.

    Attributes:
        whole: The array in its file ``[M, …]``.
        rows: Which of its rows, in which order ``[N]``.
        digests: SHA-256 of every row of the file ``[M, 32]``, known since it was written: its content in short.
    """

    whole: NDArray[Any]
    rows: NDArray[np.int64]
    digests: NDArray[np.uint8]

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, key: Any) -> NDArray[Any]:
        """Read a row (an index) or rows (a slice, a mask, an index array) into memory."""
        return np.array(self.whole[self.rows[key]])

    def __iter__(self) -> Iterator[NDArray[Any]]:
        return (self[row] for row in range(len(self)))

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        """All rows in memory."""
        whole = self[:]
        return whole if dtype is None else whole.astype(dtype)

    @property
    def shape(self) -> tuple[int, ...]:
        """Of the rows together."""
        return (len(self.rows), *self.whole.shape[1:])

    @property
    def ndim(self) -> int:
        """Axes, that of the rows included."""
        return self.whole.ndim

    @property
    def dtype(self) -> np.dtype[Any]:
        """Of the elements."""
        return self.whole.dtype

    def take(self, rows: NDArray[Any]) -> MappedRows:
        """These rows, in this order; an index array or a mask. Nothing is read."""
        return MappedRows(self.whole, self.rows[rows], self.digests)

    def keys(self) -> list[bytes]:
        """The content of each row in short: equal where the rows are equal."""
        return [self.digests[row].tobytes() for row in self.rows.tolist()]

    def content(self) -> bytes:
        """What the rows hold, in short, for a fingerprint: shape, type and the hash of every row."""
        return f"rows{self.shape}{self.dtype.str}".encode() + self.digests[self.rows].tobytes()


def row_blocks(array: NDArray[Any] | MappedRows) -> Iterator[NDArray[Any]]:
    """Consecutive rows in memory, at most :data:`BLOCK_BYTES` at a time (but at least a row)."""
    row = max(1, math.prod(array.shape[1:]) * array.dtype.itemsize)
    step = max(1, BLOCK_BYTES // row)
    for start in range(0, len(array), step):
        yield array[start : start + step]
