"""Prepared photographs in dubio's cache: computed once, memory-mapped, keyed by the content of the files.

``retina/<key>/`` holds ``images.npy`` (uint8 ``[M, size, size, 3]``, a row for every different file), ``digests.npy``
(SHA-256 of every row) and ``index.json`` (the row and the problem of every file, by its hash). It is written in
``retina/.<key>/`` and renamed when it is complete; every finished row is a line in ``done.jsonl`` there, so that an
interrupted preparation resumes where it stopped. A line whose row does not have the stated hash is computed again.

Several processes write pixels straight into the array's file, so that nothing large travels between them. A file that
kills its worker (a crash in an image library) costs that photograph alone: when a pool breaks, the jobs that may have
broken it are repeated one by one, each in a process of its own, and the others go on in a new pool.

The hash of a file is cached by its size and time of change, so that no file is read twice.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import signal
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from types import ModuleType

import numpy as np
from filelock import FileLock
from numpy.typing import NDArray

from dubio.core.documents import parse_json, read_document
from dubio.core.errors import UserError
from dubio.core.files import CACHE_VARIABLE, cache_dir, place_directory, place_file, write_file
from dubio.core.lazy_rows import iterate_blocks
from dubio.core.specs import hash_file
from dubio.tasks.fundus.crop import crop_square, find_disc
from dubio.tasks.images.files import ProblemKind, Unreadable, open_picture
from dubio.tasks.sources.locate import cache_folder, is_sealed, read_cached, refuse_if_sealed

Job = tuple[Path, int]
"""A file and the row it goes to."""

JOBS_PER_PROCESS = 64
"""A process is started only if it gets at least this number of photographs."""


@dataclass(frozen=True)
class Outcome:
    """The result of preparing one file.

    Attributes:
        row: Its row in the array.
        digest: SHA-256 of the row's pixels, in hexadecimal.
        sort: The problem, if there is one.
        words: Details of the problem.
    """

    row: int
    digest: str
    sort: ProblemKind | None = None
    words: str = ""


def cores() -> int:
    """Return the number of cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def digest_of(pixels: NDArray[np.uint8]) -> str:
    """Return the SHA-256 of a row."""
    return hashlib.sha256(np.ascontiguousarray(pixels).data).hexdigest()


def prepare_one(path: Path, row: int, array: NDArray[np.uint8]) -> Outcome:
    """Open a photograph, crop the eye and write it to its row; an unreadable file leaves the row black."""
    size = array.shape[1]
    try:
        picture = open_picture(path, size)
        disc = find_disc(picture)
        pixels = crop_square(picture, disc.box, size)
    except Unreadable as fault:
        return Outcome(row, digest_of(array[row]), "unreadable", str(fault))
    array[row] = pixels
    return Outcome(row, digest_of(pixels), disc.problem)


def prepare_all(jobs: Sequence[Job], array: Path, processes: int, report: Callable[[Outcome], None]) -> None:
    """Prepare every photograph into its row of an array's file.

    Args:
        jobs: Files and rows.
        array: An npy file with all rows.
        processes: The largest number of processes; few photographs are prepared in this one.
        report: Called with every outcome as it arrives.
    """
    processes = min(processes, len(jobs) // JOBS_PER_PROCESS)
    if processes < 2:
        rows = np.load(array, mmap_mode="r+", allow_pickle=False)
        for path, row in jobs:
            report(prepare_one(path, row, rows))
        return
    remaining = list(jobs)
    while remaining:
        unfinished = _run_pool(remaining, array, processes, report)
        # jobs start in order, so the one that broke the pool is among the first that did not finish
        suspects, remaining = unfinished[: 2 * processes + 1], unfinished[2 * processes + 1 :]
        for job in suspects:
            if _run_pool([job], array, 1, report):  # its process died: its row is black again
                rows = np.load(array, mmap_mode="r+", allow_pickle=False)
                rows[job[1]] = 0
                report(Outcome(job[1], digest_of(rows[job[1]]), "unreadable", "the process that read it died"))


def _run_pool(jobs: Sequence[Job], array: Path, processes: int, report: Callable[[Outcome], None]) -> list[Job]:
    """Run jobs in a new pool; return those that did not finish because it broke."""
    finished = set()
    # Ctrl-C in a terminal reaches the whole process group; only the parent is to hear it
    interrupts = (signal.SIGINT, signal.SIG_IGN)
    pool = ProcessPoolExecutor(processes, get_context("spawn"), initializer=signal.signal, initargs=interrupts)
    try:
        futures = []
        with suppress(BrokenProcessPool), _hidden_main():  # it may break while jobs are still being submitted
            for path, row in jobs:
                futures.append(pool.submit(prepare_in_file, array, path, row))
        for future in as_completed(futures):
            try:
                outcome = future.result()
            except BrokenProcessPool:
                continue
            finished.add(outcome.row)
            report(outcome)
    finally:
        pool.shutdown(cancel_futures=True)
    return [job for job in jobs if job[1] not in finished]


def prepare_in_file(array: Path, path: Path, row: int) -> Outcome:
    """Prepare one photograph in a worker process."""
    return prepare_one(path, row, np.load(array, mmap_mode="r+", allow_pickle=False))


@contextmanager
def _hidden_main() -> Iterator[None]:
    """Start workers without importing the caller's script again.

    A spawned process imports ``__main__``; a script without ``if __name__ == "__main__"`` would run twice.
    """
    main = sys.modules["__main__"]
    sys.modules["__main__"] = ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = main


PREPARATION = 1
"""Increase by hand whenever the same file comes to give other pixels."""

HASHES_PER_WRITE = 2000
"""Hashes are written to the cache at this interval; an interruption loses no more."""

Progress = Callable[[int, int], None]
"""Called with the number finished and the total."""

HashCache = dict[str, list[int | str]]
"""Size, time of change and hash of each file, by its absolute path."""


@dataclass(frozen=True, eq=False)
class PreparedFiles:
    """Prepared photographs.

    Attributes:
        images: uint8 ``[M, size, size, 3]``, memory-mapped.
        digests: SHA-256 of each row ``[M, 32]``.
        outcomes: The outcome of each file, by its hash.
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
) -> PreparedFiles:
    """Return the prepared photographs of these files, computed where the cache lacks them.

    Args:
        files: A file for each hash of content.
        size: Both sides, in pixels.
        verify: Compare the cache with its hashes, and compute it again where they differ.
        processes: Number of processes; one per core if left out.
        progress: Called after every photograph.
    """
    content = json.dumps({"preparation": PREPARATION, "size": size, "files": sorted(files)}, separators=(",", ":"))
    key = f"{size}-{hashlib.sha256(content.encode()).hexdigest()[:32]}"
    folder = cache_folder("retina") / key
    scratch = folder.with_name(f".{key}")
    if is_sealed() and folder.is_dir():
        return _read(folder)
    refuse_if_sealed(f"prepare {len(files):,} photographs at {size} pixels")
    with FileLock(folder.with_suffix(".lock")):
        if folder.is_dir() and verify and not _is_sound(_read(folder)):
            shutil.rmtree(folder)
        if not folder.is_dir():
            _write(scratch, files, size, processes or cores(), progress)
            place_directory(scratch, folder)
        # Under the lock: another process that verifies may remove the folder as soon as it is released. A mapping made
        # before stays valid, since its file is unlinked and never written to.
        return _read(folder)


def _write(scratch: Path, files: Mapping[str, Path], size: int, processes: int, progress: Progress | None) -> None:
    """Prepare the photographs that are not finished yet, and write the index."""
    scratch.mkdir(exist_ok=True)
    array, lines = scratch / "images.npy", scratch / "done.jsonl"
    order = sorted(files)
    if not array.is_file():
        needed, free = len(order) * size * size * 3, shutil.disk_usage(scratch).free
        if needed > free:  # a process that writes to a mapped file on a full disk is killed
            raise UserError(
                f"the prepared photographs need {needed / 1e9:,.1f} GB in the cache, {scratch.parent}, which has "
                f"{free / 1e9:,.1f} GB free; choose a smaller size, or another folder with {CACHE_VARIABLE}."
            )
        lines.unlink(missing_ok=True)
        fresh = scratch / "fresh.npy"
        np.lib.format.open_memmap(fresh, mode="w+", dtype=np.uint8, shape=(len(order), size, size, 3)).flush()
        place_file(fresh, array)
    outcomes = _finished(array, lines)
    jobs = [(files[name], row) for row, name in enumerate(order) if row not in outcomes]
    with lines.open("a", encoding="utf-8") as log:

        def record(outcome: Outcome) -> None:
            outcomes[outcome.row] = outcome
            log.write(json.dumps(vars(outcome)) + "\n")
            log.flush()
            if progress is not None:
                progress(len(outcomes), len(order))

        prepare_all(jobs, array, processes, record)
    digests = bytes.fromhex("".join(outcomes[row].digest for row in range(len(order))))
    np.save(scratch / "digests.npy", np.frombuffer(digests, dtype=np.uint8).reshape(-1, 32))
    index = {name: vars(outcomes[row]) for row, name in enumerate(order)}
    (scratch / "index.json").write_text(json.dumps(index), encoding="utf-8")
    lines.unlink()


def _finished(array: Path, lines: Path) -> dict[int, Outcome]:
    """Return the rows that an interrupted preparation has finished and that have the stated hash."""
    if not lines.is_file():
        return {}
    images = np.load(array, mmap_mode="r", allow_pickle=False)
    outcomes = {}
    for line in lines.read_text(encoding="utf-8").splitlines():
        try:
            outcome = Outcome(**parse_json(line, lines.name))
        except (ValueError, TypeError):
            continue  # the line that was being written at the interruption
        if digest_of(images[outcome.row]) == outcome.digest:
            outcomes[outcome.row] = outcome
    return outcomes


def _read(folder: Path) -> PreparedFiles:
    index = parse_json(read_document(folder / "index.json"), str(folder / "index.json"))
    return PreparedFiles(
        np.load(folder / "images.npy", mmap_mode="r", allow_pickle=False),
        np.load(folder / "digests.npy", allow_pickle=False),
        {name: Outcome(**facts) for name, facts in index.items()},
    )


def _is_sound(prepared: PreparedFiles) -> bool:
    """Return whether every row has its hash."""
    rows = (row for block in iterate_blocks(prepared.images) for row in block)
    return all(digest_of(row) == digest.tobytes().hex() for row, digest in zip(rows, prepared.digests, strict=True))


def file_hashes(
    paths: Sequence[Path], *, verify: bool = False, progress: Progress | None = None
) -> dict[Path, str | OSError]:
    """Return the SHA-256 of every file, or the error of reading it.

    Args:
        paths: The files.
        verify: Read all of them, whatever is cached.
        progress: Called after every file that is read.
    """
    if not paths:
        return {}
    parent = os.path.commonpath([str(path.resolve().parent) for path in paths])  # a cache file for each common folder
    cache_path = cache_dir() / "retina" / "hashes" / f"{hashlib.sha256(parent.encode()).hexdigest()[:32]}.json"
    cache: HashCache = read_cached(cache_path)
    hashes: dict[Path, str | OSError] = {}
    unread: dict[Path, list[int | str]] = {}
    for path in paths:
        try:
            status = path.stat()
        except OSError as fault:
            hashes[path] = fault
            continue
        stamp: list[int | str] = [status.st_size, status.st_mtime_ns]
        entry = None if verify else cache.get(os.path.abspath(path))
        if entry is not None and entry[:2] == stamp:
            hashes[path] = str(entry[2])
        else:
            unread[path] = stamp
    if unread:
        refuse_if_sealed(f"read {len(unread):,} photographs")
    # hashing releases the interpreter's lock, and a slow disk is read by several threads at once
    with ThreadPoolExecutor(max_workers=cores()) as pool:
        for count, (path, digest) in enumerate(zip(unread, pool.map(_try_hash, unread), strict=True), start=1):
            hashes[path] = digest
            if isinstance(digest, str):
                cache[os.path.abspath(path)] = [*unread[path], digest]
            if count % HASHES_PER_WRITE == 0 or count == len(unread):
                write_file(cache_path, json.dumps(cache))
            if progress is not None:
                progress(count, len(unread))
    return hashes


def _try_hash(path: Path) -> str | OSError:
    try:
        return hash_file(path)
    except OSError as fault:
        return fault
