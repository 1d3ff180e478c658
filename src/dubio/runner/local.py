"""The local executor: persistent worker processes on this machine, one a core."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import IO, Any

from dubio.core.errors import DubioError
from dubio.runner.executor import THREAD_VARIABLES, Event, Finished, Progressed, WorkerOrders

GRACE_SECONDS = 2.0
LOG_TAIL = 2000


class _Worker:
    """One process, the job it has, and a thread that reads its answers."""

    def __init__(self, orders: bytes, log: Path, inbox: queue.SimpleQueue[tuple[_Worker, Any]]) -> None:
        self.job: str | None = None
        self.ready = False
        self.seat = 0
        self._log = log
        source = str(Path(__file__).resolve().parents[2])
        inherited = [source, *filter(None, [os.environ.get("PYTHONPATH")])]
        environment = {**os.environ, **dict.fromkeys(THREAD_VARIABLES, "1"), "PYTHONPATH": os.pathsep.join(inherited)}
        with log.open("wb") as sink:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "dubio.runner.worker"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=sink,
                env=environment,
                # Ctrl-C in a terminal reaches the whole process group; only the parent is to hear it.
                start_new_session=True,
            )
        self._send(orders)
        threading.Thread(target=self._read, args=(inbox,), daemon=True).start()

    def give(self, job: dict[str, Any]) -> None:
        """Send a job."""
        self.job = job["id"]
        self._send(json.dumps(job).encode() + b"\n")

    def _send(self, line: bytes) -> None:
        with contextlib.suppress(BrokenPipeError):  # it has died; the reading thread says so
            sink = _pipe(self.process.stdin)
            sink.write(line)
            sink.flush()

    def _read(self, inbox: queue.SimpleQueue[tuple[_Worker, Any]]) -> None:
        for line in _pipe(self.process.stdout):
            inbox.put((self, json.loads(line)))
        self.process.wait()
        inbox.put((self, None))

    def dismiss(self) -> None:
        """Let it go by closing its input."""
        with contextlib.suppress(BrokenPipeError):
            _pipe(self.process.stdin).close()

    def cause_of_death(self) -> str:
        """Why it is gone, as far as the system tells."""
        code = self.process.returncode
        if code is not None and code < 0:
            name = signal.Signals(-code).name if -code in {item.value for item in signal.Signals} else str(-code)
            hint = " (often the system running out of memory)" if name == "SIGKILL" else ""
            return f"the worker process was ended by signal {name}{hint}."
        return f"the worker process ended with exit code {code}."

    def last_words(self) -> str:
        """The end of what it printed."""
        return self._log.read_text("utf-8", "replace")[-LOG_TAIL:].strip() if self._log.exists() else ""


class LocalExecutor:
    """Runs jobs in up to ``jobs`` worker processes, started when first needed and kept."""

    def __init__(self, jobs: int, orders: WorkerOrders, logs: Path) -> None:
        """Make it; no process is started yet.

        Args:
            jobs: Most processes at a time.
            orders: What each is told.
            logs: Directory for what workers print; must exist.
        """
        self.jobs = jobs
        self._orders, self._logs = orders, logs
        self._inbox: queue.SimpleQueue[tuple[_Worker, Any]] = queue.SimpleQueue()
        self._workers: list[_Worker] = []
        self._started = 0

    def free(self) -> int:
        """How many more jobs could start now."""
        return self.jobs - sum(worker.job is not None for worker in self._workers)

    def submit(self, job: dict[str, Any]) -> None:
        """Give a job to a worker without one, or to a new one."""
        idle = next((worker for worker in self._workers if worker.job is None), None)
        if idle is None:
            self._started += 1
            seat = self._free_seat()
            idle = _Worker(self._orders.line(seat), self._logs / f"worker-{self._started}.log", self._inbox)
            idle.seat = seat
            self._workers.append(idle)
        idle.give(job)

    def _free_seat(self) -> int:
        """The first seat that no worker has: one who follows a dead worker gets its device."""
        taken = {worker.seat for worker in self._workers}
        return next(seat for seat in range(self.jobs) if seat not in taken)

    def wait(self, seconds: float) -> list[Event]:
        """What has happened, waiting so long for the first word of it.

        Raises:
            DubioError: When a worker cannot even start: no other would.
        """
        events: list[Event] = []
        timeout = seconds
        while True:
            try:
                worker, message = self._inbox.get(timeout=timeout) if timeout else self._inbox.get_nowait()
            except queue.Empty:
                return events
            events += self._understand(worker, message)
            timeout = 0.0

    def _understand(self, worker: _Worker, message: Any) -> list[Event]:
        if message is None:
            return self._bury(worker)
        if "ready" in message:
            worker.ready = True
        elif "progress" in message and worker.job is not None:
            return [Progressed(worker.job, float(message["progress"]), str(message["words"]))]
        elif "result" in message:
            worker.job = None
            return [Finished(message["id"], message["result"])]
        return []

    def _bury(self, worker: _Worker) -> list[Event]:
        self._workers.remove(worker)
        if not worker.ready:
            raise DubioError(f"a worker process cannot start: {worker.cause_of_death()}\n{worker.last_words()}")
        if worker.job is None:
            return []
        result = {"status": "failed", "error": worker.cause_of_death(), "traceback": worker.last_words()}
        return [Finished(worker.job, result)]

    def close(self) -> None:
        """Stop every worker, at once and whatever it is doing."""
        for worker in self._workers:
            worker.dismiss()
        for worker in self._workers:
            try:
                worker.process.wait(GRACE_SECONDS)
            except subprocess.TimeoutExpired:
                worker.process.kill()
                worker.process.wait()
        self._workers.clear()


def _pipe(stream: IO[bytes] | None) -> IO[bytes]:
    assert stream is not None  # both pipes are asked for
    return stream
