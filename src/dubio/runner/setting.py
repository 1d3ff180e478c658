"""A benchmark's task made ready: the data read, the encoding and the network's arguments resolved."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from dubio.core.errors import MissingExtra, UserError
from dubio.core.registry import NETWORKS, TASKS
from dubio.core.specs import describe
from dubio.core.types import Split, Task
from dubio.encoders import Encoding, encoding_of
from dubio.encoders.pretrained import resolve_arguments
from dubio.runner.arguments import check_tuned, method_arguments, method_networks
from dubio.runner.benchmark import Benchmark
from dubio.runner.entries import TaskEntry
from dubio.store import canonical
from dubio.tasks.sources.locate import DataMissing

SCHEMA = 1

NOT_HERE = (DataMissing, MissingExtra)
"""What a machine lacks, and what its user can get: no mistake in a benchmark."""


@dataclass(frozen=True, eq=False)
class Setting:
    """A task of a benchmark, ready to be planned.

    Attributes:
        index: Its place among the tasks that are run.
        entry: As the benchmark has it.
        task: The data.
        encoding: How raw examples become numbers.
        network_arguments: With every default filled in.
        method_arguments: Method → its arguments with the task's training arguments, defaults filled in.
        method_networks: Method → the network's arguments, for methods that have others than the rest.
    """

    index: int
    entry: TaskEntry
    task: Task
    encoding: Encoding
    network_arguments: Mapping[str, Any]
    method_arguments: Mapping[str, Mapping[str, Any]]
    method_networks: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """What results call the task: its registered name, or the user's."""
        return self.entry.called or self.task.name

    @property
    def methods(self) -> tuple[str, ...]:
        """The methods that are run on it."""
        return tuple(self.method_arguments)

    @property
    def predicted(self) -> tuple[Split, ...]:
        """The splits that are predicted: all that training did not learn from."""
        return tuple(split for split in self.task.splits if split.kind != "train")

    @property
    def split_keys(self) -> tuple[tuple[str, str], ...]:
        """Name and fingerprint of each of them."""
        return tuple((split.name, split.fingerprint) for split in self.predicted)

    def network_of(self, method: str) -> Mapping[str, Any]:
        """The network's arguments for a method."""
        return self.method_networks.get(method, self.network_arguments)

    def opaque_spec(self, method: str, registered: str, version: int, seed: int) -> dict[str, Any]:
        """The identity of a prediction by a method that is not a recipe; its version is bumped by hand.

        Args:
            method: What the benchmark calls it.
            registered: What it is registered as.
            version: Of the method.
            seed: The seed.
        """
        prints = {split.kind: split.fingerprint for split in self.task.of_kind("train", "val")}
        return {
            "schema": SCHEMA,
            "kind": "prediction",
            "method": {"name": registered, "version": version, "arguments": describe(self.method_arguments[method])},
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
                "arguments": describe(self.network_of(method)),
            },
            "seed": seed,
        }


@dataclass(frozen=True)
class Skipped:
    """A task of a benchmark that this machine cannot run, and why."""

    entry: TaskEntry
    reason: UserError

    def to_json(self) -> dict[str, Any]:
        """As the manifest keeps it."""
        return {"task": _called(self.entry), "network": self.entry.network, "reason": str(self.reason)}


@dataclass(frozen=True)
class Prepared:
    """The tasks of a benchmark that are ready, and those that this machine lacks something for."""

    settings: tuple[Setting, ...]
    skipped: tuple[Skipped, ...]


def prepare(benchmark: Benchmark, read: Mapping[int, Task] | None = None) -> tuple[Setting, ...]:
    """Read every task of a benchmark and resolve what its methods and networks are given.

    Args:
        benchmark: The benchmark.
        read: Index → task, for tasks that have been read already.

    Raises:
        UserError: For an unknown name or argument, a network that cannot read the task's inputs, two tasks that
            results could not tell apart, or data or a package that this machine lacks.
    """
    found = prepare_what_is_here(benchmark, read)
    if found.skipped:
        raise found.skipped[0].reason
    return found.settings


def prepare_what_is_here(benchmark: Benchmark, read: Mapping[int, Task] | None = None) -> Prepared:
    """The same, leaving out tasks whose data cannot be reached or whose network needs a package that is not there.

    Raises:
        UserError: As :func:`prepare`, but for those; and when nothing is left.
    """
    check_tuned(benchmark)
    resolved = [_Resolved.of(benchmark, entry) for entry in benchmark.tasks]
    reader = _Reader()
    settings: list[Setting] = []
    skipped: list[Skipped] = []
    for place, (entry, arguments) in enumerate(zip(benchmark.tasks, resolved, strict=True)):
        try:
            task = reader.read(entry) if place not in (read or {}) else (read or {})[place]
            settings.append(_setting(len(settings), entry, task, arguments))
        except NOT_HERE as fault:
            skipped.append(Skipped(entry, fault))
    if not settings:
        raise skipped[0].reason
    _check_distinct(settings)
    return Prepared(tuple(settings), tuple(skipped))


class _Reader:
    """Reads every task once, however many networks learn it; what cannot be reached is not tried twice."""

    def __init__(self) -> None:
        self._found: dict[bytes, Task | UserError] = {}

    def read(self, entry: TaskEntry) -> Task:
        key = canonical([entry.name, describe(entry.arguments)])
        if key not in self._found:
            try:
                self._found[key] = TASKS.make(entry.name, **entry.arguments)
            except NOT_HERE as fault:
                self._found[key] = fault
        found = self._found[key]
        if isinstance(found, UserError):
            raise found
        return found


class _Resolved(NamedTuple):
    """Arguments of the network and the methods: what can be checked before any data is read."""

    network: dict[str, Any]
    methods: dict[str, dict[str, Any]]
    method_networks: dict[str, dict[str, Any]]

    @classmethod
    def of(cls, benchmark: Benchmark, entry: TaskEntry) -> _Resolved:
        network = NETWORKS.entry(entry.network).check(entry.network_arguments)
        TASKS.entry(entry.name).check(entry.arguments)
        return cls(network, method_arguments(benchmark, entry), method_networks(benchmark, entry))


def _setting(index: int, entry: TaskEntry, task: Task, resolved: _Resolved) -> Setting:
    known = NETWORKS.entry(entry.network)
    wanted = known.facts.get("inputs")
    if wanted != task.inputs:
        raise UserError(
            f"network {entry.network!r} reads {wanted}; task {entry.name!r} has {task.inputs}. "
            f"Networks for {task.inputs}: {', '.join(_networks_for(task.inputs)) or '(none)'}."
        )
    arguments = resolve_arguments(known, resolved.network)
    encoding = encoding_of(known, arguments, entry.encoding)
    networks = {name: resolve_arguments(known, own) for name, own in resolved.method_networks.items()}
    return Setting(index, entry, task, encoding, arguments, resolved.methods, networks)


def _called(entry: TaskEntry) -> str:
    """A task that was not read, called as far as one can tell as it would call itself: ``aapd-novelty``."""
    usual = TASKS.entry(entry.name).defaults()
    said = [value for key, value in entry.arguments.items() if isinstance(value, str) and value != usual.get(key)]
    paths = {entry.arguments.get(key) for key in ("data", "shift_data", "data_dir")}
    return "-".join([entry.name, *(value for value in said if value not in paths)])


def _check_distinct(settings: Iterable[Setting]) -> None:
    seen = set()
    for setting in settings:
        key = (setting.name, setting.entry.network)
        if key in seen:
            raise UserError(f"task {key[0]!r} with network {key[1]!r} is named twice; give one of them another name.")
        seen.add(key)


def _networks_for(modality: str) -> tuple[str, ...]:
    return tuple(entry.name for entry in NETWORKS.entries() if entry.facts.get("inputs") == modality)
