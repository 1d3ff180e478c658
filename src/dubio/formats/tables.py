"""Long tables of results (dataset, method, metric, value, seed, …) as CSV or JSON.

Values are read as the text they were written in, so that exact arithmetic on printed results stays possible.
"""

from __future__ import annotations

import csv
import io
import json
import math
import os
import uuid
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from dubio.core.errors import BadFile, UserError
from dubio.formats.columns import SEPARATORS, read_delimited

COLUMNS = ("dataset", "method", "metric", "value")

Cell = str | int | float | None


def read_results(path: str | Path) -> list[dict[str, str]]:
    """The rows of a table of results, every cell as text; .csv, .tsv, or .json (a list of objects).

    Raises:
        BadFile: When it cannot be read, or lacks one of the columns dataset, method, metric, value.
    """
    path = Path(path)
    suffix = path.suffix.lower()
    if suffix in SEPARATORS:
        frame = read_delimited(path, SEPARATORS[suffix])
        rows = [dict(zip(frame, cells, strict=True)) for cells in zip(*frame.values(), strict=True)]
    elif suffix == ".json":
        rows = _read_json(path)
    else:
        raise BadFile(f"{str(path)!r}: results are read from files ending in .csv, .tsv or .json.")
    for place, row in enumerate(rows):
        for column in COLUMNS:
            if column not in row:
                raise BadFile(
                    f"{str(path)!r}: row {place} (from 0) has no {column!r}; needed are {', '.join(COLUMNS)}."
                )
    return rows


def _read_json(path: Path) -> list[dict[str, str]]:
    try:
        # Numbers stay as they were written.
        found = json.loads(path.read_text("utf-8"), parse_float=str, parse_int=str, parse_constant=str)
    except OSError as fault:
        raise BadFile(f"{str(path)!r} cannot be read: {fault.strerror}.") from fault
    except (ValueError, RecursionError) as fault:
        raise BadFile(f"{str(path)!r} is not JSON: {fault}.") from fault
    if not isinstance(found, list) or not all(isinstance(row, dict) for row in found):
        raise BadFile(f"{str(path)!r} must be a JSON list of objects.")
    return [{str(name): "" if cell is None else str(cell) for name, cell in row.items()} for row in found]


def write_results(path: str | Path, rows: Iterable[Mapping[str, Cell]]) -> None:
    """Write a table of results as .csv, .tsv or .json, whole or not at all; what is not a number is left empty.

    Raises:
        UserError: For another ending, no rows, or rows that lack a column.
    """
    path = Path(path)
    listed = [dict(row) for row in rows]
    if not listed:
        raise UserError("there are no results to write.")
    for place, row in enumerate(listed):
        for column in COLUMNS:
            if column not in row:
                raise UserError(f"result {place} (from 0) has no {column!r}; needed are {', '.join(COLUMNS)}.")
    suffix = path.suffix.lower()
    if suffix in SEPARATORS:
        text = _delimited(listed, SEPARATORS[suffix])
    elif suffix == ".json":
        text = json.dumps([{name: _finite(cell) for name, cell in row.items()} for row in listed], indent=1) + "\n"
    else:
        raise UserError(f"{str(path)!r}: results are written to files ending in .csv, .tsv or .json.")
    _put(path, text)


def _delimited(rows: Sequence[Mapping[str, Cell]], separator: str) -> str:
    columns = list(dict.fromkeys([*COLUMNS, *(name for row in rows for name in row)]))
    text = io.StringIO()
    writer = csv.writer(text, delimiter=separator, lineterminator="\n")
    writer.writerow(columns)
    for row in rows:
        writer.writerow(["" if _finite(row.get(name)) is None else _finite(row.get(name)) for name in columns])
    return text.getvalue()


def _finite(cell: Any) -> Any:
    return None if isinstance(cell, float) and not math.isfinite(cell) else cell


def _put(path: Path, text: str) -> None:
    scratch = path.with_name(f".{path.name}.{uuid.uuid4().hex}.tmp")
    try:
        with scratch.open("x", encoding="utf-8", newline="") as handle:
            handle.write(text)
            handle.flush()
            os.fsync(handle.fileno())
        os.replace(scratch, path)
    finally:
        scratch.unlink(missing_ok=True)
