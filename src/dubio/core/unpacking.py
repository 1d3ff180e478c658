"""The limit on what a file may unpack to, so that a small file cannot take all memory.

A few kilobytes of gzip, zip or Parquet can stand for hundreds of gigabytes. Every reader of a user's file asks here
before it unpacks what a file declares, and counts while it unpacks what the file does not declare::

    check_unpacked(path, declared)                   # before: what a header says
    with open_gzip(path) as stream: stream.read(n)   # while: each read counts
    stream = Bounded(path, archive.open(member))     # the same for any other stream

The limit is an option of the commands that read files (``--max-unpacked 8GB``) and the environment variable
``DUBIO_MAX_UNPACKED``, which the option sets, so that worker processes inherit it.
"""

from __future__ import annotations

import gzip
import io
import os
import re
import zipfile
import zlib
from pathlib import Path
from typing import BinaryIO, NoReturn

from dubio.core.errors import BadFile, UserError

OPTION, VARIABLE = "--max-unpacked", "DUBIO_MAX_UNPACKED"

DEFAULT = 4_000_000_000
"""Bytes. Predictions of a million rows and 500 classes in float64: more than data sets of classifiers need, and little
enough that a machine with 16 GB refuses a file before it runs out of memory."""

_UNITS = {"": 1, "b": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12,
          "kib": 1 << 10, "mib": 1 << 20, "gib": 1 << 30, "tib": 1 << 40}  # fmt: skip
_SIZE = re.compile(r"(\d{1,18}(?:\.\d{1,9})?)\s*([a-z]*)", re.ASCII)


def unpacking_limit() -> int:
    """Return the most bytes that a file may unpack to.

    Raises:
        UserError: When the environment variable does not hold a size.
    """
    text = os.environ.get(VARIABLE)
    return parse_size(text, VARIABLE) if text else DEFAULT


def limit_is_stated() -> bool:
    """Return whether the user has stated the limit, by the option or the environment variable."""
    return bool(os.environ.get(VARIABLE))


def limit_unpacking(text: str) -> None:
    """Set the limit of this process and those it starts.

    Raises:
        UserError: When the text is not a size.
    """
    os.environ[VARIABLE] = str(parse_size(text, OPTION))


def parse_size(text: str, argument: str) -> int:
    """Return the bytes of a size such as ``8GB``, ``500 MB``, ``1.5GiB`` or ``4000000``.

    Args:
        text: The size.
        argument: What it was given for, for the message.

    Raises:
        UserError: When it is not a size, or less than one byte.
    """
    match = _SIZE.fullmatch(text.strip().lower())
    size = int(float(match[1]) * _UNITS[match[2]]) if match and match[2] in _UNITS else 0
    if size < 1:
        raise UserError(f"{argument} must be a size such as 8GB, 500MB or 1GiB; given {text!r}.")
    return size


_POWERS = (("TB", 12), ("GB", 9), ("MB", 6), ("kB", 3))


def size_text(size: int) -> str:
    """Return bytes as a reader writes them: ``5.4 GB``."""
    unit, scale = next(((unit, 10**power) for unit, power in _POWERS if size >= 10**power),
                       ("bytes", 1))  # fmt: skip
    return f"{size / scale:.3g} {unit}" if size < 10**15 else f"{size:.1e} bytes"


def check_unpacked(path: Path, size: int) -> None:
    """Refuse a file that declares to unpack to more than the limit.

    Args:
        path: The file.
        size: The bytes that it would take in memory.

    Raises:
        BadFile: Naming the file, the size, the limit and the option that raises it.
    """
    if size > unpacking_limit():
        _refuse(path, f"would unpack to {size_text(size)}")


def _refuse(path: Path, what: str) -> NoReturn:
    allowed = f"more than the {size_text(unpacking_limit())} that a file may take"
    raise BadFile(f"{str(path)!r} {what}, {allowed}; if you trust it, raise the limit with {OPTION} (or {VARIABLE}).")


class Bounded(io.RawIOBase):
    """A stream that unpacks another one and refuses to unpack more than the limit.

    Damage that the other stream meets is raised as :class:`BadFile` too.
    """

    def __init__(self, path: Path, stream: BinaryIO) -> None:
        """Count what is read from ``stream``; a message names ``path``."""
        self._path, self._stream = path, stream
        self._left = unpacking_limit()

    def readable(self) -> bool:
        """Return True."""
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]  # what io.BufferedReader passes
        """Read into a buffer; return the number of bytes."""
        try:
            piece = self._stream.read(len(buffer))
        except (OSError, EOFError, zlib.error) as fault:
            raise BadFile(f"{str(self._path)!r} cannot be unpacked: {fault}.") from fault
        self._left -= len(piece)
        if self._left < 0:
            _refuse(self._path, "unpacks to more than it should")
        buffer[: len(piece)] = piece
        return len(piece)

    def close(self) -> None:
        """Close both streams."""
        self._stream.close()
        super().close()


def read_member(path: Path, archive: zipfile.ZipFile, name: str, *, factor: int = 1) -> bytes:
    """Return a member of a zip archive.

    Args:
        path: The archive, for messages.
        archive: The same, opened.
        name: The member; it unpacks to no more than it declares.
        factor: How many bytes in memory a byte of it becomes, once parsed.

    Raises:
        BadFile: When it declares more than the limit.
        KeyError: When there is no such member.
    """
    check_unpacked(path, factor * archive.getinfo(name).file_size)
    return archive.read(name)


def open_gzip(path: Path) -> BinaryIO:
    """Open a gzip file as a stream that unpacks to no more than the limit.

    Raises:
        BadFile: While it is read, when it is damaged or unpacks to more than the limit.
        OSError: When it cannot be opened.
    """
    return io.BufferedReader(Bounded(path, gzip.open(path)), 1 << 20)  # type: ignore[arg-type]
