"""Raw rows of a deployed model: what a row must hold, and its key.

A row is a mapping from columns to values, or the value itself where a model has one column (texts, images), or the
numbers of a table in the order of its columns. Every refusal names the row and the column.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dubio.core.errors import UnknownName, UserError, listing, plural
from dubio.core.types import Examples, Inputs, Modality
from dubio.core.validate import NonNegative
from dubio.networks.draws import Keys
from dubio.tables import number_in
from dubio.tasks.images.files import Unreadable, read_image, resize_images

MOST_COLUMNS = 5
"""Largest number of columns with missing numbers that a note names."""

IMAGE = "image"
"""The column of a row that is an image."""


@dataclass(frozen=True)
class InputForm:
    """The form of a row.

    Attributes:
        inputs: The modality.
        columns: Names of the fields of a row.
        shape: Of an image: height, width, channels; empty for texts and tables.
        stretch: Whether images of another size are stretched to it, as those of the training folder were.
        label: The column of classes in files of rows, where known; rows need not have it, like the following ones.
        label_separator: The separator between several labels in a cell.
        id: The column of ids.
        group: The column of groups.
    """

    inputs: Modality
    columns: tuple[str, ...]
    shape: tuple[NonNegative, ...] = ()
    stretch: bool = False
    label: str | None = None
    label_separator: str | None = None
    id: str | None = None
    group: str | None = None

    def examples(self, rows: Any, references: Sequence[str] = ()) -> tuple[Examples, tuple[str, ...]]:
        """Return raw rows as examples without labels, and notes on what is ignored in them.

        Args:
            rows: A sequence of rows, an array of table rows or images, or a data frame.
            references: The name of each row in messages; its number from 0 if omitted.

        Raises:
            UserError: Naming row and column of the first value that does not fit.
        """
        if hasattr(rows, "to_dict") and hasattr(rows, "columns"):  # a data frame
            rows = rows.to_dict("records")
        if isinstance(rows, str | bytes | Mapping):
            raise UserError(f"rows must be a sequence of rows; given a single {type(rows).__name__}: put it in a list.")
        if len(rows) == 0:
            raise UserError("rows must not be empty.")
        names = references or _Numbered()
        values: Inputs
        if self.inputs == "table":
            values = self._numbers(rows, names)
        elif self.inputs == "text":
            values = tuple(self._text(row, names[index]) for index, row in enumerate(rows))
        else:
            values = np.stack([self._image(row, names[index]) for index, row in enumerate(rows)])
        unused = self.unused(name for row in rows if isinstance(row, Mapping) for name in row)
        notes = RowNotes(dict.fromkeys(unused))
        notes.add(self, values)
        return Examples(values, np.full(len(rows), -1, dtype=np.int64)), notes.texts

    def unused(self, names: Iterable[Any]) -> tuple[str, ...]:
        """Return the fields of rows that the model does not use."""
        used = {*self.columns, self.label, self.id, self.group}
        return tuple(name for name in dict.fromkeys(map(str, names)) if name not in used)

    def _field(self, row: Any, name: str, column: str) -> Any:
        """Return the value of a column of a row; a row of one column may be the value itself."""
        if not isinstance(row, Mapping):
            return row
        if column not in row:
            missing = UnknownName(f"{name}: there is no column", column, map(str, row))
            raise UserError(str(missing).replace("unknown ", "", 1).replace("Known:", "The row has:"))
        return row[column]

    def _text(self, row: Any, name: str) -> str:
        value = self._field(row, name, self.columns[0])
        if value is None or isinstance(value, str):
            return value or ""
        if isinstance(value, float) and math.isnan(value):  # a missing cell of a data frame
            return ""
        raise UserError(f"{name}, column {self.columns[0]!r} must be a text; given {_shown(value)}.")

    def _image(self, row: Any, name: str) -> NDArray[np.uint8]:
        value = self._field(row, name, self.columns[0])
        cell = f"{name}, column {self.columns[0]!r}"
        if isinstance(value, bytes | Path):
            try:
                return read_image(
                    BytesIO(value) if isinstance(value, bytes) else value, self.shape, stretch=self.stretch
                )
            except Unreadable as fault:
                raise UserError(f"{cell} cannot be read as an image: {fault}.") from fault
        image = np.asarray(value)
        image = image[..., None] if image.ndim == 2 else image
        if self.stretch and image.dtype == np.uint8 and image.ndim == 3 and image.shape[2] == self.shape[2]:
            image = resize_images(Path(name), image[None], self.shape[0])[0]
        if image.dtype != np.uint8 or image.shape != self.shape:
            allowed = f"uint8 of shape {list(self.shape)} (height, width, channels), or the bytes of an image file"
            raise UserError(f"{cell} must be {allowed}; given {_shown(value)}.")
        return image

    def _numbers(self, rows: Any, names: Sequence[str] | _Numbered) -> NDArray[np.float64]:
        """Return the numbers of table rows ``[N, D]``, NaN where one is missing."""
        if isinstance(rows, np.ndarray):
            if rows.ndim != 2 or rows.shape[1] != len(self.columns) or rows.dtype.kind not in "fiub":
                needed = f"numbers [rows, {len(self.columns)}], with the columns {listing(self.columns)}"
                raise UserError(f"rows must be {needed}; given {rows.dtype} of shape {list(rows.shape)}.")
            values = rows.astype(np.float64)
        else:
            values = np.array([self._number_row(row, names[index]) for index, row in enumerate(rows)])
        for row, column in np.argwhere(np.isinf(values)):
            raise UserError(
                f"{names[row]}, column {self.columns[column]!r} must be finite; given {values[row, column]}."
            )
        return values

    def _number_row(self, row: Any, name: str) -> list[float]:
        if not isinstance(row, Mapping):
            if isinstance(row, str) or not isinstance(row, Sequence | np.ndarray) or len(row) != len(self.columns):
                needed = f"a mapping, or {len(self.columns)} numbers ({listing(self.columns)})"
                raise UserError(f"{name} must be {needed}; given {_shown(row)}.")
            row = dict(zip(self.columns, row, strict=True))
        numbers = []
        for column in self.columns:
            value = self._field(row, name, column)
            number = number_in(value)
            if number is None:
                raise UserError(f"{name}, column {column!r} must be a number; given {_shown(value)}.")
            numbers.append(number)
        return numbers


class _Numbered:
    """The names of rows that have none: their numbers, from 0."""

    def __getitem__(self, index: int) -> str:
        return f"row {index}"


def empty_texts(inputs: Inputs) -> int:
    """Return the number of rows whose text is empty; 0 for rows of another modality."""
    return sum(not text.strip() for text in inputs) if isinstance(inputs, tuple) else 0


@dataclass
class RowNotes:
    """Count what is ignored or missing in rows.

    Attributes:
        unused: Fields that the model does not use.
        empty: Rows with an empty text.
        incomplete: Rows with a missing number.
        missing: Column → the number of rows in which its number is missing.
    """

    unused: dict[str, None] = field(default_factory=dict)
    empty: int = 0
    incomplete: int = 0
    missing: Counter[str] = field(default_factory=Counter)

    def add(self, form: InputForm, inputs: Inputs) -> None:
        """Count what is missing in further rows."""
        self.empty += empty_texts(inputs)
        if form.inputs == "table":
            absent = np.isnan(np.asarray(inputs[:]))
            self.incomplete += int(absent.any(axis=1).sum())
            counts = dict(zip(form.columns, absent.sum(axis=0).tolist(), strict=True))
            self.missing.update({column: count for column, count in counts.items() if count})

    @property
    def texts(self) -> tuple[str, ...]:
        """The sentences about it, none where there is nothing to say."""
        texts = [f"Columns that the model does not use: {listing(self.unused)}."] if self.unused else []
        texts += [f"Rows with an empty text: {self.empty:,}."] if self.empty else []
        if self.incomplete:
            most = [f"{column} {count:,}" for column, count in self.missing.most_common(MOST_COLUMNS)]
            others = len(self.missing) - len(most)
            more = f" and {others} more {plural('column', others)}" if others else ""
            texts.append(f"Rows with a missing number: {self.incomplete:,} ({', '.join(most)}{more}); such a number is "
                         "filled in as in training.")  # fmt: skip
        return tuple(texts)


def _shown(value: Any) -> str:
    if isinstance(value, np.ndarray):
        return f"an array of {value.dtype} and shape {list(value.shape)}"
    return f"{type(value).__name__} {value!r:.40}"


def row_keys(inputs: Inputs) -> Keys:
    """Return the key of each row: 64 bits of the BLAKE2b hash of its text, numbers or pixels.

    Equal rows have equal keys, hence equal samples. 0 and −0 are equal, and so are all spellings of a missing number.
    """
    if isinstance(inputs, tuple):
        contents = [text.encode("utf-8", "surrogatepass") for text in inputs]
    else:
        rows = np.asarray(inputs[:])
        if rows.dtype.kind == "f":
            rows = np.where(np.isnan(rows), np.nan, rows.astype("<f8") + 0.0)
        contents = [np.ascontiguousarray(row).tobytes() for row in rows]
    return np.array(
        [int.from_bytes(blake2b(row, digest_size=8).digest(), "little") for row in contents], dtype=np.uint64
    )
