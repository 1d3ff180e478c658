"""Long tables of results (dataset, method, metric, value, seed, …) as CSV or JSON.

Values are read as the text they were written in, so that exact arithmetic on printed results stays possible.
"""

from __future__ import annotations

import json
from pathlib import Path

from dubio.core.errors import BadFile
from dubio.formats.columns import SEPARATORS, read_delimited

COLUMNS = ("dataset", "method", "metric", "value")


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
