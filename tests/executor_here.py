"""Trainings in the process of the tests, where a run is what a test starts from: a worker would load torch again."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any
from unittest import mock

from dubio.reporting.reported import get_ready
from dubio.runner import benchmark_run
from dubio.runner.executors import Event, Finished, WorkerOrders
from dubio.runner.trainer import load_trainer
from dubio.runner.worker import JobRunner
from dubio.store import Store


class ExecutorHere:
    """Runs every job as a worker does, at once and in this process."""

    def __init__(self, jobs: int, orders: WorkerOrders, *_: object) -> None:
        self.jobs = 1
        self._store = Store.open(orders.store, create=False)
        self._runner = JobRunner(self._store, load_trainer(orders.trainer), orders.checkpoint_seconds)
        self._events: list[Event] = []

    def start(self, jobs: int) -> None:
        """Start nothing."""

    def free(self) -> int:
        """Return how many more jobs could start now."""
        return 1 - len(self._events)

    def submit(self, job: dict[str, Any]) -> None:
        """Run a job."""
        self._events.append(Finished(job["id"], self._runner.run(job, lambda fraction, detail: None)))

    def wait(self, seconds: float) -> list[Event]:
        """Return the results since the last call."""
        events, self._events = self._events, []
        return events

    def close(self) -> None:
        """Close the store."""
        self._store.close()


@cache
def _load_reports() -> None:
    for _ in get_ready():
        pass


@contextmanager
def training_here() -> Iterator[None]:
    """Let runs that start in this block train in this process.

    A run loads the reports in a thread beside its trainings. Where these are in the same process, both may import the
    same packages at once, in another order, and wait for each other: so they are loaded before.
    """
    _load_reports()
    with mock.patch.object(benchmark_run, "EXECUTORS", {**benchmark_run.EXECUTORS, "local": ExecutorHere}):
        yield
