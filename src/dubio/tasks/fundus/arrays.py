"""Photographs that come as arrays in an npz file: already cut out, only resized."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dubio.core.errors import BadFile, UserError
from dubio.tasks.columns import plain_name
from dubio.tasks.fundus.opening import pillow
from dubio.tasks.fundus.photographs import Photograph, read_grade, read_quality

Arrays = Mapping[str, NDArray[Any]]

NAMES: dict[str, tuple[str, ...]] = {
    "grade": ("y", "grade"),
    "patient": ("patient",),
    "site": ("source", "site"),
    "quality": ("quality",),
    "part": ("split", "part"),
    "id": ("id",),
}
"""What an array may be called; the first that is there counts."""


def resized(path: Path, arrays: Arrays, size: int) -> NDArray[np.uint8]:
    """The array ``x`` as uint8 ``[N, size, size, 3]``.

    Raises:
        BadFile: When it is missing or holds no images.
        UserError: When it is smaller than the size asked for.
    """
    x = arrays.get("x")
    if x is None or x.dtype != np.uint8 or x.ndim not in (3, 4) or (x.ndim == 4 and x.shape[3] not in (1, 3)):
        found = "none" if x is None else f"{x.dtype} of shape {x.shape}"
        raise BadFile(f"data {str(path)!r}: x must be uint8 images [N, H, W] or [N, H, W, 3]; there is {found}.")
    if min(x.shape[1:3]) < size:
        raise UserError(f"size {size} is larger than the images of {path.name}, {x.shape[1]}×{x.shape[2]} pixels.")
    colour = np.repeat(x.reshape(*x.shape[:3], 1), 3, axis=3) if x.ndim == 3 or x.shape[3] == 1 else x
    if colour.shape[1:3] == (size, size):
        return colour
    image = pillow()
    small = [image.fromarray(row).resize((size, size), image.Resampling.BILINEAR) for row in colour]
    return np.stack([np.asarray(row, dtype=np.uint8) for row in small])


def side_columns(path: Path, arrays: Arrays, count: int) -> tuple[list[Photograph], bool]:
    """What the other arrays say of each row, and whether they name no patients.

    Raises:
        BadFile: When there are no grades, an array has another length, a grade is none, or an id occurs twice.
    """
    columns: dict[str, list[str]] = {}
    for field, names in NAMES.items():
        found = next((arrays[name] for name in names if name in arrays), None)
        if found is not None and found.shape != (count,):
            raise BadFile(f"data {str(path)!r}: the array for {field} has shape {found.shape}; x has {count} rows.")
        columns[field] = [""] * count if found is None else [plain_name(value) for value in found.tolist()]
    made = []
    for row in range(count):
        said = {field: values[row] for field, values in columns.items()}
        grade = read_grade(said["grade"])
        if grade is None:
            raise BadFile(f"data {str(path)!r}: row {row} has the grade {said['grade']!r}; a grade is 0, 1, 2, 3 or 4.")
        name = said["id"] or str(row)
        quality = read_quality(said["quality"], f"row {row} of {path.name}")
        made.append(Photograph(name, path, grade, said["patient"] or name, said["site"], quality, said["part"]))
    twice = [name for name, times in Counter(item.id for item in made).items() if times > 1]
    if twice:
        raise BadFile(f"data {str(path)!r}: the id {twice[0]!r} occurs more than once.")
    return made, not any(columns["patient"])
