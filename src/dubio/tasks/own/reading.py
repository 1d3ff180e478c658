"""The user's rows before they are divided into splits, whatever file they came from."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dubio.core.column_roles import ROLES, column_role, words_of
from dubio.core.errors import BadFile, UserError
from dubio.core.types import Inputs, Modality, StrArray
from dubio.core.unpacking import check_unpacked
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
from dubio.tasks.own.tables import Labels, Table
from dubio.tasks.splitting import PART_ALIASES

ALL = "*"
"""Among features: every column that is not used for something else."""


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
        raise UserError(f"give either text (a column of texts) or features (numeric columns); {both} given. {present}")
    for argument, column in options.columns().items():
        table.column(column, argument)  # named before any other error that a wrong name would cause
    if options.text is not None:
        filled, notes = _without_empty(table, options.text)
        notes += unused_notes(table, options)
        rows = _rows(filled, options, "text", tuple(filled.texts(options.text)), notes)
        return replace(rows, left_out={"because the text is empty": lost} if (lost := len(table) - len(filled)) else {})
    features = options.features
    if ALL in features:
        used = set(options.columns().values())
        features = tuple(name for name in table.columns if name not in used)
    if options.label in features:
        raise UserError(f"features must not contain the label column {options.label!r}.")
    return _rows(table, options, "table", table.features(features), unused_notes(table, options))


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
    labels, listed = table.label_lists(options.label or "y", options.label_separator)
    side: dict[str, Any] = {
        argument: None if column is None else table.names(column, argument)
        for argument, column in (("group", options.group), ("domain", options.domain), ("split", options.split))
    }
    ids = np.array(table.numbers).astype(np.str_) if options.id is None else table.unique_names(options.id)
    time = None if options.time is None else table.times(options.time)
    return Rows(modality, inputs, labels, listed, table.references, ids, time=time, notes=notes, **side)


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
    side = {name: array.tolist() for name, array in arrays.items() if array.ndim == 1 and len(array) == len(x)}
    modality, inputs = _array_inputs(path, x, options.size)
    table = Table(path, side, list(range(len(x))))
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
