"""Merge stores: copy the fits, predictions, runs and examples of several stores into one.

Every file is compared with its sealed record while it is copied, and every entry is put in place at once: a merge that
was interrupted is repeated, and copies what is missing. What is there already stays. Where two stores hold different
bytes under one id, the first is kept and the other named. Checkpoints and records of failures are not copied: the next
run makes what is missing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from dubio.core.errors import CorruptFile, StoreError, UserError
from dubio.core.files import reading
from dubio.store.examples import example_files
from dubio.store.fits import read_fit_record
from dubio.store.locks import BusyError, storing
from dubio.store.maintenance import ENTRY_KINDS, rebuild_index
from dubio.store.predictions import members_of
from dubio.store.records import (
    RECORD,
    SPEC,
    EntryKind,
    StoredSplit,
    copy_verified,
    json_bytes,
    read_record,
    read_spec,
    seal,
)
from dubio.store.store import Store
from dubio.store.verification import Damage, Kind, check_example


@dataclass
class Merged:
    """The outcome of a merge.

    Attributes:
        copied: Kind of entry → number of entries that were copied, or completed by further files.
        present: The same of those that were there already.
        damaged: Entries of the merged stores that were left out.
        conflicts: Sentences about entries that differ between the stores.
    """

    copied: dict[str, int] = field(default_factory=lambda: {"fits": 0, "predictions": 0, "runs": 0})
    present: dict[str, int] = field(default_factory=lambda: {"fits": 0, "predictions": 0, "runs": 0})
    damaged: list[Damage] = field(default_factory=list)
    conflicts: list[str] = field(default_factory=list)


def merge(target: Store, sources: Sequence[Store]) -> Merged:
    """Copy everything that these stores hold and the target lacks, in their order, and rebuild its index.

    Raises:
        UserError: When a store is to be merged into itself.
        StoreError: When the target cannot be written, a store cannot be read, or a run is making one of its entries.
    """
    merged = Merged()
    for source in sources:
        if source.path.resolve() == target.path.resolve():
            raise UserError(f"the store {str(source.path)!r} cannot be merged into itself; name another --into.")
    for source in sources:
        for kind in ENTRY_KINDS:
            for identifier in source.ids(kind):
                _merge_entry(target, source, kind, identifier, merged)
        for name in source.manifests():
            _merge_manifest(target, source, name, merged)
        for path in example_files(source.layout):
            _merge_example(target, source, path, merged)
    rebuild_index(target)
    return merged


def _merge_entry(target: Store, source: Store, kind: EntryKind, identifier: str, merged: Merged) -> None:
    if target.layout.directory(kind, identifier).is_dir():
        try:
            target.verify(kind, identifier)
        except CorruptFile:
            target.set_aside(kind, identifier)
    try:
        with target.lock(identifier):
            copied, differing = _copy(target, source, kind, identifier)
    except CorruptFile as fault:
        merged.damaged.append(Damage(kind, identifier, str(fault)))
        return
    except BusyError as fault:
        store = str(target.path)
        raise StoreError(f"a run is making {identifier} in {store!r}; merge again when it has ended.") from fault
    (merged.copied if copied else merged.present)[kind] += 1
    merged.conflicts += [f"{kind[:-1]} {identifier}, {name}: {_differs(source)}" for name in differing]


def _differs(source: Store) -> str:
    return f"{str(source.path)!r} holds other bytes than the first store with it, whose are kept."


def _copy(target: Store, source: Store, kind: EntryKind, identifier: str) -> tuple[bool, list[str]]:
    """Copy the files of an entry that are not there; return whether some were copied, and those that differ."""
    directory, destination = (store.layout.directory(kind, identifier) for store in (source, target))
    spec, there = read_spec(directory), destination.is_dir()
    if kind == "predictions" and members_of(spec):
        target.write_ensemble(spec)
        return not there, []
    read = read_fit_record if kind == "fits" else partial(read_record, files=StoredSplit)
    record, present = read(directory), read(destination) if there else {"files": {}}
    missing = {name: facts for name, facts in record["files"].items() if name not in present["files"]}
    if missing or not there:
        with target.scratch.unplaced() as fresh, storing(destination):
            for name, facts in missing.items():
                copy_verified(directory, name, facts, fresh)
            (fresh / SPEC).write_bytes(json_bytes(spec))
            (fresh / RECORD).write_bytes(seal({**record, "files": missing}))
            target.place(fresh, kind, identifier)
    return bool(missing), _differing(record, present)


def _differing(record: Mapping[str, Any], present: Mapping[str, Any]) -> list[str]:
    """Return the files that two records name with different hashes."""
    theirs = present["files"]
    return [name for name, facts in record["files"].items() if theirs.get(name, facts)["sha256"] != facts["sha256"]]


def _merge_manifest(target: Store, source: Store, name: str, merged: Merged) -> None:
    try:
        source.manifest(name)
    except CorruptFile as fault:
        merged.damaged.append(Damage("runs", name, str(fault)))
        return
    content = _content(source.layout.manifests / f"{name}.json")
    path = target.layout.manifests / f"{name}.json"
    there = path.exists()
    if not there:
        target.scratch.write_file(path, content)
    elif _content(path) != content:
        merged.conflicts.append(f"run {name}: {_differs(source)}")
    (merged.present if there else merged.copied)["runs"] += 1


def _merge_example(target: Store, source: Store, path: Path, merged: Merged) -> None:
    copy = target.path / path.relative_to(source.path)
    if copy.exists():
        return
    try:
        check_example(path)
    except CorruptFile as fault:
        kind: Kind = "examples" if path.suffix == ".json" else "pictures"
        merged.damaged.append(Damage(kind, f"{path.parent.name}/{path.name}", str(fault)))
        return
    target.scratch.write_file(copy, _content(path))


def _content(path: Path) -> bytes:
    with reading(path, StoreError):
        return path.read_bytes()
