"""What a column says: texts, names, label lists, numbers, times; every refusal names the row."""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import UTC, date, datetime
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dubio.core.errors import UserError
from dubio.core.types import StrArray
from dubio.tasks.readers import Table

MISSING = frozenset(("", "na", "n/a", "nan", "null", "none", "?"))
"""What a missing number may be written as, in lower case."""

Labels = tuple[str, ...]


def plain_name(value: Any) -> str:
    """A cell as a name: without white space around it, and a whole number without its decimal point."""
    if value is None:
        return ""
    if isinstance(value, float) and math.isfinite(value) and value == int(value):
        return str(int(value))
    if isinstance(value, float) and math.isnan(value):
        return ""
    return str(value).strip()


def texts(table: Table, name: str) -> list[str]:
    """The texts of a column; empty where there is none."""
    return ["" if value is None else str(value) for value in table.column(name, "text")]


def names(table: Table, column: str, argument: str) -> StrArray:
    """A column of names, none of them missing.

    Raises:
        UserError: Naming the first row that has none.
    """
    found = [plain_name(value) for value in table.column(column, argument)]
    if "" in found:
        raise UserError(f"column {column!r} for {argument} is empty in {table.place(found.index(''))}.")
    return np.array(found, dtype=np.str_)


def unique_names(table: Table, column: str) -> StrArray:
    """A column of ids.

    Raises:
        UserError: Naming the first id that two rows share.
    """
    found = names(table, column, "id")
    seen: dict[str, int] = {}
    for row, name in enumerate(found.tolist()):
        if name in seen:
            raise UserError(
                f"column {column!r} for id has {name!r} twice: {table.place(seen[name])} and {table.place(row)}. "
                "Ids must be unique; rows that belong together are named by group."
            )
        seen[name] = row
    return found


def label_lists(table: Table, column: str, separator: str | None) -> tuple[list[Labels], bool]:
    """The labels of each row, and whether the column holds lists.

    A cell holds a list when it is one (JSON lines, Parquet) or when a separator is given; such a list may be empty.

    Raises:
        UserError: Naming the first row without a label, where cells hold one label each.
    """
    if separator == "":
        raise UserError("label_separator must not be empty; leave it out where a row has one label.")
    values = table.column(column, "label")
    listed = separator is not None or any(isinstance(value, list | tuple) for value in values)
    rows: list[Labels] = []
    for row, value in enumerate(values):
        items = value if isinstance(value, list | tuple) else _cell(value, separator)
        rows.append(tuple(dict.fromkeys(name for name in map(plain_name, items) if name)))
        if not listed and not rows[-1]:
            raise UserError(f"column {column!r} for label is empty in {table.place(row)}.")
    return rows, listed


def _cell(value: Any, separator: str | None) -> list[str]:
    name = plain_name(value)
    return [name] if separator is None else name.split(separator)


def numbers(table: Table, columns: Sequence[str]) -> NDArray[np.float64]:
    """Numeric columns ``[N, D]``, NaN where a value is missing.

    Raises:
        UserError: Naming column and row of the first value that is not a number.
    """
    made = np.empty((len(table), len(columns)))
    for index, name in enumerate(columns):
        for row, value in enumerate(table.column(name, "features")):
            number = _number(value)
            if number is None or math.isinf(number):
                raise UserError(
                    f"column {name!r} for features: {table.place(row)} is {value!r}, which is not a finite number. "
                    "Leave a missing value empty."
                )
            made[row, index] = number
    return made


def _number(value: Any) -> float | None:
    if value is None or (isinstance(value, str) and value.strip().lower() in MISSING):
        return math.nan
    try:
        return float(value)
    except (TypeError, ValueError):
        return None


def times(table: Table, column: str) -> NDArray[np.float64]:
    """When each row happened, as a number: numbers as they are, dates and times as seconds since 1970 (UTC).

    Raises:
        UserError: Naming the first row that is neither a number nor an ISO 8601 date.
    """
    values = table.column(column, "time")
    made = [_moment(value) for value in values]
    sorts = {sort for _, sort in made}
    if None in sorts:
        row = next(row for row, (_, sort) in enumerate(made) if sort is None)
        raise UserError(
            f"column {column!r} for time: {table.place(row)} is {values[row]!r}; write a number or an ISO date such as "
            "2024-05-31 or 2024-05-31T09:30."
        )
    if len(sorts) > 1:
        raise UserError(f"column {column!r} for time mixes numbers and dates; write all of them one way.")
    return np.array([moment for moment, _ in made])


def _moment(value: Any) -> tuple[float, str | None]:
    if isinstance(value, datetime):
        return _seconds(value), "date"
    if isinstance(value, date):
        return _seconds(datetime(value.year, value.month, value.day)), "date"
    text = plain_name(value)
    try:
        number = float(text)
    except ValueError:
        pass
    else:
        return number, "number" if math.isfinite(number) else None
    try:
        return _seconds(datetime.fromisoformat(text)), "date"
    except ValueError:
        return math.nan, None


def _seconds(moment: datetime) -> float:
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
