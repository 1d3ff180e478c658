"""Predictions in a store: one file a split, or, for an ensemble, only the list of its members.

A prediction's id does not name the splits it was made on, so that a task that gains a split keeps what it has: the
missing file is added and the record rewritten. A file the record does not name does not exist.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from dubio.core.errors import CorruptFile, StoreError, UserError
from dubio.core.predictions import Predictions, pool_members
from dubio.core.specs import hash_file, identity
from dubio.core.types import Split
from dubio.formats import read_predictions as read_file
from dubio.formats import write_predictions as write_file
from dubio.store.atomic import Scratch, storing
from dubio.store.layout import Layout, split_file
from dubio.store.records import RECORD, SPEC, pretty, read_record, read_spec, seal, verify_file

SplitKey = tuple[str, str]
"""Name and fingerprint of a split."""


class PredictionWriter:
    """Collects the files of one prediction in the scratch directory; leaving its block puts them in place together."""

    def __init__(self, layout: Layout, scratch: Scratch, spec: Mapping[str, Any], environment: Mapping[str, Any]):
        self._target = layout.directory("predictions", identity(spec))
        self._scratch, self._spec, self._environment = scratch, spec, dict(environment)
        self._fresh = scratch.new()
        self._files: dict[str, dict[str, Any]] = {}

    def __enter__(self) -> PredictionWriter:
        with storing(self._fresh):
            self._fresh.mkdir()
        return self

    def add(self, split: Split, predictions: Predictions, seconds: float) -> None:
        """Write the predictions on one split."""
        name = split_file(split.name, split.fingerprint)
        path = self._fresh / name
        with storing(self._target / name):
            write_file(path, predictions)
        self._files[name] = {
            "sha256": hash_file(path),
            "bytes": path.stat().st_size,
            "split": split.name,
            "fingerprint": split.fingerprint,
            "kind": split.kind,
            "examples": len(split),
            "seconds": seconds,
        }

    def __exit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if kind is None:
                self._commit()
        finally:
            shutil.rmtree(self._fresh, ignore_errors=True)

    def _commit(self) -> None:
        if not self._target.is_dir():
            with storing(self._target):
                (self._fresh / SPEC).write_bytes(pretty(self._spec))
                (self._fresh / RECORD).write_bytes(self._record({}))
            self._scratch.adopt_directory(self._fresh, self._target)
            return
        known = read_record(self._target)["files"]
        for name in self._files:
            self._scratch.adopt(self._fresh / name, self._target / name)
        self._scratch.write_file(self._target / RECORD, self._record(known))

    def _record(self, known: Mapping[str, Any]) -> bytes:
        files = {**known, **self._files}
        return seal({
            "files": files,
            "bytes": sum(int(facts["bytes"]) for facts in files.values()),
            "seconds": sum(float(facts["seconds"]) for facts in files.values()),
            "examples": sum(int(facts["examples"]) for facts in files.values()),
            "environment": self._environment,
        })


def write_ensemble(layout: Layout, scratch: Scratch, spec: Mapping[str, Any]) -> str:
    """Put an ensemble's list of members in its place; returns its id."""
    pred_id = identity(spec)
    scratch.write_directory(layout.directory("predictions", pred_id), {SPEC: pretty(spec)})
    return pred_id


def members_of(spec: Mapping[str, Any]) -> tuple[str, ...]:
    """The predictions an ensemble is made of; none for any other prediction."""
    return tuple(spec.get("members", ()))


def read_prediction(layout: Layout, pred_id: str, split: str, fingerprint: str) -> Predictions:
    """The predictions on one split, compared with their record; an ensemble's are pooled from its members' files.

    Raises:
        CorruptFile: When a file is not what was written.
        StoreError: When there is no such prediction, or none on that split.
    """
    directory = layout.directory("predictions", pred_id)
    if not directory.is_dir():
        raise StoreError(f"the store {str(layout.root)!r} has no prediction {pred_id}.")
    members = members_of(read_spec(directory))
    if members:
        return pool_members([read_prediction(layout, member, split, fingerprint) for member in members])
    name = split_file(split, fingerprint)
    facts = read_record(directory)["files"].get(name)
    if facts is None:
        raise StoreError(f"prediction {pred_id} was not made on split {split!r} with fingerprint {fingerprint}.")
    verify_file(directory, name, facts)
    try:
        return read_file(directory / name)
    except UserError as fault:
        raise CorruptFile(f"{directory / name}: {fault}") from fault


def missing_splits(layout: Layout, pred_id: str, splits: Sequence[SplitKey]) -> tuple[SplitKey, ...]:
    """Which of these splits this prediction was not yet made on; nothing is hashed.

    Raises:
        CorruptFile: When its specification or record is damaged.
    """
    directory = layout.directory("predictions", pred_id)
    if not directory.is_dir():
        return tuple(splits)
    if members_of(read_spec(directory)):
        return ()
    known = read_record(directory)["files"]
    return tuple(split for split in splits if split_file(*split) not in known)


def verify_prediction(layout: Layout, pred_id: str) -> None:
    """Compare every file of a prediction with its record.

    Raises:
        CorruptFile: When anything of it is not what was written.
    """
    directory = layout.directory("predictions", pred_id)
    if members_of(read_spec(directory)):
        return
    for name, facts in read_record(directory)["files"].items():
        verify_file(directory, name, facts)


def strays(directory: Path) -> list[Path]:
    """Files in a prediction's directory that its record does not name."""
    known = {SPEC, RECORD}
    if (directory / RECORD).exists():
        known |= set(read_record(directory)["files"])
    return [directory / name for name in sorted(os.listdir(directory)) if name not in known]
