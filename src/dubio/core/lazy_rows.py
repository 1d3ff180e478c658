"""Rows of an array that are read or computed when they are indexed, for data larger than memory."""

from __future__ import annotations

import hashlib
import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

BLOCK_BYTES = 1 << 26
"""Bytes that are read at a time by a pass over all rows."""


class LazyRows(ABC):
    """Rows of one shape, like those of an array: :meth:`take` reads nothing, indexing reads those rows.

    Attributes:
        costly: Whether a pass over all rows takes hours, so that callers should use a sample.
    """

    costly: ClassVar[bool] = False

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def __getitem__(self, key: Any) -> NDArray[Any]:
        """Read a row (an index) or rows (a slice, a mask, an index array) into memory."""

    @property
    @abstractmethod
    def row_shape(self) -> tuple[int, ...]:
        """The shape of one row."""

    @property
    @abstractmethod
    def dtype(self) -> np.dtype[Any]:
        """The type of the elements."""

    @abstractmethod
    def take(self, rows: NDArray[Any]) -> Self:
        """Return these rows (an index array or a mask), in this order. Nothing is read."""

    def keys(self) -> list[bytes]:
        """Return a digest of each row, equal where the rows are equal; by default all rows are read."""
        return [digest.tobytes() for digest in row_digests(self)]

    def content(self) -> bytes:
        """Return a digest of all rows, for a fingerprint; by default all rows are read."""
        return f"rows{self.shape}{self.dtype.str}".encode() + row_digests(self).tobytes()

    def expect(self, batches: Sequence[NDArray[Any]]) -> None:
        """Announce which rows will be indexed, in which order; a slow source may read ahead."""
        del batches

    def __iter__(self) -> Iterator[NDArray[Any]]:
        return (self[row] for row in range(len(self)))

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        """Read all rows into memory."""
        rows = self[:]
        return rows if dtype is None else rows.astype(dtype)

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of all rows together."""
        return (len(self), *self.row_shape)

    @property
    def ndim(self) -> int:
        """The number of axes, including that of the rows."""
        return 1 + len(self.row_shape)


@dataclass(frozen=True, eq=False)
class MappedRows(LazyRows):
    """Some rows of a memory-mapped array, in some order.

    Attributes:
        array: The array in its file ``[M, …]``.
        rows: Indices of the rows, in order ``[N]``.
        digests: SHA-256 of every row of the file ``[M, 32]``, computed when it was written.
    """

    array: NDArray[Any]
    rows: NDArray[np.int64]
    digests: NDArray[np.uint8]

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, key: Any) -> NDArray[Any]:
        """Read a row (an index) or rows (a slice, a mask, an index array) into memory."""
        return np.array(self.array[self.rows[key]])

    @property
    def row_shape(self) -> tuple[int, ...]:
        """The shape of one row."""
        return self.array.shape[1:]

    @property
    def dtype(self) -> np.dtype[Any]:
        """The type of the elements."""
        return self.array.dtype

    def take(self, rows: NDArray[Any]) -> Self:
        """Return these rows (an index array or a mask), in this order. Nothing is read."""
        return replace(self, rows=self.rows[rows])

    def keys(self) -> list[bytes]:
        """Return a digest of each row: equal where the rows are equal."""
        return [self.digests[row].tobytes() for row in self.rows.tolist()]

    def content(self) -> bytes:
        """Return shape, type and the hash of every row, for a fingerprint."""
        return f"rows{self.shape}{self.dtype.str}".encode() + self.digests[self.rows].tobytes()


def iterate_blocks(array: NDArray[Any] | LazyRows) -> Iterator[NDArray[Any]]:
    """Yield consecutive rows in memory, at most :data:`BLOCK_BYTES` at a time (but at least one row)."""
    row = max(1, math.prod(array.shape[1:]) * array.dtype.itemsize)
    step = max(1, BLOCK_BYTES // row)
    for start in range(0, len(array), step):
        yield array[start : start + step]


def row_digests(array: NDArray[Any] | LazyRows) -> NDArray[np.uint8]:
    """Return the SHA-256 of the bytes of every row ``[N, 32]``."""
    blocks = (np.ascontiguousarray(block) for block in iterate_blocks(array))
    digests = b"".join(hashlib.sha256(row.data).digest() for block in blocks for row in block)
    return np.frombuffer(digests, dtype=np.uint8).reshape(len(array), 32)


def row_keys(array: NDArray[Any] | LazyRows) -> list[bytes]:
    """Return a digest of each row: equal where rows are equal, whether they are in memory or not."""
    return array.keys() if isinstance(array, LazyRows) else [digest.tobytes() for digest in row_digests(array)]
