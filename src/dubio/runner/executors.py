"""Executors carry jobs to workers and bring back their results: the protocol, and processes on this machine."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, Protocol

from dubio.core.errors import DubioError
from dubio.runner.trainer import TORCH_TRAINER
from dubio.runner.worker_process import Fork, WorkerProcess, can_fork, spawn

THREAD_VARIABLES = (
    "OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMEXPR_NUM_THREADS", "VECLIB_MAXIMUM_THREADS",
)  # fmt: skip
"""Set to 1 before a worker imports any numerical library."""

SOURCE = str(Path(__file__).resolve().parents[2])
"""The folder that holds the package, so that workers import the same one."""

CPU = "cpu"


@dataclass(frozen=True)
class WorkerOrders:
    """The configuration that every worker receives once.

    Attributes:
        store: Directory of the store.
        plugins: Files to import before the first job.
        checkpoint_seconds: Interval at which a running fit is saved.
        trainer: Module that fits and predicts.
        devices: Devices for training and prediction; each worker uses one of them, assigned in turn.
        installed: Names of plugins of installed packages to import before the first job.
        resources: What a job takes of a cluster, by name.
    """

    store: Path
    plugins: Sequence[Path] = ()
    checkpoint_seconds: float = 600.0
    trainer: str = TORCH_TRAINER
    devices: Sequence[str] = (CPU,)
    installed: Sequence[str] = ()
    resources: Mapping[str, float] = field(default_factory=dict)

    def to_json(self, worker: int = 0) -> str:
        """Return the orders of one worker; they include the search path, as when Python itself spawns a process.

        Args:
            worker: The number of the worker, from 0.
        """
        orders = {
            "path": [os.path.abspath(entry) for entry in sys.path],
            "store": str(self.store),
            "plugins": [str(plugin.resolve()) for plugin in self.plugins],
            "installed": list(self.installed),
            "checkpoint_seconds": self.checkpoint_seconds,
            "trainer": self.trainer,
            "device": self.devices[worker % len(self.devices)],
        }
        return json.dumps(orders)


def worker_environment() -> dict[str, str]:
    """Return the environment variables of a worker: one thread, and this package on the search path."""
    path = os.pathsep.join([SOURCE, *filter(None, [os.environ.get("PYTHONPATH")])])
    return {**dict.fromkeys(THREAD_VARIABLES, "1"), "PYTHONPATH": path}


@dataclass(frozen=True)
class Progressed:
    """A job has completed a fraction of its work."""

    id: str
    fraction: float
    detail: str


@dataclass(frozen=True)
class Finished:
    """A job has ended; ``result`` is as in :mod:`dubio.runner.worker`, or has the status ``lost``.

    A lost job is one whose worker died: ``error`` is the cause of death, ``traceback`` the end of its log. ``blame`` is
    False where the death says nothing about the job: while the worker was starting, or together with its machine.
    """

    id: str
    result: dict[str, Any]


@dataclass(frozen=True)
class Noted:
    """Something for the display that concerns no single job."""

    text: str


Event = Progressed | Finished | Noted


class Executor(Protocol):
    """Runs several jobs at a time."""

    jobs: int

    def start(self, jobs: int) -> None:
        """Prepare for that many jobs, so that workers start while other things are checked; optional."""

    def free(self) -> int:
        """Return how many more jobs could start now."""

    def submit(self, job: dict[str, Any]) -> None:
        """Start a job; only when :meth:`free` is positive."""

    def wait(self, seconds: float) -> list[Event]:
        """Return the events since the last call, waiting at most that long for the first."""

    def close(self) -> None:
        """Stop everything at once."""


GRACE_SECONDS = 2.0
LOG_TAIL = 2000

MOST_FAILED_STARTS = 4
"""Attempts in a row to start a worker, while no other is alive, after which none is expected to start."""

FIRST_PAUSE, LONGEST_PAUSE = 0.5, 30.0
"""Seconds without a new worker after one that could not start; doubled with each further one."""


# Processes on this machine.


class _Worker:
    """One process, its current job, and a thread that reads its answers."""

    def __init__(
        self, process: WorkerProcess, orders: str, slot: int, log: Path, inbox: queue.SimpleQueue[tuple[_Worker, Any]]
    ) -> None:
        self.job: str | None = None
        self.ready = False
        self.slot = slot
        self.started = time.monotonic()
        self._log, self._fault = log, ""
        self.process = process
        self._send(orders)
        threading.Thread(target=self._read, args=(inbox,), daemon=True).start()

    def start(self, job: dict[str, Any]) -> None:
        """Send a job."""
        self.job = job["id"]
        self._send(json.dumps(job))

    def _send(self, line: str) -> None:
        with contextlib.suppress(BrokenPipeError):  # the process has died; the reading thread reports it
            sink = _pipe(self.process.stdin)
            sink.write(line.encode() + b"\n")
            sink.flush()

    def _read(self, inbox: queue.SimpleQueue[tuple[_Worker, Any]]) -> None:
        for line in _pipe(self.process.stdout):
            try:
                inbox.put((self, _checked(json.loads(line))))
            except (ValueError, RecursionError):
                # Its answer may have been part of that line: waiting for another one could take for ever.
                self._fault = f"the worker process wrote {line[:80]!r} where an answer was expected, and was stopped."
                self.process.kill()
                break
        self.process.wait()
        inbox.put((self, None))

    def dismiss(self) -> None:
        """Close its input, on which it exits."""
        with contextlib.suppress(BrokenPipeError):
            _pipe(self.process.stdin).close()

    def cause_of_death(self) -> str:
        """Return why the process ended, as far as the system reports it."""
        code = self.process.returncode
        if self._fault:
            return self._fault
        if code is not None and code < 0:
            name = signal.Signals(-code).name if -code in {item.value for item in signal.Signals} else str(-code)
            hint = " (often the system running out of memory)" if name == "SIGKILL" else ""
            return f"the worker process was ended by signal {name}{hint}."
        return f"the worker process ended with exit code {code}."

    def last_output(self) -> str:
        """Return the end of its log."""
        return self._log.read_text("utf-8", "replace")[-LOG_TAIL:].strip() if self._log.exists() else ""


def _checked(message: Any) -> dict[str, Any]:
    """Return a worker's message if it has one of the three forms of :mod:`dubio.runner.worker`, or raise ValueError."""
    if isinstance(message, dict):
        result, progress = message.get("result"), message.get("progress")
        finished = isinstance(result, dict) and isinstance(result.get("status"), str) and "id" in message
        if finished or isinstance(progress, float | int) or message.get("ready") is True:
            return message
    raise ValueError("not a message of a worker")


class LocalExecutor:
    """Runs jobs in up to ``jobs`` worker processes, started when first needed and kept."""

    def __init__(self, jobs: int, orders: WorkerOrders, logs: Path) -> None:
        """Make an executor; no process is started yet.

        Args:
            jobs: Largest number of processes at a time.
            orders: Configuration of the workers.
            logs: Existing directory for the output of the workers.
        """
        self.jobs = jobs
        self._orders, self._logs = orders, logs
        self._inbox: queue.SimpleQueue[tuple[_Worker, Any]] = queue.SimpleQueue()
        self._workers: list[_Worker] = []
        self._started = self._failed_starts = 0
        self._last_failed_start = self._next_start = 0.0
        self._refused: list[Event] = []

    def start(self, jobs: int) -> None:
        """Start the workers for that many jobs; what the system refuses now is tried again with the first job."""
        missing = min(jobs, self.jobs) - len(self._workers)
        with contextlib.suppress(OSError):
            # All copies come before the first worker, which has a thread of this process to itself.
            forks = self._forks(missing)
            for index in range(missing):
                self._add_worker(*forks[index : index + 1])

    def _forks(self, count: int) -> list[tuple[WorkerProcess, Path]]:
        """Return copies of this process with their logs; none where one would not be sound."""
        forks: list[tuple[WorkerProcess, Path]] = []
        if set(self._orders.devices) == {CPU} and can_fork(self._orders.trainer):
            with contextlib.suppress(OSError):
                for _ in range(count):
                    log = self._new_log()
                    forks.append((Fork(log, worker_environment()), log))
        return forks

    def free(self) -> int:
        """Return how many more jobs could start now; after a worker that could not start, new ones come one by one."""
        idle = sum(worker.job is None for worker in self._workers)
        if not self._failed_starts:
            return idle + self.jobs - len(self._workers)
        starting = time.monotonic() < self._next_start or not all(worker.ready for worker in self._workers)
        return idle + int(not starting and len(self._workers) < self.jobs)

    def submit(self, job: dict[str, Any]) -> None:
        """Give the job to an idle worker, one that is ready if there is any, or to a new one."""
        idle = max((worker for worker in self._workers if worker.job is None), key=lambda w: w.ready, default=None)
        if idle is None:
            try:
                idle = self._add_worker()
            except OSError as error:  # too many processes or open files, no memory
                reason = f"the system refused a worker process: {error.strerror or error}."
                self._refused.append(self._failed_start(job["id"], time.monotonic(), reason, ""))
                return
        idle.start(job)

    def _add_worker(self, started: tuple[WorkerProcess, Path] | None = None) -> _Worker:
        """Add a worker: a process that was started for it, or a new interpreter."""
        if started is None:
            log = self._new_log()
            started = spawn(log, worker_environment()), log
        (process, log), slot = started, self._free_slot()
        self._workers.append(_Worker(process, self._orders.to_json(slot), slot, log, self._inbox))
        return self._workers[-1]

    def _new_log(self) -> Path:
        self._started += 1
        return self._logs / f"worker-{self._started}.log"

    def _free_slot(self) -> int:
        """Return the first free slot: the successor of a dead worker gets its device."""
        used = {worker.slot for worker in self._workers}
        return next(slot for slot in range(self.jobs) if slot not in used)

    def wait(self, seconds: float) -> list[Event]:
        """Return the events since the last call, waiting at most that long for the first.

        Raises:
            DubioError: If no worker can start.
        """
        events, self._refused = self._refused, []
        timeout = 0.0 if events else seconds
        while True:
            try:
                worker, message = self._inbox.get(timeout=timeout) if timeout else self._inbox.get_nowait()
            except queue.Empty:
                return events
            events += self._events_of(worker, message)
            timeout = 0.0

    def _events_of(self, worker: _Worker, message: Any) -> list[Event]:
        if message is None:
            return self._remove(worker)
        if "ready" in message:
            worker.ready, self._failed_starts = True, 0
        elif "progress" in message and worker.job is not None:
            return [Progressed(worker.job, float(message["progress"]), str(message.get("detail", "")))]
        elif "result" in message:
            worker.job = None
            return [Finished(message["id"], message["result"])]
        return []

    def _remove(self, worker: _Worker) -> list[Event]:
        self._workers.remove(worker)
        cause, output = worker.cause_of_death(), worker.last_output()
        lost = _lost(worker.job or "", cause, output)
        if not worker.ready:
            lost = self._failed_start(worker.job or "", worker.started, cause, output)
        return [] if worker.job is None else [lost]

    def _failed_start(self, job: str, started: float, cause: str, output: str) -> Finished:
        """Count a worker that did not start; those that were starting at the same time count once."""
        if started >= self._last_failed_start:
            self._failed_starts += 1
            self._last_failed_start = time.monotonic()
            pause = min(LONGEST_PAUSE, FIRST_PAUSE * 2 ** (self._failed_starts - 1))
            self._next_start = self._last_failed_start + pause
        if self._failed_starts >= MOST_FAILED_STARTS and not self._workers:
            raise DubioError(f"workers cannot start ({self._failed_starts} attempts): {cause}\n{output}".strip())
        return _lost(job, f"while starting, {cause}", output, blame=False)

    def close(self) -> None:
        """Stop every worker at once."""
        for worker in self._workers:
            worker.dismiss()
        for worker in self._workers:
            try:
                worker.process.wait(GRACE_SECONDS)
            except subprocess.TimeoutExpired:
                worker.process.kill()
                worker.process.wait()
        self._workers.clear()


def _lost(job: str, cause: str, output: str, *, blame: bool = True) -> Finished:
    """Return the end of a job whose worker died."""
    return Finished(job, {"status": "lost", "error": cause, "traceback": output, "blame": blame})


def _pipe(stream: IO[bytes] | None) -> IO[bytes]:
    assert stream is not None  # both pipes are requested above
    return stream
