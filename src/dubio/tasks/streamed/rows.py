"""Rows that are files: decoded by several threads when a batch asks for them, the next batch while this one is used."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dubio.core.errors import BadFile
from dubio.core.lazy_rows import LazyRows
from dubio.core.types import IntArray, StrArray
from dubio.tasks.fundus.opening import Unreadable
from dubio.tasks.streamed.decoding import Square, decoded

THREADS = min(8, os.cpu_count() or 1)
"""Files decoded side by side; Pillow decodes outside the interpreter's lock, and the pixels do not depend on it."""

VERSION = 1
"""Bumped by hand whenever the same file and square come to mean other pixels; part of a fingerprint."""


@dataclass
class _Ahead:
    """What will be asked for, and the next of it, under way."""

    batches: Sequence[NDArray[Any]] = ()
    place: int = 0
    pending: Future[NDArray[np.uint8]] | None = None
    reader: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(1, "dubio-reading-ahead"))

    def __reduce__(self) -> tuple[type[_Ahead], tuple[()]]:
        return _Ahead, ()  # threads do not travel to another process

    def awaits(self, key: Any) -> bool:
        return (
            self.place < len(self.batches)
            and isinstance(key, np.ndarray)
            and np.array_equal(key, self.batches[self.place])
        )


@dataclass(frozen=True, eq=False)
class StreamedRows(LazyRows):
    """Some files of a folder as images, uint8 ``[N, size, size, 3]``, never all of them in memory.

    Attributes:
        root: The folder.
        names: Every file of it, by its path inside it ``[M]``.
        sizes: Their bytes ``[M]``.
        rows: Which of them, in which order ``[N]``.
        square: What becomes of a photograph.
    """

    root: Path
    names: StrArray
    sizes: IntArray
    rows: IntArray
    square: Square
    _ahead: _Ahead = field(default_factory=_Ahead, repr=False)

    costly: ClassVar[bool] = True

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, key: Any) -> NDArray[np.uint8]:
        """Decode a row (an index) or rows (a slice, a mask, an index array).

        Raises:
            BadFile: When a file cannot be decoded.
        """
        ahead = self._ahead
        if not ahead.awaits(key):
            return self._decoded(key)
        made = self._decoded(key) if ahead.pending is None else ahead.pending.result()
        ahead.place += 1
        ahead.pending = None
        if ahead.place < len(ahead.batches):
            ahead.pending = ahead.reader.submit(self._decoded, ahead.batches[ahead.place])
        return made

    def _decoded(self, key: Any) -> NDArray[np.uint8]:
        chosen = np.asarray(self.rows[key])
        made = np.empty((chosen.size, *self.row_shape), dtype=np.uint8)

        def fill(place: int) -> None:
            name = str(self.names[chosen.reshape(-1)[place]])
            try:
                made[place] = decoded(self.root / name, self.square)
            except Unreadable as fault:
                raise BadFile(
                    f"{name} cannot be read any more: {fault}. dubio data check imagenet --verify decodes every file "
                    "and leaves out those that cannot be read."
                ) from fault

        if chosen.size < 2:
            for place in range(chosen.size):
                fill(place)
        else:
            with ThreadPoolExecutor(THREADS, "dubio-decoding") as pool:
                list(pool.map(fill, range(chosen.size)))
        return made.reshape(*chosen.shape, *self.row_shape)

    @property
    def row_shape(self) -> tuple[int, ...]:
        """Of one image."""
        return (self.square.size, self.square.size, 3)

    @property
    def dtype(self) -> np.dtype[Any]:
        """Of the elements."""
        return np.dtype(np.uint8)

    def expect(self, batches: Sequence[NDArray[Any]]) -> None:
        """Be told what will be asked for, in this order: the batch after the one that is asked for is read ahead."""
        self._ahead.batches, self._ahead.place, self._ahead.pending = batches, 0, None

    def take(self, rows: NDArray[Any]) -> StreamedRows:
        """These rows, in this order; an index array or a mask. Nothing is read."""
        return replace(self, rows=self.rows[rows], _ahead=_Ahead())

    def keys(self) -> list[bytes]:
        """SHA-256 of each file: equal where the files are equal. Every file is read."""
        files = [self.root / name for name in self.names[self.rows].tolist()]
        with ThreadPoolExecutor(THREADS) as pool:
            return list(pool.map(_digest, files))

    def content(self) -> bytes:
        """What the rows hold, in short: the bytes of each file and what is done with it; names are the examples' ids.

        The files are not read: of published photographs name and size tell well enough which they are.
        """
        how = f"{self.square.shorter}|{VERSION}"
        return f"streamed{self.shape}{how}".encode() + self.sizes[self.rows].astype("<i8").tobytes()


def _digest(path: Path) -> bytes:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").digest()
