"""Predictions in a store: one file per split, or, for an ensemble, only the list of its members.

A prediction's id does not name the splits it was made on: when a task gains a split, the missing file is added and the
record rewritten. A file that the record does not name is ignored.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from types import MappingProxyType
from typing import Any

from dubio.core.errors import CorruptFile, StoreError, UserError
from dubio.core.predictions import Predictions, pool_members
from dubio.core.specs import ID, identity
from dubio.core.types import Split
from dubio.formats.predictions import read_verified, write_predictions
from dubio.store.locks import ScratchDirectory, storing
from dubio.store.records import (
    RECORD,
    SPEC,
    Layout,
    StoredSplit,
    file_facts,
    json_bytes,
    read_record,
    read_spec,
    seal,
    split_file,
    verify_file,
)

SplitKey = tuple[str, str]
"""Name and fingerprint of a split."""

RECORDS_IN_MEMORY = 256
"""Checked records that are kept: those of a method's members and of the run they are compared with, and more."""


class PredictionWriter:
    """Collects the files of one prediction in a scratch directory."""

    def __init__(self, fresh: Path, target: Path) -> None:
        self._fresh, self._target = fresh, target
        self.files: dict[str, dict[str, Any]] = {}

    def add(self, split: Split, predictions: Predictions, seconds: float) -> None:
        """Write the predictions on one split."""
        name = split_file(split.name, split.fingerprint)
        with storing(self._target / name):
            write_predictions(self._fresh / name, predictions)
            written = file_facts(self._fresh / name)
        facts = {"split": split.name, "fingerprint": split.fingerprint, "kind": split.kind, "examples": len(split)}
        self.files[name] = {**written, **facts, "seconds": seconds}


@contextmanager
def write_prediction(
    layout: Layout, scratch: ScratchDirectory, spec: Mapping[str, Any], environment: Mapping[str, Any]
) -> Iterator[PredictionWriter]:
    """Yield a writer of one prediction; the end of the block stores its files together, an error none of them."""
    target = layout.directory("predictions", identity(spec))
    with scratch.unplaced() as fresh:
        writer = PredictionWriter(fresh, target)
        yield writer
        with storing(target):
            (fresh / SPEC).write_bytes(json_bytes(spec))
        place_prediction(scratch, fresh, target, writer.files, environment)


def place_prediction(
    scratch: ScratchDirectory, fresh: Path, target: Path, files: Mapping[str, Any], environment: Mapping[str, Any]
) -> None:
    """Put the files and the specification of a prediction in place; files join those of one that is there.

    Args:
        scratch: The scratch directory that holds the fresh one.
        fresh: Holds the files and the specification.
        target: The prediction's directory.
        files: The entries of the files in its record.
        environment: Where it was made.
    """
    if target.is_dir():
        stored = files_of(target)
        for name in files:
            scratch.adopt(fresh / name, target / name)
        scratch.write_file(target / RECORD, _record({**stored, **files}, environment))
    else:
        with storing(target):
            (fresh / RECORD).write_bytes(_record(files, environment))
        scratch.adopt_directory(fresh, target)


def _record(files: Mapping[str, Any], environment: Mapping[str, Any]) -> bytes:
    totals = {key: sum(facts[key] for facts in files.values()) for key in ("bytes", "seconds", "examples")}
    return seal({"files": files, **totals, "environment": dict(environment)})


def write_ensemble(layout: Layout, scratch: ScratchDirectory, spec: Mapping[str, Any]) -> str:
    """Store an ensemble's list of members; return its id."""
    pred_id = identity(spec)
    with scratch.directory(layout.directory("predictions", pred_id)) as fresh:
        (fresh / SPEC).write_bytes(json_bytes(spec))
    return pred_id


def members_of(spec: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the predictions that an ensemble consists of; none for any other prediction.

    Raises:
        CorruptFile: When they are no list of ids.
    """
    members = spec.get("members", ())
    if not isinstance(members, list | tuple) or not all(isinstance(m, str) and ID.fullmatch(m) for m in members):
        raise CorruptFile("the members of an ensemble must be a list of ids.")
    return tuple(members)


def files_of(directory: Path) -> Mapping[str, Mapping[str, Any]]:
    """Return the files of a prediction as its record names them.

    Raises:
        CorruptFile: When its record is missing, damaged or has been altered.
    """
    try:
        facts = (directory / RECORD).stat()
    except OSError:
        return _checked_files(directory)  # which says what is wrong with it
    return _files_as_of(directory, facts.st_ino, facts.st_size, facts.st_mtime_ns)


@lru_cache(maxsize=RECORDS_IN_MEMORY)
def _files_as_of(directory: Path, inode: int, size: int, changed: int) -> Mapping[str, Mapping[str, Any]]:
    """Return the same of a record's present version: a report reads every split, and would check all each time."""
    return _checked_files(directory)


def _checked_files(directory: Path) -> Mapping[str, Mapping[str, Any]]:
    files: dict[str, dict[str, Any]] = read_record(directory, StoredSplit)["files"]
    return MappingProxyType(files)


def read_prediction(layout: Layout, pred_id: str, split: str, fingerprint: str) -> Predictions:
    """Return the verified predictions on one split; an ensemble's are pooled from its members' files.

    Raises:
        CorruptFile: When a file is not what was written.
        StoreError: When there is no such prediction, or none on that split.
    """
    directory = layout.directory("predictions", pred_id)
    if not directory.is_dir():
        raise StoreError(f"the store {str(layout.root)!r} has no prediction {pred_id}.")
    members = members_of(read_spec(directory))
    if members:
        return pool_members([_read_files(layout, member, split, fingerprint) for member in members])
    return _read_files(layout, pred_id, split, fingerprint)


def _read_files(layout: Layout, pred_id: str, split: str, fingerprint: str) -> Predictions:
    directory = layout.directory("predictions", pred_id)
    if not directory.is_dir():
        raise StoreError(f"the store {str(layout.root)!r} has no prediction {pred_id}.")
    name = split_file(split, fingerprint)
    facts = files_of(directory).get(name)
    if facts is None:
        raise StoreError(f"prediction {pred_id} was not made on split {split!r} with fingerprint {fingerprint}.")
    verify_file(directory, name, facts)
    try:
        return read_verified(directory / name)
    except UserError as fault:
        if isinstance(fault.__cause__, OSError):  # the disk, not the file: nothing is to be made again
            raise StoreError(str(fault)) from fault.__cause__
        raise CorruptFile(f"{directory / name}: {fault}") from fault


def missing_splits(layout: Layout, pred_id: str, splits: Sequence[SplitKey]) -> tuple[SplitKey, ...]:
    """Return those of these splits for which this prediction has no file; nothing is hashed.

    Raises:
        CorruptFile: When its specification or record is damaged.
    """
    directory = layout.directory("predictions", pred_id)
    if not directory.is_dir():
        return tuple(splits)
    if members_of(read_spec(directory)):
        return ()
    stored = files_of(directory)
    return tuple(split for split in splits if split_file(*split) not in stored)


def verify_prediction(layout: Layout, pred_id: str) -> None:
    """Compare every file of a prediction with its record.

    Raises:
        CorruptFile: When any of them is not what was written.
    """
    directory = layout.directory("predictions", pred_id)
    if members_of(read_spec(directory)):
        return
    for name, facts in files_of(directory).items():
        verify_file(directory, name, facts)


def stray_files(directory: Path) -> list[Path]:
    """Return the files in a prediction's directory that its record does not name."""
    expected = {SPEC, RECORD}
    if (directory / RECORD).exists():
        expected |= set(files_of(directory))
    return [directory / name for name in sorted(os.listdir(directory)) if name not in expected]
