"""What a store can do without, and whether what it holds is sound."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from dubio.core.errors import CorruptFile, StoreError
from dubio.core.specs import ID
from dubio.store.atomic import storing, sweep
from dubio.store.layout import Room
from dubio.store.locks import is_held
from dubio.store.predictions import members_of, strays
from dubio.store.runs import Store

ROOMS: tuple[Room, ...] = ("fits", "predictions")

Reason = Literal[
    "temporary", "corrupt", "checkpoint of no fit under way", "stray file", "failure mended", "unreferenced"
]


@dataclass(frozen=True)
class Litter:
    """Something that may be removed, and why."""

    path: Path
    reason: Reason
    bytes: int


@dataclass(frozen=True)
class Damage:
    """Something that is not what was written; of a benchmark run, the id is its name."""

    room: Room | Literal["runs"]
    id: str
    error: str


def verify(store: Store) -> tuple[Damage, ...]:
    """Compare every file of a store with its record; changes nothing."""
    found = []
    for room in ROOMS:
        for identifier in store.ids(room):
            try:
                store.verify(room, identifier)
            except CorruptFile as fault:
                found.append(Damage(room, identifier, str(fault)))
    return (*found, *damaged_manifests(store))


def damaged_manifests(store: Store) -> tuple[Damage, ...]:
    """The benchmark runs whose manifest cannot be read."""
    found = []
    for name in store.manifests():
        try:
            store.manifest(name)
        except CorruptFile as fault:
            found.append(Damage("runs", name, str(fault)))
    return tuple(found)


def litter(store: Store) -> tuple[Litter, ...]:
    """What is left of dead processes and mended damage: nothing in it is a result."""
    layout = store.layout
    found: list[tuple[Path, Reason]] = []
    for lock in _entries(layout.scratch, "*.lock"):
        if lock.with_suffix("").is_dir() and not is_held(lock):
            found.append((lock.with_suffix(""), "temporary"))
    found += [(path, "corrupt") for path in _entries(layout.corrupt)]
    for path in _entries(layout.checkpoints):
        known = bool(ID.fullmatch(path.name))
        if not known or store.has_fit(path.name):
            found.append((path, "checkpoint of no fit under way"))
    for path in _entries(layout.failures, "*.json"):
        if ID.fullmatch(path.stem) and store.has_fit(path.stem):
            found.append((path, "failure mended"))
    for directory in _entries(layout.room("predictions")):
        try:
            found += [(path, "stray file") for path in strays(directory)]
        except CorruptFile:
            continue  # `verify` speaks of it, and the next run makes it anew
    return tuple(Litter(path, reason, _size(path)) for path, reason in found)


def unreferenced(store: Store) -> tuple[Litter, ...]:
    """Fits, predictions, checkpoints and pictures that no manifest of a benchmark run needs."""
    kept = referenced(store, store.manifests())
    rows = [
        store.layout.directory(room, identifier)
        for room in ROOMS
        for identifier in store.ids(room)
        if identifier not in kept[room]
    ]
    rows += [path for path in _entries(store.layout.checkpoints) if not store.has_fit(path.name)]
    shown = pictured(store, store.manifests())
    rows += [path for path in _entries(store.layout.pictures) if path.name not in shown]
    return tuple(Litter(path, "unreferenced", _size(path)) for path in rows)


def referenced(store: Store, manifests: Iterable[str]) -> dict[Room, set[str]]:
    """The fits and predictions that these runs are made of, members of ensembles and tuning trials included."""
    fits: set[str] = set()
    predictions: set[str] = set()
    for name in manifests:
        manifest = store.manifest(name)
        for run in manifest["runs"]:
            predictions |= {run["id"], *members_of(run["spec"])}
            fits |= set(run["fits"])
        for tuned in manifest.get("tuning", ()):
            fits |= {trial["fit"] for trial in tuned["trials"]}
    for fit_id in sorted(fits):
        fits |= _parents(store, fit_id)
    return {"fits": fits, "predictions": predictions}


def pictured(store: Store, manifests: Iterable[str]) -> set[str]:
    """Fingerprints of the splits of these runs, under which pictures of their examples are kept."""
    found = (split["fingerprint"] for name in manifests for task in store.manifest(name)["tasks"]
             for split in task.get("splits", ()))  # fmt: skip
    return {fingerprint for fingerprint in found if ID.fullmatch(fingerprint)}


def remove(store: Store, rows: Iterable[Litter]) -> int:
    """Remove these; returns the bytes freed.

    Raises:
        StoreError: While a run is under way, which may be about to use what looks unneeded.
    """
    under_way = [path for path in _entries(store.layout.locks, "*.lock") if is_held(path)]
    if under_way:
        raise StoreError(f"a run is under way in {str(store.path)!r}; remove nothing until it has ended.")
    freed = 0
    for row in rows:
        with storing(row.path):
            if row.path.is_dir():
                grave = store.scratch.new()  # renamed away first: gone at once or not at all
                os.rename(row.path, grave)
                shutil.rmtree(grave)
            else:
                row.path.unlink(missing_ok=True)
        freed += row.bytes
    sweep(store.layout.scratch)
    for path in _entries(store.layout.locks, "*.lock"):
        path.unlink(missing_ok=True)
    return freed


def _parents(store: Store, fit_id: str) -> set[str]:
    """The fits a fit was started from, and theirs."""
    found: set[str] = set()
    while store.has_fit(fit_id) and (start := store.spec("fits", fit_id)["start"]) is not None:
        found.add(start)
        fit_id = start
    return found


def _entries(directory: Path, pattern: str = "*") -> list[Path]:
    return sorted(directory.glob(pattern)) if directory.is_dir() else []


def _size(path: Path) -> int:
    if path.is_dir():
        return sum(item.stat().st_size for item in path.rglob("*") if item.is_file())
    return path.stat().st_size if path.exists() else 0
