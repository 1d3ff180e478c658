"""Tables of the user: CSV, TSV, JSON lines and Parquet, each plain or (but Parquet) gzipped, and their columns.

Text is UTF-8; a byte-order mark at its beginning is accepted. A CSV's first row names its columns; its separator is the
most frequent of comma, semicolon and tab in that row. Blank lines are skipped; a row with more or fewer fields than the
first is refused, never guessed at. Every refusal names the row.
"""

from __future__ import annotations

import csv
import gzip
import io
import json
import math
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dubio.core.errors import BadFile, MissingExtra, UnknownName, UserError
from dubio.core.types import StrArray

MISSING = frozenset(("", "na", "n/a", "nan", "null", "none", "?"))
"""Spellings of a missing number, in lower case."""

Labels = tuple[str, ...]

_LONGEST_FIELD = 1 << 30


@dataclass(frozen=True, eq=False)
class Table:
    """Columns of equal length, and where in the file each row is.

    Attributes:
        path: The file.
        columns: Values by the column's name; None where a JSON object lacks it.
        numbers: The row's number as its reader counts it: in CSV the header is row 1, as in a spreadsheet.
        unit: The unit of these numbers: ``"row"`` or ``"line"``.
    """

    path: Path
    columns: dict[str, list[Any]]
    numbers: list[int]
    unit: str = "row"

    def __len__(self) -> int:
        return len(self.numbers)

    @property
    def references(self) -> list[str]:
        """The name of each row in messages."""
        return [f"{self.unit} {number}" for number in self.numbers]

    def take(self, rows: Sequence[int]) -> Table:
        """Return these rows, in this order."""
        columns = {name: [values[row] for row in rows] for name, values in self.columns.items()}
        return replace(self, columns=columns, numbers=[self.numbers[row] for row in rows])

    def column(self, name: str, argument: str) -> list[Any]:
        """Return the values of a column.

        Args:
            name: The column.
            argument: The argument that named it, for the message.

        Raises:
            UnknownName: With the nearest name, when there is no such column.
        """
        if name not in self.columns:
            raise UnknownName(f"column for {argument} in {self.path.name}", name, self.columns)
        return self.columns[name]

    def texts(self, name: str) -> list[str]:
        """Return the texts of a column; empty where a value is missing."""
        return ["" if value is None else str(value) for value in self.column(name, "text")]

    def names(self, column: str, argument: str) -> StrArray:
        """Return a column of names, none of them missing.

        Raises:
            UserError: Naming the first row without a name.
        """
        names = [plain_name(value) for value in self.column(column, argument)]
        if "" in names:
            raise UserError(f"column {column!r} for {argument} is empty in {self.references[names.index('')]}.")
        return np.array(names, dtype=np.str_)

    def unique_names(self, column: str) -> StrArray:
        """Return a column of ids.

        Raises:
            UserError: Naming the first id that two rows share.
        """
        ids = self.names(column, "id")
        first: dict[str, int] = {}
        for row, name in enumerate(ids.tolist()):
            if name in first:
                rows = f"{self.references[first[name]]} and {self.references[row]}"
                raise UserError(f"column {column!r} for id has {name!r} twice: {rows}; ids are unique, groups are not.")
            first[name] = row
        return ids

    def label_lists(self, column: str, separator: str | None) -> tuple[list[Labels], bool]:
        """Return the labels of each row, and whether the column holds lists.

        A cell holds a list when it is one (JSON lines, Parquet) or when a separator is given; such a list may be empty.

        Raises:
            UserError: Naming the first row without a label, where cells hold one label each.
        """
        if separator == "":
            raise UserError("label_separator must not be empty; leave it out where a row has one label.")
        values = self.column(column, "label")
        listed = separator is not None or any(isinstance(value, list | tuple) for value in values)
        rows: list[Labels] = []
        for row, value in enumerate(values):
            items = value if isinstance(value, list | tuple) else [plain_name(value)]
            if separator is not None and not isinstance(value, list | tuple):
                items = items[0].split(separator)
            rows.append(tuple(dict.fromkeys(filter(None, map(plain_name, items)))))
            if not listed and not rows[-1]:
                raise UserError(f"column {column!r} for label is empty in {self.references[row]}.")
        return rows, listed

    def features(self, names: Sequence[str]) -> NDArray[np.float64]:
        """Return numeric columns ``[N, D]``, NaN where a value is missing.

        Raises:
            UserError: Naming column and row of the first value that is not a number.
        """
        values = np.empty((len(self), len(names)))
        for index, name in enumerate(names):
            for row, value in enumerate(self.column(name, "features")):
                try:
                    number = math.nan if str(value).strip().lower() in MISSING else float(value)
                except (TypeError, ValueError):
                    number = math.inf
                if math.isinf(number):
                    cell = f"column {name!r} for features: {self.references[row]} is {value!r}"
                    raise UserError(f"{cell}, which is not a finite number. Leave a missing value empty.")
                values[row, index] = number
        return values

    def times(self, column: str) -> NDArray[np.float64]:
        """Return the time of each row as a number: numbers as they are, dates as seconds since 1970 (UTC).

        Raises:
            UserError: Naming the first row that is neither a number nor an ISO 8601 date.
        """
        values = self.column(column, "time")
        moments = [_moment(value) for value in values]
        formats = {format for _, format in moments}
        if None in formats:
            row = next(row for row, (_, format) in enumerate(moments) if format is None)
            cell = f"column {column!r} for time: {self.references[row]} is {values[row]!r}"
            raise UserError(f"{cell}; write a number or an ISO date such as 2024-05-31 or 2024-05-31T09:30.")
        if len(formats) > 1:
            raise UserError(f"column {column!r} for time mixes numbers and dates; write all of them one way.")
        return np.array([moment for moment, _ in moments])


def plain_name(value: Any) -> str:
    """Return a cell as a name: without surrounding white space, and an integer without its decimal point."""
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return ""
    return str(int(value) if isinstance(value, float) and value.is_integer() else value).strip()


def _moment(value: Any) -> tuple[float, str | None]:
    """Return a time as a number, and its format: ``number``, ``date``, or None for neither."""
    text = value.isoformat() if isinstance(value, date) else plain_name(value)
    try:
        number = float(text)
        return number, "number" if math.isfinite(number) else None
    except ValueError:
        pass
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return math.nan, None
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp(), "date"


def read_table(path: Path) -> Table:
    """Read a table by its ending.

    Raises:
        BadFile: When it does not exist, is of an unknown format, or does not match its ending.
    """
    if not path.is_file():
        raise BadFile(f"data {str(path)!r}: no such file.")
    name = path.name.lower().removesuffix(".gz")
    read = next((read for ending, read in _READERS.items() if name.endswith(ending)), None)
    if read is None:
        endings = f"a table ends in {', '.join(_READERS)} (or .csv.gz and so on), images are a folder or end in .npz"
        raise BadFile(f"data {str(path)!r}: unknown ending; {endings}.")
    table = read(path)
    if len(table) == 0:
        raise BadFile(f"data {str(path)!r} has no rows.")
    return table


def _text(path: Path) -> str:
    """Return the file's text.

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
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=separator, strict=True)
    names: list[str] = []
    values: list[list[str]] = []
    numbers: list[int] = []
    try:
        for number, row in enumerate(reader, start=1):
            if not row or (len(row) == 1 and not row[0].strip()):
                continue
            if not names:
                names = [name.strip() for name in row]
            elif len(row) != len(names):
                counts = f"line {reader.line_num} has {len(row)} fields, the header has {len(names)}"
                sign = "a tab" if separator == "\t" else repr(separator)
                quotes = f"A field that contains {sign} or a line break must be in quotes"
                raise BadFile(f"data {str(path)!r}: {counts}. {quotes}.")
            else:
                values.append(row)
                numbers.append(number)
    except csv.Error as fault:
        line = f"line {reader.line_num} is not CSV"
        raise BadFile(f"data {str(path)!r}: {line}: {fault}. Is a quote unclosed?") from fault
    if doubled := sorted({name for name in names if names.count(name) > 1}):
        raise BadFile(f"data {str(path)!r}: the header names the column {doubled[0]!r} twice.")
    return Table(path, {name: [row[i] for row in values] for i, name in enumerate(names)}, numbers)


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
