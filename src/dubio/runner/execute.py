"""Carrying out a plan: what is planned minus what exists, in an order in which needs come first.

A failure is a record, never a result, and never stops the others: what depends on it is marked as not run, and all of
it is tried again next time. What another process is making is left to it and picked up when done. Only a store that
cannot be written stops everything, since nothing made after that could be kept.
"""

from __future__ import annotations

import heapq
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from dubio.core.errors import CorruptFile, StoreError
from dubio.runner.executor import Executor, Finished, Progressed
from dubio.runner.plan import Node, Plan
from dubio.store import Store
from dubio.store.layout import Room

State = Literal["todo", "running", "elsewhere", "done", "failed", "blocked"]

WAIT_SECONDS = 0.25
LOOK_AGAIN_SECONDS = 0.5
MOST_ATTEMPTS = 3
"""So often is something damaged made anew before it counts as failed: a disk that spoils what it is given."""


class Watcher(Protocol):
    """Is told what happens."""

    def begin(self, todo: int, found: int, seconds: float, jobs: int) -> None:
        """So many are to be made, so many are there; estimated seconds of work in all."""
        ...

    def start(self, node: Node) -> None:
        """Work on a node has begun."""
        ...

    def tell(self, node: Node, fraction: float, words: str) -> None:
        """A node is so far."""
        ...

    def end(self, node: Node, state: State, words: str) -> None:
        """A node has ended; words say why where it did not end well, or who made it where that was not us."""
        ...

    def note(self, words: str) -> None:
        """Something worth saying."""
        ...


@dataclass
class Outcome:
    """What came of a plan.

    Attributes:
        found: Ids that were there.
        made: Ids made now, here or by another process.
        failures: Id → what went wrong; ``blocked`` in it lists what was not made because of it.
        blocked: Ids of those.
    """

    found: list[str] = field(default_factory=list)
    made: list[str] = field(default_factory=list)
    failures: dict[str, dict[str, Any]] = field(default_factory=dict)
    blocked: set[str] = field(default_factory=set)


def survey(plan: Plan, store: Store, watcher: Watcher) -> set[str]:
    """The ids of what exists and is sound; what is damaged is reported and moved out of the way."""
    sound: set[str] = set()
    for node in plan.nodes.values():
        room: Room = "fits" if node.kind == "fit" else "predictions"
        if not store.layout.directory(room, node.id).is_dir():
            continue
        try:
            store.verify(room, node.id)
            if room == "fits" or not store.missing_splits(node.id, node.splits):
                sound.add(node.id)
        except CorruptFile as fault:
            watcher.note(f"damaged, made anew: {fault}")
            store.set_aside(room, node.id)
    # An ensemble is there when its members are.
    return {i for i in sound if plan.nodes[i].kind != "ensemble" or set(plan.nodes[i].needs) <= sound}


def execute(
    plan: Plan, store: Store, executor: Executor, watcher: Watcher, estimates: Mapping[str, float], sound: set[str]
) -> Outcome:
    """Make what is planned and not yet there.

    Args:
        plan: The plan.
        store: Where everything goes.
        executor: Who does it.
        watcher: Is told.
        estimates: Id → estimated seconds.
        sound: What :func:`survey` found.

    Raises:
        StoreError: When the store cannot be written.
    """
    run = _Execution(plan, store, executor, watcher, estimates, sound)
    todo = [i for i in plan.nodes if i not in sound]
    watcher.begin(len(todo), len(sound), sum(estimates.get(i, 0.0) for i in todo), executor.jobs)
    while run.step():
        pass
    return run.outcome


class _Execution:
    """The state of carrying out one plan; every event costs what it touches, however large the plan is."""

    def __init__(
        self, plan: Plan, store: Store, executor: Executor, watcher: Watcher, estimates: Mapping[str, float],
        sound: set[str],
    ) -> None:  # fmt: skip
        self._plan, self._store, self._executor, self._watcher = plan, store, executor, watcher
        self._states: dict[str, State] = {i: "done" if i in sound else "todo" for i in plan.nodes}
        self._open = len(plan.nodes) - len(sound)
        self._attempts: dict[str, int] = {}
        self._elsewhere: set[str] = set()
        self._look_again = 0.0
        # Predictions first: should we be stopped, all that was trained has been used. Then the longest fit first,
        # so that no long one is left over at the end.
        self._rank = {i: (plan.nodes[i].kind == "fit", -estimates.get(i, 0.0), k) for k, i in enumerate(plan.nodes)}
        self._dependants: dict[str, list[str]] = {i: [] for i in plan.nodes}
        self._unmet = dict.fromkeys(plan.nodes, 0)
        for node in plan.nodes.values():
            for need in node.needs:
                self._dependants[need].append(node.id)
                self._unmet[node.id] += need not in sound
        self._ready: list[tuple[tuple[bool, float, int], str]] = []
        for identifier in plan.nodes:
            self._offer(identifier)
        self.outcome = Outcome(found=[i for i in plan.nodes if i in sound])

    def step(self) -> bool:
        """Hand out what is ready and take in what has happened; False when nothing is left."""
        self._hand_out()
        if not self._open:
            return False
        for event in self._executor.wait(WAIT_SECONDS):
            node = self._plan.nodes[event.id]
            if isinstance(event, Progressed):
                self._watcher.tell(node, event.fraction, event.words)
            else:
                self._take(node, event)
        self._look_elsewhere()
        return True

    def _offer(self, identifier: str) -> None:
        """Put something among what is ready, if it is."""
        if self._states[identifier] == "todo" and not self._unmet[identifier]:
            heapq.heappush(self._ready, (self._rank[identifier], identifier))

    def _hand_out(self) -> None:
        while self._ready and self._executor.free() > 0:
            _, identifier = heapq.heappop(self._ready)
            if self._states[identifier] != "todo" or self._unmet[identifier]:
                continue  # it was ready once; what it needs has to be made anew
            node = self._plan.nodes[identifier]
            if node.kind == "ensemble":
                self._store.write_ensemble(node.spec)
                self._finish(node, "")
                continue
            self._states[identifier] = "running"
            self._watcher.start(node)
            self._executor.submit(
                {"kind": node.kind, "id": node.id, "spec": node.spec, "task": node.task, "splits": node.splits}
            )

    def _take(self, node: Node, event: Finished) -> None:
        result = event.result
        if result["status"] in ("made", "found"):
            self._finish(node, "" if result["status"] == "made" else "made by another process")
        elif result["status"] == "busy":
            self._states[node.id] = "elsewhere"
            self._elsewhere.add(node.id)
            self._watcher.tell(node, 0.0, "another process is making it")
        elif result["status"] == "store":
            raise StoreError(result["error"])
        elif result["status"] == "damaged" and self._can_redo(result["fit"]):
            self._redo(node, result["fit"], result["error"])
        else:
            self._fail(node, result)

    def _finish(self, node: Node, words: str) -> None:
        self._states[node.id] = "done"
        self._open -= 1
        self.outcome.made.append(node.id)
        self._watcher.end(node, "done", words)
        for dependant in self._dependants[node.id]:
            self._unmet[dependant] -= 1
            self._offer(dependant)

    def _can_redo(self, fit_id: str) -> bool:
        return self._states[fit_id] not in ("failed", "blocked") and self._attempts.get(fit_id, 0) < MOST_ATTEMPTS

    def _redo(self, node: Node, fit_id: str, error: str) -> None:
        """The fit is made anew, then what needed it."""
        self._attempts[fit_id] = self._attempts.get(fit_id, 0) + 1
        self._watcher.note(f"damaged, made anew: {error}")
        self._states[node.id] = "todo"
        if self._states[fit_id] == "done":
            self._states[fit_id] = "todo"
            self._open += 1
            for dependant in self._dependants[fit_id]:
                self._unmet[dependant] += 1
            self._offer(fit_id)
        else:
            self._offer(node.id)

    def _fail(self, node: Node, result: Mapping[str, Any]) -> None:
        self._states[node.id] = "failed"
        self._open -= 1
        failure = self._describe(node, str(result["error"]))
        recorded = {key: value for key, value in failure.items() if key != "blocked"}
        self._store.write_failure(node.id, {**recorded, "traceback": result.get("traceback", "")})
        self.outcome.failures[node.id] = failure
        self._watcher.end(node, "failed", str(result["error"]))
        self._block(node, failure)

    def _block(self, cause: Node, failure: dict[str, Any]) -> None:
        """What needs something that failed is not run: no failure of its own, but a consequence of that one."""
        for identifier in self._dependants[cause.id]:
            if self._states[identifier] != "todo":
                continue
            node = self._plan.nodes[identifier]
            self._states[identifier] = "blocked"
            self._open -= 1
            self.outcome.blocked.add(identifier)
            failure["blocked"].append(f"{node.kind} of {node.label}")
            self._watcher.end(node, "blocked", f"not run, because it needs what failed: {cause.kind} of {cause.label}.")
            self._block(node, failure)

    def _describe(self, node: Node, error: str) -> dict[str, Any]:
        return {
            "id": node.id,
            "what": f"{node.kind} of {node.label}",
            "kind": node.kind,
            "task": node.task_name,
            "method": node.method,
            "error": error,
            "blocked": [],
        }

    def _look_elsewhere(self) -> None:
        """See whether what other processes were making is done, or free because they are gone."""
        if time.monotonic() < self._look_again:
            return
        self._look_again = time.monotonic() + LOOK_AGAIN_SECONDS
        for identifier in sorted(self._elsewhere):
            if not self._store.is_locked(identifier):
                # Handed out once more: the worker finds it done, or makes it.
                self._elsewhere.remove(identifier)
                self._states[identifier] = "todo"
                self._offer(identifier)
