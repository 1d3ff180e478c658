"""The Ray executor: the same jobs in Ray actors, on this machine or on the cluster that RAY_ADDRESS names.

Every node must see the store under the same path. Jobs and results travel as JSON text; one actor is one core.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from dubio.core.errors import MissingExtra
from dubio.runner.executor import THREAD_VARIABLES, Event, Finished, WorkerOrders


class _Hand:
    """What an actor holds: a workshop, opened where the actor lives."""

    def __init__(self, orders: str) -> None:
        from dubio.runner.worker import open_workshop

        self._workshop = open_workshop(json.loads(orders))

    def do(self, job: str) -> str:
        """Do a job; how far it is stays untold."""
        return json.dumps(self._workshop.do(json.loads(job), lambda fraction, words: None))


class RayExecutor:
    """Runs jobs in up to ``jobs`` Ray actors, started when first needed and kept."""

    def __init__(self, jobs: int, orders: WorkerOrders, logs: Path) -> None:
        """Connect to Ray: to RAY_ADDRESS where it is set, else to one started here for this run.

        Args:
            jobs: Most actors at a time.
            orders: What each is told.
            logs: Not used: Ray keeps its own logs.

        Raises:
            MissingExtra: When Ray is not installed.
        """
        try:
            import ray
        except ModuleNotFoundError as missing:
            raise MissingExtra("--executor ray", "ray") from missing
        self.jobs = jobs
        self._ray: Any = ray
        self._orders, self._started = orders, 0
        self._started_here = not ray.is_initialized()
        if self._started_here:
            elsewhere = {} if "RAY_ADDRESS" in os.environ else {"num_cpus": jobs, "include_dashboard": False}
            source = str(Path(__file__).resolve().parents[2])
            path = os.pathsep.join([source, *filter(None, [os.environ.get("PYTHONPATH")])])
            variables = {**dict.fromkeys(THREAD_VARIABLES, "1"), "PYTHONPATH": path}
            ray.init(log_to_driver=False, logging_level="error", runtime_env={"env_vars": variables}, **elsewhere)
        self._idle: list[Any] = []
        self._busy: dict[Any, tuple[Any, str]] = {}

    def free(self) -> int:
        """How many more jobs could start now."""
        return self.jobs - len(self._busy)

    def submit(self, job: dict[str, Any]) -> None:
        """Give a job to an actor without one, or to a new one."""
        actor = self._idle.pop() if self._idle else self._new_actor()
        self._busy[actor.do.remote(json.dumps(job))] = (actor, job["id"])

    def _new_actor(self) -> Any:
        self._started += 1
        return self._ray.remote(num_cpus=1)(_Hand).remote(self._orders.line(self._started - 1).decode())

    def wait(self, seconds: float) -> list[Event]:
        """What has ended, waiting so long for the first of it."""
        if not self._busy:
            return []
        ended, _ = self._ray.wait(list(self._busy), num_returns=1, timeout=seconds)
        return [self._ended(answer) for answer in ended]

    def _ended(self, answer: Any) -> Event:
        actor, job = self._busy.pop(answer)
        try:
            result = json.loads(self._ray.get(answer))
        except self._ray.exceptions.RayError as fault:  # the actor has died; the next job gets a new one
            return Finished(job, {"status": "failed", "error": f"the Ray actor is gone: {fault}", "traceback": ""})
        self._idle.append(actor)
        return Finished(job, result)

    def close(self) -> None:
        """Stop every actor, at once and whatever it is doing."""
        for actor in [*self._idle, *(actor for actor, _ in self._busy.values())]:
            self._ray.kill(actor)
        self._idle.clear()
        self._busy.clear()
        if self._started_here:
            self._ray.shutdown()
