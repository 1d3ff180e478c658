"""Photographs that come as arrays in an npz file: already cut out, only resized.

Photographs made ready: pixels in rows, and beside them what is known of each.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dubio.core.errors import BadFile, UserError
from dubio.core.lazy_rows import MappedRows
from dubio.core.types import IntArray, SourceCard, StrArray
from dubio.tasks.fundus.cache import file_hashes, prepared
from dubio.tasks.fundus.labels import UNKNOWN, Collection, Photograph, read_grade, read_quality
from dubio.tasks.fundus.layouts import DEEPDRID, OWN, read_collection
from dubio.tasks.fundus.pool import Outcome, digest_of
from dubio.tasks.images.files import pillow
from dubio.tasks.images.problems import Problem, progress_on_screen
from dubio.tasks.own.reading import read_arrays
from dubio.tasks.own.tables import plain_name

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


SIZES = (64, 128, 256, 512)
"""Pixels a side that photographs are prepared at."""


@dataclass(frozen=True, eq=False)
class Gathered:
    """Photographs ready to be cut into splits.

    Attributes:
        name: The data set, as reports call it.
        images: uint8 ``[N, size, size, 3]``.
        grade: 0 to 4 ``[N]``.
        quality: 1 good, 0 bad, −1 unknown ``[N]``.
        ids: Unique ``[N]``.
        patient: Whose eye ``[N]``.
        site: Hospital, project or camera; empty where unknown ``[N]``.
        part: The part the data set puts it in; empty where it does not ``[N]``.
        problems: The preprocessing report.
        card: Source card.
        notes: What a reader must know of the data set.
    """

    name: str
    images: NDArray[np.uint8] | MappedRows
    grade: IntArray
    quality: IntArray
    ids: StrArray
    patient: StrArray
    site: StrArray
    part: StrArray
    problems: tuple[Problem, ...]
    card: SourceCard
    notes: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def facts(self) -> dict[str, StrArray]:
        """Site and quality in words, where the data names any."""
        judged = np.array(["unknown", "bad", "good"])[self.quality - UNKNOWN]
        named = {"site": np.where(self.site == "", "unknown", self.site), "quality": judged}
        return {name: column for name, column in named.items() if (column != "unknown").any()}


def gather(path: Path, size: int, *, verify: bool = False, processes: int | None = None) -> Gathered:
    """Read a data set of photographs: a folder in a known layout, a table beside its images, or an npz of arrays.

    Args:
        path: The folder or file.
        size: Both sides of every photograph, in pixels.
        verify: Read all files again, whatever is remembered of them, and check the cache.
        processes: How many prepare photographs side by side; one a core if left out.

    Raises:
        BadFile: When it is none of these.
        UserError: For a size that is not offered.
    """
    if size not in SIZES:
        raise UserError(f"size must be one of {', '.join(map(str, SIZES))} pixels; given {size}.")
    if not path.exists():
        raise BadFile(f"data {str(path)!r}: no such file or folder.")
    if path.suffix.lower() == ".npz":
        return _of_arrays(path, size)
    return _of_files(read_collection(path), size, verify, processes)


def _of_files(collection: Collection, size: int, verify: bool, processes: int | None) -> Gathered:
    """Prepare a collection's photographs; those that cannot be read, and copies of others, are left out."""
    files = [photograph.path for photograph in collection.photographs]
    hashes = file_hashes(files, verify=verify, progress=progress_on_screen("Reading photographs"))
    by_hash = {said: path for path, said in reversed(hashes.items()) if isinstance(said, str)}
    if not by_hash:
        raise BadFile(f"data {str(collection.path)!r}: none of its {len(files):,} photographs can be opened.")
    progress = progress_on_screen(f"Preparing photographs at {size} pixels")
    cached = prepared(by_hash, size, verify=verify, processes=processes, progress=progress)
    sieve = _Sieve(lambda row: cached.digests[row].tobytes())
    for photograph in collection.photographs:
        said = hashes[photograph.path]
        if isinstance(said, OSError):
            sieve.problems.append(Problem("unreadable", photograph.id, said.strerror or str(said)))
        else:
            sieve.add(photograph, cached.outcomes[said])
    if not sieve.kept:
        raise BadFile(f"data {str(collection.path)!r}: none of its {len(files):,} photographs can be read.")
    images = MappedRows(cached.images, np.array(sieve.rows, dtype=np.int64), cached.digests)
    problems = (*collection.problems, *sieve.problems)
    return _gathered(collection.name, images, sieve.kept, problems, collection.card, collection.notes)


class _Sieve:
    """Takes photographs one by one; leaves out what cannot be used."""

    def __init__(self, content: Callable[[int], bytes]) -> None:
        self.kept: list[Photograph] = []
        self.rows: list[int] = []
        self.problems: list[Problem] = []
        self._content = content
        self._first: dict[bytes, str] = {}

    def add(self, photograph: Photograph, outcome: Outcome) -> None:
        if outcome.sort is not None:
            self.problems.append(Problem(outcome.sort, photograph.id, outcome.words))
        if outcome.sort == "unreadable":
            return
        # a photograph that is there twice, perhaps under two patients, must not be both learned and tested on
        first = self._first.setdefault(self._content(outcome.row), photograph.id)
        if first != photograph.id:
            self.problems.append(Problem("same photograph", photograph.id, f"the same as {first}"))
            return
        self.kept.append(photograph)
        self.rows.append(outcome.row)


def _of_arrays(path: Path, size: int) -> Gathered:
    """Arrays ``x`` and ``y`` with, where known, ``patient``, ``source``, ``quality``, ``split`` and ``id``."""
    arrays = read_arrays(path)
    images = resized(path, arrays, size)
    columns, lone = side_columns(path, arrays, len(images))
    sieve = _Sieve(lambda row: bytes.fromhex(digest_of(images[row])))
    for row, photograph in enumerate(columns):
        sieve.add(photograph, Outcome(row, ""))
    known = path.stem.lower().startswith("deepdrid")
    card = DEEPDRID if known else OWN
    revised = SourceCard(
        card.source, f"{path.name}, {len(sieve.kept):,} photographs", card.licence, card.citation, card.description
    )
    notes = (f"{path.name} names no patients: every photograph counts as a patient.",) if lone else ()
    name = "deepdrid" if known else path.stem
    rows = np.array(sieve.rows, dtype=np.int64)
    return _gathered(name, images[rows], sieve.kept, tuple(sieve.problems), revised, notes)


def _gathered(
    name: str,
    images: NDArray[np.uint8] | MappedRows,
    kept: list[Photograph],
    problems: tuple[Problem, ...],
    card: SourceCard,
    notes: tuple[str, ...],
) -> Gathered:
    def texts(field: str) -> StrArray:
        return np.array([getattr(item, field) for item in kept], dtype=np.str_)

    return Gathered(
        name=name,
        images=images,
        grade=np.array([item.grade for item in kept], dtype=np.int64),
        quality=np.array([item.quality for item in kept], dtype=np.int64),
        ids=texts("id"),
        patient=texts("patient"),
        site=texts("site"),
        part=texts("part"),
        problems=problems,
        card=card,
        notes=notes,
    )
