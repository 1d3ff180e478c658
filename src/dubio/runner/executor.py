"""Define what an executor is: it carries jobs to workers and brings back their results."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from dubio.runner.trainer import TORCH_TRAINER

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
    """

    store: Path
    plugins: Sequence[Path] = ()
    checkpoint_seconds: float = 600.0
    trainer: str = TORCH_TRAINER
    devices: Sequence[str] = (CPU,)

    def to_json(self, worker: int = 0) -> str:
        """Return the orders of one worker; they include the search path, as when Python itself spawns a process.

        Args:
            worker: The number of the worker, from 0.
        """
        orders = {
            "path": [os.path.abspath(entry) for entry in sys.path],
            "store": str(self.store),
            "plugins": [str(plugin.resolve()) for plugin in self.plugins],
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
    """A job has ended; ``result`` is as in :mod:`dubio.runner.worker`."""

    id: str
    result: dict[str, Any]


Event = Progressed | Finished


class Executor(Protocol):
    """Runs several jobs at a time."""

    jobs: int

    def free(self) -> int:
        """Return how many more jobs could start now."""
        ...

    def submit(self, job: dict[str, Any]) -> None:
        """Start a job; only when :meth:`free` is positive."""
        ...

    def wait(self, seconds: float) -> list[Event]:
        """Return the events since the last call, waiting at most that long for the first."""
        ...

    def close(self) -> None:
        """Stop everything at once."""
        ...
