"""Corrupted copies of images that are made when a batch asks for them: fifty copies of a test set take no memory."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dubio.core.lazy_rows import LazyRows, row_digests
from dubio.core.types import IntArray
from dubio.tasks.cifar.corruption import Corruption

_BLOCK = 512
"""Images corrupted together: bounds what the work in floating point holds."""


@dataclass(frozen=True, eq=False)
class CorruptedRows(LazyRows):
    """Some rows of an array of images, corrupted.

    The dice of an image are seeded by the seed, the corruption and the image's own content, and are the same at
    every severity: severities differ in strength alone.

    Attributes:
        whole: The images as they were, uint8 ``[M, H, W, C]``.
        rows: Which of them, in which order ``[N]``.
        digests: SHA-256 of each of them ``[M, 32]``.
        corruption: What is done to them.
        severity: How much, 1 to 5.
        seed: Of the dice.
    """

    whole: NDArray[np.uint8]
    rows: IntArray
    digests: NDArray[np.uint8]
    corruption: Corruption
    severity: int
    seed: int

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, key: Any) -> NDArray[np.uint8]:
        """Make a row (an index) or rows (a slice, a mask, an index array)."""
        chosen = np.asarray(self.rows[key])
        rows = chosen.reshape(-1)
        made = np.empty((len(rows), *self.row_shape), dtype=np.uint8)
        strength = self.corruption.strength(self.severity)
        for start in range(0, len(rows), _BLOCK):
            block = rows[start : start + _BLOCK]
            dice = [self._die(row) for row in block.tolist()]
            made[start : start + _BLOCK] = self.corruption.apply(self.whole[block], strength, dice)
        return made.reshape(*chosen.shape, *self.row_shape)

    @property
    def row_shape(self) -> tuple[int, ...]:
        """Of one image."""
        return self.whole.shape[1:]

    @property
    def dtype(self) -> np.dtype[Any]:
        """Of the elements."""
        return self.whole.dtype

    def take(self, rows: NDArray[Any]) -> CorruptedRows:
        """These rows, in this order; an index array or a mask. Nothing is made."""
        return replace(self, rows=self.rows[rows])

    def keys(self) -> list[bytes]:
        """The content of each row in short, equal where the rows are equal; every row is made, block by block."""
        return [digest.tobytes() for block in self._blocks() for digest in row_digests(block)]

    def content(self) -> bytes:
        """What the rows hold, in short: the images they are made of, and everything that decides what is made."""
        made = self.corruption
        how = f"{made.name}|{made.version}|{made.strength(self.severity)!r}|{self.seed}"
        return f"corrupted{self.shape}{how}".encode() + self.digests[self.rows].tobytes()

    def _blocks(self) -> Any:
        return (self[start : start + _BLOCK] for start in range(0, len(self), _BLOCK))

    def _die(self, row: int) -> np.random.Generator:
        image = int.from_bytes(self.digests[row, :16].tobytes(), "little")
        name = int.from_bytes(hashlib.sha256(self.corruption.name.encode()).digest()[:8], "little")
        return np.random.default_rng([self.seed, name, image])
