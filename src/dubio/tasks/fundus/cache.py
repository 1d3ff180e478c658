"""Prepared photographs in dubio's cache: made once, memory-mapped, keyed by what the files hold.

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
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from filelock import FileLock
from numpy.typing import NDArray

from dubio.core.errors import UserError
from dubio.core.lazy_rows import row_blocks
from dubio.tasks.fundus.crew import cores, prepare_all
from dubio.tasks.fundus.worker import Outcome
from dubio.tasks.sources.places import CACHE_VARIABLE, cache_dir

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


def prepared(
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
            scratch.rename(home)
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
        fresh.rename(array)
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
    for path in scratch.iterdir():  # on the disk before the rename says that it is whole
        with path.open("rb+") as file:
            os.fsync(file.fileno())


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
    for block in row_blocks(cached.images):
        for offset, row in enumerate(block):
            if hashlib.sha256(np.ascontiguousarray(row).data).digest() != cached.digests[start + offset].tobytes():
                return False
        start += len(block)
    return True
