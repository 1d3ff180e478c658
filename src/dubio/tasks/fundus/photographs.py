"""Prepared photographs: pixels in rows, with the grade, patient, site and quality of each.

They come from files, which are cropped and cached, or from the arrays of an npz file, which are already cropped and are
only resized.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dubio.core.errors import BadFile, UserError
from dubio.core.lazy_rows import MappedRows
from dubio.core.types import IntArray, SourceCard, StrArray
from dubio.core.unpacking import check_unpacked
from dubio.tables import plain_name
from dubio.tasks.fundus.cache import Outcome, digest_of, file_hashes, prepare_files
from dubio.tasks.fundus.labels import UNKNOWN, Collection, Photograph, read_grade, read_quality
from dubio.tasks.fundus.layouts import OWN, read_collection
from dubio.tasks.images.files import Problem, progress_on_screen, read_arrays, resize_images
from dubio.tasks.sources.locate import source_card

SIZES = (64, 128, 256, 512)
"""Sides, in pixels, that photographs are prepared at."""

ARRAY_NAMES: dict[str, tuple[str, ...]] = {
    "grade": ("y", "grade"),
    "patient": ("patient",),
    "site": ("source", "site"),
    "quality": ("quality",),
    "subset": ("split", "part"),
    "id": ("id",),
}
"""Names that an array of an npz may have; the first that is present counts."""

_QUALITIES = np.array(["unknown", "bad", "good"])


@dataclass(frozen=True, eq=False)
class PhotographSet:
    """Photographs that are ready to be divided into splits.

    Attributes:
        name: The data set's name in reports.
        images: uint8 ``[N, size, size, 3]``.
        grade: 0 to 4 ``[N]``.
        quality: 1 good, 0 bad, −1 unknown ``[N]``.
        ids: Unique ``[N]``.
        patient: The patient ``[N]``.
        site: Hospital, project or camera; empty where unknown ``[N]``.
        subset: The part that the data set names; empty where it names none ``[N]``.
        problems: The preprocessing report.
        card: Source card.
        notes: Notes for the reader.
    """

    name: str
    images: NDArray[np.uint8] | MappedRows
    grade: IntArray
    quality: IntArray
    ids: StrArray
    patient: StrArray
    site: StrArray
    subset: StrArray
    problems: tuple[Problem, ...]
    card: SourceCard
    notes: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def facts(self) -> dict[str, StrArray]:
        """Site and quality in words, where the data names any."""
        sites, qualities = np.where(self.site == "", "unknown", self.site), _QUALITIES[self.quality - UNKNOWN]
        columns = {"site": sites, "quality": qualities}
        return {name: column for name, column in columns.items() if (column != "unknown").any()}


def read_photographs(path: Path, size: int, *, verify: bool = False, processes: int | None = None) -> PhotographSet:
    """Read a data set of photographs: a folder in a known layout, a table beside its images, or an npz of arrays.

    Args:
        path: The folder or file.
        size: Both sides of every photograph, in pixels.
        verify: Read all files again, whatever is cached, and check the cache.
        processes: Number of processes that prepare photographs; one per core if left out.

    Raises:
        BadFile: When it is none of these.
        UserError: For a size that is not offered.
    """
    if size not in SIZES:
        raise UserError(f"size must be one of {', '.join(map(str, SIZES))} pixels; given {size}.")
    if not path.exists():
        raise BadFile(f"data {str(path)!r}: no such file or folder.")
    if path.suffix.lower() == ".npz":
        return _from_arrays(path, size)
    return _from_files(read_collection(path), size, verify, processes)


def _from_files(collection: Collection, size: int, verify: bool, processes: int | None) -> PhotographSet:
    """Prepare a collection's photographs; those that cannot be read, and copies of others, are left out."""
    files = [photograph.path for photograph in collection.photographs]
    hashes = file_hashes(files, verify=verify, progress=progress_on_screen("Reading photographs"))
    by_hash = {digest: path for path, digest in reversed(hashes.items()) if isinstance(digest, str)}
    if not by_hash:
        raise BadFile(f"data {str(collection.path)!r}: none of its {len(files):,} photographs can be opened.")
    progress = progress_on_screen(f"Preparing photographs at {size} pixels")
    cached = prepare_files(by_hash, size, verify=verify, processes=processes, progress=progress)
    faults = {path: fault for path, fault in hashes.items() if isinstance(fault, OSError)}
    lost = {path: Outcome(-1, "", "unreadable", fault.strerror or str(fault)) for path, fault in faults.items()}
    outcomes = [lost.get(path) or cached.outcomes[str(hashes[path])] for path in files]
    photographs, rows, problems = _select(collection.photographs, outcomes)
    if not photographs:
        raise BadFile(f"data {str(collection.path)!r}: none of its {len(files):,} photographs can be read.")
    problems = [*collection.problems, *problems]
    usable = replace(collection, photographs=tuple(photographs), problems=tuple(problems))
    return _photograph_set(usable, MappedRows(cached.images, rows, cached.digests))


def _select(
    photographs: Sequence[Photograph], outcomes: Sequence[Outcome]
) -> tuple[list[Photograph], IntArray, list[Problem]]:
    """Return the photographs that can be used, their rows, and the problems with them and with the others."""
    usable: list[Photograph] = []
    rows: list[int] = []
    problems: list[Problem] = []
    first: dict[str, str] = {}
    for photograph, outcome in zip(photographs, outcomes, strict=True):
        if outcome.sort is not None:
            problems.append(Problem(outcome.sort, photograph.id, outcome.words))
        if outcome.sort == "unreadable":
            continue
        # a photograph that occurs twice, perhaps under two patients, must not be both learned from and tested on
        original = first.setdefault(outcome.digest, photograph.id)
        if original != photograph.id:
            problems.append(Problem("same photograph", photograph.id, f"the same as {original}"))
            continue
        usable.append(photograph)
        rows.append(outcome.row)
    return usable, np.array(rows, dtype=np.int64), problems


def _photograph_set(collection: Collection, images: NDArray[np.uint8] | MappedRows) -> PhotographSet:
    """Return the photographs of a collection as columns, with their images in the same order."""
    types = {"grade": np.int64, "quality": np.int64} | dict.fromkeys(("id", "patient", "site", "subset"), np.str_)
    columns: dict[str, Any] = {
        field: np.array([getattr(photograph, field) for photograph in collection.photographs], dtype=kind)
        for field, kind in types.items()
    }
    facts: dict[str, Any] = {name: getattr(collection, name) for name in ("name", "problems", "card", "notes")}
    return PhotographSet(images=images, ids=columns.pop("id"), **columns, **facts)


def _from_arrays(path: Path, size: int) -> PhotographSet:
    """Read the arrays ``x`` and ``y``, and where present ``patient``, ``source``, ``quality``, ``split`` and ``id``."""
    arrays = read_arrays(path)
    images = _resized(path, arrays, size)
    photographs, without_patients = _side_columns(path, arrays, len(images))
    usable, rows, problems = _select(photographs, [Outcome(row, digest_of(image)) for row, image in enumerate(images)])
    is_deepdrid = path.stem.lower().startswith("deepdrid")
    name, card = ("deepdrid", source_card("deepdrid")) if is_deepdrid else (path.stem, OWN)
    card = replace(card, revision=f"{path.name}, {len(usable):,} photographs")
    notes = (f"{path.name} names no patients: every photograph counts as a patient.",) if without_patients else ()
    return _photograph_set(Collection(name, path, tuple(usable), tuple(problems), card, notes), images[rows])


def _resized(path: Path, arrays: Mapping[str, NDArray[Any]], size: int) -> NDArray[np.uint8]:
    """Return the array ``x`` as uint8 ``[N, size, size, 3]``.

    Raises:
        BadFile: When it is missing or holds no images.
        UserError: When it is smaller than the requested size.
    """
    x = arrays.get("x")
    if x is None or x.dtype != np.uint8 or x.ndim not in (3, 4) or (x.ndim == 4 and x.shape[3] not in (1, 3)):
        description = "none" if x is None else f"{x.dtype} of shape {x.shape}"
        raise BadFile(f"data {str(path)!r}: x must be uint8 images [N, H, W] or [N, H, W, 3]; given {description}.")
    if min(x.shape[1:3]) < size:
        sides = f"{x.shape[1]}×{x.shape[2]} pixels"
        fitting = ", ".join(str(side) for side in SIZES if side <= min(x.shape[1:3])) or "none"
        raise UserError(
            f"size {size} is larger than the images of {path.name}, {sides}, and none is enlarged. They allow these "
            f"sizes: {fitting}. For others, name the original photographs with data."
        )
    check_unpacked(path, 3 * x.size)
    colour = np.repeat(x.reshape(*x.shape[:3], 1), 3, axis=3) if x.ndim == 3 or x.shape[3] == 1 else x
    return resize_images(path, colour, size)


def _side_columns(path: Path, arrays: Mapping[str, NDArray[Any]], count: int) -> tuple[list[Photograph], bool]:
    """Return each row as a photograph, and whether the arrays name no patients.

    Raises:
        BadFile: When there are no grades, an array has another length, a grade is invalid, or an id occurs twice.
    """
    columns: dict[str, list[str]] = {}
    for field, names in ARRAY_NAMES.items():
        array = next((arrays[name] for name in names if name in arrays), None)
        if array is not None and array.shape != (count,):
            raise BadFile(f"data {str(path)!r}: the array for {field} has shape {array.shape}; x has {count} rows.")
        columns[field] = [""] * count if array is None else [plain_name(value) for value in array.tolist()]
    photographs = []
    for row in range(count):
        values = {field: column[row] for field, column in columns.items()}
        grade = read_grade(values["grade"])
        if grade is None:
            raise BadFile(f"data {str(path)!r}: row {row} has the grade {values['grade']!r}; grades are 0, 1, 2, 3, 4.")
        name = values["id"] or str(row)
        quality = read_quality(values["quality"], f"row {row} of {path.name}")
        patient = values["patient"] or name
        photographs.append(Photograph(name, path, grade, patient, values["site"], quality, values["subset"]))
    repeated = [name for name, times in Counter(item.id for item in photographs).items() if times > 1]
    if repeated:
        raise BadFile(f"data {str(path)!r}: the id {repeated[0]!r} occurs more than once.")
    return photographs, not any(columns["patient"])
