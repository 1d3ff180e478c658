"""The content of files in short, remembered by size and time of change so that nothing is read twice.

Prepared photographs in dubio's cache: made once, memory-mapped, keyed by what the files hold.

``retina/<key>/`` holds ``images.npy`` (uint8 ``[M, size, size, 3]``, a row for every different file), ``digests.npy``
(SHA-256 of every row) and ``index.json`` (the row and the finding of every file, by its hash). It is made in
``retina/.<key>/`` and renamed when it is whole; every row that is done is a line in ``done.jsonl`` there, so that an
interrupted preparation goes on where it was. A line whose row does not hold what it says is done again.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from filelock import FileLock
from numpy.typing import NDArray

from dubio.core.errors import UserError
from dubio.core.files import place_directory, place_file, write_file
from dubio.core.lazy_rows import iterate_blocks
from dubio.tasks.fundus.pool import Outcome, cores, prepare_all
from dubio.tasks.sources.locate import CACHE_VARIABLE, cache_dir

EVERY = 2000
"""Files between two times that what is known is written down: so much is lost at most by an interruption."""


def file_hashes(
    paths: Sequence[Path], *, verify: bool = False, progress: Callable[[int, int], None] | None = None
) -> dict[Path, str | OSError]:
    """SHA-256 of every file, or why it cannot be read.

    Args:
        paths: The files.
        verify: Read all of them, whatever is remembered.
        progress: Told how many of those that must be read have been.
    """
    if not paths:
        return {}
    home = _memory_of(paths)
    recalled = _recalled(home)
    known = {} if verify else recalled
    stamps = {path: _stamp(path) for path in paths}
    found: dict[Path, str | OSError] = {}
    fresh = []
    for path, stamp in stamps.items():
        if isinstance(stamp, OSError):
            found[path] = stamp
        elif (kept := known.get(os.path.abspath(path))) is not None and kept[:2] == stamp:
            found[path] = str(kept[2])
        else:
            fresh.append(path)
    # hashing releases the interpreter's lock, and a slow disk is read by several at once
    with ThreadPoolExecutor(max_workers=cores()) as pool:
        for done, (path, said) in enumerate(zip(fresh, pool.map(_hashed, fresh), strict=True), start=1):
            found[path] = said
            stamp = stamps[path]
            if isinstance(said, str) and isinstance(stamp, list):
                recalled[os.path.abspath(path)] = [*stamp, said]
            if done % EVERY == 0 or done == len(fresh):
                _remember(home, recalled)
            if progress is not None:
                progress(done, len(fresh))
    return found


def _stamp(path: Path) -> list[int] | OSError:
    try:
        facts = path.stat()
    except OSError as fault:
        return fault
    return [facts.st_size, facts.st_mtime_ns]


def _hashed(path: Path) -> str | OSError:
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as fault:
        return fault


def _memory_of(paths: Sequence[Path]) -> Path:
    """Where what is known of these files is kept: a file for their common folder."""
    folder = os.path.commonpath([str(path.resolve().parent) for path in paths])
    return cache_dir() / "retina" / "hashes" / f"{hashlib.sha256(folder.encode()).hexdigest()[:32]}.json"


def _recalled(home: Path) -> dict[str, list[int | str]]:
    """What is remembered; nothing where the memory is missing or spoilt."""
    try:
        kept = json.loads(home.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return kept if isinstance(kept, dict) else {}


def _remember(home: Path, kept: dict[str, list[int | str]]) -> None:
    write_file(home, json.dumps(kept))


PREPARATION = 1
"""Bumped by hand whenever the same file comes to give other pixels."""

Progress = Callable[[int, int], None]


@dataclass(frozen=True, eq=False)
class Cached:
    """Prepared photographs.

    Attributes:
        images: uint8 ``[M, size, size, 3]``, memory-mapped.
        digests: SHA-256 of each row ``[M, 32]``.
        outcomes: What became of a file, by its hash.
    """

    images: NDArray[np.uint8]
    digests: NDArray[np.uint8]
    outcomes: Mapping[str, Outcome]


def prepare_files(
    files: Mapping[str, Path],
    size: int,
    *,
    verify: bool = False,
    processes: int | None = None,
    progress: Progress | None = None,
) -> Cached:
    """The prepared photographs of these files, made where the cache lacks them.

    Args:
        files: A file for each hash of content.
        size: Both sides, in pixels.
        verify: Compare what the cache holds with its hashes, and make it again where they differ.
        processes: How many prepare side by side; one a core if left out.
        progress: Told how many are done, of how many.
    """
    key = _key(files, size)
    home = cache_dir() / "retina" / key
    scratch = home.with_name(f".{key}")
    try:
        home.parent.mkdir(parents=True, exist_ok=True)
    except OSError as fault:
        raise UserError(f"the cache {str(home)!r} cannot be made: {fault.strerror}; set {CACHE_VARIABLE}.") from fault
    with FileLock(home.with_suffix(".lock")):
        if home.is_dir() and verify and not _is_sound(_read(home)):
            shutil.rmtree(home)
        if not home.is_dir():
            _make(scratch, files, size, processes or cores(), progress)
            place_directory(scratch, home)
        # Under the lock: another process that verifies may put the folder away as soon as it is released. What is
        # mapped by then stays as it was, since its file is unlinked and never written to.
        return _read(home)


def _key(files: Mapping[str, Path], size: int) -> str:
    told = json.dumps({"preparation": PREPARATION, "size": size, "files": sorted(files)}, separators=(",", ":"))
    return f"{size}-{hashlib.sha256(told.encode()).hexdigest()[:32]}"


def _make(scratch: Path, files: Mapping[str, Path], size: int, processes: int, progress: Progress | None) -> None:
    """Prepare what is not done yet, and write down the whole."""
    scratch.mkdir(exist_ok=True)
    array, lines = scratch / "images.npy", scratch / "done.jsonl"
    order = sorted(files)
    if not array.is_file():
        _check_room(scratch, len(order) * size * size * 3)
        lines.unlink(missing_ok=True)
        fresh = scratch / "fresh.npy"
        np.lib.format.open_memmap(fresh, mode="w+", dtype=np.uint8, shape=(len(order), size, size, 3)).flush()
        place_file(fresh, array)
    done = _resumed(array, lines)
    jobs = [(files[name], row) for row, name in enumerate(order) if row not in done]
    with lines.open("a", encoding="utf-8") as log:

        def tell(outcome: Outcome) -> None:
            done[outcome.row] = outcome
            log.write(json.dumps(vars(outcome)) + "\n")
            log.flush()
            if progress is not None:
                progress(len(done), len(order))

        prepare_all(jobs, array, processes, tell)
    digests = np.frombuffer(bytes.fromhex("".join(done[row].digest for row in range(len(order)))), dtype=np.uint8)
    np.save(scratch / "digests.npy", digests.reshape(-1, 32))
    index = {name: vars(done[row]) for row, name in enumerate(order)}
    (scratch / "index.json").write_text(json.dumps(index), encoding="utf-8")
    lines.unlink()


def _check_room(scratch: Path, needed: int) -> None:
    """Refuse what the disk cannot hold: a memory-mapped file that runs out of it would kill whoever writes."""
    free = shutil.disk_usage(scratch).free
    if needed > free:
        raise UserError(
            f"the prepared photographs need {needed / 1e9:,.1f} GB in the cache, {scratch.parent}, which has "
            f"{free / 1e9:,.1f} GB free; choose a smaller size, or another place with {CACHE_VARIABLE}."
        )


def _resumed(array: Path, lines: Path) -> dict[int, Outcome]:
    """The rows that an interrupted preparation has done, and that hold what it says they do."""
    if not lines.is_file():
        return {}
    images = np.load(array, mmap_mode="r", allow_pickle=False)
    done = {}
    for line in lines.read_text(encoding="utf-8").splitlines():
        try:
            outcome = Outcome(**json.loads(line))
        except (ValueError, TypeError):
            continue  # the line that was being written when it was interrupted
        if hashlib.sha256(np.ascontiguousarray(images[outcome.row]).data).hexdigest() == outcome.digest:
            done[outcome.row] = outcome
    return done


def _read(home: Path) -> Cached:
    index = json.loads((home / "index.json").read_text(encoding="utf-8"))
    return Cached(
        np.load(home / "images.npy", mmap_mode="r", allow_pickle=False),
        np.load(home / "digests.npy", allow_pickle=False),
        {name: Outcome(**facts) for name, facts in index.items()},
    )


def _is_sound(cached: Cached) -> bool:
    """Whether every row holds what its hash says."""
    start = 0
    for block in iterate_blocks(cached.images):
        for offset, row in enumerate(block):
            if hashlib.sha256(np.ascontiguousarray(row).data).digest() != cached.digests[start + offset].tobytes():
                return False
        start += len(block)
    return True
