"""Lines of bounded length, and columns of bounded size that are collected batch by batch, for every reader."""

from __future__ import annotations

import codecs
import io
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from dubio.core.errors import BadFile
from dubio.core.unpacking import check_unpacked, open_gzip, size_text
from dubio.tables.table import Cells, NotANumber, Table, as_numbers, listed, refuse_cell

LONGEST_ROW = 16 << 20
"""Bytes of a line, and characters of a field. The predictions of 20,000 classes take half a megabyte."""

MOST_COLUMNS = 100_000
"""Columns of a table: every one costs memory and time of its own, however few rows there are."""

MOST_BLANK = 1_000_000
"""Blank lines of a file: they take time and no memory, so that the limit on memory does not end them."""

BATCH = 250_000
"""Cells that are parsed together, where Python parses them."""

HEAD = 100
"""Rows that are looked at to choose the columns of numbers."""

CELL = 64
"""Bytes that a cell takes as a Python object, beside the characters of a text."""

Numeric = Callable[[Mapping[str, Sequence[Any]]], Collection[str]]
"""Called with the columns and their first cells, returns those whose cells must be numbers."""


class Columns:
    """The columns of a table that is being read, batch by batch, within the limit on memory.

    Attributes:
        streams: Whether batches are handed over and not kept, so that a reader should make them small.
    """

    streams = False

    def __init__(self, path: Path) -> None:
        """Begin without a row."""
        self.path = path
        self.rows = 0
        self._names: dict[str, None] = {}
        self._batches: list[tuple[Mapping[str, Cells | None], NDArray[np.int64]]] = []
        self._size = 0

    def add(self, batch: Mapping[str, Cells | None], row_numbers: NDArray[np.int64]) -> None:
        """Add rows; a column that came later, or that these rows lack, has None in the others.

        Raises:
            BadFile: When the table is larger than the limit, or has a column that no table may have.
        """
        count = len(row_numbers)
        shared = sum(name in batch for name in self._names)
        lacking, later = len(self._names) - shared, len(batch) - shared
        self._size += sum(map(_size, batch.values())) + 8 * (count + lacking * count + later * self.rows)
        check_unpacked(self.path, self._size)
        if later:
            self._names |= dict.fromkeys(batch)
            check_names(self.path, list(self._names))
        self._batches.append((batch, row_numbers))
        self.rows += count

    def table(self, unit: str) -> Table:
        """Return the table; its columns of numbers lie side by side in memory; batches are let go one by one."""
        if len(self._batches) == 1:
            batch, row_numbers = self._batches.pop()
            return Table(self.path, dict(batch), row_numbers, unit)
        batches = [batch for batch, _ in self._batches]
        arrays = [name for name in self._names if all(isinstance(batch.get(name), np.ndarray) for batch in batches)]
        del batches
        columns: dict[str, Cells | None] = {name: [] for name in self._names}
        columns |= dict(zip(arrays, np.empty((len(arrays), self.rows)), strict=True))
        numbers, start = np.empty(self.rows, dtype=np.int64), 0
        self._batches.reverse()
        while self._batches:
            batch, row_numbers = self._batches.pop()
            rows = slice(start, start := start + len(row_numbers))
            numbers[rows] = row_numbers
            for name, target in columns.items():
                cells = batch[name] if name in batch else [None] * len(row_numbers)
                if isinstance(target, np.ndarray):
                    target[rows] = cells
                elif target is None or cells is None:
                    columns[name] = None
                else:
                    target.extend(listed(cells))
        return Table(self.path, columns, numbers, unit)


class BatchColumns(Columns):
    """The columns of a table that is handed over batch by batch."""

    streams = True

    def __init__(self, path: Path, use: Callable[[dict[str, Cells | None], NDArray[np.int64]], None]) -> None:
        """Hand every batch to a function."""
        super().__init__(path)
        self._use = use

    def add(self, batch: Mapping[str, Cells | None], row_numbers: NDArray[np.int64]) -> None:
        """Hand over rows.

        Raises:
            BadFile: When the batch is larger than the limit, or has a column that no table may have.
        """
        check_unpacked(self.path, sum(map(_size, batch.values())))
        if batch.keys() - self._names.keys():
            self._names |= dict.fromkeys(batch)
            check_names(self.path, list(self._names))
        self.rows += len(row_numbers)
        self._use(dict(batch), row_numbers)


def check_names(path: Path, names: Sequence[str]) -> None:
    """Refuse names that are too many, missing, or not unique.

    Raises:
        BadFile: Naming the column.
    """
    if len(names) > MOST_COLUMNS:
        raise BadFile(f"{str(path)!r} has {len(names):,} columns; a table may have {MOST_COLUMNS:,}.")
    if "" in names:
        raise BadFile(f"{str(path)!r}: column {names.index('')} (from 0) has no name; pandas writes one for its index "
                      "unless it is called with to_csv(index=False).")  # fmt: skip
    if len(set(names)) < len(names):
        counts = Counter(names)
        raise BadFile(f"{str(path)!r} names the column {max(names, key=counts.__getitem__)!r} twice.")


def _size(cells: Cells | None) -> int:
    if cells is None:
        return 0
    if isinstance(cells, np.ndarray):
        return int(cells.nbytes)
    kinds = set(map(type, cells))
    if kinds <= {str, list}:
        size = CELL * len(cells) + sum(map(len, cells))
    else:
        size = CELL * len(cells) + sum(len(cell) for cell in cells if isinstance(cell, str))
    if list in kinds:
        size += sum(CELL + len(str(item)) for cell in cells if isinstance(cell, list) for item in cell)
    return size


class Lines:
    """The lines of a UTF-8 file as texts, with the number of the last one.

    Attributes:
        number: The number of the last line, from 1.
    """

    def __init__(self, path: Path, stream: BinaryIO) -> None:
        """Read from the beginning of a stream."""
        self.number = 0
        self.stream = stream
        self._path = path
        self._blank = 0
        self._block = io.BytesIO()
        self._pieces: deque[str] = deque()

    def __iter__(self) -> Iterator[str]:
        return self

    def __next__(self) -> str:
        if not self._pieces:
            self._pieces.extend(self._read())
        self.number += 1
        return self._pieces.popleft()

    def _read(self) -> list[str]:
        """Return the text up to the next LF, in pieces where a CR alone ends a line."""
        raw = self._block.readline() or self.stream.readline(LONGEST_ROW + 1)
        if not raw:
            raise StopIteration
        if len(raw) > LONGEST_ROW:
            line = f"line {self.number + 1} is longer than {size_text(LONGEST_ROW)}"
            raise BadFile(f"{str(self._path)!r}: {line}, the most that a row may take. Is a quote unclosed?")
        try:
            text = raw.decode("utf-8" if self.number else "utf-8-sig")
        except UnicodeDecodeError as fault:
            if not self.number and raw.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
                remedy = "save it as UTF-8 (for example: iconv -f utf-16 -t utf-8)"
                raise BadFile(f"{str(self._path)!r} is UTF-16, as spreadsheets save it; {remedy}.") from fault
            raise BadFile(
                f"{str(self._path)!r} is not UTF-8: byte 0x{raw[fault.start]:02x} in line {self.number + 1}. Save it "
                "as UTF-8 (for example: iconv -f latin1 -t utf-8)."
            ) from fault
        return list(io.StringIO(text, newline="")) if "\r" in text[:-2] else [text]

    def filled(self) -> Iterator[str]:
        """Yield the lines that are not blank."""
        for line in self:
            if line.strip():
                yield line
            else:
                self.skip_blank()

    def skip_blank(self) -> None:
        """Count a blank line.

        Raises:
            BadFile: When there are too many.
        """
        self._blank += 1
        if self._blank > MOST_BLANK:
            raise BadFile(f"{str(self._path)!r} has more than {MOST_BLANK:,} blank lines.")

    def push(self, block: bytes | bytearray) -> None:
        """Take whole lines back: they are read next."""
        self._block = io.BytesIO(block)

    @property
    def pushed(self) -> bool:
        """Whether lines that were read before are left."""
        return bool(self._pieces) or self._block.tell() < self._block.getbuffer().nbytes


def open_lines(path: Path) -> BinaryIO:
    """Open a plain or gzipped file as bytes."""
    return open_gzip(path) if path.name.lower().endswith(".gz") else path.open("rb")


def parsed(columns: Columns, batch: Mapping[str, list[Any]], numeric: Collection[str], places: Sequence[str]
           ) -> dict[str, Cells | None]:  # fmt: skip
    """Return cells with numbers in the columns that must have them.

    Args:
        columns: The table that they belong to.
        batch: Texts or values by column.
        numeric: The columns that must be numbers.
        places: The name of each row in a message.

    Raises:
        BadFile: Naming row and column of the first cell that is not a number.
    """
    cells: dict[str, Cells | None] = dict(batch)
    faults: list[tuple[int, str]] = []
    for name in batch:
        if name in numeric:
            try:
                cells[name] = as_numbers(batch[name])
            except NotANumber as fault:
                faults.append((fault.row, name))
    if faults:
        row, name = min(faults, key=lambda fault: fault[0])
        refuse_cell(columns.path, places[row], name, batch[name][row])
    return cells
