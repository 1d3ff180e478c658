"""Tables as columns of cells: CSV and TSV with the standard library, Parquet with pyarrow."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

from dubio.core.errors import BadFile, MissingExtra
from dubio.formats.numpy_files import FREE_BYTES, MAX_RATIO

Frame = dict[str, list[Any]]
"""Column name to its cells: texts from CSV, typed values or None from Parquet."""

SEPARATORS = {".csv": ",", ".tsv": "\t"}


def read_delimited(path: Path, separator: str) -> Frame:
    """The columns of a UTF-8 table whose first line names them.

    Raises:
        BadFile: When it cannot be read, is empty, names a column twice, or has a line of another length.
    """
    try:
        with path.open(encoding="utf-8-sig", newline="") as handle:
            reader = csv.reader(handle, delimiter=separator, strict=True)
            header = next(reader, None)
            if not header:
                raise BadFile(f"{str(path)!r} is empty; its first line must name the columns.")
            names = _names(path, [name.strip() for name in header])
            rows = []
            for row in reader:
                if not row:
                    continue
                if len(row) != len(names):
                    raise BadFile(
                        f"{str(path)!r}, line {reader.line_num}: {len(row)} cells where the first line names "
                        f"{len(names)} columns."
                    )
                rows.append(row)
    except (csv.Error, UnicodeDecodeError) as fault:
        raise BadFile(f"{str(path)!r} is not a readable UTF-8 table: {fault}.") from fault
    except OSError as fault:
        raise BadFile(f"{str(path)!r} cannot be read: {fault.strerror}.") from fault
    if not rows:
        raise BadFile(f"{str(path)!r} has no rows below its first line.")
    return {name: [row[place].strip() for row in rows] for place, name in enumerate(names)}


def _names(path: Path, names: list[str]) -> list[str]:
    for place, name in enumerate(names):
        if not name:
            raise BadFile(f"{str(path)!r}: column {place} (from 0) has no name; pandas writes such a one for its index "
                          "unless told to_csv(index=False).")  # fmt: skip
        if name in names[:place]:
            raise BadFile(f"{str(path)!r} names the column {name!r} twice.")
    return names


def read_parquet(path: Path) -> Frame:
    """The columns of a Parquet file.

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
                raise BadFile(
                    f"{str(path)!r} would unpack to {declared} bytes, far more than a file of its size should."
                )
            table = source.read()
    except (pyarrow.ArrowException, OSError) as fault:
        raise BadFile(f"{str(path)!r} is not a readable Parquet file: {fault}") from fault
    if table.num_rows == 0:
        raise BadFile(f"{str(path)!r} has no rows.")
    names = _names(path, list(table.column_names))
    return {name: table.column(place).to_pylist() for place, name in enumerate(names)}
