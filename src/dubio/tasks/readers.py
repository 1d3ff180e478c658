"""The user's files of rows and columns: CSV, TSV, JSON lines and Parquet, each plain or (but Parquet) gzipped.

Text is UTF-8; a byte-order mark at its beginning is accepted. A CSV's first row names its columns; its separator is
whichever of comma, semicolon and tab that row has most of. Blank lines are skipped; a row with more or fewer fields
than the first is refused, never guessed at.
"""

from __future__ import annotations

import csv
import gzip
import io
import json
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dubio.core.errors import BadFile, MissingExtra, UnknownName

_LONGEST_FIELD = 1 << 30


@dataclass(frozen=True, eq=False)
class Table:
    """Columns of equal length, and where in the file each row is.

    Attributes:
        path: The file.
        columns: Values by the column's name; None where a JSON object lacks it.
        numbers: The row's number as its reader counts it: in CSV the header is row 1, as in a spreadsheet.
        unit: What is counted: ``"row"`` or ``"line"``.
    """

    path: Path
    columns: dict[str, list[Any]]
    numbers: list[int]
    unit: str = "row"

    def __len__(self) -> int:
        return len(self.numbers)

    def column(self, name: str, argument: str) -> list[Any]:
        """The values of a column.

        Args:
            name: The column.
            argument: The argument that named it, for the message.

        Raises:
            UnknownName: With the nearest name, when there is no such column.
        """
        if name not in self.columns:
            raise UnknownName(f"column for {argument} in {self.path.name}", name, self.columns)
        return self.columns[name]

    def place(self, row: int) -> str:
        """How a message calls a row."""
        return f"{self.unit} {self.numbers[row]}"


def read_table(path: Path) -> Table:
    """Read a file of rows by its ending.

    Raises:
        BadFile: When it does not exist, is of an unknown sort, or is not what its ending says.
    """
    if not path.is_file():
        raise BadFile(f"data {str(path)!r}: no such file.")
    name = path.name.lower().removesuffix(".gz")
    for ending, read in _READERS.items():
        if name.endswith(ending):
            table = read(path)
            if len(table) == 0:
                raise BadFile(f"data {str(path)!r} has no rows.")
            return table
    raise BadFile(
        f"data {str(path)!r}: unknown ending; a table ends in {', '.join(_READERS)} (or .csv.gz and so on), "
        "images are a folder or end in .npz."
    )


def _text(path: Path) -> str:
    """The whole file as text.

    Raises:
        BadFile: When it cannot be read, unpacked or decoded.
    """
    try:
        raw = path.read_bytes()
        if path.name.lower().endswith(".gz"):
            raw = gzip.decompress(raw)
    except (OSError, EOFError, zlib.error) as fault:
        raise BadFile(f"data {str(path)!r} cannot be read: {fault}.") from fault
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as fault:
        line = raw.count(b"\n", 0, fault.start) + 1
        raise BadFile(
            f"data {str(path)!r} is not UTF-8: byte 0x{raw[fault.start]:02x} in line {line}. Save it as UTF-8 "
            "(for example: iconv -f latin1 -t utf-8)."
        ) from fault


def _read_csv(path: Path) -> Table:
    text = _text(path)
    first = next((line for line in text.splitlines() if line.strip()), "")
    separator = "\t" if ".tsv" in path.name.lower() else max(",;\t", key=first.count)
    csv.field_size_limit(_LONGEST_FIELD)
    rows = _csv_rows(path, csv.reader(io.StringIO(text, newline=""), delimiter=separator, strict=True))
    names = [name.strip() for name in next(rows, (0, 0, []))[2]]
    doubled = sorted({name for name in names if names.count(name) > 1})
    if doubled:
        raise BadFile(f"data {str(path)!r}: the header names the column {doubled[0]!r} twice.")
    values: list[list[str]] = []
    numbers: list[int] = []
    for number, line, row in rows:
        if len(row) != len(names):
            raise BadFile(
                f"data {str(path)!r}: line {line} has {len(row)} fields, the header has {len(names)}. A field that "
                f"contains {'a tab' if separator == chr(9) else repr(separator)} or a line break must be in quotes."
            )
        values.append(row)
        numbers.append(number)
    return Table(path, {name: [row[i] for row in values] for i, name in enumerate(names)}, numbers)


def _csv_rows(path: Path, reader: Any) -> Iterator[tuple[int, int, list[str]]]:
    """The rows that are not blank, each with its number and the line it ends on."""
    try:
        for number, row in enumerate(reader, start=1):
            if row and (len(row) > 1 or row[0].strip()):
                yield number, reader.line_num, row
    except csv.Error as fault:
        raise BadFile(
            f"data {str(path)!r}: line {reader.line_num} is not CSV: {fault}. Is a quote unclosed?"
        ) from fault


def _read_jsonl(path: Path) -> Table:
    objects: list[dict[str, Any]] = []
    numbers: list[int] = []
    for number, line in enumerate(_text(path).split("\n"), start=1):
        if not line.strip():
            continue
        try:
            item = json.loads(line)
        except ValueError as fault:
            raise BadFile(f"data {str(path)!r}: line {number} is not JSON: {fault}.") from fault
        if not isinstance(item, dict):
            raise BadFile(f"data {str(path)!r}: line {number} is not a JSON object but {line.strip()[:40]!r}.")
        objects.append(item)
        numbers.append(number)
    names = dict.fromkeys(name for item in objects for name in item)
    return Table(path, {name: [item.get(name) for item in objects] for name in names}, numbers, "line")


def _read_parquet(path: Path) -> Table:
    try:
        from pyarrow import ArrowException, parquet
    except ModuleNotFoundError as missing:
        raise MissingExtra(f"reading {path.name}", "parquet") from missing
    try:
        table = parquet.read_table(path)
    except (ArrowException, OSError) as fault:
        raise BadFile(f"data {str(path)!r} is not Parquet: {fault}.") from fault
    columns = {name: table.column(name).to_pylist() for name in table.column_names}
    return Table(path, columns, list(range(1, table.num_rows + 1)))


_READERS: dict[str, Callable[[Path], Table]] = {
    ".csv": _read_csv,
    ".tsv": _read_csv,
    ".jsonl": _read_jsonl,
    ".ndjson": _read_jsonl,
    ".parquet": _read_parquet,
}
