"""A Ray cluster as dubio uses it: how to connect, which nodes can be used, how many jobs it holds, new actors."""

from __future__ import annotations

import contextlib
import faulthandler
import importlib
import importlib.util
import json
import math
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

from dubio.core.errors import MissingExtra, UserError, listing
from dubio.runner.executors import worker_environment
from dubio.runner.ray_node import guest_class, node_facts
from dubio.runner.resources import DEFAULT_RESOURCES, RAY_NAMES, SMALLEST, resource_text

ADDRESS_VARIABLE = "RAY_ADDRESS"
ANSWER_SECONDS = 9.0
"""Time for a cluster to answer, from the moment when Ray is imported: a busy machine is no sign of a wrong address."""

CONNECT_SECONDS = 8.0
"""Time for the host to take up a connection, and for what listens there to say a word."""

HTTP2_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes((0, 0, 0, 4, 0, 0, 0, 0, 0))
"""How a client of HTTP/2, such as Ray's, begins, with no settings of its own (RFC 9113, 3.4): every server answers."""
SETTINGS_FRAME = b"\x04"
"""The type of the frame with which it answers, after the three bytes of its length."""

NODE_SECONDS = 5.0
"""Time for its nodes to say what they are; nodes that take longer are asked again before they get a job."""

IMPORT_SECONDS = 60.0

LOCAL = "local"

Json = dict[str, Any]


class RayCluster:
    """The cluster that RAY_ADDRESS names, or an instance started for this run."""

    def __init__(self, jobs: int, resources: Mapping[str, float]) -> None:
        """Connect.

        Args:
            jobs: Number of jobs at a time; an instance that is started has a core for each.
            resources: What a job takes, by name.

        Raises:
            MissingExtra: If Ray is not installed.
            UserError: If there is no cluster at RAY_ADDRESS.
        """
        self.ray = load_ray()
        self.jobs, self.needs = jobs, {**DEFAULT_RESOURCES, **resources}
        self.address = cluster_address()
        self._started_here = not self.ray.is_initialized()
        self._local = self._started_here and self.address == LOCAL
        if not self._started_here:
            return
        options: Json = {"log_to_driver": False, "logging_level": "error"}
        if self._local:
            options |= {"num_cpus": math.ceil(jobs * self.needs["cpu"]), "include_dashboard": False}
        else:
            check_cluster()
        try:
            self.ray.init(address=self.address, **options)
        except (ValueError, RuntimeError, OSError) as error:  # what was true a moment ago has changed
            raise UserError(f"{ADDRESS_VARIABLE} {self.address!r}: {error}") from error

    def close(self) -> None:
        """Leave the cluster, or stop the instance that was started."""
        if self._started_here:
            self.ray.shutdown()

    # --- its size --------------------------------------------------------------------------------------------------

    def shortage(self) -> str:
        """Return a sentence if the cluster is too small for all jobs at a time, else an empty text.

        Raises:
            UserError: If it can never hold a job.
        """
        offered = self.ray.cluster_resources()
        for name in self.needs:
            if name not in RAY_NAMES and name not in offered:
                own = (other for other in offered if other not in RAY_NAMES.values() and ":" not in other)
                names = listing(sorted({*RAY_NAMES, *own} - {"object_store_memory"}))
                raise UserError(f"--resources: no node of the cluster offers {name!r}; there are: {names}.")
        capacity, text = self._capacity(), resource_text(self.needs)
        if self._local and not capacity:
            raise UserError(f"--resources: this machine cannot hold a job that takes {text}.")
        if not capacity:
            return f"no node of the cluster has {text}; waiting for one that does"
        if capacity < self.jobs:
            return f"the cluster can hold {capacity} of {self.jobs} jobs at a time; more start when nodes join"
        return ""

    def _capacity(self) -> int:
        """Return how many actors would fit the cluster's nodes if nothing else ran there."""
        needs = {RAY_NAMES.get(name, name): _units(amount) for name, amount in self.needs.items() if amount}
        nodes = [node["Resources"] for node in self.ray.nodes() if node["Alive"]]
        return sum(min(_units(node.get(name, 0.0)) // amount for name, amount in needs.items()) for node in nodes)

    def free_share(self) -> str:
        """Say how much of the cluster is free."""
        free, total = self.ray.available_resources().get("CPU", 0.0), self.ray.cluster_resources().get("CPU", 0.0)
        cores = f"{free:g} of {total:g} CPUs are free (actors that are starting have taken theirs)"
        return f"{cores}, a job takes {resource_text(self.needs)}"

    # --- actors -----------------------------------------------------------------------------------------------------

    def new_guest(self, **options: Any) -> Any:
        """Ask Ray for an actor; it need not be placed yet."""
        return self.ray.remote(max_restarts=0)(guest_class()).options(runtime_env=_environment(), **options).remote()

    def job_guest(self) -> Any:
        """Ask Ray for an actor with the resources of a job."""
        custom = {name: amount for name, amount in self.needs.items() if name not in RAY_NAMES}
        memory = {"memory": int(self.needs["memory"])} if "memory" in self.needs else {}
        cpu, gpu = self.needs["cpu"], self.needs.get("gpu", 0.0)
        return self.new_guest(num_cpus=cpu, num_gpus=gpu, resources=custom, **memory)


def _units(amount: float) -> int:
    """Return a resource in Ray's unit: as fractions of two, 0.2 would fit into 1 only four times."""
    return round(amount / SMALLEST)


def on_node(node: str) -> Json:
    """Return the options by which something runs on that node, whatever else runs there."""
    strategies = importlib.import_module("ray.util.scheduling_strategies")
    return {"num_cpus": 0, "scheduling_strategy": strategies.NodeAffinitySchedulingStrategy(node, soft=False)}


def ask_node(ray: Any, function: Callable[..., Any], node: str, *arguments: Any) -> Any:
    """Call a function on a node; return the reference of its answer."""
    remote = ray.remote(max_retries=0)(function)
    return remote.options(runtime_env=_environment(), **on_node(node)).remote(*arguments)


def is_alive(ray: Any, node: str) -> bool:
    """Return whether the cluster counts on a node."""
    return any(other["NodeID"] == node and other["Alive"] for other in ray.nodes())


def fault_of(facts: Json, address: str) -> str:
    """Return why a node cannot be used, or an empty text."""
    own, versions = node_facts()("")["versions"], facts["versions"]
    where = f"node {facts['host']} ({facts['node'][:8]}) of the Ray cluster {address}"
    if versions["dubio"] is None:
        return f"{where} has no dubio: install dubio {own['dubio']} for {facts['executable']} there."
    for name, parts in (("dubio", 9), ("Python", 2), ("torch", 2)):
        here, there = own[name] or "none", versions[name] or "none"
        if here.split(".")[:parts] != there.split(".")[:parts]:
            return f"{where} has {name} {there}, this machine {here}: install the same version on both."
    return ""


def load_ray() -> Any:
    """Import Ray, by name: type checkers see the same code whether or not it is installed.

    Raises:
        MissingExtra: If it is not installed.
    """
    try:
        return importlib.import_module("ray")
    except ModuleNotFoundError as missing:
        raise MissingExtra("--executor ray", "ray") from missing


def check_cluster() -> None:
    """Refuse a RAY_ADDRESS where no Ray cluster answers, or one of whose nodes has no dubio or another version of it.

    Raises:
        MissingExtra: If Ray is not installed.
        UserError: Naming the address or the node, the reason and what to do.
    """
    address = cluster_address()
    imported = address == LOCAL or "ray" in sys.modules or importlib.util.find_spec("ray") is None
    if imported and (load_ray().is_initialized() or address == LOCAL):
        return
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if address != "auto" and not (host and port.isascii() and port.isdigit() and int(port) < 65536):
        forms = "HOST:PORT, ray://HOST:PORT, auto (the cluster of this machine) or local (a new instance)"
        raise UserError(f"{ADDRESS_VARIABLE} must be {forms}; given {address!r}.")
    if address != "auto":
        try:  # before Ray is imported, here and in the process that asks: on a busy machine that takes longest
            with socket.create_connection((host.strip("[]"), int(port)), timeout=CONNECT_SECONDS) as connection:
                connection.sendall(HTTP2_PREFACE)
                answer = connection.recv(9)
                if answer[3:4] != SETTINGS_FRAME and os.environ.get("RAY_USE_TLS", "0") == "0":
                    raise _unusable(address, "what listens there is no Ray cluster")
        except TimeoutError:
            raise _unusable(address, f"nothing answers there within {CONNECT_SECONDS:.0f} s") from None
        except OSError as error:
            raise _unusable(address, error.strerror or str(error)) from error
    for facts in _nodes_at(address):
        if fault := fault_of(facts, address):
            raise UserError(fault)


@cache
def _nodes_at(address: str) -> list[Json]:
    """Return the facts of the nodes of a cluster, as far as they answer in time.

    Another process asks, which can be ended: Ray keeps trying for a minute, and may end the process it runs in.
    """
    command = [sys.executable, "-m", __name__, address]
    try:
        answer = subprocess.run(
            command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, timeout=IMPORT_SECONDS, check=False, text=True,
            env={**os.environ, **worker_environment()},
        )  # fmt: skip
        last = answer.stdout.strip().rpartition("\n")[2]
        if not answer.returncode:
            nodes: list[Json] = json.loads(last)
            return nodes
        reason = last or f"no answer of a Ray cluster within {ANSWER_SECONDS:.0f} s"
    except subprocess.TimeoutExpired:
        reason = f"no answer of a Ray cluster within {IMPORT_SECONDS:.0f} s"
    raise _unusable(address, reason)


def _unusable(address: str, reason: str) -> UserError:
    return UserError(
        f"{ADDRESS_VARIABLE} {address!r} cannot be used: {reason.rstrip('.')}. Start a cluster there "
        "(ray start --head), correct the variable, or unset it to run on this machine alone."
    )


def main(address: str) -> int:
    """Print the facts of the nodes of a cluster as JSON, or why it cannot be reached."""
    try:
        ray = load_ray()
        faulthandler.dump_traceback_later(ANSWER_SECONDS, exit=True)  # also ends a call that holds every lock
        ray.init(address=address, log_to_driver=False, logging_level="critical")
        faulthandler.cancel_dump_traceback_later()
        nodes = [node["NodeID"] for node in ray.nodes() if node["Alive"]]
        answers = [ask_node(ray, node_facts(), node, "") for node in nodes]
        ready, _ = ray.wait(answers, num_returns=len(answers), timeout=NODE_SECONDS)
        facts = []
        for answer in ready:
            with contextlib.suppress(ray.exceptions.RayError):
                facts.append(ray.get(answer))
        print(json.dumps(facts), flush=True)
    except Exception as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        if address == "auto":  # Ray goes on about options of its own
            reason = reason.partition(". ")[0]
        print(" ".join(reason.split()), flush=True)
        return 1
    return 0


def cluster_address() -> str:
    """Return the address that RAY_ADDRESS names; ``local`` stands for an instance of this run's own."""
    return os.environ.get(ADDRESS_VARIABLE) or LOCAL


def _environment() -> Json:
    """Return the environment of every actor: one thread, this package if the node sees it, and dubio's variables."""
    own = {name: value for name, value in os.environ.items() if name.startswith("DUBIO_")}
    return {"env_vars": {**own, **worker_environment()}}


if __name__ == "__main__":
    os._exit(main(sys.argv[1]))  # at once: leaving a cluster in good order may take seconds
