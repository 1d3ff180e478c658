"""Execute a plan: make every node that is not in the store, after the nodes it needs.

A failure is a record, never a result, and does not stop the others: nodes that depend on it are marked as blocked, and
all of them are tried again in the next run. A node that another process is making is left to that process and picked up
when it is done. A job whose worker died is tried again: it finds what the first try has finished, or its checkpoint.
Only a store that cannot be written stops everything, since nothing made afterwards could be saved.
"""

from __future__ import annotations

import heapq
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from dubio.core.errors import CorruptFile, StoreError
from dubio.runner.executors import Executor, Finished, Noted, Progressed
from dubio.runner.plan import Node, Plan
from dubio.runner.progress import SilentProgress, State
from dubio.store import Store

WAIT_SECONDS = 0.25
POLL_SECONDS = 0.5
MOST_ATTEMPTS = 3
"""Times a damaged fit is made again, or a job is tried whose worker dies, before it counts as failed."""

BLAMELESS_SHARE = 0.1
"""The part of an attempt that a worker counts for which died while starting or with its machine: jobs outlive machines
that are lost, but one that takes every machine with it ends at last."""


@dataclass
class Outcome:
    """The outcome of a plan.

    Attributes:
        stored: Ids of nodes that were in the store.
        completed: Ids completed now, by this run or by another process.
        failures: Id → the failure; its ``blocked`` lists the nodes that were not made because of it.
        blocked: Ids of those nodes.
    """

    stored: list[str] = field(default_factory=list)
    completed: list[str] = field(default_factory=list)
    failures: dict[str, dict[str, Any]] = field(default_factory=dict)
    blocked: set[str] = field(default_factory=set)


def failure_record(identifier: str, what: str, kind: str, task: str, method: str, error: str) -> dict[str, Any]:
    """Return a failure as the store records it; a manifest adds what it ``blocked``."""
    return {"id": identifier, "what": what, "kind": kind, "task": task, "method": method, "error": error}


def survey(plan: Plan, store: Store, display: SilentProgress) -> set[str]:
    """Return the ids of the nodes that are complete in the store; damaged ones are reported and set aside."""
    complete: set[str] = set()
    for node in plan.nodes.values():
        if not store.layout.directory(node.folder, node.id).is_dir():
            continue
        try:
            store.verify(node.folder, node.id)
            if node.kind == "fit" or not store.missing_splits(node.id, node.splits):
                complete.add(node.id)
        except CorruptFile as error:
            display.note(f"damaged, will be made again: {error}")
            store.set_aside(node.folder, node.id)
    # An ensemble is complete if its members are.
    return {i for i in complete if plan.nodes[i].kind != "ensemble" or set(plan.nodes[i].needs) <= complete}


def execute(
    plan: Plan, store: Store, executor: Executor, display: SilentProgress, estimates: Mapping[str, float],
    complete: set[str],
) -> Outcome:  # fmt: skip
    """Make every node of the plan that is not complete in the store.

    Args:
        plan: The plan.
        store: Where results are written.
        executor: Runs the jobs.
        display: Shows the progress.
        estimates: Id → estimated seconds.
        complete: The ids that :func:`survey` returned.

    Raises:
        StoreError: If the store cannot be written.
    """
    run = _Execution(plan, store, executor, display, estimates, complete)
    todo = [i for i in plan.nodes if i not in complete]
    display.begin(len(todo), len(complete), sum(estimates.get(i, 0.0) for i in todo), executor.jobs)
    while run.step():
        pass
    return run.outcome


class _Execution:
    """The state of one execution; the cost of an event does not depend on the size of the plan."""

    def __init__(
        self, plan: Plan, store: Store, executor: Executor, display: SilentProgress, estimates: Mapping[str, float],
        complete: set[str],
    ) -> None:  # fmt: skip
        self._plan, self._store, self._executor, self._display = plan, store, executor, display
        self._states: dict[str, State] = {i: "done" if i in complete else "todo" for i in plan.nodes}
        self._open = len(plan.nodes) - len(complete)
        self._attempts: dict[str, int] = {}
        self._lost: dict[str, float] = {}
        self._other_process: set[str] = set()
        self._next_poll = 0.0
        # Predictions first: if the run is interrupted, every finished training has been used. Then the longest fit
        # first, so that no long one remains at the end.
        self._rank = {i: (plan.nodes[i].kind == "fit", -estimates.get(i, 0.0), k) for k, i in enumerate(plan.nodes)}
        self._dependants: dict[str, list[str]] = {i: [] for i in plan.nodes}
        self._unmet = dict.fromkeys(plan.nodes, 0)
        for node in plan.nodes.values():
            for need in node.needs:
                self._dependants[need].append(node.id)
                self._unmet[node.id] += need not in complete
        self._ready: list[tuple[tuple[bool, float, int], str]] = []
        for identifier in plan.nodes:
            self._queue_if_ready(identifier)
        self.outcome = Outcome(stored=[i for i in plan.nodes if i in complete])

    def step(self) -> bool:
        """Submit the ready nodes and process the events; return False when all nodes have ended."""
        self._submit_ready()
        if not self._open:
            return False
        for event in self._executor.wait(WAIT_SECONDS):
            if isinstance(event, Noted):
                self._display.note(event.text)
            elif isinstance(event, Progressed):
                self._display.update(self._plan.nodes[event.id], event.fraction, event.detail)
            else:
                self._process(self._plan.nodes[event.id], event)
        self._poll_other_processes()
        return True

    def _queue_if_ready(self, identifier: str) -> None:
        """Queue the node if everything it needs is complete."""
        if self._states[identifier] == "todo" and not self._unmet[identifier]:
            heapq.heappush(self._ready, (self._rank[identifier], identifier))

    def _submit_ready(self) -> None:
        while self._ready and self._executor.free() > 0:
            _, identifier = heapq.heappop(self._ready)
            if self._states[identifier] != "todo" or self._unmet[identifier]:
                continue  # queued earlier; what it needs has to be made again
            node = self._plan.nodes[identifier]
            if node.kind == "ensemble":
                self._store.write_ensemble(node.spec)
                self._finish(node, "")
                continue
            self._states[identifier] = "running"
            self._display.start(node)
            self._executor.submit(node.job())

    def _process(self, node: Node, event: Finished) -> None:
        result = event.result
        for note in result.get("notes", ()):
            self._display.note(note)
        if result["status"] in ("made", "found"):
            own = result["status"] == "made" or node.id in self._lost  # by the worker that died before it could tell
            self._finish(node, "" if own else "made by another process")
        elif result["status"] == "busy":
            self._states[node.id] = "other_process"
            self._other_process.add(node.id)
            self._display.update(node, 0.0, "another process is making it")
        elif result["status"] == "store":
            raise StoreError(result["error"])
        elif result["status"] == "damaged" and self._can_remake(result["fit"]):
            self._remake(node, result["fit"], result["error"])
        elif result["status"] == "lost":
            self._try_again(node, result)
        else:
            self._fail(node, result)

    def _finish(self, node: Node, remark: str) -> None:
        self._states[node.id] = "done"
        self._open -= 1
        self.outcome.completed.append(node.id)
        self._display.end(node, "done", remark)
        for dependant in self._dependants[node.id]:
            self._unmet[dependant] -= 1
            self._queue_if_ready(dependant)

    def _can_remake(self, fit_id: str) -> bool:
        return self._states[fit_id] not in ("failed", "blocked") and self._attempts.get(fit_id, 0) < MOST_ATTEMPTS

    def _remake(self, node: Node, fit_id: str, error: str) -> None:
        """Make a damaged fit again, then the node that needs it."""
        self._attempts[fit_id] = self._attempts.get(fit_id, 0) + 1
        self._display.note(f"damaged, will be made again: {error}")
        self._states[node.id] = "todo"
        if self._states[fit_id] == "done":
            self._states[fit_id] = "todo"
            self._open += 1
            for dependant in self._dependants[fit_id]:
                self._unmet[dependant] += 1
            self._queue_if_ready(fit_id)
        else:
            self._queue_if_ready(node.id)

    def _try_again(self, node: Node, result: Mapping[str, Any]) -> None:
        """Queue a node whose worker died, or fail it after several times; most of a death without blame is forgiven."""
        share = 1.0 if result.get("blame", True) else BLAMELESS_SHARE
        lost = self._lost[node.id] = self._lost.get(node.id, 0.0) + share
        if lost >= MOST_ATTEMPTS:
            self._fail(node, {**result, "error": f"{result['error']} It was tried {lost:.0f} times."})
            return
        attempt = f"attempt {int(lost) + 1} of {MOST_ATTEMPTS}"
        self._display.note(f"worker died: {node}: {result['error']} Trying it again, {attempt}.")
        self._states[node.id] = "todo"
        self._queue_if_ready(node.id)

    def _fail(self, node: Node, result: Mapping[str, Any]) -> None:
        self._states[node.id] = "failed"
        self._open -= 1
        failure = failure_record(node.id, str(node), node.kind, node.task.name, node.method, str(result["error"]))
        self._store.write_failure(node.id, {**failure, "traceback": result.get("traceback", "")})
        self._display.end(node, "failed", failure["error"])
        self.outcome.failures[node.id] = {**failure, "blocked": self._block(node)}

    def _block(self, cause: Node) -> list[str]:
        """Mark the nodes that need a failed one as blocked and return their names.

        They are consequences of that failure, not failures of their own.
        """
        names = []
        for identifier in self._dependants[cause.id]:
            if self._states[identifier] != "todo":
                continue
            node = self._plan.nodes[identifier]
            self._states[identifier] = "blocked"
            self._open -= 1
            self.outcome.blocked.add(identifier)
            self._display.end(node, "blocked", f"not run, because this failed: {cause}.")
            names += [str(node), *self._block(node)]
        return names

    def _poll_other_processes(self) -> None:
        """Queue the nodes that other processes have finished, or abandoned."""
        if time.monotonic() < self._next_poll:
            return
        self._next_poll = time.monotonic() + POLL_SECONDS
        for identifier in sorted(self._other_process):
            if not self._store.is_locked(identifier):
                # Submitted once more: the worker finds it complete, or makes it.
                self._other_process.remove(identifier)
                self._states[identifier] = "todo"
                self._queue_if_ready(identifier)
