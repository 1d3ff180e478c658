"""Verify a store: is every file still what was written, and do its parts agree?

Damage is what a command may stumble over: it is listed with what to do, and nothing is changed. Anything else, such as
a manifest of an earlier version, which has no seal, or a leftover of a dead process, is a note.
"""

from __future__ import annotations

import sqlite3
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from dubio.core.errors import CorruptFile, StoreError
from dubio.core.files import reading
from dubio.core.specs import ID
from dubio.store.checkpoints import POINTER, read_pointer
from dubio.store.examples import PNG, read_examples_file
from dubio.store.locks import is_held
from dubio.store.maintenance import ENTRY_KINDS, TABLES, fill_index, litter
from dubio.store.predictions import members_of
from dubio.store.records import SEAL, EntryKind, Layout, read_json
from dubio.store.store import Store

Kind = EntryKind | Literal["runs", "index", "checkpoints", "failures", "pictures", "examples"]

AGAIN = "The next run that needs it makes it again."
REWRITE = "The next run, or dubio store gc --delete, writes it anew."
STORED_AGAIN = "Remove the file; the next run with the data at hand stores it again."
ADVICE: dict[Kind, str] = {
    "fits": AGAIN,
    "predictions": AGAIN,
    "runs": "",  # the error says it
    "index": REWRITE,
    "checkpoints": "Its fit sets it aside and starts anew.",
    "failures": "Remove the file; the next run tries again what failed.",
    "pictures": STORED_AGAIN,
    "examples": STORED_AGAIN,
}

LISTED = 5
"""Largest number of ids or paths in a sentence."""


@dataclass(frozen=True)
class Damage:
    """A part of a store that is not what was written: its kind, its id or name, and what to do."""

    kind: Kind
    id: str
    error: str
    advice: str = ""

    def to_json(self) -> dict[str, str]:
        """Return plain values."""
        return asdict(self)

    def __str__(self) -> str:
        return f"{self.kind} {self.id}: {self.error} {self.advice}".rstrip()


@dataclass(frozen=True)
class Verification:
    """Count what was compared, list what is damaged, and note what is no damage."""

    checked: dict[str, int]
    damages: tuple[Damage, ...]
    notes: tuple[str, ...]


def verify(store: Store) -> tuple[Damage, ...]:
    """Return what is damaged in a store; change nothing."""
    return examine(store).damages


def examine(store: Store) -> Verification:
    """Compare every file of a store with its record, and its parts with each other; change nothing."""
    groups: dict[Kind, list[str]] = {
        **{kind: list(store.ids(kind)) for kind in ENTRY_KINDS},
        "runs": list(store.manifests()),
        "checkpoints": _names(store.layout.checkpoints, "*"),
        "failures": _names(store.layout.failures, "*.json"),
        "pictures": _names(store.layout.pictures, "*/*.png"),
        "examples": _names(store.layout.examples, "*/*.json"),
    }
    checks: dict[Kind, Callable[[Store, str], object]] = {
        "fits": lambda store, name: store.verify("fits", name),
        "predictions": _check_prediction,
        "runs": _check_run,
        "checkpoints": _check_checkpoint,
        "failures": lambda store, name: _check_failure(store.layout, name),
        "pictures": lambda store, name: check_example(store.layout.pictures / name),
        "examples": lambda store, name: check_example(store.layout.examples / name),
    }
    damages = [
        Damage(kind, name, error, ADVICE[kind])
        for kind, names in groups.items()
        for name in names
        if (error := fault_of(checks[kind], store, name))
    ]
    index, out_of_date = _check_index(store)
    damages += [Damage("index", store.layout.index.name, index, ADVICE["index"])] if index else []
    counts = {str(kind): len(names) for kind, names in groups.items()}
    return Verification(counts, tuple(damages), (*out_of_date, *_notes(store)))


def damaged_manifests(store: Store) -> tuple[Damage, ...]:
    """Return the benchmark runs whose manifest cannot be read."""
    names = store.manifests()
    return tuple(Damage("runs", name, error) for name in names if (error := fault_of(store.manifest, name)))


def fault_of(read: Callable[..., object], *arguments: Any) -> str:
    """Return why something cannot be read; empty if it can."""
    try:
        read(*arguments)
    except (CorruptFile, StoreError) as fault:
        return str(fault)
    return ""


def _check_prediction(store: Store, pred_id: str) -> None:
    store.verify("predictions", pred_id)
    _check_present(store, "predictions", members_of(store.spec("predictions", pred_id)))


def _check_run(store: Store, name: str) -> None:
    manifest = store.manifest(name)
    command = manifest.get("command")
    again = f" Run it again: {command}" if command else " Run its command again."
    _check_present(store, "predictions", (run["id"] for run in manifest["runs"]), again)
    _check_present(store, "fits", (fit for run in manifest["runs"] for fit in run["fits"]), again)


def _check_present(store: Store, kind: EntryKind, ids: Iterable[str], advice: str = "") -> None:
    missing = [i for i in dict.fromkeys(ids) if not store.layout.directory(kind, i).is_dir()]
    if missing:
        raise CorruptFile(f"{len(missing)} of its {kind} are not in the store: {_some(missing)}.{advice}")


def _check_checkpoint(store: Store, name: str) -> None:
    directory = store.layout.checkpoints / name
    if not ID.fullmatch(name) or (directory.is_dir() and not (directory / POINTER).exists()):
        return  # a leftover
    error = fault_of(read_pointer, directory)
    if error and not _in_use(store.layout.lock(name)):  # one that is in use may be replaced while it is read
        raise CorruptFile(error)


def _in_use(lock: Path) -> bool:
    try:
        return is_held(lock)
    except StoreError:  # a store that cannot be written: nobody holds a lock in it
        return False


def _check_failure(layout: Layout, name: str) -> None:
    path = layout.failures / name
    failure = read_json(path)
    if not isinstance(failure, dict) or not isinstance(failure.get("error"), str):
        raise CorruptFile(f"{path}: not the record of a failure.")


def check_example(path: Path) -> None:
    """Compare a file of examples with its name, or every chunk of a PNG file with its checksum.

    Raises:
        CorruptFile: When it is not what was written.
        StoreError: When the disk cannot be read.
    """
    if path.suffix == ".json":
        read_examples_file(path)
        return
    with reading(path, StoreError):
        content = path.read_bytes()
    position, kind = len(PNG), b""
    while content.startswith(PNG) and kind != b"IEND" and position + 12 <= len(content):
        end = position + 8 + int.from_bytes(content[position : position + 4], "big")
        kind = content[position + 4 : position + 8]
        if zlib.crc32(content[position + 4 : end]).to_bytes(4, "big") != content[end : end + 4]:
            break
        position = end + 4
    if kind != b"IEND" or position != len(content):
        raise CorruptFile(f"{path}: not a whole PNG file.")


def _check_index(store: Store) -> tuple[str, list[str]]:
    """Return why the index is damaged, and a note if it lacks something; a store without an index is whole."""
    path = store.layout.index
    if not path.exists():
        return "", []
    try:
        with closing(sqlite3.connect(":memory:")) as base:
            base.executescript(TABLES)
            damaged, tables = fill_index(base, store), _tables(base)
            present = _rows(base, tables)
        with closing(sqlite3.connect(f"{path.as_uri()}?mode=ro&immutable=1", uri=True)) as base:
            if _tables(base) != tables:  # never read a table that is not one of ours: it may be a view without end
                return f"{path}: not an index of this version.", []
            stored = _rows(base, tables)
    except (sqlite3.Error, ValueError) as fault:
        return f"{path}: cannot be read ({fault}).", []
    if stored - present and not damaged:
        return f"{path}: {len(stored - present)} of its rows do not agree with the files.", []
    lacking = len(present - stored)
    return "", [f"{path.name} lacks {lacking} rows of the files. {REWRITE}"] if lacking else []


def _tables(base: sqlite3.Connection) -> list[tuple[str, str]]:
    """Return name and definition of the tables of an index; of a file with more, the first ones."""
    return base.execute("SELECT name, sql FROM sqlite_master ORDER BY name").fetchmany(50)


def _rows(base: sqlite3.Connection, tables: list[tuple[str, str]]) -> set[tuple[Any, ...]]:
    """Return the rows of these tables, each after the name of its table."""
    return {(name, *row) for name, _ in tables for row in base.execute(f"SELECT * FROM {name}")}


def _notes(store: Store) -> Iterator[str]:
    """Yield what is no damage: manifests without a seal, leftovers, and files that are no part of a store."""
    readable = [name for name in store.manifests() if not fault_of(store.manifest, name)]
    unsealed = [name for name in readable if SEAL not in read_json(store.layout.manifests / f"{name}.json")]
    if unsealed:
        yield (
            f"{len(unsealed)} manifests of an earlier version have no seal, so that damage may go unseen; running the "
            f"same command again adds one: {_some(unsealed)}"
        )
    reasons: dict[str, list[str]] = {}
    for row in litter(store):
        reasons.setdefault(row.reason, []).append(str(row.path.relative_to(store.path)))
    for reason, leftovers in reasons.items():
        yield f"{len(leftovers)} to remove with dubio store gc --delete ({reason}): {_some(leftovers)}"
    if ignored := [str(path.relative_to(store.path)) for path in _ignored(store.layout)]:
        yield f"{len(ignored)} files or directories are no part of a store and are ignored: {_some(ignored)}"


def _ignored(layout: Layout) -> list[Path]:
    """Return the files and directories in a store that no version of dubio has written there."""
    names = {path.name for path in vars(layout).values()} | set(ENTRY_KINDS)
    paths = [path for path in sorted(layout.root.glob("*")) if path.name not in names]
    for kind in ENTRY_KINDS:
        paths += [path for path in sorted(layout.entries(kind).glob("*")) if not ID.fullmatch(path.name)]
    return paths + [path for path in sorted(layout.manifests.glob("*")) if path.suffix != ".json"]


def _names(directory: Path, pattern: str) -> list[str]:
    return sorted(path.relative_to(directory).as_posix() for path in directory.glob(pattern))


def _some(names: list[str]) -> str:
    more = f" and {len(names) - LISTED} more" if len(names) > LISTED else ""
    return ", ".join(names[:LISTED]) + more
