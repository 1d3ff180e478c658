"""A benchmark's task made ready: the data read, the encoding and the network's arguments resolved."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dubio.encoders import Encoding, encoding_for
from dubio.errors import UnknownName, UserError
from dubio.parts import describe
from dubio.registry import METHODS, NETWORKS, TASKS
from dubio.runner.benchmark import Benchmark, TaskEntry
from dubio.types import Split, Task

SCHEMA = 1


@dataclass(frozen=True, eq=False)
class Setting:
    """A task of a benchmark, ready to be planned.

    Attributes:
        index: Its place in the benchmark.
        entry: As the benchmark has it.
        task: The data.
        encoding: How raw examples become numbers.
        network_arguments: With every default filled in.
        method_arguments: Method → its arguments with the task's training arguments, defaults filled in.
    """

    index: int
    entry: TaskEntry
    task: Task
    encoding: Encoding
    network_arguments: Mapping[str, Any]
    method_arguments: Mapping[str, Mapping[str, Any]]

    @property
    def name(self) -> str:
        """What results call the task: its registered name, or the user's."""
        return self.task.name

    @property
    def predicted(self) -> tuple[Split, ...]:
        """The splits that are predicted: all that training did not learn from."""
        return tuple(split for split in self.task.splits if split.kind != "train")

    @property
    def split_keys(self) -> tuple[tuple[str, str], ...]:
        """Name and fingerprint of each of them."""
        return tuple((split.name, split.fingerprint) for split in self.predicted)

    def opaque_spec(self, method: str, version: int, seed: int) -> dict[str, Any]:
        """The identity of a prediction by a method that is not a recipe; its version is bumped by hand."""
        prints = {split.kind: split.fingerprint for split in self.task.of_kind("train", "val")}
        return {
            "schema": SCHEMA,
            "kind": "prediction",
            "method": {"name": method, "version": version, "arguments": describe(self.method_arguments[method])},
            "task": {
                "name": self.name,
                "inputs": self.task.inputs,
                "target": self.task.target,
                "classes": list(self.task.classes),
                "train": prints["train"],
                "val": prints["val"],
            },
            "encoding": describe(self.encoding),
            "network": {
                "name": self.entry.network,
                "version": NETWORKS.entry(self.entry.network).facts["version"],
                "arguments": describe(self.network_arguments),
            },
            "seed": seed,
        }


def prepare(benchmark: Benchmark, read: Mapping[int, Task] | None = None) -> tuple[Setting, ...]:
    """Read every task of a benchmark and resolve what its methods and networks are given.

    Args:
        benchmark: The benchmark.
        read: Index → task, for tasks that have been read already.

    Raises:
        UserError: For an unknown name or argument, a network that cannot read the task's inputs, or two tasks that
            results could not tell apart.
    """
    known = read or {}
    settings = tuple(_prepare(benchmark, k, entry, known.get(k)) for k, entry in enumerate(benchmark.tasks))
    seen = set()
    for setting in settings:
        key = (setting.name, setting.entry.network)
        if key in seen:
            raise UserError(f"task {key[0]!r} with network {key[1]!r} is named twice; give one of them another name.")
        seen.add(key)
    return settings


def make_method(benchmark: Benchmark, setting: Setting, name: str, chosen: Mapping[str, Any]) -> Any:
    """A method of a benchmark with its arguments for one task.

    Args:
        benchmark: The benchmark.
        setting: The task.
        name: The method.
        chosen: Arguments that go before all others, such as those chosen by tuning.
    """
    return METHODS.make(name, **{**setting.method_arguments[name], **chosen})


def _prepare(benchmark: Benchmark, index: int, entry: TaskEntry, read: Task | None) -> Setting:
    network = NETWORKS.entry(entry.network)
    network_arguments = network.check(entry.network_arguments)
    TASKS.entry(entry.name).check(entry.arguments)
    methods = _method_arguments(benchmark, entry)
    task: Task = TASKS.make(entry.name, **entry.arguments) if read is None else read
    wanted = network.facts.get("inputs")
    if wanted != task.inputs:
        raise UserError(
            f"network {entry.network!r} reads {wanted}; task {entry.name!r} has {task.inputs}. "
            f"Networks for {task.inputs}: {', '.join(_networks_for(task.inputs)) or '(none)'}."
        )
    return Setting(index, entry, task, encoding_for(task.inputs, entry.encoding), network_arguments, methods)


def _method_arguments(benchmark: Benchmark, entry: TaskEntry) -> dict[str, dict[str, Any]]:
    """Each method's arguments; a training argument goes to the methods that have it and must be known to some."""
    entries = {name: METHODS.entry(name) for name in benchmark.methods}
    known = {key for method in METHODS.entries() for key in method.parameters()}
    for key in entry.training:
        if key not in known:
            raise UnknownName(f"training argument of task {entry.name}", key, known)
    return {
        name: method.check(
            {key: value for key, value in entry.training.items() if key in method.parameters()}
            | dict(benchmark.method_arguments.get(name, {}))
        )
        for name, method in entries.items()
    }


def _networks_for(modality: str) -> tuple[str, ...]:
    return tuple(entry.name for entry in NETWORKS.entries() if entry.facts.get("inputs") == modality)
