"""The Ray executor: the jobs of a run in actors, here or on the cluster that RAY_ADDRESS names.

Every node must see the store under the same path, jobs and results travel as JSON text, and one actor uses one core.
"""

from __future__ import annotations

import importlib
import json
import os
from pathlib import Path
from typing import Any

from dubio.core.errors import MissingExtra
from dubio.runner.executors import Event, Finished, WorkerOrders, worker_environment


class _Actor:
    """Holds a job runner, opened where the actor lives."""

    def __init__(self, orders: str) -> None:
        from dubio.runner.worker import open_job_runner

        self._runner = open_job_runner(json.loads(orders))

    def run(self, job: str) -> str:
        """Run one job without progress reports."""
        return json.dumps(self._runner.run(json.loads(job), lambda fraction, detail: None))


class RayExecutor:
    """Runs jobs in up to ``jobs`` Ray actors, started when first needed and kept."""

    def __init__(self, jobs: int, orders: WorkerOrders, logs: Path) -> None:
        """Connect to Ray: to RAY_ADDRESS if it is set, else to an instance started for this run.

        Args:
            jobs: Largest number of actors at a time.
            orders: Configuration of the workers.
            logs: Not used: Ray keeps its own logs.

        Raises:
            MissingExtra: If Ray is not installed.
        """
        try:
            # Imported by name: type checkers see the same code whether or not Ray is installed.
            ray: Any = importlib.import_module("ray")
        except ModuleNotFoundError as missing:
            raise MissingExtra("--executor ray", "ray") from missing
        self.jobs = jobs
        self._ray = ray
        self._orders, self._started = orders, 0
        self._started_here = not ray.is_initialized()
        if self._started_here:
            local = {} if "RAY_ADDRESS" in os.environ else {"num_cpus": jobs, "include_dashboard": False}
            variables = {"env_vars": worker_environment()}
            ray.init(log_to_driver=False, logging_level="error", runtime_env=variables, **local)
        self._idle: list[Any] = []
        self._busy: dict[Any, tuple[Any, str]] = {}

    def free(self) -> int:
        """Return how many more jobs could start now."""
        return self.jobs - len(self._busy)

    def submit(self, job: dict[str, Any]) -> None:
        """Give the job to an idle actor, or to a new one."""
        actor = self._idle.pop() if self._idle else self._new_actor()
        self._busy[actor.run.remote(json.dumps(job))] = (actor, job["id"])

    def _new_actor(self) -> Any:
        self._started += 1
        return self._ray.remote(num_cpus=1)(_Actor).remote(self._orders.to_json(self._started - 1))

    def wait(self, seconds: float) -> list[Event]:
        """Return the events since the last call, waiting at most that long for the first."""
        if not self._busy:
            return []
        ended, _ = self._ray.wait(list(self._busy), num_returns=1, timeout=seconds)
        return [self._finished(answer) for answer in ended]

    def _finished(self, answer: Any) -> Event:
        actor, job = self._busy.pop(answer)
        try:
            result = json.loads(self._ray.get(answer))
        except self._ray.exceptions.RayError as error:  # the actor has died; the next job gets a new one
            return Finished(job, {"status": "failed", "error": f"the Ray actor died: {error}", "traceback": ""})
        self._idle.append(actor)
        return Finished(job, result)

    def close(self) -> None:
        """Stop every actor at once."""
        for actor in [*self._idle, *(actor for actor, _ in self._busy.values())]:
            self._ray.kill(actor)
        self._idle.clear()
        self._busy.clear()
        if self._started_here:
            self._ray.shutdown()
