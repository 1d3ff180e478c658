"""Tables of the user, whatever they are read for: CSV, TSV, JSON Lines and Parquet, plain or (but Parquet) gzipped.

The rules are the same for predictions and for tasks, and with and without pyarrow:

- The ending names the format, in any case: ``.csv``, ``.tsv``, ``.jsonl``, ``.ndjson``, ``.parquet``; ``.gz`` after any
  but the last. Text is UTF-8; a byte-order mark at its beginning is skipped. Lines end with LF, CRLF or CR.
- The first row of a CSV names its columns. The most frequent of comma, semicolon and tab in it separates (a ``.tsv``:
  tab). Fields may be in double quotes, doubled inside. A row of another length is refused, never guessed at.
- Blank lines are skipped. A column without a name, or two of one name, are refused; names lose surrounding space.
- Messages count rows as a spreadsheet does: the first row of a CSV is row 1, a blank one counts, and a Parquet file has
  its first row in row 1. JSON Lines are counted by line.
- A number is written in digits, with a point and an exponent if need be, or is ``inf``, and is rounded once, to the
  nearest float64; what is too large for one is refused. Missing are an empty cell, null, and NA, N/A, NaN, null, none
  and ?, in any case.
- A text is as it stands in the file; a name (an id, a class, a group) loses surrounding space.
- What a file takes in memory is limited (:mod:`dubio.core.unpacking`), and so are its columns and its longest row.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from dubio.core.errors import BadFile
from dubio.core.files import reading
from dubio.tables.collecting import BatchColumns, Columns, Numeric
from dubio.tables.delimited import read_delimited
from dubio.tables.json_lines import read_json_lines
from dubio.tables.parquet import read_parquet
from dubio.tables.table import (
    Cells,
    NotANumber,
    Table,
    as_numbers,
    has_comma,
    listed,
    number_in,
    plain_name,
    plain_names,
    taken,
)

__all__ = [
    "ENDINGS",
    "Cells",
    "NotANumber",
    "Table",
    "as_numbers",
    "has_comma",
    "listed",
    "number_in",
    "plain_name",
    "plain_names",
    "read_batches",
    "read_table",
    "table_ending",
    "taken",
]

ENDINGS: dict[str, Callable[[Path, Columns, Numeric], None]] = {
    ".csv": read_delimited,
    ".tsv": read_delimited,
    ".jsonl": read_json_lines,
    ".ndjson": read_json_lines,
    ".parquet": read_parquet,
}
"""The reader of each format."""


def no_numbers(head: Mapping[str, Sequence[Any]]) -> Collection[str]:
    """Return none: every column is read as it stands."""
    return ()


def table_ending(path: Path) -> str | None:
    """Return the ending that names a table's format, ``.csv`` of ``mine.CSV.gz``; None where it is none of a table."""
    name = path.name.lower()
    return next((ending for ending in ENDINGS if name.endswith((ending, *_gzipped(ending)))), None)


def _gzipped(ending: str) -> tuple[str, ...]:
    return () if ending == ".parquet" else (f"{ending}.gz",)


def read_table(path: Path, numeric: Numeric = no_numbers) -> Table:
    """Read a table by its ending.

    Args:
        path: The file.
        numeric: Chooses the columns whose cells must be numbers. Others are texts, or as the file types them.

    Raises:
        BadFile: When it does not exist, is of an unknown format, does not match its ending, or is too large.
        MissingExtra: For a Parquet file, when pyarrow is not installed.
    """
    columns = Columns(path)
    unit = _fill(columns, path, numeric)
    table = columns.table(unit)
    if len(table) == 0:
        raise BadFile(f"{str(path)!r} has no rows.")
    return table


def read_batches(path: Path, use: Callable[[Table], None]) -> None:
    """Read a table by its ending and hand over its rows in batches of bounded size, in order; none is kept.

    Args:
        path: The file.
        use: Called with every batch; its cells are texts, or as the file types them.

    Raises:
        BadFile: As for :func:`read_table`.
        MissingExtra: Likewise.
    """
    unit = "line" if ENDINGS.get(table_ending(path) or "") is read_json_lines else "row"
    columns = BatchColumns(path, lambda batch, numbers: use(Table(path, batch, numbers, unit)))
    _fill(columns, path, no_numbers)
    if not columns.rows:
        raise BadFile(f"{str(path)!r} has no rows.")


def _fill(columns: Columns, path: Path, numeric: Numeric) -> str:
    """Read a file into columns; return what its rows are called."""
    ending = table_ending(path)
    if ending is None:
        raise BadFile(f"{str(path)!r}: unknown ending; a table ends in {', '.join(ENDINGS)} (or .csv.gz and so on).")
    if not path.is_file():
        raise BadFile(f"{str(path)!r}: no such file.")
    with reading(path):
        ENDINGS[ending](path, columns, numeric)
    return "line" if ENDINGS[ending] is read_json_lines else "row"
