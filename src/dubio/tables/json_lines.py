"""JSON Lines: every line is an object, and a column is what the objects have under one name."""

from __future__ import annotations

from collections.abc import Collection
from itertools import chain, islice
from pathlib import Path
from typing import Any

import numpy as np

from dubio.core.documents import parse_json
from dubio.core.errors import BadFile
from dubio.core.unpacking import check_unpacked
from dubio.tables.collecting import BATCH, HEAD, Columns, Lines, Numeric, open_lines, parsed
from dubio.tables.table import Cells


def read_json_lines(path: Path, columns: Columns, numeric: Numeric) -> None:
    """Read a file whose lines are JSON objects; blank lines are skipped.

    Raises:
        BadFile: Naming the line that is none.
    """
    with open_lines(path) as stream:
        lines = Lines(path, stream)
        chosen: Collection[str] | None = None
        while True:
            objects, numbers, cells = [], [], 0
            for line in lines.filled():
                objects.append(_json_object(path, lines.number, line))
                numbers.append(lines.number)
                cells += len(objects[-1]) + 1
                if cells >= BATCH:
                    break
            if not objects:
                return
            names = dict.fromkeys(chain.from_iterable(objects))
            check_unpacked(path, 8 * len(names) * len(objects))
            batch = {name: [item.get(name) for item in objects] for name in names}
            if chosen is None:
                chosen = frozenset(numeric({name: list(islice(values, HEAD)) for name, values in batch.items()}))
            places = [f"line {number}" for number in numbers]
            values = parsed(columns, batch, chosen, places)
            columns.add({name: _single(cells) for name, cells in values.items()}, np.array(numbers, dtype=np.int64))


def _single(cells: Cells | None) -> Cells | None:
    """Return cells, or None where one is an object or a list of lists."""
    for cell in () if cells is None or isinstance(cells, np.ndarray) else cells:
        if isinstance(cell, dict) or (isinstance(cell, list) and any(isinstance(item, list | dict) for item in cell)):
            return None
    return cells


def _json_object(path: Path, number: int, line: str) -> dict[str, Any]:
    """Return the object of a line.

    Raises:
        BadFile: Naming the line, when it is not a JSON object or holds what no table can.
    """
    where = f"{str(path)!r}: line {number}"
    item = parse_json(line, where)
    if not isinstance(item, dict):
        raise BadFile(f"{where} is not a JSON object but {line.strip()[:40]!r}.")
    return item
