"""Rows that are not in memory: what is too large for it is read or made row by row, when it is asked for."""

from __future__ import annotations

import hashlib
import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

BLOCK_BYTES = 1 << 26
"""So much is read at a time where everything must be seen once."""


class LazyRows(ABC):
    """Rows of one shape, like those of an array, of which choosing reads nothing and indexing reads what is asked for.

    Attributes:
        costly: Whether it takes hours to look at every row: whoever can does with a sample, or asks first.
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
        """Of one row."""

    @property
    @abstractmethod
    def dtype(self) -> np.dtype[Any]:
        """Of the elements."""

    @abstractmethod
    def take(self, rows: NDArray[Any]) -> Self:
        """These rows, in this order; an index array or a mask. Nothing is read."""

    @abstractmethod
    def keys(self) -> list[bytes]:
        """The content of each row in short: equal where the rows are equal."""

    @abstractmethod
    def content(self) -> bytes:
        """What the rows hold, in short, for a fingerprint."""

    def expect(self, batches: Sequence[NDArray[Any]]) -> None:
        """Be told which rows will be asked for, in which order; a source that takes long may read ahead."""
        del batches

    def __iter__(self) -> Iterator[NDArray[Any]]:
        return (self[row] for row in range(len(self)))

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        """All rows in memory."""
        whole = self[:]
        return whole if dtype is None else whole.astype(dtype)

    @property
    def shape(self) -> tuple[int, ...]:
        """Of the rows together."""
        return (len(self), *self.row_shape)

    @property
    def ndim(self) -> int:
        """Axes, that of the rows included."""
        return 1 + len(self.row_shape)


@dataclass(frozen=True, eq=False)
class MappedRows(LazyRows):
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

    @property
    def row_shape(self) -> tuple[int, ...]:
        """Of one row."""
        return self.whole.shape[1:]

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


def row_blocks(array: NDArray[Any] | LazyRows) -> Iterator[NDArray[Any]]:
    """Consecutive rows in memory, at most :data:`BLOCK_BYTES` at a time (but at least a row)."""
    row = max(1, math.prod(array.shape[1:]) * array.dtype.itemsize)
    step = max(1, BLOCK_BYTES // row)
    for start in range(0, len(array), step):
        yield array[start : start + step]


def row_digests(array: NDArray[Any] | LazyRows) -> NDArray[np.uint8]:
    """SHA-256 of the bytes of every row ``[N, 32]``."""
    blocks = (np.ascontiguousarray(block) for block in row_blocks(array))
    found = b"".join(hashlib.sha256(row.data).digest() for block in blocks for row in block)
    return np.frombuffer(found, dtype=np.uint8).reshape(len(array), 32)


def row_keys(array: NDArray[Any] | LazyRows) -> list[bytes]:
    """The content of each row in short: equal where rows are equal, whether they are in memory or not."""
    return array.keys() if isinstance(array, LazyRows) else [digest.tobytes() for digest in row_digests(array)]
