"""The user's rows before they are divided into splits, whatever file they came from."""

from __future__ import annotations

import math
import shlex
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dubio.core.column_roles import ROLES, column_role, words_of
from dubio.core.errors import BadFile, UserError
from dubio.core.types import Inputs, Modality, StrArray
from dubio.core.unpacking import check_unpacked
from dubio.tables import Table, listed, number_in, plain_name
from dubio.tasks.data_options import DataOptions
from dubio.tasks.images.files import (
    ENDINGS,
    class_folders,
    ignored_note,
    load_images,
    read_arrays,
    resize_images,
    visible_folders,
)
from dubio.tasks.splitting import PART_ALIASES

ALL = "*"
"""Among features: every column that is not used for something else."""

Labels = tuple[str, ...]


@dataclass(frozen=True, eq=False)
class Rows:
    """The rows of a file or folder.

    Attributes:
        modality: The modality of an input.
        inputs: Texts, images or numbers.
        labels: The labels of each row.
        listed: Whether a row may carry any number of labels.
        references: What a message calls each row.
        ids: Unique names.
        group: The group of each row, or None.
        domain: The domain of each row, or None.
        split: The part that the data names for each row, or None.
        time: The time of each row, or None.
        notes: Remarks for the reader.
        left_out: Reason → rows that were read and are not among these.
        features: Names of the columns of numbers, where they have any.
    """

    modality: Modality
    inputs: Inputs
    labels: Sequence[Labels]
    listed: bool
    references: list[str]
    ids: StrArray
    group: StrArray | None = None
    domain: StrArray | None = None
    split: StrArray | None = None
    time: NDArray[np.float64] | None = None
    notes: tuple[str, ...] = ()
    left_out: Mapping[str, int] = field(default_factory=dict)
    features: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.references)


def rows_of_table(table: Table, options: DataOptions) -> Rows:
    """Return the rows of a table, by the columns that the options name; a row with an empty text is left out and noted.

    Raises:
        UserError: When neither or both of text and features, or no label, is named.
    """
    present = f"{table.path.name} has {'the columns ' + ', '.join(table.columns) if table.columns else 'no columns'}."
    if options.label is None:
        raise UserError(f"label must name the column of classes; {present}")
    if (options.text is None) == (not options.features):
        both = "both are" if options.features else "neither is"
        choice = "either text (--text, a column of texts) or features (--features, numeric columns)"
        raise UserError(f"give {choice}; {both} given. {present}")
    for argument, column in options.columns().items():
        table.column(column, argument)  # named before any other error that a wrong name would cause
    if options.text == options.label:
        raise UserError(f"text and label are the same column {options.label!r}: every text would be its own label.")
    if options.text is not None:
        filled, notes = _without_empty(table, options.text)
        notes += unused_notes(table, options)
        rows = _rows(filled, options, "text", tuple(filled.texts(options.text)), notes)
        return replace(rows, left_out={"because the text is empty": lost} if (lost := len(table) - len(filled)) else {})
    features = feature_names(table.columns, options)
    if options.label in features:
        raise UserError(f"features must not contain the label column {options.label!r}.")
    twice = [name for name, count in Counter(features).items() if count > 1]
    if twice:
        raise UserError(f"features must be different columns; given {twice[0]!r} more than once.")
    rows = _rows(table, options, "table", table.features(features), unused_notes(table, options))
    return replace(rows, features=features)


def feature_names(columns: Iterable[str], options: DataOptions) -> tuple[str, ...]:
    """Return the features that the options name; for ``*`` all columns that are not used for something else."""
    used = set(options.columns().values())
    return tuple(name for name in columns if name not in used) if ALL in options.features else options.features


def unused_notes(table: Table, options: DataOptions) -> tuple[str, ...]:
    """Return a sentence about each column without a role of its own whose name is that of one, with its option.

    A column that ``*`` takes for a feature is named too: a patient's number is no measurement.
    """
    named = {*options.columns().values(), *options.features}
    notes = []
    for column in table.columns:
        role = column_role(column)
        if role is not None and column not in named and getattr(options, role) is None:
            use = "used as a feature" if ALL in options.features else "not used"
            further = f" and --train-{role}" if role == "domain" else ""
            notes.append(f"Column {column!r} is {use}; {ROLES[role].use} with --{role} {shlex.quote(column)}{further}.")
        elif ALL in options.features and column not in named and words_of(column)[-1:] in (["id"], ["uid"], ["uuid"]):
            notes.append(f"Column {column!r} is used as a feature; it names rows with --id {shlex.quote(column)}.")
    return tuple(notes)


def _rows(table: Table, options: DataOptions, modality: Modality, inputs: Inputs, notes: tuple[str, ...] = ()) -> Rows:
    """Return the rows of a table with these inputs: labels, ids, groups, domains, parts and times are its columns."""
    labels, listed = label_lists(table, options.label or "y", options.label_separator)
    side: dict[str, Any] = {
        argument: None if column is None else table.names(column, argument)
        for argument, column in (("group", options.group), ("domain", options.domain), ("split", options.split))
    }
    ids = table.row_numbers.astype(np.str_) if options.id is None else unique_names(table, options.id)
    time = None if options.time is None else times(table, options.time)
    return Rows(modality, inputs, labels, listed, table.references, ids, time=time, notes=notes, **side)


def unique_names(table: Table, column: str) -> StrArray:
    """Return a column of ids.

    Raises:
        UserError: Naming the first id that two rows share.
    """
    ids = table.names(column, "id")
    first: dict[str, int] = {}
    for row, name in enumerate(ids.tolist()):
        if name in first:
            rows = f"{table.reference(first[name])} and {table.reference(row)}"
            raise UserError(f"column {column!r} for id has {name!r} twice: {rows}; ids are unique, groups are not.")
        first[name] = row
    return ids


def label_lists(table: Table, column: str, separator: str | None) -> tuple[list[Labels], bool]:
    """Return the labels of each row, and whether the column holds lists.

    A cell holds a list when it is one (JSON Lines, Parquet) or when a separator is given; such a list may be empty.

    Raises:
        UserError: Naming the first row without a label, where cells hold one label each.
    """
    if separator == "":
        raise UserError("label_separator must not be empty; leave it out where a row has one label.")
    values = listed(table.column(column, "label"))
    lists = separator is not None or any(isinstance(value, list | tuple) for value in values)
    rows: list[Labels] = []
    for row, value in enumerate(values):
        items = value if isinstance(value, list | tuple) else [plain_name(value)]
        if separator is not None and not isinstance(value, list | tuple):
            items = items[0].split(separator)
        rows.append(tuple(dict.fromkeys(filter(None, map(plain_name, items)))))
        if not lists and not rows[-1]:
            raise UserError(f"column {column!r} for label is empty in {table.reference(row)}.")
    return rows, lists


def times(table: Table, column: str) -> NDArray[np.float64]:
    """Return the time of each row as a number: numbers as they are, dates as seconds since 1970 (UTC).

    Raises:
        UserError: Naming the first row that is neither a number nor an ISO 8601 date.
    """
    values = listed(table.column(column, "time"))
    moments = [_moment(value) for value in values]
    formats = {format for _, format in moments}
    if None in formats:
        row = next(row for row, (_, format) in enumerate(moments) if format is None)
        cell = f"column {column!r} for time: {table.reference(row)} is {values[row]!r:.60}"
        raise UserError(f"{cell}; write a number or an ISO date such as 2024-05-31 or 2024-05-31T09:30.")
    if len(formats) > 1:
        raise UserError(f"column {column!r} for time mixes numbers and dates; write all of them one way.")
    return np.array([moment for moment, _ in moments])


def _moment(value: Any) -> tuple[float, str | None]:
    """Return a time as a number, and its format: ``number``, ``date``, or None for neither."""
    text = value.isoformat() if isinstance(value, date) else plain_name(value)
    number = number_in(text)
    if number is not None:
        return number, "number" if math.isfinite(number) else None
    try:
        moment = datetime.fromisoformat(text)
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp(), "date"
    except (ValueError, OverflowError):
        return math.nan, None


def _without_empty(table: Table, column: str) -> tuple[Table, tuple[str, ...]]:
    """Return the table without the rows whose text is empty, and a note on them."""
    texts = table.texts(column)
    filled = [row for row, text in enumerate(texts) if text.strip()]
    if not filled:
        raise UserError(f"all {len(table)} texts are empty; is text the right column?")
    empty = [reference for reference, text in zip(table.references, texts, strict=True) if not text.strip()]
    if not empty:
        return table, ()
    shown = ", ".join(empty[:5]) + (", …" if len(empty) > 5 else "")
    return table.take(filled), (f"Left out, because the text is empty: {len(empty):,} rows ({shown}).",)


def rows_of_folder(folder: Path, *, size: int) -> Rows:
    """Return the images of class folders, ``folder/CLASS/*.png``, or of parts, ``folder/train/CLASS/*.png``.

    Args:
        folder: The folder with the class folders.
        size: Both sides of every image, in pixels.

    Raises:
        BadFile: When there are no class folders, no images, or an image cannot be read.
    """
    inside = visible_folders(folder)
    by_part = bool(inside) and all(path.name.lower() in PART_ALIASES for path in inside)
    files = [
        (path, name, parent.name if by_part else "")
        for parent in (inside if by_part else [folder])
        for name, paths in class_folders(parent).items()
        for path in paths
    ]
    if not files:
        raise BadFile(f"data {str(folder)!r}: no images; expected a folder per class with {', '.join(ENDINGS)} files.")
    ignored = ignored_note(folder, [path for path, _, _ in files])
    images = load_images(folder, [path for path, _, _ in files], size)
    references = [path.relative_to(folder).as_posix() for path, _, _ in files]
    labels, ids = [(name,) for _, name, _ in files], np.array(references, dtype=np.str_)
    split = np.array([subset for _, _, subset in files], dtype=np.str_) if by_part else None
    return Rows("image", images, labels, False, references, ids, split=split, notes=(_describe(images), *ignored))


def rows_of_npz(path: Path, options: DataOptions) -> Rows:
    """Return the rows of an npz file: ``x`` (uint8 images or numeric rows), the label (``y``), and side columns.

    Args:
        path: The file.
        options: The role of each array; the label is ``y`` unless named. Images are resized where a size is given.

    Raises:
        BadFile: When it cannot be read or lacks these arrays.
    """
    arrays = read_arrays(path)
    if "x" not in arrays:
        raise BadFile(f"data {str(path)!r} has no array 'x'; it has {', '.join(arrays) or 'none'}.")
    x = arrays.pop("x")
    if x.ndim == 0:
        raise BadFile(f"data {str(path)!r}: 'x' is a single value; rows of numbers or images are needed.")
    side: dict[str, Any] = {name: array.tolist() for name, array in arrays.items() if array.shape == (len(x),)}
    modality, inputs = _array_inputs(path, x, options.size)
    table = Table(path, side, np.arange(len(x)))
    notes = (*((_describe(inputs),) if modality == "image" else ()), *unused_notes(table, options))
    return _rows(table, options, modality, inputs, notes)


def _array_inputs(path: Path, x: NDArray[Any], size: int | None) -> tuple[Modality, NDArray[Any]]:
    if x.dtype == np.uint8 and x.ndim in (3, 4):
        images = x if x.ndim == 4 else x[..., None]
        if images.shape[3] not in (1, 3):
            raise BadFile(f"data {str(path)!r}: images must have 1 or 3 channels; x has shape {x.shape}.")
        return "image", images if size is None else resize_images(path, images, size)
    if x.ndim != 2 or x.dtype.kind not in "fiu":
        allowed = "uint8 images [N, H, W] or [N, H, W, C], or numbers [N, D]"
        raise BadFile(f"data {str(path)!r}: x must be {allowed}; it is {x.dtype} of shape {x.shape}.")
    check_unpacked(path, 8 * x.size)  # as float64
    for row, column in np.argwhere(np.isinf(x)):
        value = f"x[{row}, {column}] is {x[row, column]}"
        raise BadFile(f"data {str(path)!r}: {value}, which is not a finite number. A missing value is NaN.")
    return "table", x.astype(np.float64)


def _describe(images: NDArray[np.uint8]) -> str:
    count, height, width, channels = images.shape
    return f"{count:,} images of {height}×{width} pixels, {'grey' if channels == 1 else 'colour'}."
