"""Photographs that stay in their files: decoded by several threads when a batch is read, and one batch ahead.

A file becomes a square: the shorter side is resized, the centre is cropped.
"""

from __future__ import annotations

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
from dubio.core.specs import hash_file
from dubio.core.types import IntArray, StrArray
from dubio.tasks.images.files import Unreadable, check_pixels, pillow, reading

_TAIL = 4096
_END = b"\xff\xd9"


@dataclass(frozen=True)
class Square:
    """How a photograph becomes a square of pixels.

    Attributes:
        shorter: The shorter side after resizing (bilinear, smoothed).
        size: Both sides of the central square.
    """

    shorter: int
    size: int

    def __post_init__(self) -> None:
        if not 8 <= self.size <= self.shorter:
            raise UserError(f"size must be from 8 to shorter, the resized side; given {self.size} and {self.shorter}.")


def decode_square(path: Path, square: Square) -> NDArray[np.uint8]:
    """Return the photograph in a file as uint8 ``[size, size, 3]``, whatever its mode (grey, palette, CMYK).

    Raises:
        Unreadable: When it cannot be decoded.
    """

    def read(image: Any) -> NDArray[np.uint8]:
        colour = image.convert("RGB")
        scale = square.shorter / min(colour.size)
        width, height = (max(square.shorter, int(side * scale)) for side in colour.size)
        check_pixels(width, height)  # of a picture a thousand times as high as wide, say
        resized = colour.resize((width, height), pillow().Resampling.BILINEAR)
        x, y = round((width - square.size) / 2), round((height - square.size) / 2)
        return np.asarray(resized.crop((x, y, x + square.size, y + square.size)), dtype=np.uint8)

    return reading(path, read)


def read_fault(path: Path, *, verify: bool) -> str | None:
    """Return why a file cannot be used, or None.

    Args:
        path: The file.
        verify: Decode it. Otherwise its header is read, and a jpeg is decoded only if its last bytes are not those of
            a complete jpeg.
    """

    def read(image: Any) -> None:
        if verify or (image.format == "JPEG" and not _ends_like_jpeg(path)):
            image.load()

    try:
        reading(path, read)
    except Unreadable as fault:
        return str(fault).replace(f" {str(path)!r}", "")  # the folder is no part of the fault
    return None


def _ends_like_jpeg(path: Path) -> bool:
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - _TAIL))
        return _END in file.read()


THREADS = min(8, os.cpu_count() or 1)
"""Files decoded at a time; Pillow releases the interpreter's lock, and the pixels do not depend on the number."""

VERSION = 1
"""Increase by hand whenever the same file and square come to mean other pixels; part of a fingerprint."""


@dataclass
class _Ahead:
    """The announced batches, and the next of them while it is being read."""

    batches: Sequence[NDArray[Any]] = ()
    position: int = 0
    pending: Future[NDArray[np.uint8]] | None = None
    reader: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(1, "dubio-reading-ahead"))

    def __reduce__(self) -> tuple[type[_Ahead], tuple[()]]:
        return _Ahead, ()  # threads cannot be sent to another process

    def awaits(self, key: Any) -> bool:
        following = self.batches[self.position : self.position + 1]
        return isinstance(key, np.ndarray) and any(np.array_equal(key, batch) for batch in following)


@dataclass(frozen=True, eq=False)
class StreamedRows(LazyRows):
    """Some files of a folder as images, uint8 ``[N, size, size, 3]``, never all of them in memory.

    Attributes:
        root: The folder.
        names: All files, by their paths inside the folder ``[M]``.
        sizes: Their bytes ``[M]``.
        rows: Indices of these rows among the files ``[N]``.
        square: How a photograph is resized and cropped.
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
        images = self._decoded(key) if ahead.pending is None else ahead.pending.result()
        ahead.position += 1
        ahead.pending = None
        if ahead.position < len(ahead.batches):
            ahead.pending = ahead.reader.submit(self._decoded, ahead.batches[ahead.position])
        return images

    def _decoded(self, key: Any) -> NDArray[np.uint8]:
        chosen = np.asarray(self.rows[key])
        images = np.empty((chosen.size, *self.row_shape), dtype=np.uint8)

        def fill(index: int) -> None:
            name = str(self.names[chosen.reshape(-1)[index]])
            try:
                images[index] = decode_square(self.root / name, self.square)
            except Unreadable as fault:
                hint = "dubio data check imagenet --verify finds all such files"
                raise BadFile(f"{name} cannot be read any more: {fault}; {hint}.") from fault

        with ThreadPoolExecutor(THREADS, "dubio-decoding") as pool:
            list(pool.map(fill, range(chosen.size)))
        return images.reshape(*chosen.shape, *self.row_shape)

    @property
    def row_shape(self) -> tuple[int, ...]:
        """Shape of one image."""
        return (self.square.size, self.square.size, 3)

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of the elements."""
        return np.dtype(np.uint8)

    def expect(self, batches: Sequence[NDArray[Any]]) -> None:
        """Announce the next batches in order: while one is used, the next is read."""
        self._ahead.batches, self._ahead.position, self._ahead.pending = batches, 0, None

    def take(self, rows: NDArray[Any]) -> StreamedRows:
        """Return these rows, in this order; an index array or a mask. Nothing is read."""
        return replace(self, rows=self.rows[rows], _ahead=_Ahead())

    def keys(self) -> list[bytes]:
        """Return the SHA-256 of each file: equal where the files are equal. Every file is read."""
        files = [self.root / name for name in self.names[self.rows].tolist()]
        with ThreadPoolExecutor(THREADS) as pool:
            return [bytes.fromhex(digest) for digest in pool.map(hash_file, files)]

    def content(self) -> bytes:
        """Return the content for a fingerprint: the size of each file and how it is decoded; names are among the ids.

        The files are not read: name and size identify published photographs well enough.
        """
        settings = f"{self.square.shorter}|{VERSION}"
        return f"streamed{self.shape}{settings}".encode() + self.sizes[self.rows].astype("<i8").tobytes()
