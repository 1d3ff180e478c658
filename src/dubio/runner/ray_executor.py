"""The Ray executor: the jobs of a run in actors, here or on the cluster that RAY_ADDRESS names.

A thread on the driver looks after each actor: it asks Ray for one, waits until Ray has placed it, gives it jobs one
after the other, and asks for another if it dies. Jobs go only to actors that are in place. So ``--jobs`` may exceed the
cluster; a node that joins is used, because actors wait for it, and one that leaves takes its actors with it.

A node need not see the store: it then works in a folder of its own (:mod:`dubio.runner.transfer`).
"""

from __future__ import annotations

import contextlib
import json
import queue
import threading
import time
from collections import deque
from pathlib import Path
from typing import Any

from dubio.core.errors import CorruptFile, DubioError, StoreError, UserError
from dubio.runner.executors import Event, Finished, Noted, Progressed, WorkerOrders
from dubio.runner.ray_cluster import RayCluster, ask_node, fault_of, is_alive, on_node
from dubio.runner.ray_node import LOG_TAIL, last_words
from dubio.runner.transfer import NodeLink, copy_name, data_paths, data_variables, is_complete, with_paths
from dubio.store import BusyError, Store

MOST_PENDING = 32
"""Actors that wait for a place at a time: more would burden Ray's scheduler and start no sooner."""

MOST_FAILED_STARTS = 3
"""Actors in a row that cannot start, while no other runs, after which none is expected to."""

PATIENCE = 20.0
"""Seconds without any actor in place after which the display says so; doubled each time."""

PAUSE = 1.0
"""Seconds before another actor is asked for after one that could not start."""

NODE_SECONDS = 15.0
"""Time for a node to answer after an actor on it has died; Ray itself hears late of a lost node."""

CLOSE_SECONDS = 5.0

Json = dict[str, Any]


class RayExecutor:
    """Runs jobs in up to ``jobs`` Ray actors, started when first needed and kept."""

    def __init__(self, jobs: int, orders: WorkerOrders, logs: Path) -> None:
        """Connect to Ray: to RAY_ADDRESS if it is set, else to an instance started for this run.

        Args:
            jobs: Largest number of actors at a time.
            orders: Configuration of the workers.
            logs: Existing directory for messages of Ray.

        Raises:
            MissingExtra: If Ray is not installed.
            UserError: If there is no cluster at RAY_ADDRESS, or one of its nodes cannot be used.
        """
        self.jobs, self._orders = jobs, orders
        self.events: queue.SimpleQueue[Event | DubioError] = queue.SimpleQueue()
        self._inbox: deque[Json] = deque()
        self._changed = threading.Condition()
        self._idle = self._placed = self._pending = self._failed_starts = 0
        self._closing = self._begun = False
        self._threads: list[threading.Thread] = []
        self._guests: set[Any] = set()
        self._linking = threading.Lock()
        self._links: dict[str, NodeLink] = {}
        self._waiting_since, self._patience = time.monotonic(), PATIENCE
        with contextlib.ExitStack() as cleanup:
            # Ray prints what happens to nodes on standard output, which belongs to results.
            log = cleanup.enter_context((logs / "ray.log").open("w"))
            cleanup.enter_context(contextlib.redirect_stdout(log))
            self.store = cleanup.enter_context(Store.open(orders.store, create=False))
            beacon = self.store.scratch.new()
            beacon.write_bytes(b"")
            self.beacon = str(beacon)
            self.cluster = RayCluster(jobs, orders.resources)
            cleanup.callback(self.cluster.close)
            self.note(self.cluster.shortage())
            cleanup.callback(self._stop)
            self._cleanup = cleanup.pop_all()

    # --- the executor's protocol ------------------------------------------------------------------------------------

    def start(self, jobs: int) -> None:
        """Wait for the first question: only then is a cluster asked for actors."""

    def free(self) -> int:
        """Return how many more jobs could start now; asking means that there is work, so actors are asked for."""
        with self._changed:
            asked_for = min(self.jobs - len(self._threads), MOST_PENDING - self._pending)
            for _ in range(asked_for):
                self._pending += 1
                thread = threading.Thread(target=self._look_after, args=(len(self._threads),), daemon=True)
                self._threads.append(thread)
                thread.start()
            return max(0, self._idle - len(self._inbox))

    def submit(self, job: Json) -> None:
        """Give the job to an idle actor."""
        with self._changed:
            self._inbox.append(job)
            self._changed.notify()

    def wait(self, seconds: float) -> list[Event]:
        """Return the events since the last call, waiting at most that long for the first.

        Raises:
            DubioError: If no actor can start.
        """
        self._say_if_waiting()
        events: list[Event] = []
        with contextlib.suppress(queue.Empty):
            while True:
                event = self.events.get(timeout=seconds) if seconds and not events else self.events.get_nowait()
                if isinstance(event, DubioError):
                    raise event
                events.append(event)
        return events

    def _say_if_waiting(self) -> None:
        now = time.monotonic()
        if self._placed or not self._threads:
            self._waiting_since, self._patience = now, PATIENCE
        elif now - self._waiting_since > self._patience:
            self._patience *= 2
            self.note(f"waiting for an actor to start: {self.cluster.free_share()}")

    def close(self) -> None:
        """Stop every actor at once."""
        self._cleanup.close()

    def _stop(self) -> None:
        with self._changed:
            self._closing = True
            self._changed.notify_all()
            guests, links = list(self._guests), list(self._links.values())
        ray = self.cluster.ray
        goodbyes = [link.guest.call.remote("close") for link in links]
        for guest in guests:
            ray.kill(guest)
        if goodbyes:
            ray.wait(goodbyes, num_returns=len(goodbyes), timeout=CLOSE_SECONDS / 2)
        for link in links:
            ray.kill(link.guest)
        deadline = time.monotonic() + CLOSE_SECONDS
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()))

    def note(self, text: str) -> None:
        """Pass a sentence to the display; an empty one is none."""
        if text:
            self.events.put(Noted(text))

    # --- one actor after the other, each slot in a thread -----------------------------------------------------------

    def _look_after(self, slot: int) -> None:
        """Keep one actor at work until the executor is closed."""
        while not self._closing:
            visit = _Visit(self, slot)
            try:
                try:
                    visit.prepare()
                    visit.work()
                except self.cluster.ray.exceptions.RayError as error:
                    if not self._closing:
                        visit.mourn(error)
            except Exception as error:
                if not self._closing:  # without its thread, the run would wait for ever
                    self.events.put(DubioError(f"the Ray executor failed: {type(error).__name__}: {error}"))
                return
            finally:
                visit.leave()

    def new_guest(self) -> Any:
        """Ask Ray for an actor that runs jobs."""
        guest = self.cluster.job_guest()
        with self._changed:
            self._guests.add(guest)
        return guest

    def dismiss(self, guest: Any) -> None:
        """Stop an actor, or ask for it no longer."""
        with self._changed:
            self._guests.discard(guest)
        with contextlib.suppress(Exception):  # it may be gone, and Ray too
            self.cluster.ray.kill(guest)

    def link_to(self, facts: Json) -> NodeLink:
        """Return the link to a node that does not see the store."""
        with self._linking:
            if facts["node"] not in self._links:
                guest = self.cluster.new_guest(**on_node(facts["node"]))
                self._links[facts["node"]] = NodeLink(self.cluster.ray, guest, facts["host"])
            return self._links[facts["node"]]

    def drop_link_if_dead(self, node: str) -> None:
        """Forget the folder of a node if nobody looks after it any more."""
        with self._linking:
            link = self._links.get(node)
            if link is not None:
                try:
                    self.cluster.ray.get(link.guest.call.remote("root"), timeout=CLOSE_SECONDS)
                except self.cluster.ray.exceptions.RayError:
                    del self._links[node]

    def orders_of(self, slot: int, link: NodeLink | None) -> str:
        """Return the orders of one actor."""
        orders = json.loads(self._orders.to_json(slot))
        if self.cluster.needs.get("gpu"):
            orders["device"] = "cuda"  # Ray shows an actor its own devices only
        if link is not None:
            plugins = [Path(plugin) for plugin in orders["plugins"]]
            for plugin in plugins:
                link.send(plugin)
            orders["plugins"] = [f"{link.root}/{copy_name(plugin)}" for plugin in plugins]
            orders["store"] = f"{link.root}/store"
        return json.dumps(orders)

    def next_job(self) -> Json | None:
        """Return the next job, waiting for it; None when the executor is closed."""
        with self._changed:
            self._changed.wait_for(lambda: self._inbox or self._closing)
            if self._closing:
                return None
            self._idle -= 1
            self._begun = True
            return self._inbox.popleft()

    def give_back(self, job: Json) -> None:
        """Leave a job to another actor."""
        with self._changed:
            self._inbox.appendleft(job)
            self._changed.notify()

    def count(self, *, idle: int = 0, placed: int = 0, pending: int = 0) -> None:
        """Count actors."""
        with self._changed:
            self._idle += idle
            self._placed += placed
            self._pending += pending

    def count_start(self, fault: str) -> None:
        """Count an actor that started, or did not; give up where none does."""
        with self._changed:
            self._failed_starts = self._failed_starts + 1 if fault else 0
            if self._failed_starts >= MOST_FAILED_STARTS and not self._placed:
                self.events.put(DubioError(f"no Ray actor can start: {fault}"))

    def park(self, fault: str) -> None:
        """Hold the place of an actor on a node that cannot be used, so that Ray places others on other nodes."""
        with self._changed:
            # A run that has begun need not end because of a node that joined.
            self.events.put(Noted(f"{fault} It is left out.") if self._begun else UserError(fault))
            self._changed.wait_for(lambda: self._closing)


class _Visit:
    """One actor from the request to its end, and the job that it runs."""

    def __init__(self, executor: RayExecutor, slot: int) -> None:
        self._executor, self._slot, self._ray = executor, slot, executor.cluster.ray
        self._facts: Json | None = None
        self._ready = self._idle = False
        self._job: Json | None = None
        self._link: NodeLink | None = None
        self._guest = executor.new_guest()

    def _call(self, name: str, *arguments: Any) -> Any:
        return self._ray.get(self._guest.call.remote(name, *arguments))

    def prepare(self) -> None:
        """Wait until Ray has placed the actor, check its node and prepare it for jobs."""
        executor = self._executor
        facts = self._facts = self._ray.get(self._guest.facts.remote(executor.beacon))
        executor.count(pending=-1)
        if fault := fault_of(facts, executor.cluster.address):
            executor.park(fault)
            return
        if not facts["sees"]:
            self._link = executor.link_to(facts)
        variables = {} if self._link is None else data_variables(self._link.root)
        orders = executor.orders_of(self._slot, self._link)
        self._ray.get(self._guest.open.remote("JobServer", orders, variables))
        self._ready = self._idle = True
        executor.count(placed=1, idle=1)
        executor.count_start("")

    def work(self) -> None:
        """Run jobs until the executor is closed."""
        executor = self._executor
        while (job := executor.next_job()) is not None:
            self._idle = False
            try:
                self._call("ping")
            except self._ray.exceptions.RayError:
                executor.give_back(job)  # the actor died while it was idle
                raise
            self._job = job
            result = self._run(job) if self._link is None else self._run_apart(job, self._link)
            self._job, self._idle = None, True
            executor.count(idle=1)
            executor.events.put(Finished(job["id"], result))

    def _run(self, job: Json, root: str = "") -> Json:
        """Run a job and report its progress; return its result."""
        self._call("start", json.dumps(with_paths(job, root)))
        shown = None
        while True:
            news = json.loads(self._call("news"))
            if news["ended"]:
                return news["result"] or {"status": "failed", "error": "the job ended without a result."}
            if news["progress"] not in (None, shown):
                shown = news["progress"]
                self._executor.events.put(Progressed(job["id"], *shown))

    def _run_apart(self, job: Json, link: NodeLink) -> Json:
        """Run a job on a node that does not see the store: send what it needs, bring back what it made."""
        store = self._executor.store
        try:
            if job["kind"] == "estimate":
                self._send(job, link)
                return self._run(job, link.root)
            with store.lock(job["id"]):
                if is_complete(store, job):
                    return {"status": "found"}
                self._send(job, link)
                result = self._run(job, link.root)
                if result["status"] in ("made", "found"):
                    link.collect(store, "fits" if job["kind"] == "fit" else "predictions", job["id"])
                    result["status"] = "made"
        except BusyError:
            return {"status": "busy"}
        except StoreError as error:
            return {"status": "store", "error": str(error)}
        except (DubioError, OSError) as error:
            return {"status": "lost", "error": f"files between this machine and node {link.host}: {error}"}
        return self._judged(result, link)

    def _send(self, job: Json, link: NodeLink) -> None:
        self._executor.events.put(Progressed(job["id"], 0.0, f"sending files to {link.host}"))
        for path in data_paths(job):
            link.send(path)
        for fit in filter(None, (job["spec"].get("start"), job["spec"].get("fit"))):
            link.send_fit(self._executor.store.layout, fit)

    def _judged(self, result: Json, link: NodeLink) -> Json:
        """Return a result as it is for the driver's store: damage and a full disk may be the node's alone."""
        if result["status"] == "damaged":
            try:
                self._executor.store.verify("fits", result["fit"])
            except CorruptFile:
                self._executor.store.set_aside("fits", result["fit"])
                return result
            link.forget_fit(result["fit"])
        elif result["status"] != "store":
            return result
        return {"status": "lost", "error": f"node {link.host}: {result['error']}", "traceback": ""}

    def mourn(self, error: Any) -> None:
        """Report the end of an actor: the loss of its job, or that it could not start."""
        facts = self._facts
        cause, output, blame = self._cause(error)
        if self._job is not None:
            result = {"status": "lost", "error": cause, "traceback": output, "blame": blame}
            self._executor.events.put(Finished(self._job["id"], result))
        elif not self._ready:
            if blame:
                self._executor.count_start(f"{cause} {output}".strip())
            time.sleep(PAUSE)
        if self._link is not None and facts is not None:
            self._executor.drop_link_if_dead(facts["node"])

    def _cause(self, error: Any) -> tuple[str, str, bool]:
        """Return why the actor ended, its last words, and whether its job may be to blame: not if its node was lost."""
        faults = self._ray.exceptions
        if isinstance(error, faults.RayTaskError):
            return f"{type(error.cause).__name__}: {error.cause}", str(error)[-LOG_TAIL:], True
        if self._facts is None:
            return "Ray could not make an actor.", str(error)[-LOG_TAIL:], True
        host, node = self._facts["host"], self._facts["node"]
        answer = ask_node(self._ray, last_words, node, self._facts["log"])
        deadline = time.monotonic() + NODE_SECONDS
        while is_alive(self._ray, node) and time.monotonic() < deadline:
            try:
                output = self._ray.get(answer, timeout=PAUSE)
            except faults.GetTimeoutError:
                continue
            except faults.RayError:
                break
            return f"the worker process on node {host} died.", output or str(error)[-LOG_TAIL:], True
        return f"node {host} of the cluster was lost.", "", False

    def leave(self) -> None:
        """Give the actor's place back."""
        self._executor.count(idle=-self._idle, placed=-self._ready, pending=int(self._facts is not None))
        self._executor.dismiss(self._guest)
