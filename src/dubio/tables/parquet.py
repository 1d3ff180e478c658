"""Parquet: read after what its metadata declare has been compared with the limit.

A column that is constant, or that has few texts, may stand for any number of rows in a few bytes. Texts are therefore
read as their dictionary, and the cells of a column share them. Numbers stay where pyarrow put them.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dubio.core.errors import BadFile, MissingExtra
from dubio.core.unpacking import check_unpacked
from dubio.tables.collecting import BATCH, CELL, Columns, Numeric, check_names
from dubio.tables.table import Cells

CELLS = 500_000
"""Cells that are read together, in whole columns: their pages and their values are in memory at once."""


def read_parquet(path: Path, columns: Columns, numeric: Numeric) -> None:
    """Read a Parquet file; its columns have the types that it gives them.

    Raises:
        MissingExtra: When pyarrow is not installed.
        BadFile: When it cannot be read, or unpacks to more than the limit.
    """
    try:
        import pyarrow
        import pyarrow.parquet
    except ModuleNotFoundError as missing:
        raise MissingExtra("reading Parquet", "parquet") from missing
    try:
        with pyarrow.parquet.ParquetFile(path) as source:
            facts, schema = source.metadata, source.schema_arrow
            names = list(schema.names)
            check_names(path, names)
            _check_declared(path, source)
        texts = [field.name for field in schema if _is_text(pyarrow, field.type)]
        with pyarrow.parquet.ParquetFile(path, metadata=facts, read_dictionary=texts) as source:
            if columns.streams:
                _read_batches(pyarrow, source, columns, names)
            else:
                columns.add(_read_columns(pyarrow, path, source, names), np.arange(1, facts.num_rows + 1))
    except UnicodeDecodeError as fault:
        raise BadFile(f"{str(path)!r}: the name of a column is not UTF-8.") from fault
    except BadFile:
        raise
    except (pyarrow.ArrowException, OSError, ValueError, OverflowError) as fault:
        raise BadFile(f"{str(path)!r} is not a readable Parquet file: {fault}") from fault


def parquet_facts(path: Path) -> dict[str, str]:
    """Return the texts that a readable Parquet file states about itself, by their keys."""
    import pyarrow.parquet

    with pyarrow.parquet.ParquetFile(path) as source:
        stated = source.metadata.metadata or {}
    return {key.decode("utf-8", "replace"): value.decode("utf-8", "replace") for key, value in stated.items()}


def _read_columns(pa: Any, path: Path, source: Any, names: list[str]) -> dict[str, Cells | None]:
    """Return the cells of every column."""
    rows = source.metadata.num_rows
    cells: dict[str, Cells | None] = {}
    together = max(1, CELLS // max(1, rows))
    for start in range(0, len(names), together):
        group = names[start : start + together]
        for name, column in zip(group, source.read(columns=group).columns, strict=True):
            if len(column) != rows:
                raise BadFile(f"{str(path)!r}: column {name!r} has {len(column)} rows; the file declares {rows}.")
            cells[name] = _values(pa, path, name, column)
    return cells


def _read_batches(pa: Any, source: Any, columns: Columns, names: list[str]) -> None:
    """Hand over the cells of some rows at a time."""
    first = 1
    for batch in source.iter_batches(max(1, BATCH // max(1, len(names)))):
        rows = pa.Table.from_batches([batch])
        cells = {name: _values(pa, columns.path, name, rows.column(name), first) for name in names}
        columns.add(cells, np.arange(first, first + len(batch)))
        first += len(batch)


def _values(pa: Any, path: Path, name: str, column: Any, first: int = 1) -> Cells | None:
    return _numbers(column) if pa.types.is_floating(column.type) else _cells(pa, path, name, column, first)


def _numbers(column: Any) -> NDArray[np.float64]:
    numbers: NDArray[np.float64] = column.to_numpy().astype(np.float64, copy=False)
    return numbers


_BYTES = ("binary", "large_binary", "fixed_size_binary", "binary_view")


def _check_declared(path: Path, source: Any) -> None:
    """Refuse a file whose metadata declare more than the limit: its pages, or the cells that they stand for.

    pyarrow ends the process when it is asked for a column of damaged metadata; scanning reports the damage. Only lists
    need to be asked: other columns have one cell per row.
    """
    facts = source.metadata
    groups = [facts.row_group(index) for index in range(facts.num_row_groups)]
    pages = sum(max(0, group.total_byte_size) for group in groups)
    rows = max(facts.num_rows, sum(max(0, group.num_rows) for group in groups))
    check_unpacked(path, max(pages, 8 * rows * facts.num_columns))
    columns = [source.schema.column(index) for index in range(facts.num_columns)]
    lists = [index for index, column in enumerate(columns) if column.max_repetition_level > 0]
    if lists:
        source.scan_contents(columns=[columns[index].path.partition(".")[0] for index in lists])
        check_unpacked(path, 8 * sum(group.column(index).num_values for group in groups for index in lists))


def _is_text(pa: Any, kind: Any) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _cells(pa: Any, path: Path, name: str, column: Any, first: int) -> Cells | None:
    """Return the cells of a column that is not of fractions, from a first row; None where they are no single values."""
    kind = column.type
    if pa.types.is_dictionary(kind):
        if _is_text(pa, kind.value_type):
            return _texts(pa, path, name, column, first)
        kind = kind.value_type
        column = column.cast(kind)
    if pa.types.is_integer(kind) and not column.null_count:
        array: NDArray[Any] = column.to_numpy()
        return array
    if pa.types.is_timestamp(kind):
        column = column.cast(pa.timestamp("us", kind.tz), safe=False)  # nanoseconds would need pandas
    nested = pa.types.is_nested(kind)
    item = kind.value_type if pa.types.is_list(kind) or pa.types.is_large_list(kind) else kind
    if pa.types.is_nested(item) or any(getattr(pa.types, f"is_{suffix}")(item) for suffix in _BYTES):
        return None
    check_unpacked(path, CELL * (len(column.combine_chunks().flatten()) if nested else len(column)))
    try:
        cells: list[Any] = column.to_pylist()
    except (ValueError, OverflowError) as fault:  # UTF-8 in lists, dates beyond the year 9999
        raise BadFile(f"{str(path)!r}: column {name!r} cannot be read: {fault}.") from fault
    return cells


def _texts(pa: Any, path: Path, name: str, column: Any, first: int) -> list[str | None]:
    """Return texts from their dictionary, as shared objects.

    Raises:
        BadFile: Naming row and column of a text that is not UTF-8.
    """
    cells: list[str | None] = []
    for chunk in column.chunks:
        indices = chunk.indices.fill_null(len(chunk.dictionary)).to_numpy(zero_copy_only=False)
        if len(indices) and not 0 <= indices.min() <= indices.max() <= len(chunk.dictionary):
            raise BadFile(f"{str(path)!r}: column {name!r} names texts that its dictionary does not have.")
        try:
            texts = chunk.dictionary.to_numpy(zero_copy_only=False)
        except (UnicodeDecodeError, pa.ArrowException) as fault:
            rows = np.flatnonzero(indices == _first_not_utf8(pa, chunk.dictionary))
            reference = f"row {first + len(cells) + rows[0]}" if len(rows) else "a text that no row has"
            raise BadFile(f"{str(path)!r}: {reference}, column {name!r}: not UTF-8.") from fault
        cells += np.append(texts, np.array([None]))[indices].tolist()
    return cells


def _first_not_utf8(pa: Any, dictionary: Any) -> int:
    """Return the index of the first text that is not UTF-8, -1 where all are."""
    for index, text in enumerate(dictionary.cast(pa.large_binary()).to_pylist()):
        try:
            (text or b"").decode("utf-8")
        except UnicodeDecodeError:
            return index
    return -1
