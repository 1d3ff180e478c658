"""Maintenance of a store: list and index it, find and remove what nothing needs, export runs.

An export is a directory that is itself a store, or an archive of one. Only regular files go in, under relative names
built from ids and checked names, so that no archive of ours can write outside the directory it is unpacked in. Times
and owners are left out: the same runs give the same archive.
"""

from __future__ import annotations

import io
import os
import shutil
import sqlite3
import tarfile
import zipfile
from collections.abc import Iterable, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO, Literal

from dubio.core.errors import CorruptFile, StoreError, UserError
from dubio.core.files import atomic_directory, make_directories, open_atomic
from dubio.core.specs import ID, canonical
from dubio.store.examples import example_files
from dubio.store.fits import WEIGHTS
from dubio.store.locks import BusyError, abandoned, is_held, storing
from dubio.store.predictions import files_of, members_of, stray_files
from dubio.store.records import EntryKind, read_record, with_defaults
from dubio.store.store import Store

ENTRY_KINDS: tuple[EntryKind, ...] = ("fits", "predictions")

Reason = Literal["temporary", "corrupt", "stale checkpoint", "stray file", "resolved failure", "unreferenced"]

EPOCH = (1980, 1, 1, 0, 0, 0)
"""The earliest time a zip archive can hold."""


@dataclass(frozen=True)
class Litter:
    """A file or directory that may be removed, and the reason."""

    path: Path
    reason: Reason
    bytes: int


# --- listing --------------------------------------------------------------------------------------------------------


def overview(store: Store) -> dict[str, Any]:
    """Return the readable runs of a store with tasks and methods, and its number of fits, predictions and bytes."""
    manifests: dict[str, dict[str, Any]] = {}
    for name in store.manifests():
        with suppress(CorruptFile, StoreError):
            manifests[name] = with_defaults(store.manifest(name))
    runs = [
        {
            "run": name,
            "tasks": [task["name"] for task in manifest["tasks"]],
            "methods": [method["name"] for method in manifest["methods"]],
            "runs": len(manifest["runs"]),
            "failures": len(manifest.get("failures", ())),
        }
        for name, manifest in manifests.items()
    ]
    return {"runs": runs, **{kind: len(store.ids(kind)) for kind in ENTRY_KINDS}, "bytes": _size(store.path)}


# --- the index ------------------------------------------------------------------------------------------------------
# The content of the store as a small SQLite file, derived from its directories. It can be deleted without loss. It
# holds no timings and no paths, is written in one order, and has the SHA-256 of every weights and predictions file: two
# stores with the same index hold the same results, bit for bit.

TABLES = """
CREATE TABLE fits (
  id TEXT PRIMARY KEY, task TEXT, network TEXT, seed INTEGER, member INTEGER, start TEXT, weights TEXT, spec TEXT
) WITHOUT ROWID;
CREATE TABLE predictions (id TEXT PRIMARY KEY, fit TEXT, spec TEXT) WITHOUT ROWID;
CREATE TABLE files (
  prediction TEXT, split TEXT, fingerprint TEXT, sha256 TEXT, PRIMARY KEY (prediction, split, fingerprint)
) WITHOUT ROWID;
CREATE TABLE members (
  prediction TEXT, position INTEGER, member TEXT, PRIMARY KEY (prediction, position)
) WITHOUT ROWID;
CREATE TABLE runs (
  manifest TEXT, task TEXT, network TEXT, method TEXT, seed INTEGER, member INTEGER, prediction TEXT
);
"""


def rebuild_index(store: Store) -> tuple[str, ...]:
    """Write the index from the content of the store.

    Returns:
        Messages about damaged files, which are not in it.

    Raises:
        StoreError: When it cannot be written.
    """
    fresh = store.scratch.new()
    with storing(store.layout.index):
        try:
            with closing(sqlite3.connect(fresh)) as base, base:
                # Written aside and flushed once when it is put in place: a journal would only cost time.
                base.executescript("PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF;")
                base.executescript(TABLES)
                damages = fill_index(base, store)
        except sqlite3.DatabaseError as fault:  # a full disk, most often: SQLite has errors of its own for it
            raise StoreError(f"cannot write {str(store.layout.index)!r}: {fault}.") from fault
        store.scratch.adopt(fresh, store.layout.index)
    return damages


def fill_index(base: sqlite3.Connection, store: Store) -> tuple[str, ...]:
    """Write the content of the store into empty tables; return messages about damaged files, which are left out.

    Raises:
        StoreError: When the store cannot be read.
    """
    tables = (
        (_insert_fit, store.ids("fits")),
        (_insert_prediction, store.ids("predictions")),
        (_insert_runs, store.manifests()),
    )
    damages = []
    for insert, names in tables:
        for name in names:
            try:
                insert(base, store, name)
            except CorruptFile as fault:
                damages.append(str(fault))
            except StoreError:  # the disk cannot be read: no reason to leave anything out
                raise
            except (LookupError, TypeError, ValueError, OverflowError, sqlite3.ProgrammingError) as fault:
                damages.append(f"{name}: its specification is none of this version ({fault}).")
    return tuple(damages)


def _insert_fit(base: sqlite3.Connection, store: Store, fit_id: str) -> None:
    spec = store.spec("fits", fit_id)
    weights = read_record(store.layout.directory("fits", fit_id))["files"][WEIGHTS]["sha256"]
    facts = (spec["task"]["name"], spec["network"]["name"], spec["seed"], spec["member"], spec["start"])
    text = canonical(spec).decode()
    base.execute("INSERT INTO fits VALUES (?, ?, ?, ?, ?, ?, ?, ?)", (fit_id, *facts, weights, text))


def _insert_prediction(base: sqlite3.Connection, store: Store, pred_id: str) -> None:
    spec = store.spec("predictions", pred_id)
    members = members_of(spec)
    files = {} if members else files_of(store.layout.directory("predictions", pred_id))
    rows = sorted((pred_id, file["split"], file["fingerprint"], file["sha256"]) for file in files.values())
    base.execute("INSERT INTO predictions VALUES (?, ?, ?)", (pred_id, spec.get("fit"), canonical(spec).decode()))
    base.executemany("INSERT INTO members VALUES (?, ?, ?)", [(pred_id, k, m) for k, m in enumerate(members)])
    base.executemany("INSERT INTO files VALUES (?, ?, ?, ?)", rows)


def _insert_runs(base: sqlite3.Connection, store: Store, name: str) -> None:
    keys = ("task", "network", "method", "seed", "member", "id")
    rows = [(name, *(run.get(key) for key in keys)) for run in store.manifest(name)["runs"]]
    base.executemany("INSERT INTO runs VALUES (?, ?, ?, ?, ?, ?, ?)", rows)


# --- removing -------------------------------------------------------------------------------------------------------


def litter(store: Store) -> tuple[Litter, ...]:
    """Return the remains of dead processes and of replaced damage: none of it is a result."""
    layout = store.layout
    rows: list[tuple[Path, Reason]] = [(path, "temporary") for path in abandoned(layout.scratch)]
    rows += [(path, "corrupt") for path in _listed(layout.corrupt)]
    unnamed = [path for path in _listed(layout.checkpoints) if not ID.fullmatch(path.name)]
    rows += [(path, "stale checkpoint") for path in (*unnamed, *store.finished_checkpoints())]
    for path in _listed(layout.failures, "*.json"):
        if ID.fullmatch(path.stem) and store.has_fit(path.stem):
            rows.append((path, "resolved failure"))
    for directory in _listed(layout.entries("predictions")):
        try:
            rows += [(path, "stray file") for path in stray_files(directory)]
        except CorruptFile:
            continue  # `verify` reports it, and the next run makes it again
    return tuple(Litter(path, reason, _size(path)) for path, reason in rows)


def unreferenced(store: Store) -> tuple[Litter, ...]:
    """Return the fits, predictions, checkpoints and examples that no manifest of a benchmark run needs."""
    needed = referenced(store, store.manifests())
    entries = ((kind, identifier) for kind in ENTRY_KINDS for identifier in store.ids(kind))
    paths = [store.layout.directory(kind, name) for kind, name in entries if name not in needed[kind]]
    paths += [path for path in _listed(store.layout.checkpoints) if not store.has_fit(path.name)]
    splits = splits_of(store, store.manifests())
    folders = (store.layout.pictures, store.layout.examples)
    paths += [path for folder in folders for path in _listed(folder) if path.name not in splits]
    return tuple(Litter(path, "unreferenced", _size(path)) for path in paths)


def referenced(store: Store, manifests: Iterable[str]) -> dict[EntryKind, set[str]]:
    """Return the fits and predictions that these runs consist of, with members of ensembles and tuning trials."""
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
        fits |= _ancestors(store, fit_id)
    return {"fits": fits, "predictions": predictions}


def splits_of(store: Store, manifests: Iterable[str]) -> set[str]:
    """Return the fingerprints of the splits of these runs, under which their examples are stored."""
    tasks = [task for name in manifests for task in store.manifest(name)["tasks"]]
    fingerprints = {split["fingerprint"] for task in tasks for split in task.get("splits", ())}
    return {fingerprint for fingerprint in fingerprints if ID.fullmatch(fingerprint)}


def remove(store: Store, rows: Iterable[Litter]) -> int:
    """Remove these, as far as they are still unneeded, and write the index anew; return the number of bytes freed.

    Raises:
        StoreError: While a run is in progress, which may be about to use what looks unneeded.
    """
    rows = list(rows)
    try:
        with store.scratch.alone():
            if any(is_held(path) for path in _listed(store.layout.locks, "*.lock")):
                raise BusyError(str(store.layout.locks))
            # What was listed may be needed by now: a run has ended since, or another has begun and ended.
            listings = {unreferenced if row.reason == "unreferenced" else litter for row in rows}
            unneeded = {row.path for listing in listings for row in listing(store)}
            rows = [row for row in rows if row.path in unneeded]
            for row in rows:
                with storing(row.path), suppress(FileNotFoundError):
                    _discard(row.path, store.scratch.new())
            rebuild_index(store)
    except BusyError as busy:
        raise StoreError(
            f"a run is under way in {str(store.path)!r}, or another process has it open for writing; remove nothing "
            "until that has ended."
        ) from busy
    return sum(row.bytes for row in rows)


def _discard(path: Path, doomed: Path) -> None:
    """Remove a file, or a directory by way of a scratch path: gone at once or not at all."""
    if path.is_dir() and not path.is_symlink():
        os.rename(path, doomed)
        shutil.rmtree(doomed)
    else:
        path.unlink()


def _ancestors(store: Store, fit_id: str) -> set[str]:
    """Return the fit that a fit was started from, that one's, and so on."""
    ancestors: set[str] = set()
    while store.has_fit(fit_id) and (start := store.spec("fits", fit_id).get("start")) is not None:
        ancestors.add(start)
        fit_id = start
    return ancestors


def _listed(directory: Path, pattern: str = "*") -> list[Path]:
    return sorted(directory.glob(pattern))


def _size(path: Path) -> int:
    if path.is_dir():
        return sum(item.stat().st_size for item in path.rglob("*") if item.is_file())
    return path.stat().st_size if path.exists() else 0


# --- exporting ------------------------------------------------------------------------------------------------------


def export(store: Store, names: Sequence[str], target: Path) -> tuple[Path, ...]:
    """Copy runs with all their fits, predictions and examples.

    Args:
        store: The store that holds them.
        names: The names of their manifests, in full.
        target: A path that ends in ``.zip`` or ``.tar``, or a directory that does not exist yet.

    Returns:
        The relative paths of the copied files.

    Raises:
        UserError: When the target exists.
        CorruptFile: When a file to be exported is not what was written.
        StoreError: When the target cannot be written.
    """
    if target.exists():
        raise UserError(f"{str(target)!r} exists already; name a new file or directory.")
    files = tuple(_files_of_runs(store, names))
    with storing(target):
        make_directories(target.parent)
        if target.suffix in (".zip", ".tar"):
            with open_atomic(target) as sink:
                (_write_zip if target.suffix == ".zip" else _write_tar)(store.path, files, sink)
        else:
            with atomic_directory(target) as directory:
                _copy(store.path, files, directory)
    return files


def _files_of_runs(store: Store, names: Sequence[str]) -> Iterable[Path]:
    """Yield every file of these runs, relative to the store, sorted; each fit and prediction is verified first."""
    paths = [store.layout.header, *(store.layout.manifests / f"{name}.json" for name in names)]
    for kind, identifiers in referenced(store, names).items():
        for identifier in sorted(identifiers):
            directory = store.layout.directory(kind, identifier)
            if not directory.is_dir():
                continue  # of a run that failed; its manifest says so
            store.verify(kind, identifier)
            paths += sorted(path for path in directory.iterdir() if path.is_file() and not path.is_symlink())
    paths += example_files(store.layout, splits_of(store, names))
    for path in paths:
        relative = path.relative_to(store.path)
        if ".." in relative.parts:
            raise StoreError(f"{str(path)!r} lies outside the store.")
        yield relative


def _copy(root: Path, files: Iterable[Path], target: Path) -> None:
    for relative in files:
        (target / relative).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(root / relative, target / relative)


def _write_zip(root: Path, files: Iterable[Path], target: BinaryIO) -> None:
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for relative in files:
            entry = zipfile.ZipInfo(str(PurePosixPath(relative)), EPOCH)
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = 0o644 << 16
            with archive.open(entry, "w", force_zip64=True) as sink, (root / relative).open("rb") as source:
                shutil.copyfileobj(source, sink)


def _write_tar(root: Path, files: Iterable[Path], target: BinaryIO) -> None:
    with tarfile.open(fileobj=target, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for relative in files:
            content = (root / relative).read_bytes()
            entry = tarfile.TarInfo(str(PurePosixPath(relative)))
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))
