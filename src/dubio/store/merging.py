"""Merge stores: copy the fits, predictions, runs and pictures of several stores into one.

Every file is compared with its sealed record while it is copied, and every entry is put in place at once: a merge that
was interrupted is repeated, and copies what is missing. What is there already stays. Where two stores hold different
bytes under one id, the first is kept and the other named. Checkpoints and records of failures are not copied: the next
run makes what is missing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from dubio.core.errors import CorruptFile, StoreError, UserError
from dubio.core.specs import ID
from dubio.store.fits import ENCODER, WEIGHTS
from dubio.store.locks import BusyError
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
from dubio.store.verification import Damage


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
        StoreError: When the target cannot be written, or a run is making one of its entries.
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
        for directory in sorted(source.layout.pictures.glob("*")):
            if ID.fullmatch(directory.name):
                target.write_pictures(directory.name, source.read_pictures(directory.name))
    rebuild_index(target)
    return merged


def _merge_entry(target: Store, source: Store, kind: EntryKind, identifier: str, merged: Merged) -> None:
    copy = _copy_fit if kind == "fits" else _copy_prediction
    if target.layout.directory(kind, identifier).is_dir():
        try:
            target.verify(kind, identifier)
        except CorruptFile:
            target.set_aside(kind, identifier)
    try:
        with target.lock(identifier):
            copied, differing = copy(target, source, identifier)
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


def _copy_fit(target: Store, source: Store, fit_id: str) -> tuple[bool, list[str]]:
    """Copy a fit unless it is there; return whether it was copied, and the files that differ from those there."""
    directory, destination = source.layout.directory("fits", fit_id), target.layout.directory("fits", fit_id)
    spec, record = read_spec(directory), read_record(directory)
    if target.has_fit(fit_id):
        return False, _differing(record, read_record(destination))
    with target.scratch.directory(destination) as fresh:
        for name in (WEIGHTS, ENCODER):
            if name not in record["files"]:
                raise CorruptFile(f"{directory / RECORD}: does not name {name}.")
            copy_verified(directory, name, record["files"][name], fresh)
        (fresh / SPEC).write_bytes(json_bytes(spec))
        (fresh / RECORD).write_bytes(seal(record))
    target.forget_failure(fit_id)
    target.checkpoint(fit_id).remove()
    return True, []


def _copy_prediction(target: Store, source: Store, pred_id: str) -> tuple[bool, list[str]]:
    """Copy the files of a prediction that are not there; return whether some were, and those that differ."""
    directory, destination = (
        source.layout.directory("predictions", pred_id),
        target.layout.directory("predictions", pred_id),
    )
    spec = read_spec(directory)
    if members_of(spec):
        there = destination.is_dir()
        target.write_ensemble(spec)
        return not there, []
    record = read_record(directory, StoredSplit)
    present = read_record(destination, StoredSplit) if destination.is_dir() else {"files": {}}
    missing = {name: facts for name, facts in record["files"].items() if name not in present["files"]}
    if missing or not destination.is_dir():
        with target.prediction_writer(spec, record.get("environment", {})) as writer:
            for name, facts in missing.items():
                writer.copy(directory, name, facts)
        target.forget_failure(pred_id)
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
    content = (source.layout.manifests / f"{name}.json").read_bytes()
    path = target.layout.manifests / f"{name}.json"
    there = path.exists()
    if not there:
        target.scratch.write_file(path, content)
    elif path.read_bytes() != content:
        merged.conflicts.append(f"run {name}: {_differs(source)}")
    (merged.present if there else merged.copied)["runs"] += 1
