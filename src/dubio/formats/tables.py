"""Read tables: columns of cells from CSV, TSV and Parquet."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

from dubio.core.errors import BadFile, MissingExtra
from dubio.core.files import reading
from dubio.core.npz import FREE_BYTES, MAX_RATIO

Frame = dict[str, list[Any]]
"""Column name to its cells: texts from CSV, typed values or None from Parquet."""

SEPARATORS = {".csv": ",", ".tsv": "\t"}


def read_delimited(path: Path, separator: str) -> Frame:
    """Return the columns of a UTF-8 table whose first line names them.

    Raises:
        BadFile: When it cannot be read, is empty, names a column twice, or has a line of another length.
    """
    try:
        with reading(path), path.open(encoding="utf-8-sig", newline="") as handle:
            reader = csv.reader(handle, delimiter=separator, strict=True)
            lines = [(reader.line_num, row) for row in reader]
    except (csv.Error, UnicodeDecodeError) as fault:
        raise BadFile(f"{str(path)!r} is not a readable UTF-8 table: {fault}.") from fault
    if not lines or not lines[0][1]:
        raise BadFile(f"{str(path)!r} is empty; its first line must name the columns.")
    names = _names(path, [name.strip() for name in lines[0][1]])
    rows = [row for _, row in lines[1:] if row]
    for number, row in lines[1:]:
        if row and len(row) != len(names):
            where = f"{str(path)!r}, line {number}"
            raise BadFile(f"{where}: {len(row)} cells where the first line names {len(names)} columns.")
    if not rows:
        raise BadFile(f"{str(path)!r} has no rows below its first line.")
    return {name: [row[index].strip() for row in rows] for index, name in enumerate(names)}


def _names(path: Path, names: list[str]) -> list[str]:
    for index, name in enumerate(names):
        if not name:
            raise BadFile(f"{str(path)!r}: column {index} (from 0) has no name; pandas writes one for its index unless "
                          "it is called with to_csv(index=False).")  # fmt: skip
        if name in names[:index]:
            raise BadFile(f"{str(path)!r} names the column {name!r} twice.")
    return names


def read_parquet(path: Path) -> Frame:
    """Return the columns of a Parquet file.

    Raises:
        MissingExtra: When pyarrow is not installed.
        BadFile: When it cannot be read, or unpacks to more than such a file can hold.
    """
    try:
        import pyarrow
        import pyarrow.parquet
    except ModuleNotFoundError as missing:
        raise MissingExtra("reading Parquet", "parquet") from missing
    try:
        with pyarrow.parquet.ParquetFile(path) as source:
            facts = source.metadata
            groups = [facts.row_group(index).total_byte_size for index in range(facts.num_row_groups)]
            declared = max(sum(groups), 8 * facts.num_rows * facts.num_columns)
            if declared > max(FREE_BYTES, MAX_RATIO * path.stat().st_size):
                unpacked = f"would unpack to {declared} bytes"
                raise BadFile(f"{str(path)!r} {unpacked}, far more than a file of its size should.")
            table = source.read()
    except (pyarrow.ArrowException, OSError) as fault:
        raise BadFile(f"{str(path)!r} is not a readable Parquet file: {fault}") from fault
    if table.num_rows == 0:
        raise BadFile(f"{str(path)!r} has no rows.")
    names = _names(path, list(table.column_names))
    return {name: table.column(index).to_pylist() for index, name in enumerate(names)}
