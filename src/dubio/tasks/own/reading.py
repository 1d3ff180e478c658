"""The user's rows before they are divided into splits, whatever file they came from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dubio.core.errors import BadFile, UserError
from dubio.core.types import Inputs, IntArray, Modality, StrArray
from dubio.tasks.data_options import DataOptions
from dubio.tasks.images.files import ENDINGS, class_folders, load_images, read_arrays, resize_images, visible_folders
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
    """

    modality: Modality
    inputs: Inputs
    labels: list[Labels]
    listed: bool
    references: list[str]
    ids: StrArray
    group: StrArray | None = None
    domain: StrArray | None = None
    split: StrArray | None = None
    time: NDArray[np.float64] | None = None
    notes: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.references)

    def take(self, rows: IntArray) -> Rows:
        """Return these rows, in this order."""
        indices = rows.tolist()

        def pick(column: NDArray[Any] | None) -> Any:
            return None if column is None else column[rows]

        return replace(
            self,
            inputs=tuple(self.inputs[i] for i in indices) if isinstance(self.inputs, tuple) else self.inputs[rows],
            labels=[self.labels[i] for i in indices],
            references=[self.references[i] for i in indices],
            ids=self.ids[rows],
            group=pick(self.group),
            domain=pick(self.domain),
            split=pick(self.split),
            time=pick(self.time),
        )


def rows_of_table(table: Table, options: DataOptions) -> Rows:
    """Return the rows of a table, by the columns that the options name; a row with an empty text is left out and noted.

    Raises:
        UserError: When neither or both of text and features, or no label, is named.
    """
    if options.label is None:
        raise UserError(f"label must name the column of classes; {table.path.name} has {_listed(table.columns)}.")
    labels, listed = table.label_lists(options.label, options.label_separator)
    modality, inputs = _inputs(table, options)
    rows = Rows(
        modality=modality,
        inputs=inputs,
        labels=labels,
        listed=listed,
        references=[table.reference(row) for row in range(len(table))],
        **_side_columns(table, options),
    )
    return _without_empty(rows) if modality == "text" else rows


def _side_columns(table: Table, options: DataOptions) -> dict[str, Any]:
    """Return ids, groups, domains, parts and times, by the columns that the options name."""
    columns: dict[str, Any] = {
        argument: None if column is None else table.names(column, argument)
        for argument, column in (("group", options.group), ("domain", options.domain), ("split", options.split))
    }
    columns["ids"] = np.array(table.numbers).astype(np.str_) if options.id is None else table.unique_names(options.id)
    columns["time"] = None if options.time is None else table.times(options.time)
    return columns


def _inputs(table: Table, options: DataOptions) -> tuple[Modality, Inputs]:
    if (options.text is None) == (not options.features):
        both = "both are" if options.features else "neither is"
        raise UserError(
            f"give either text (a column of texts) or features (numeric columns); {both} given. "
            f"{table.path.name} has {_listed(table.columns)}."
        )
    if options.text is not None:
        return "text", tuple(table.texts(options.text))
    features: Sequence[str] = options.features
    if ALL in features:
        used = set(options.columns().values())
        features = [name for name in table.columns if name not in used]
    if options.label in features:
        raise UserError(f"features must not contain the label column {options.label!r}.")
    return "table", table.features(features)


def _without_empty(rows: Rows) -> Rows:
    assert isinstance(rows.inputs, tuple)
    empty = [row for row, text in enumerate(rows.inputs) if not text.strip()]
    if not empty:
        return rows
    if len(empty) == len(rows):
        raise UserError(f"all {len(rows)} texts are empty; is text the right column?")
    shown = ", ".join(rows.references[row] for row in empty[:5]) + (", …" if len(empty) > 5 else "")
    note = f"Left out, because the text is empty: {len(empty):,} rows ({shown})."
    return replace(rows.take(np.setdiff1d(np.arange(len(rows)), empty)), notes=(*rows.notes, note))


def _listed(names: Mapping[str, Any]) -> str:
    return "the columns " + ", ".join(names) if names else "no columns"


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
    images = load_images([path for path, _, _ in files], size)
    ids = [path.relative_to(folder).as_posix() for path, _, _ in files]
    return Rows(
        modality="image",
        inputs=images,
        labels=[(name,) for _, name, _ in files],
        listed=False,
        references=ids,
        ids=np.array(ids, dtype=np.str_),
        split=np.array([subset for _, _, subset in files], dtype=np.str_) if by_part else None,
        notes=(_describe(images),),
    )


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
    side = {name: array for name, array in arrays.items() if array.ndim == 1 and len(array) == len(x)}
    table = Table(path, {name: array.tolist() for name, array in side.items()}, list(range(len(x))))
    labels, _ = table.label_lists(options.label or "y", options.label_separator)
    modality, inputs = _array_inputs(path, x, options.size)
    return Rows(
        modality=modality,
        inputs=inputs,
        labels=labels,
        listed=options.label_separator is not None,
        references=[table.reference(row) for row in range(len(x))],
        notes=(_describe(inputs),) if modality == "image" else (),
        **_side_columns(table, options),
    )


def _array_inputs(path: Path, x: NDArray[Any], size: int | None) -> tuple[Modality, NDArray[Any]]:
    if x.dtype == np.uint8 and x.ndim in (3, 4):
        images = x if x.ndim == 4 else x[..., None]
        if images.shape[3] not in (1, 3):
            raise BadFile(f"data {str(path)!r}: images must have 1 or 3 channels; x has shape {x.shape}.")
        return "image", images if size is None else resize_images(images, size)
    if x.ndim != 2 or x.dtype.kind not in "fiu":
        raise BadFile(
            f"data {str(path)!r}: x must be uint8 images [N, H, W] or [N, H, W, C], or numbers [N, D]; it is {x.dtype} "
            f"of shape {x.shape}."
        )
    infinite = np.argwhere(np.isinf(x))
    if len(infinite):
        row, column = infinite[0].tolist()
        raise BadFile(
            f"data {str(path)!r}: x[{row}, {column}] is {x[row, column]}, which is not a finite number. "
            "A missing value is NaN."
        )
    return "table", x.astype(np.float64)


def _describe(images: NDArray[np.uint8]) -> str:
    count, height, width, channels = images.shape
    return f"{count:,} images of {height}×{width} pixels, {'grey' if channels == 1 else 'colour'}."
