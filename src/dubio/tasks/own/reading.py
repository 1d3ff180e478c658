"""The user's rows before they are cut into splits, whatever file they came from.

The user's images: a folder for each class, or arrays in an npz file.

All images are brought to one square size (both sides stretched, bilinear). They are grey when every one of them is,
else colour (RGB; transparency is dropped). Which it was is noted.
"""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dubio.core.errors import BadFile, MissingExtra, UserError
from dubio.core.types import Inputs, IntArray, Modality, StrArray
from dubio.tasks.own import tables as columns
from dubio.tasks.own.tables import Labels, Table
from dubio.tasks.splitting import PART_ALIASES

ALL = "*"
"""Among features: every column that is not used for something else."""


@dataclass(frozen=True, eq=False)
class Rows:
    """What was read, row by row.

    Attributes:
        modality: What an input is.
        inputs: Texts, images or numbers.
        labels: The labels of each row.
        listed: Whether a row may carry any number of labels.
        places: How a message calls each row.
        ids: Unique names.
        group: What belongs together, or None.
        domain: Where a row comes from, or None.
        split: The part a row was given, or None.
        time: When a row happened, or None.
        notes: What a reader must know of the reading.
    """

    modality: Modality
    inputs: Inputs
    labels: list[Labels]
    listed: bool
    places: list[str]
    ids: StrArray
    group: StrArray | None = None
    domain: StrArray | None = None
    split: StrArray | None = None
    time: NDArray[np.float64] | None = None
    notes: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.places)

    def take(self, rows: IntArray) -> Rows:
        """These rows, in this order."""
        picked = rows.tolist()

        def cut(column: NDArray[Any] | None) -> Any:
            return None if column is None else column[rows]

        return replace(
            self,
            inputs=tuple(self.inputs[i] for i in picked) if isinstance(self.inputs, tuple) else self.inputs[rows],
            labels=[self.labels[i] for i in picked],
            places=[self.places[i] for i in picked],
            ids=self.ids[rows],
            group=cut(self.group),
            domain=cut(self.domain),
            split=cut(self.split),
            time=cut(self.time),
        )


@dataclass(frozen=True)
class Named:
    """Which column is what, as the user named them; None or empty where there is none."""

    text: str | None = None
    features: tuple[str, ...] = ()
    label: str | None = None
    label_separator: str | None = None
    id: str | None = None
    group: str | None = None
    time: str | None = None
    domain: str | None = None
    split: str | None = None

    def used(self) -> set[str]:
        """Every column that is not a feature and has a use."""
        given = (self.text, self.label, self.id, self.group, self.time, self.domain, self.split)
        return {name for name in given if name is not None}


def rows_of_table(table: Table, named: Named) -> Rows:
    """The rows of a table, by the columns the user named; a row with an empty text is left out and noted.

    Raises:
        UserError: When neither or both of text and features, or no label, is named.
    """
    if named.label is None:
        raise UserError(f"label must name the column of classes; {table.path.name} has {_listed(table.columns)}.")
    labels, listed = columns.label_lists(table, named.label, named.label_separator)
    modality, inputs = _inputs(table, named)
    rows = Rows(
        modality=modality,
        inputs=inputs,
        labels=labels,
        listed=listed,
        places=[table.place(row) for row in range(len(table))],
        **side_columns(table, named),
    )
    return _without_empty(rows) if modality == "text" else rows


def side_columns(table: Table, named: Named) -> dict[str, Any]:
    """Ids, groups, domains, parts and times, by the columns the user named."""
    found: dict[str, Any] = {
        argument: None if column is None else columns.names(table, column, argument)
        for argument, column in (("group", named.group), ("domain", named.domain), ("split", named.split))
    }
    found["ids"] = (
        np.array(table.numbers).astype(np.str_)
        if named.id is None
        else columns.unique_names(table, named.id)
    )
    found["time"] = None if named.time is None else columns.times(table, named.time)
    return found


def _inputs(table: Table, named: Named) -> tuple[Modality, Inputs]:
    if (named.text is None) == (not named.features):
        both = "both are" if named.features else "neither is"
        raise UserError(
            f"give either text (a column of texts) or features (numeric columns); {both} given. "
            f"{table.path.name} has {_listed(table.columns)}."
        )
    if named.text is not None:
        return "text", tuple(columns.texts(table, named.text))
    chosen: Sequence[str] = named.features
    if ALL in chosen:
        used = named.used()
        chosen = [name for name in table.columns if name not in used]
    twice = sorted({name for name in chosen if name == named.label})
    if twice:
        raise UserError(f"features must not contain the label column {twice[0]!r}.")
    return "table", columns.numbers(table, chosen)


def _without_empty(rows: Rows) -> Rows:
    assert isinstance(rows.inputs, tuple)
    empty = [row for row, text in enumerate(rows.inputs) if not text.strip()]
    if not empty:
        return rows
    if len(empty) == len(rows):
        raise UserError(f"all {len(rows)} texts are empty; is text the right column?")
    shown = ", ".join(rows.places[row] for row in empty[:5]) + (", …" if len(empty) > 5 else "")
    kept = rows.take(np.setdiff1d(np.arange(len(rows)), empty))
    return replace(kept, notes=(*rows.notes, f"Left out, because the text is empty: {len(empty):,} rows ({shown})."))


def _listed(names: Mapping[str, Any]) -> str:
    return "the columns " + ", ".join(names) if names else "no columns"


ENDINGS = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".tif", ".tiff", ".webp", ".pgm", ".ppm")
DAMAGED = (OSError, ValueError, EOFError, zipfile.BadZipFile, zlib.error, RuntimeError, AttributeError)
"""What reading a damaged npz file raises; a RuntimeError where it seems to be encrypted, or packed in another way."""

_SIXTEEN_BIT = ("I", "I;16", "I;16B", "I;16L")
_GREY = ("1", "L", "LA", *_SIXTEEN_BIT)


def rows_of_folder(folder: Path, *, size: int) -> Rows:
    """A folder of classes, ``folder/CLASS/*.png``, or of parts and classes, ``folder/train/CLASS/*.png``.

    Args:
        folder: Where the class folders are.
        size: Both sides of every image, in pixels.

    Raises:
        BadFile: When there are no class folders, no images, or an image cannot be read.
    """
    parts = _parts(folder)
    if parts is None:
        found = [(path, name, "") for name, paths in _classes(folder).items() for path in paths]
    else:
        found = [
            (path, name, part)
            for part, below in parts.items()
            for name, paths in _classes(below).items()
            for path in paths
        ]
    if not found:
        raise BadFile(f"data {str(folder)!r}: no images; expected one folder a class with {', '.join(ENDINGS)} files.")
    images, note = _load([path for path, _, _ in found], size)
    ids = [path.relative_to(folder).as_posix() for path, _, _ in found]
    return Rows(
        modality="image",
        inputs=images,
        labels=[(name,) for _, name, _ in found],
        listed=False,
        places=ids,
        ids=np.array(ids, dtype=np.str_),
        split=None if parts is None else np.array([part for _, _, part in found], dtype=np.str_),
        notes=(note,),
    )


def rows_of_npz(path: Path, named: Named, *, size: int | None) -> Rows:
    """Arrays of one length in an npz file: ``x`` (uint8 images or numeric rows), the label (``y``), and side columns.

    Args:
        path: The file.
        named: Which array is what; the label is ``y`` unless named.
        size: Both sides images are resized to; None leaves them as they are.

    Raises:
        BadFile: When it cannot be read or has no such arrays.
    """
    arrays = read_arrays(path)
    if "x" not in arrays:
        raise BadFile(f"data {str(path)!r} has no array 'x'; it has {', '.join(arrays) or 'none'}.")
    x = arrays.pop("x")
    side = {name: array for name, array in arrays.items() if array.ndim == 1 and len(array) == len(x)}
    table = Table(path, {name: array.tolist() for name, array in side.items()}, list(range(len(x))))
    labels, _ = columns.label_lists(table, named.label or "y", named.label_separator)
    rows = Rows(
        modality="table",
        inputs=x,
        labels=labels,
        listed=named.label_separator is not None,
        places=[table.place(row) for row in range(len(x))],
        **side_columns(table, named),
    )
    if x.dtype == np.uint8 and x.ndim in (3, 4):
        images = x if x.ndim == 4 else x[..., None]
        if images.shape[3] not in (1, 3):
            raise BadFile(f"data {str(path)!r}: images must have 1 or 3 channels; x has shape {x.shape}.")
        images = images if size is None else _resized(images, size)
        return replace(rows, modality="image", inputs=images, notes=(_note(images),))
    if x.ndim == 2 and x.dtype.kind in "fiu":
        infinite = np.argwhere(np.isinf(x))
        if len(infinite):
            row, column = infinite[0].tolist()
            raise BadFile(
                f"data {str(path)!r}: x[{row}, {column}] is {x[row, column]}, which is not a finite number. "
                "A missing value is NaN."
            )
        return replace(rows, inputs=x.astype(np.float64))
    raise BadFile(
        f"data {str(path)!r}: x must be uint8 images [N, H, W] or [N, H, W, C], or numbers [N, D]; it is {x.dtype} of "
        f"shape {x.shape}."
    )


def read_arrays(path: Path) -> dict[str, NDArray[Any]]:
    """Every array of an npz file, by its name.

    Raises:
        BadFile: When it cannot be read.
    """
    if not zipfile.is_zipfile(path):
        raise BadFile(f"data {str(path)!r} cannot be read as npz: it is no archive of arrays, or is cut off.")
    try:
        with np.load(path, allow_pickle=False) as archive:
            found = {name: archive[name] for name in archive.files}
    except DAMAGED as fault:
        raise BadFile(f"data {str(path)!r} cannot be read as npz: {fault}.") from fault
    for name, array in found.items():
        if not isinstance(array, np.ndarray):  # numpy gives a member that does not begin like an array as bytes
            raise BadFile(f"data {str(path)!r} cannot be read as npz: {name!r} is no array.")
    return found


def _parts(folder: Path) -> dict[str, Path] | None:
    """The folders of parts, where every folder is named like one."""
    below = _folders(folder)
    if below and all(path.name.lower() in PART_ALIASES for path in below):
        return {path.name: path for path in below}
    return None


def _classes(folder: Path) -> dict[str, list[Path]]:
    return {
        path.name: sorted(file for file in path.rglob("*") if file.suffix.lower() in ENDINGS)
        for path in _folders(folder)
    }


def _folders(folder: Path) -> list[Path]:
    return sorted(path for path in folder.iterdir() if path.is_dir() and not path.name.startswith("."))


def _load(paths: list[Path], size: int) -> tuple[NDArray[np.uint8], str]:
    if size < 1:
        raise UserError(f"size must be at least 1 pixel; given {size}.")
    try:
        from PIL import Image, ImageOps, UnidentifiedImageError
    except ModuleNotFoundError as missing:
        raise MissingExtra("images", "train") from missing
    loaded = []
    for path in paths:
        try:
            with Image.open(path) as image:
                grey = image.mode in _GREY
                upright = ImageOps.exif_transpose(image)
                plain = _eight_bit(upright) if grey else upright.convert("RGB")
                small = plain.resize((size, size), Image.Resampling.BILINEAR)
                loaded.append(np.asarray(small, dtype=np.uint8))
        except (OSError, UnidentifiedImageError, Image.DecompressionBombError) as fault:
            raise BadFile(f"image {str(path)!r} cannot be read: {fault}.") from fault
    channels = 3 if any(image.ndim == 3 for image in loaded) else 1
    images = np.stack([_with_channels(image, channels) for image in loaded])
    return images, _note(images)


def _eight_bit(image: Any) -> Any:
    """A grey image with 256 levels; 16-bit levels are divided, not cut off."""
    if image.mode not in _SIXTEEN_BIT:
        return image.convert("L")
    from PIL import Image

    values = np.asarray(image, dtype=np.float64) / 257  # 65535 becomes 255
    return Image.fromarray(np.clip(np.rint(values), 0, 255).astype(np.uint8))


def _with_channels(image: NDArray[np.uint8], channels: int) -> NDArray[np.uint8]:
    return image if image.ndim == 3 else np.repeat(image[..., None], channels, axis=2)


def _resized(images: NDArray[np.uint8], size: int) -> NDArray[np.uint8]:
    if images.shape[1:3] == (size, size):
        return images
    try:
        from PIL import Image
    except ModuleNotFoundError as missing:
        raise MissingExtra("resizing images", "train") from missing
    flat = images[..., 0] if images.shape[3] == 1 else images
    made = [np.asarray(Image.fromarray(image).resize((size, size), Image.Resampling.BILINEAR)) for image in flat]
    return np.stack(made).reshape(len(images), size, size, images.shape[3])


def _note(images: NDArray[np.uint8]) -> str:
    count, height, width, channels = images.shape
    return f"{count:,} images of {height}×{width} pixels, {'grey' if channels == 1 else 'colour'}."
