"""One file to one square: the shorter side resized, the centre cut out.

Rows that are files: decoded by several threads when a batch asks for them, the next batch while this one is used.
"""

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

from dubio.core.errors import BadFile, UserError
from dubio.core.lazy_rows import LazyRows
from dubio.core.types import IntArray, StrArray
from dubio.tasks.images.files import Unreadable, pillow

_TAIL = 4096
_END = b"\xff\xd9"


@dataclass(frozen=True)
class Square:
    """How a photograph becomes a square of pixels.

    Attributes:
        shorter: What its shorter side is resized to (bilinear, smoothed).
        size: Both sides of the square that is cut out of the centre.
    """

    shorter: int
    size: int

    def __post_init__(self) -> None:
        if not 8 <= self.size <= self.shorter:
            raise UserError(
                f"size must be at least 8 and at most shorter, the side that is resized; given {self.size} and "
                f"{self.shorter}."
            )


def decode_square(path: Path, square: Square) -> NDArray[np.uint8]:
    """The photograph in a file as uint8 ``[size, size, 3]``, whatever its mode (grey, palette, CMYK).

    Raises:
        Unreadable: When it cannot be decoded.
    """
    image_module = pillow()
    try:
        with image_module.open(path) as image:
            colour = image.convert("RGB")
            scale = square.shorter / min(colour.size)
            width, height = (max(square.shorter, int(side * scale)) for side in colour.size)
            resized = colour.resize((width, height), image_module.Resampling.BILINEAR)
    except (OSError, SyntaxError, ValueError, image_module.DecompressionBombError) as fault:
        raise Unreadable(str(fault) or type(fault).__name__) from fault
    left, top = round((width - square.size) / 2), round((height - square.size) / 2)
    return np.asarray(resized.crop((left, top, left + square.size, top + square.size)), dtype=np.uint8)


def read_fault(path: Path, *, whole: bool) -> str | None:
    """Why a file cannot be used, or None.

    Args:
        path: The file.
        whole: Decode it. Otherwise its head is read, and of a jpeg whether its last bytes are those of a jpeg; only
            where they are not is it decoded.
    """
    image_module = pillow()
    try:
        if path.stat().st_size == 0:
            return "the file is empty"
        with image_module.open(path) as image:
            if whole or (image.format == "JPEG" and not _ends(path)):
                image.load()
    except (OSError, SyntaxError, ValueError, image_module.DecompressionBombError) as fault:
        words = str(fault) or type(fault).__name__
        return words.replace(f" {str(path)!r}", "")  # the place of the folder is not part of what is wrong
    return None


def _ends(path: Path) -> bool:
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - _TAIL))
        return _END in file.read()


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
                made[place] = decode_square(self.root / name, self.square)
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
