"""Prepare photographs in one process, or in several side by side.

A worker writes pixels straight into the array's file, so that nothing large travels between processes. A file that
kills its worker (a crash in an image library) costs that photograph alone: when a pool breaks, the jobs that may have
broken it are repeated one by one, each in a process of its own, and the others go on in a new pool.
"""

from __future__ import annotations

import hashlib
import os
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from types import ModuleType

import numpy as np
from numpy.typing import NDArray

from dubio.tasks.fundus.crop import crop_square, find_disc
from dubio.tasks.images.files import Unreadable, open_picture
from dubio.tasks.images.problems import ProblemKind

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
    except Unreadable as fault:
        return Outcome(row, digest_of(array[row]), "unreadable", str(fault))
    disc = find_disc(picture)
    pixels = crop_square(picture, disc.box, size)
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
            if _run_pool([job], array, 1, report):
                _report_crash(job, array, report)


def _run_pool(jobs: Sequence[Job], array: Path, processes: int, report: Callable[[Outcome], None]) -> list[Job]:
    """Run jobs in a new pool; return those that did not finish because it broke."""
    finished = set()
    pool = ProcessPoolExecutor(processes, mp_context=get_context("spawn"), initializer=_ignore_interrupts)
    try:
        futures = []
        try:
            with _hidden_main():
                for path, row in jobs:
                    futures.append(pool.submit(prepare_in_file, array, path, row))
        except BrokenProcessPool:
            pass  # it broke while jobs were still being submitted
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


def _ignore_interrupts() -> None:
    # Ctrl-C in a terminal reaches the whole process group; only the parent is to hear it
    signal.signal(signal.SIGINT, signal.SIG_IGN)


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


def _report_crash(job: Job, array: Path, report: Callable[[Outcome], None]) -> None:
    """Report a file at which a process died, and make its row black again."""
    rows = np.load(array, mmap_mode="r+", allow_pickle=False)
    rows[job[1]] = 0
    report(Outcome(job[1], digest_of(rows[job[1]]), "unreadable", "the process that read it died"))
