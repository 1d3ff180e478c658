"""CSV and TSV. One reader, the standard library's, says what a file means; pyarrow reads the plain stretches of it.

A file is read in blocks of whole rows. Where pyarrow is installed and a block leaves no doubt (quotes stand where
fields begin and end, no line is blank, every number is one), pyarrow parses it, many times faster and to the same
cells. Every other block, and every refusal, is the standard library's.
"""

from __future__ import annotations

import codecs
import csv
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from dubio.core.csv_files import is_marked, restored_row
from dubio.core.errors import BadFile
from dubio.tables.collecting import BATCH, HEAD, LONGEST_ROW, Columns, Lines, Numeric, check_names, open_lines, parsed
from dubio.tables.table import Cells

BLOCK = 8 << 20
"""Bytes that pyarrow parses at a time."""

_INSIDE = 1 << 20
"""Bytes of the pieces in which pyarrow's threads divide a block; it does not parse a longer row."""

_NULLS = ["", "NA", "N/A", "NaN", "nan", "null", "NULL", "None", "none", "n/a", "na", "?"]
"""The usual spellings of a missing number; a block with another one is parsed by the standard library."""

_UNSURE = re.compile(rb"[eE]\+?[0-9]{3}|[0-9]{300}|nan\(", re.IGNORECASE)
"""What a block has where pyarrow may have read an infinity, or NaN, from what is none."""


def read_delimited(path: Path, columns: Columns, numeric: Numeric) -> None:
    """Read a table whose first row names its columns.

    Raises:
        BadFile: When it is not such a table.
    """
    with open_lines(path) as stream:
        rows = _Rows(path, stream, columns)
        if not (head := rows.batch(max(1, min(HEAD, BATCH // len(rows.names))))):
            return
        rows.numeric = frozenset(numeric(dict(zip(rows.names, zip(*head, strict=True), strict=True)))) & {*rows.names}
        rows.add(head)
        plain = len(rows.names) > 1 and not rows.escaped  # a single blank cell is a blank line, or is it?
        arrow = _pyarrow_csv() if plain else None
        if rows.lines.pushed:
            rows.add_batches()
        while arrow is not None and (block := _block(stream)):
            if not rows.add_block(block, arrow):
                rows.lines.push(block)
                rows.add_batches()
        rows.add_batches()


class _Rows:
    """The rows of a file, by the standard library."""

    def __init__(self, path: Path, stream: BinaryIO, columns: Columns) -> None:
        """Read the names of the columns."""
        self.path, self.columns = path, columns
        self.numeric: frozenset[str] = frozenset()
        self.lines = Lines(path, stream)
        first = next(self.lines.filled(), "")
        self.separator = "\t" if path.name.lower().endswith((".tsv", ".tsv.gz")) else _separator(first)
        csv.field_size_limit(LONGEST_ROW)
        self._number = self.lines.number - 1  # of the last row; blank lines count
        self._reader = csv.reader(self._from(first), delimiter=self.separator, strict=True)
        names = self._next() or []
        self.escaped = is_marked(names)  # a file that dubio wrote
        names = restored_row(names, len(names)) if self.escaped else names
        self.names = [name.strip() for name in names]
        if not self.names:
            raise BadFile(f"{str(path)!r} has no rows: its first line must name the columns.")
        check_names(path, self.names)
        self._numbers: list[int] = []
        self._fault: BadFile | None = None

    def _from(self, first: str) -> Iterator[str]:
        yield first
        yield from self.lines

    def _next(self) -> list[str] | None:
        """Return the next row that is not blank, or None at the end."""
        try:
            for row in self._reader:
                self._number += 1
                if row and (len(row) > 1 or row[0].strip()):
                    return row
                self.lines.skip_blank()
        except csv.Error as fault:
            line = f"line {self.lines.number} is not CSV"
            raise BadFile(f"{str(self.path)!r}: {line}: {fault}. Is a quote unclosed?") from fault
        return None

    def batch(self, most: int) -> list[list[str]]:
        """Return at most this number of the next rows; where some were pushed back, of those alone."""
        rows: list[list[str]] = []
        pushed = self.lines.pushed
        self._numbers = []
        if self._fault is not None:
            raise self._fault
        while len(rows) < most and (not pushed or self.lines.pushed):
            try:
                row = self._checked()
            except BadFile as fault:
                self._fault = fault  # after the rows before it, which may have an earlier one
                if not rows:
                    raise
                break
            if row is None:
                break
            rows.append(row)
            self._numbers.append(self._number)
        return rows

    def _checked(self) -> list[str] | None:
        """Return the next row; refuse one of another length than the first."""
        row = self._next()
        width = len(self.names) + self.escaped
        if row is not None and len(row) != width:
            counts = f"line {self.lines.number} has {len(row)} fields, the header has {width}"
            sign = "a tab" if self.separator == "\t" else repr(self.separator)
            quotes = f"A field that contains {sign} or a line break must be in quotes"
            raise BadFile(f"{str(self.path)!r}: {counts}. {quotes}.")
        return restored_row(row, width) if row is not None and self.escaped else row

    def add(self, rows: list[list[str]]) -> None:
        """Add rows of :meth:`batch` to the columns."""
        cells = dict(zip(self.names, map(list, zip(*rows, strict=True)), strict=True))
        places = [f"row {number}" for number in self._numbers]
        self.columns.add(parsed(self.columns, cells, self.numeric, places), np.array(self._numbers, dtype=np.int64))

    def add_batches(self) -> None:
        """Add all rows that are left, or all that were pushed back if there are some."""
        pushed = self.lines.pushed
        while rows := self.batch(max(1, BATCH // len(self.names))):
            self.add(rows)
            if pushed and not self.lines.pushed:
                return

    def add_block(self, block: bytearray, arrow: Any) -> bool:
        """Add a block of whole rows as pyarrow reads it; return whether there was no doubt."""
        breaks = _breaks_in_quotes(block, self.separator.encode())
        table = None if breaks is None else self._arrow_table(block, breaks, arrow)
        cells = None if table is None else self._arrow_cells(block, table)
        if breaks is None or table is None or cells is None:
            return False
        count = table.num_rows
        self.columns.add(cells, np.arange(self._number + 1, self._number + 1 + count, dtype=np.int64))
        self._number += count
        self.lines.number += count + breaks
        return True

    def _arrow_table(self, block: bytearray, breaks: int, arrow: Any) -> Any:
        """Return a block as pyarrow reads it; None where it refuses it."""
        pa, reader = arrow
        types = {name: pa.float64() if name in self.numeric else pa.string() for name in self.names}
        try:
            return reader.read_csv(
                pa.BufferReader(block),
                reader.ReadOptions(column_names=self.names, block_size=_INSIDE),
                reader.ParseOptions(delimiter=self.separator, newlines_in_values=breaks > 0, ignore_empty_lines=False),
                reader.ConvertOptions(column_types=types, null_values=_NULLS, strings_can_be_null=False),
            )
        except pa.ArrowException:
            return None

    def _arrow_cells(self, block: bytearray, table: Any) -> dict[str, Cells | None] | None:
        """Return the cells of a block; None where a number may be none."""
        cells: dict[str, Cells | None] = {}
        numbers = np.empty((len(self.numeric), table.num_rows))
        row = iter(numbers)
        nulls = 0
        for name, column in zip(self.names, table.columns, strict=True):
            if name in self.numeric:
                nulls += column.null_count
                cells[name] = target = next(row)
                target[:] = column.to_numpy()
            else:
                cells[name] = column.to_pylist()
        unsure = np.count_nonzero(np.isfinite(numbers)) + nulls < numbers.size and _UNSURE.search(block)
        return None if unsure else cells


def _pyarrow_csv() -> Any:
    """Return pyarrow and its CSV reader, or None where it is not installed."""
    try:
        import pyarrow
        import pyarrow.csv
    except ModuleNotFoundError:
        return None
    return pyarrow, pyarrow.csv


def _separator(line: str) -> str:
    """Return the most frequent separator outside quotes."""
    outside = "".join(line.split('"')[::2])
    return max(",;\t", key=outside.count)


def _block(stream: BinaryIO) -> bytearray:
    """Return the next lines; the last one ends its row, unless a quote stands where none should or is unclosed."""
    block = bytearray(BLOCK)
    del block[stream.readinto(block) :]  # type: ignore[attr-defined]  # of io.BufferedReader, as files and gzip are
    block += stream.readline(LONGEST_ROW)
    quotes = _quotes(block)
    while quotes % 2 and len(block) < BLOCK + LONGEST_ROW:
        lines = stream.read(BLOCK // 8) + stream.readline(LONGEST_ROW)
        if not lines:
            break
        block += lines
        quotes += _quotes(lines)
    return block


def _quotes(block: bytes | bytearray) -> int:
    """Return the number of quotes; numpy compares many bytes at once, which ``count`` does not."""
    return int(np.count_nonzero(np.frombuffer(block, dtype=np.uint8) == ord('"'))) if b'"' in block else 0


def _breaks_in_quotes(block: bytearray, separator: bytes) -> int | None:
    """Return the line breaks of a block within quotes, or None where its quotes or line breaks leave a doubt."""
    if b"\r" in block and block.count(b"\r") != block.count(b"\r\n"):
        return None
    if block.startswith(codecs.BOM_UTF8):  # a character here, which pyarrow would skip
        return None
    codes = np.frombuffer(block, dtype=np.uint8)
    ends = np.flatnonzero(codes == ord("\n"))
    lengths = np.diff(ends, prepend=-1)  # with the line break
    if (lengths == 1).any() or (codes[ends[lengths == 2] - 1] == ord("\r")).any():  # rows of nothing for some pyarrow
        return None
    if b'"' not in block:
        return 0
    quotes = np.flatnonzero(codes == ord('"'))
    opening, closing = quotes[::2], quotes[1::2]
    if len(opening) != len(closing):
        return None
    # A doubled quote within a field closes and opens it: the two stand side by side.
    begins = np.isin(codes[opening - 1], list(b'"\n' + separator)) | (opening == 0)
    closes = np.isin(codes[(closing + 1) % len(codes)], list(b'"\r\n' + separator)) | (closing + 1 == len(codes))
    if not (begins.all() and closes.all()):
        return None
    return int((np.searchsorted(quotes, ends) % 2).sum())
