"""What encoders hand on: rows of tokens of different lengths, or rows of one shape."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dubio.core.lazy_rows import LazyRows
from dubio.core.types import IntArray


@dataclass(frozen=True, eq=False)
class TokenRows:
    """Texts as token indices, one after another without padding.

    Attributes:
        tokens: int32, the tokens of all rows.
        offsets: int64 ``[N + 1]``; row i is ``tokens[offsets[i]:offsets[i + 1]]`` and never empty.
    """

    tokens: NDArray[np.int32]
    offsets: IntArray

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @property
    def lengths(self) -> IntArray:
        """Tokens a row ``[N]``."""
        return np.diff(self.offsets)

    def row(self, index: int) -> NDArray[np.int32]:
        """The tokens of one row."""
        return self.tokens[self.offsets[index] : self.offsets[index + 1]]

    def take(self, rows: NDArray[Any]) -> TokenRows:
        """These rows, in this order; an index array or a mask."""
        chosen = np.flatnonzero(rows) if rows.dtype == bool else rows
        lengths = self.lengths[chosen]
        offsets = np.concatenate(([0], np.cumsum(lengths)))
        within = np.arange(offsets[-1]) - np.repeat(offsets[:-1], lengths)
        return TokenRows(self.tokens[np.repeat(self.offsets[:-1][chosen], lengths) + within], offsets)


@dataclass(frozen=True, eq=False)
class ArrayRows:
    """Images or table rows as float32 ``[N, …]``."""

    values: NDArray[np.float32]

    def __len__(self) -> int:
        return len(self.values)

    def take(self, rows: NDArray[Any]) -> ArrayRows:
        """These rows, in this order; an index array or a mask."""
        return ArrayRows(self.values[rows])

    def at(self, rows: NDArray[Any]) -> NDArray[np.float32]:
        """The values of these rows."""
        chosen: NDArray[np.float32] = self.values[rows]
        return chosen


@dataclass(frozen=True, eq=False)
class ImageRows:
    """Images that become float32 ``[N, C, H, W]`` batch by batch, because all of them would not fit in memory.

    Attributes:
        images: uint8 ``[N, H, W, C]``.
        table: float32 ``[C, 256]``: what each grey level of each channel becomes.
    """

    images: NDArray[np.uint8] | LazyRows
    table: NDArray[np.float32]

    def __len__(self) -> int:
        return len(self.images)

    def take(self, rows: NDArray[Any]) -> ImageRows:
        """These rows, in this order; an index array or a mask."""
        images = self.images.take(rows) if isinstance(self.images, LazyRows) else self.images[rows]
        return ImageRows(images, self.table)

    def expect(self, batches: Sequence[NDArray[Any]]) -> None:
        """Be told which rows will be asked for, in which order."""
        if isinstance(self.images, LazyRows):
            self.images.expect(batches)

    def at(self, rows: NDArray[Any]) -> NDArray[np.float32]:
        """The values of these rows."""
        return standardise(self.images[rows], self.table)


def standardise(images: NDArray[np.uint8], table: NDArray[np.float32]) -> NDArray[np.float32]:
    """uint8 ``[N, H, W, C]`` to float32 ``[N, C, H, W]``, by one look-up in the table of each channel."""
    return np.stack([table[c][images[..., c]] for c in range(len(table))], axis=1)


Encoded = TokenRows | ArrayRows | ImageRows
