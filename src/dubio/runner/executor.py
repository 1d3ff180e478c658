"""What an executor is: something that carries jobs to where they are done and brings back what came of them."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from dubio.runner.left import STOCK

THREAD_VARIABLES = (
    "OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMEXPR_NUM_THREADS", "VECLIB_MAXIMUM_THREADS",
)  # fmt: skip
"""Set to 1 before a worker imports anything that counts."""

CPU = "cpu"


@dataclass(frozen=True)
class WorkerOrders:
    """What every worker is told once.

    Attributes:
        store: Directory of the store.
        plugins: Files to import before the first job.
        checkpoint_seconds: How often a fit under way is saved.
        left: Module that fits and predicts.
        devices: Where trainings and predictions run: each worker keeps to one of them, taken in turn.
    """

    store: Path
    plugins: Sequence[Path] = ()
    checkpoint_seconds: float = 600.0
    left: str = STOCK
    devices: Sequence[str] = (CPU,)

    def line(self, worker: int = 0) -> bytes:
        """As a worker reads it; the search path goes along, as it does when Python itself spawns a process.

        Args:
            worker: Which worker it is, from 0.
        """
        orders = {
            "path": [os.path.abspath(entry) for entry in sys.path],
            "store": str(self.store),
            "plugins": [str(plugin.resolve()) for plugin in self.plugins],
            "checkpoint_seconds": self.checkpoint_seconds,
            "left": self.left,
            "device": self.devices[worker % len(self.devices)],
        }
        return json.dumps(orders).encode() + b"\n"


@dataclass(frozen=True)
class Progressed:
    """A job is so far."""

    id: str
    fraction: float
    words: str


@dataclass(frozen=True)
class Finished:
    """A job has ended; ``result`` is as in :mod:`dubio.runner.jobs`."""

    id: str
    result: dict[str, Any]


Event = Progressed | Finished


class Executor(Protocol):
    """Runs jobs somewhere, several at a time."""

    jobs: int

    def free(self) -> int:
        """How many more jobs could start now."""
        ...

    def submit(self, job: dict[str, Any]) -> None:
        """Start a job; only when :meth:`free` is positive."""
        ...

    def wait(self, seconds: float) -> list[Event]:
        """What has happened, waiting at most so long for the first word of it."""
        ...

    def close(self) -> None:
        """Stop everything at once."""
        ...
