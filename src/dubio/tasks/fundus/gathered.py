"""Photographs made ready: pixels in rows, and beside them what is known of each."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from dubio.core.errors import BadFile, UserError
from dubio.core.lazy_rows import MappedRows
from dubio.core.types import IntArray, SourceCard, StrArray
from dubio.tasks.fundus.arrays import resized, side_columns
from dubio.tasks.fundus.cache import prepared
from dubio.tasks.fundus.cards import DEEPDRID, OWN
from dubio.tasks.fundus.findings import Finding
from dubio.tasks.fundus.hashes import file_hashes
from dubio.tasks.fundus.layouts import read_collection
from dubio.tasks.fundus.photographs import UNKNOWN, Collection, Photograph
from dubio.tasks.fundus.progress import on_screen
from dubio.tasks.fundus.worker import Outcome, digest_of
from dubio.tasks.pictures import read_arrays

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
        findings: The preprocessing report.
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
    findings: tuple[Finding, ...]
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
    hashes = file_hashes(files, verify=verify, progress=on_screen("Reading photographs"))
    by_hash = {said: path for path, said in reversed(hashes.items()) if isinstance(said, str)}
    if not by_hash:
        raise BadFile(f"data {str(collection.path)!r}: none of its {len(files):,} photographs can be opened.")
    cached = prepared(
        by_hash, size, verify=verify, processes=processes, progress=on_screen(f"Preparing photographs at {size} pixels")
    )
    sieve = _Sieve(lambda row: cached.digests[row].tobytes())
    for photograph in collection.photographs:
        said = hashes[photograph.path]
        if isinstance(said, OSError):
            sieve.findings.append(Finding("unreadable", photograph.id, said.strerror or str(said)))
        else:
            sieve.add(photograph, cached.outcomes[said])
    if not sieve.kept:
        raise BadFile(f"data {str(collection.path)!r}: none of its {len(files):,} photographs can be read.")
    images = MappedRows(cached.images, np.array(sieve.rows, dtype=np.int64), cached.digests)
    findings = (*collection.findings, *sieve.findings)
    return _gathered(collection.name, images, sieve.kept, findings, collection.card, collection.notes)


class _Sieve:
    """Takes photographs one by one; leaves out what cannot be used."""

    def __init__(self, content: Callable[[int], bytes]) -> None:
        self.kept: list[Photograph] = []
        self.rows: list[int] = []
        self.findings: list[Finding] = []
        self._content = content
        self._first: dict[bytes, str] = {}

    def add(self, photograph: Photograph, outcome: Outcome) -> None:
        if outcome.sort is not None:
            self.findings.append(Finding(outcome.sort, photograph.id, outcome.words))
        if outcome.sort == "unreadable":
            return
        # a photograph that is there twice, perhaps under two patients, must not be both learned and tested on
        first = self._first.setdefault(self._content(outcome.row), photograph.id)
        if first != photograph.id:
            self.findings.append(Finding("same photograph", photograph.id, f"the same as {first}"))
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
    return _gathered(name, images[rows], sieve.kept, tuple(sieve.findings), revised, notes)


def _gathered(
    name: str,
    images: NDArray[np.uint8] | MappedRows,
    kept: list[Photograph],
    findings: tuple[Finding, ...],
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
        findings=findings,
        card=card,
        notes=notes,
    )
