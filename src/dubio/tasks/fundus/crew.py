"""Several processes that prepare photographs side by side."""

from __future__ import annotations

import json
import os
import queue
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from dubio.tasks.fundus.worker import Outcome, digest_of, prepare_one

Job = tuple[Path, int]
"""A file and the row it goes to."""

WORTH = 64
"""So many photographs are worth starting a process for."""

AHEAD = 4
"""Jobs a process is given before it has answered the first of them, so that it never waits."""


def cores() -> int:
    """The cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def prepare_all(jobs: Sequence[Job], array: Path, processes: int, tell: Callable[[Outcome], None]) -> None:
    """Prepare every photograph into its row of an array's file.

    Args:
        jobs: What is to be done.
        array: The file, an npy with room for all rows.
        processes: At most so many; a few photographs are done in this one.
        tell: Told every outcome as it comes, never twice at a time.
    """
    processes = min(processes, len(jobs) // WORTH)
    if processes < 2:
        rows = np.load(array, mmap_mode="r+", allow_pickle=False)
        for path, row in jobs:
            tell(prepare_one(path, row, rows))
        return
    waiting: queue.SimpleQueue[Job] = queue.SimpleQueue()
    for job in jobs:
        waiting.put(job)
    lock, stop, faults = threading.Lock(), threading.Event(), []

    def telling(outcome: Outcome) -> None:
        with lock:
            tell(outcome)

    def serve() -> None:
        try:
            _serve(waiting, array, telling, stop)
        except BaseException as fault:  # handed to the caller's thread below
            faults.append(fault)
            stop.set()

    threads = [threading.Thread(target=serve, daemon=True) for _ in range(processes)]
    for thread in threads:
        thread.start()
    try:
        for thread in threads:
            thread.join()
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    if faults:
        raise faults[0]


def _serve(
    waiting: queue.SimpleQueue[Job], array: Path, tell: Callable[[Outcome], None], stop: threading.Event
) -> None:
    """Keep one process busy until nothing waits; one that a file kills is started again without that file."""
    given: list[Job] = []
    while not stop.is_set():
        if not given and waiting.empty():
            return
        with _Worker(array) as process:
            assert process.stdin is not None
            assert process.stdout is not None
            for job in given:
                _give(process, job)
            while not stop.is_set():
                while len(given) < AHEAD and (more := _next(waiting)) is not None:
                    given.append(more)
                    _give(process, more)
                if not given:
                    return
                answer = process.stdout.readline()
                if not answer.endswith("\n"):
                    path, row = given.pop(0)
                    _blame(path, row, array, tell)
                    break
                given.pop(0)
                tell(Outcome(**json.loads(answer)))


def _blame(path: Path, row: int, array: Path, tell: Callable[[Outcome], None]) -> None:
    """A file at which a process died: its row is made black again."""
    rows = np.load(array, mmap_mode="r+", allow_pickle=False)
    rows[row] = 0
    tell(Outcome(row, digest_of(rows[row]), "unreadable", "the process that read it died"))


def _next(waiting: queue.SimpleQueue[Job]) -> Job | None:
    try:
        return waiting.get_nowait()
    except queue.Empty:
        return None


def _give(process: subprocess.Popen[str], job: Job) -> None:
    assert process.stdin is not None
    try:
        process.stdin.write(json.dumps({"path": str(job[0]), "row": job[1]}) + "\n")
        process.stdin.flush()
    except BrokenPipeError:
        pass  # it died; reading its answer will tell


class _Worker:
    """A worker process, ended on leaving."""

    def __init__(self, array: Path) -> None:
        threads = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
        path = os.pathsep.join(entry for entry in sys.path if entry)
        self.process = subprocess.Popen(
            [sys.executable, "-m", "dubio.tasks.fundus.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            encoding="utf-8",
            env=os.environ | threads | {"PYTHONPATH": path, "PYTHONIOENCODING": "utf-8"},
        )
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps({"array": str(array)}) + "\n")

    def __enter__(self) -> subprocess.Popen[str]:
        return self.process

    def __exit__(self, *fault: object) -> None:
        self.process.kill()
        self.process.communicate()
