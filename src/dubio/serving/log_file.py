"""An append-only, checksummed file: entries are flushed to the disk before anybody is told of them.

The file is text, one frame per line::

    <32 hexadecimal digits> [entry, entry, …]

A frame holds the entries, as JSON, that were written and flushed together. Its digits are the beginning of
SHA-256(digits of the frame before ‖ JSON), so that a frame that is changed, removed or exchanged shows. A frame is
written only after the one before it was flushed. An interrupted write therefore damages the last line alone: such a
torn tail was never acknowledged; it is set aside and cut off. Damage anywhere else is not for a program to repair, and
the file is refused. A last frame that was complete and has since been damaged cannot be distinguished from a torn one.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from dubio.core.documents import parse_json
from dubio.core.errors import CorruptFile, DubioError
from dubio.core.files import REASONS, reading, write_file, writing

DIGITS = 32
_START = "0" * DIGITS
_END = re.compile(rb"\](?=.[0-9a-f]{32} )", re.DOTALL)
"""The end of a frame before the digits of the next."""

Entry = dict[str, Any]


class LogFailed(DubioError):
    """The log can no longer be written: nothing more can be acknowledged until the server is started again."""


class Position(NamedTuple):
    """Where an entry stands: the offset of its frame in bytes, and its number there."""

    offset: int
    entry: int


class Cut(NamedTuple):
    """A torn tail that was cut off.

    Attributes:
        offset: Where it began.
        size: Its bytes.
        path: The file that keeps them.
    """

    offset: int
    size: int
    path: Path

    def sentence(self, log: Path) -> str:
        """Return what happened, for whoever starts the server."""
        return (f"{log}: the last write was interrupted before it was acknowledged; its {self.size} bytes were cut off "
                f"and are in {self.path}.")  # fmt: skip


class LogFile:
    """An open log; its owner makes sure that nobody else writes it.

    Attributes:
        path: The file.
        size: Its bytes, all of them flushed.
        cut: The torn tail that opening it cut off, or None.
    """

    def __init__(self, path: Path, kind: str, replay: Callable[[Entry, Position], None]) -> None:
        """Open a log, or make an empty one, and read all of its entries.

        Args:
            path: The file.
            kind: What it holds; another kind of file is refused.
            replay: Called with every entry, in order.

        Raises:
            BadFile: When the file cannot be read.
            CorruptFile: When it is no such log, or is damaged before its last frame.
        """
        self.path, self._digits, self.size, self.cut = path, _START, 0, None
        self._failure: str | None = None
        header = {"dubio": kind, "schema": 1}
        if not path.exists():
            # In place as a whole or not at all: a file without a valid header is never one of ours.
            write_file(path, _frame(_START, [header])[1])
        torn = self._replay(header, replay)
        with writing(path):
            self._file: BinaryIO = open(path, "r+b", buffering=0)  # noqa: SIM115  # closed by close()
            self._reader: BinaryIO = open(path, "rb")  # noqa: SIM115
            if torn:
                self.cut = self._cut(torn)

    def _replay(self, header: Entry, replay: Callable[[Entry, Position], None]) -> bytes:
        """Read every frame; return the bytes of a torn tail."""
        with reading(self.path), self.path.open("rb") as source:
            for line in source:
                entries = self._entries(line)
                if entries is None:
                    if self.size == 0:
                        raise CorruptFile(f"{str(self.path)!r} is not a {header['dubio']} of dubio.")
                    if source.read(1) or self._holds_a_frame(line):
                        raise CorruptFile(f"{str(self.path)!r} is damaged at byte {self.size}, before its last frame. "
                                          "Restore it from a copy, or move it aside and start a new one.")  # fmt: skip
                    return line
                if self.size == 0 and entries != [header]:
                    raise CorruptFile(f"{str(self.path)!r} is not a {header['dubio']} that this dubio can read: "
                                      f"it begins with {entries}.")  # fmt: skip
                for index, entry in enumerate(entries if self.size else ()):
                    try:
                        replay(entry, Position(self.size, index))
                    except (LookupError, TypeError, ValueError, AttributeError) as fault:
                        raise CorruptFile(f"{str(self.path)!r} has an entry at byte {self.size} that this dubio cannot "
                                          "read.") from fault  # fmt: skip
                self._digits, self.size = line[:DIGITS].decode(), self.size + len(line)
        return b""

    def _entries(self, line: bytes) -> list[Entry] | None:
        """Return the entries of a line, or None where it is no valid frame."""
        payload = line[DIGITS + 1 : -1]
        start = f"{_checksum(self._digits, payload)} ".encode()
        if not line.endswith(b"\n") or not line.startswith(start):
            return None
        entries = parse_json(payload, str(self.path), CorruptFile)
        return entries if isinstance(entries, list) else None

    def _holds_a_frame(self, line: bytes) -> bool:
        """Return whether a line begins with a valid frame: then what is damaged is the line end between two frames."""
        digits = line[:DIGITS].decode("latin-1")
        return any(_checksum(self._digits, line[DIGITS + 1 : end.start() + 1]) == digits for end in _END.finditer(line))

    def _cut(self, torn: bytes) -> Cut:
        aside = write_file(self.path.with_name(f"{self.path.name}.torn-{self.size}"), torn)
        os.ftruncate(self._file.fileno(), self.size)  # goes on after an interrupt, which a file's own method does not
        os.fsync(self._file.fileno())
        return Cut(self.size, len(torn), aside)

    def append(self, entries: Sequence[Entry]) -> list[Position]:
        """Write entries as one frame and flush it to the disk; return where they stand.

        Raises:
            LogFailed: When that is not possible, and ever after: after a failed flush nobody knows what is on the disk.
        """
        if self._failure is not None:
            raise LogFailed(self._failure)
        digits, frame = _frame(self._digits, entries)
        try:
            self._file.seek(self.size)
            written = 0
            while written < len(frame):
                written += self._file.write(frame[written:])
            os.fsync(self._file.fileno())
        except OSError as fault:
            reason = REASONS.get(fault.errno or 0, fault.strerror or str(fault))
            self._failure = f"cannot write {str(self.path)!r}: {reason}. Start the server again once that is solved."
            raise LogFailed(self._failure) from fault
        offset, self._digits, self.size = self.size, digits, self.size + len(frame)
        return [Position(offset, index) for index in range(len(entries))]

    def read(self, position: Position) -> Entry:
        """Return an entry that was flushed.

        Raises:
            CorruptFile: When the file has been damaged meanwhile.
        """
        with reading(self.path):
            self._reader.seek(position.offset)
            line = self._reader.readline()
        try:
            entry = parse_json(line[DIGITS + 1 :], str(self.path), CorruptFile)[position.entry]
        except (CorruptFile, TypeError, IndexError, KeyError) as fault:
            raise CorruptFile(f"{str(self.path)!r} has been damaged at byte {position.offset}.") from fault
        return dict(entry)

    def close(self) -> None:
        """Close the file; everything in it has been flushed."""
        self._file.close()
        self._reader.close()


def _checksum(previous: str, payload: bytes) -> str:
    return hashlib.sha256(previous.encode() + payload).hexdigest()[:DIGITS]


def _frame(previous: str, entries: Sequence[Entry]) -> tuple[str, bytes]:
    """Return the digits of a frame and its line."""
    payload = json.dumps(entries, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode("utf-8")
    digits = _checksum(previous, payload)
    return digits, b"%s %s\n" % (digits.encode(), payload)
