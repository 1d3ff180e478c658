"""From a request to an answer on the disk: admission, prediction in batches, one flush for all that wait.

The event loop admits rows, one thread predicts, another writes::

    admit ──► predict all rows that wait ──► write and flush all decisions that wait ──► answer

Nothing waits for a batch to fill: rows that arrive while a batch is predicted form the next one, and a single client
is served at once: where nobody else waits, the thread that predicts also writes. Ids are compared in the event loop
alone, where an id is new, decided or under way, so that no row is decided twice.
"""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any

from dubio.core.errors import UserError
from dubio.serving.decider import Decider, Item
from dubio.serving.exposition import Measurements
from dubio.serving.log_file import Entry, LogFailed, Position
from dubio.serving.messages import LabelRequest
from dubio.serving.register import Register, now


class Conflict(UserError):
    """An id that was used for other content, or a row that has another label."""


class UnknownRow(UserError):
    """The id of a row that was never decided about."""


@dataclass(eq=False)
class Job:
    """Rows of one request on their way, or a label.

    Attributes:
        items: The rows to predict.
        written: Resolved when the entries are on the disk.
        entries: What is written to the log.
        rows: Contents of referred rows that are kept.
        fault: The error that the request ends with.
    """

    items: Sequence[Item]
    written: asyncio.Future[None]
    entries: list[Entry] = field(default_factory=list)
    rows: list[Entry] = field(default_factory=list)
    fault: BaseException | None = None


class Pipeline:
    """The threads that predict and write, and the rows under way.

    Attributes:
        failure: Why nothing can be written any more, or None.
    """

    def __init__(self, decider: Decider, register: Register, measured: Measurements, *, batch_rows: int) -> None:
        """Start the threads; the running event loop is the one that admits.

        Args:
            decider: Decides.
            register: Holds what was decided.
            measured: Counts.
            batch_rows: Rows that are predicted together at most; 1 predicts every request by itself.
        """
        self._decider, self._register, self._measured, self._batch_rows = decider, register, measured, batch_rows
        self._loop = asyncio.get_running_loop()
        self.failure: LogFailed | None = None
        self._deciding: dict[str, tuple[str, Job]] = {}
        self._labelling: dict[str, asyncio.Future[None]] = {}
        self._to_predict: queue.SimpleQueue[Job | None] = queue.SimpleQueue()
        self._to_write: queue.SimpleQueue[Job | None] = queue.SimpleQueue()
        self._writing = threading.Lock()
        self._row_writer = ThreadPoolExecutor(1, "rows")
        self._threads = [threading.Thread(target=work, name=work.__name__) for work in (self._predict, self._write)]
        for thread in self._threads:
            thread.start()

    async def close(self) -> None:
        """Finish everything that was admitted, and end the threads."""
        self._to_predict.put(None)
        await asyncio.to_thread(self._join)

    def _join(self) -> None:
        for thread in self._threads:
            thread.join()
        self._row_writer.shutdown()

    # --- admission, in the event loop -------------------------------------------------------------------------------

    async def decide(self, items: Sequence[Item]) -> list[dict[str, Any]]:
        """Return the decision about each row once it is on the disk; ids that are known get their first answer.

        Raises:
            Conflict: When an id was used for other content; then nothing of the request is decided.
            UserError: When a row is refused.
            LogFailed: When the decisions cannot be written.
        """
        names = [item.id for item in items]
        if len(set(names)) < len(names):
            name = next(name for name in names if names.count(name) > 1)
            raise UserError(f"the id {name!r} is there twice; every row needs its own.")
        # A row under way is waited for first: if it is refused, its id is free again.
        while waited := {job.written for item in items if (job := self._under_way(item)) is not None}:
            await asyncio.wait(waited)
        decisions = {item.id: first for item in items if (first := self._first_answer(item)) is not None}
        new = [item for item in items if item.id not in decisions]
        lost = [item for item in items if item.id in decisions and self._lacks_row(item)]
        if new or lost:
            job = Job(new, self._loop.create_future(), rows=[_row_entry(item) for item in lost])
            self._deciding |= {item.id: (item.content, job) for item in new}
            (self._to_predict if new else self._to_write).put(job)
            await asyncio.shield(job.written)  # a client that goes away does not stop what was admitted
            decisions |= {entry["id"]: entry["decision"] for entry in job.entries}
        return [decisions[name] for name in names]

    def _under_way(self, item: Item) -> Job | None:
        content, job = self._deciding.get(item.id, ("", None))
        if job is not None and content != item.content:
            raise _other_content(item)
        return job

    def _first_answer(self, item: Item) -> dict[str, Any] | None:
        entry = self._register.decision(item.id)
        if entry is None:
            return None
        if entry["content"] != item.content:
            raise _other_content(item)
        decision: dict[str, Any] = entry["decision"]
        return decision

    def _lacks_row(self, item: Item) -> bool:
        """Return whether the content of a referred row was lost in a crash before its decision was answered."""
        keepable = self._register.keeps_rows and item.row is not None
        return keepable and item.id in self._register.state.urgency and not self._register.has_row(item.id)

    async def label(self, request: LabelRequest) -> None:
        """Write a label, or withdraw one; the same label again changes nothing.

        Raises:
            UnknownRow: When the id was never decided about.
            Conflict: When the row has another label.
            LogFailed: When the label cannot be written.
        """
        while request.id in self._labelling:
            await asyncio.wait([self._labelling[request.id]])
        state = self._register.state
        if request.id not in state.decisions:
            raise UnknownRow(f"no row {request.id!r} was decided about.")
        label = list(request.label) if isinstance(request.label, tuple) else request.label
        current = state.labels.get(request.id)
        if label == current:
            return
        if label is not None and current is not None:
            raise Conflict(f"the row {request.id!r} has the label {current!r}; withdraw it first with the label null.")
        job = Job((), self._loop.create_future())
        job.entries.append({"entry": "label", "id": request.id, "at": now(), "label": label})
        self._labelling[request.id] = job.written
        self._to_write.put(job)
        await asyncio.shield(job.written)

    def _finish(self, jobs: Sequence[Job], positions: Sequence[Position], row_positions: Sequence[Position]) -> None:
        """Add what was written to the state, and answer."""
        successes = [job for job in jobs if job.fault is None]
        self._register.apply([entry for job in successes for entry in job.entries], positions)
        self._register.apply_rows([row for job in successes for row in job.rows], row_positions)
        for job in jobs:
            for item in job.items:
                self._deciding.pop(item.id, None)
            for entry in job.entries:
                if entry["entry"] == "label":
                    self._labelling.pop(entry["id"], None)
            if job.fault is None:
                job.written.set_result(None)
            else:
                job.written.set_exception(job.fault)
                job.written.exception()  # its client may have gone

    # --- threads ----------------------------------------------------------------------------------------------------

    def _predict(self) -> None:
        waiting: Job | None = None
        while (job := waiting or self._to_predict.get()) is not None:
            jobs, waiting = [job], None
            rows = len(job.items)
            while rows < self._batch_rows and not self._to_predict.empty():
                waiting = self._to_predict.get()
                if waiting is None:
                    self._to_predict.put(None)  # the end, seen again once this batch is through
                    break
                rows += len(waiting.items)
                if rows > self._batch_rows:
                    break
                jobs.append(waiting)
                waiting = None
            self._predict_batch(jobs)
        self._to_write.put(None)

    def _predict_batch(self, jobs: list[Job]) -> None:
        """Decide about the rows of some requests; where one of them is refused, about each request by itself."""
        started = perf_counter()
        try:
            self._record(jobs, self._decider.decide([item for job in jobs for item in job.items]))
        except Exception as fault:
            if len(jobs) == 1:
                jobs[0].fault = fault
            else:
                for job in jobs:
                    self._predict_batch([job])
                return
        self._measured.batch.observe(sum(len(job.items) for job in jobs))
        self._measured.prediction.observe(perf_counter() - started)
        self._pass_on(jobs)

    def _pass_on(self, jobs: Sequence[Job]) -> None:
        """Give decisions to the thread that writes, or write them here where nothing else would be done meanwhile."""
        if self._to_predict.empty() and self._to_write.empty() and self._writing.acquire(blocking=False):
            try:
                self._write_jobs(jobs)
            finally:
                self._writing.release()
            return
        for job in jobs:
            self._to_write.put(job)

    def _record(self, jobs: Sequence[Job], decisions: Sequence[dict[str, Any]]) -> None:
        at, remaining = now(), iter(decisions)
        for job in jobs:
            for item in job.items:
                decision = next(remaining)
                entry = {"entry": "decision", "id": item.id, "content": item.content, "at": at, "decision": decision}
                job.entries.append(entry)
                if decision["decision"] == "refer" and item.row is not None and self._register.keeps_rows:
                    job.rows.append(_row_entry(item))

    def _write(self) -> None:
        open_ = True
        while open_:
            waiting = [self._to_write.get()]
            while not self._to_write.empty():
                waiting.append(self._to_write.get())
            open_ = waiting[-1] is not None
            jobs = [job for job in waiting if job is not None]
            with self._writing:
                self._write_jobs(jobs)

    def _write_jobs(self, jobs: Sequence[Job]) -> None:
        """Write what was decided, and answer; one thread at a time, so that the state has the order of the log."""
        positions, row_positions = self._flush([job for job in jobs if job.fault is None])
        if jobs:
            self._loop.call_soon_threadsafe(self._finish, jobs, positions, row_positions)

    def _flush(self, jobs: Sequence[Job]) -> tuple[list[Position], list[Position]]:
        """Write the entries of some requests, and rows beside them at the same time."""
        entries = [entry for job in jobs for entry in job.entries]
        rows = [row for job in jobs for row in job.rows]
        started = perf_counter()
        try:
            if self.failure is not None:
                raise self.failure
            beside = self._row_writer.submit(self._register.write_rows, rows) if rows else None
            positions = self._register.write(entries) if entries else []
            row_positions = beside.result() if beside is not None else []
        except LogFailed as fault:
            # One of the logs may have been written: only a server that reads both again knows the state.
            self.failure = fault
            for job in jobs:
                job.fault = fault
            return [], []
        if entries or rows:
            self._measured.flush.observe(perf_counter() - started)
        return positions, row_positions


def _row_entry(item: Item) -> Entry:
    return {"id": item.id, "row": dict(item.row or {})}


def _other_content(item: Item) -> Conflict:
    return Conflict(f"the id {item.id!r} was used for other content.")


