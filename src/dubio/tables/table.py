"""A table in memory: columns of cells, what is a number and what is a name among them, and where each row came from."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from dubio.core.errors import BadFile, UnknownName, UserError
from dubio.core.types import StrArray
from dubio.core.unpacking import check_unpacked

MISSING = frozenset(("", "na", "n/a", "nan", "null", "none", "?"))
"""Spellings of a missing number, in lower case."""

Cells = NDArray[Any] | list[Any]
"""One value per row: an array of numbers, or a list of texts, values and None."""

_NUMBER = re.compile(r"[+-]?(?:(?:\d+(?:\.\d*)?|\.\d+)(?:e[+-]?\d+)?|inf|infinity|nan)", re.ASCII | re.IGNORECASE)

_DECIMAL_COMMA = re.compile(r"[+-]?\d+,\d+(?:e[+-]?\d+)?", re.ASCII | re.IGNORECASE)


@dataclass(frozen=True, eq=False)
class Table:
    """Columns of equal length, and where in the file each row is.

    Attributes:
        path: The file.
        columns: Cells by the column's name; None for a column whose cells are no single values.
        row_numbers: The row's number as its reader counts it.
        unit: The unit of these numbers: ``"row"`` or ``"line"``.
    """

    path: Path
    columns: dict[str, Cells | None]
    row_numbers: NDArray[np.int64]
    unit: str = "row"

    def __len__(self) -> int:
        return len(self.row_numbers)

    def reference(self, row: int) -> str:
        """Return the name of a row in messages."""
        return f"{self.unit} {self.row_numbers[row]}"

    @property
    def references(self) -> list[str]:
        """The name of each row in messages."""
        return [f"{self.unit} {number}" for number in self.row_numbers.tolist()]

    def take(self, rows: Sequence[int] | NDArray[np.int64]) -> Table:
        """Return these rows, in this order."""
        columns = {name: None if cells is None else taken(cells, rows) for name, cells in self.columns.items()}
        return replace(self, columns=columns, row_numbers=self.row_numbers[rows])

    def column(self, name: str, argument: str) -> Cells:
        """Return the cells of a column.

        Args:
            name: The column.
            argument: The argument that named it, for the message.

        Raises:
            UnknownName: With the nearest name, when there is no such column.
            UserError: When its cells are no single values, such as records.
        """
        if name not in self.columns:
            raise UnknownName(f"column for {argument} in {self.path.name}:", name, self.columns)
        cells = self.columns[name]
        if cells is None:
            raise UserError(f"column {name!r} for {argument} has cells that are records, bytes or lists of lists; "
                            "a number, a text or a list of labels is needed.")  # fmt: skip
        return cells

    def floats(self, name: str, argument: str) -> NDArray[np.float64]:
        """Return a column of numbers, NaN where one is missing.

        Raises:
            BadFile: Naming row and column of the first cell that is not a number.
        """
        cells = self.column(name, argument)
        try:
            return as_numbers(cells)
        except NotANumber as fault:
            refuse_cell(self.path, self.reference(fault.row), name, cells[fault.row])

    def features(self, names: Sequence[str]) -> NDArray[np.float64]:
        """Return numeric columns ``[N, D]``, NaN where a value is missing.

        Raises:
            UserError: Naming column and row of the first value that is not a finite number.
        """
        values = self.matrix(names, "features")
        infinite = np.isinf(values)
        if infinite.any():
            row, index = np.argwhere(infinite)[0]
            cell = f"{self.reference(int(row))}, column {names[index]!r} for features"
            raise UserError(f"{cell} must be a finite number; given {values[row, index]}.")
        return values

    def matrix(self, names: Sequence[str], argument: str) -> NDArray[np.float64]:
        """Return numeric columns ``[N, D]``; no copy is made of columns that lie side by side in memory.

        Raises:
            BadFile: Naming row and column of the first cell that is not a number.
        """
        columns = [self.floats(name, argument) for name in names]
        block = columns[0].base if columns else None
        if isinstance(block, np.ndarray) and block.ndim == 2 and all(column.base is block for column in columns):
            step, first = block.strides[0], columns[0].ctypes.data
            if all(column.ctypes.data == first + step * index for index, column in enumerate(columns)):
                start = (first - block.ctypes.data) // step
                return block[start : start + len(columns)].T
        return np.array(columns).reshape(len(columns), len(self)).T

    def texts(self, name: str) -> list[str]:
        """Return the texts of a column; empty where a value is missing."""
        return ["" if value is None else str(value) for value in listed(self.column(name, "text"))]

    def names(self, column: str, argument: str) -> StrArray:
        """Return a column of names, none of them missing.

        Raises:
            UserError: Naming the first row without a name.
        """
        names = plain_names(self.column(column, argument))
        if "" in names:
            raise UserError(f"column {column!r} for {argument} is empty in {self.reference(names.index(''))}.")
        return self.text_array(names)

    def text_array(self, texts: Sequence[str]) -> StrArray:
        """Return texts as an array, in which each takes the space of the longest.

        Raises:
            BadFile: When that is more than a file may unpack to.
        """
        check_unpacked(self.path, 4 * len(texts) * max(map(len, texts), default=0))
        return np.array(texts, dtype=np.str_)


def taken(cells: Cells, rows: Sequence[int] | NDArray[np.int64]) -> Cells:
    """Return the cells of these rows."""
    return cells[rows] if isinstance(cells, np.ndarray) else [cells[row] for row in rows]


def listed(cells: Cells) -> list[Any]:
    """Return cells as a list of Python values."""
    return cells.tolist() if isinstance(cells, np.ndarray) else cells


def plain_name(value: Any) -> str:
    """Return a cell as a name: without surrounding white space, and an integer without its decimal point."""
    if isinstance(value, str):
        return value.strip()
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return ""
    return str(int(value) if isinstance(value, float) and value.is_integer() else value).strip()


def plain_names(cells: Cells) -> list[str]:
    """Return cells as names."""
    values = listed(cells)
    return list(map(str.strip if set(map(type, values)) <= {str} else plain_name, values))


class NotANumber(Exception):
    """A cell that is no number.

    Attributes:
        row: Its index.
    """

    def __init__(self, row: int) -> None:
        super().__init__(row)
        self.row = row


def refuse_cell(path: Path, reference: str, column: str, value: Any) -> NoReturn:
    """Refuse a cell that should be a number, with its cell."""
    shown = f"{value!r:.60}" if not isinstance(value, int) else f"an integer of {value.bit_length()} bits"
    comma = isinstance(value, str) and _DECIMAL_COMMA.fullmatch(value.strip())
    hint = " Write a decimal point instead of the comma." if comma else ""
    raise BadFile(f"{str(path)!r}: {reference}, column {column!r} must be a number; given {shown}.{hint}")


def has_comma(cells: Cells) -> bool:
    """Return whether some cell is a number with a decimal comma."""
    return any(isinstance(cell, str) and _DECIMAL_COMMA.fullmatch(cell.strip()) for cell in cells)


def as_numbers(cells: Cells) -> NDArray[np.float64]:
    """Return cells as numbers, NaN where one is missing.

    Raises:
        NotANumber: With the first cell that is none.
    """
    if isinstance(cells, np.ndarray) and cells.dtype.kind in "fiub":
        return cells.astype(np.float64, copy=False)
    try:
        numbers = np.fromiter(map(float, cells), np.float64, len(cells))
        alike = set(map(type, cells)) == {str}
        texts = "".join(cells if alike else (cell for cell in cells if isinstance(cell, str)))
        if np.isfinite(numbers).all() and texts.isascii() and "_" not in texts:
            return numbers  # where float() reads more than a number, or loses one, every cell is looked at
    except (TypeError, ValueError, OverflowError):
        pass
    numbers = np.empty(len(cells))
    for row, cell in enumerate(cells):
        number = number_in(cell)
        if number is None:
            raise NotANumber(row)
        numbers[row] = number
    return numbers


def number_in(cell: Any) -> float | None:
    """Return the number in a cell, NaN where it is missing; None for a cell that is neither."""
    if isinstance(cell, str):
        text = cell.strip().lower()
        if text in MISSING:
            return math.nan
        if not _NUMBER.fullmatch(text):
            return None
        number = float(text)
        return None if math.isinf(number) and "inf" not in text else number
    try:
        return math.nan if cell is None else float(cell)
    except (TypeError, ValueError, OverflowError):
        return None
