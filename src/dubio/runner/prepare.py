"""Prepare the tasks of a benchmark: resolve all arguments, read the data.

A method's arguments come from several tables of the benchmark; later, more specific ones win: the benchmark's
``members`` and ``samples``, the task's ``training``, ``[method.NAME]``, ``task.method.NAME``, and a variant's own.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, NamedTuple

from dubio.core.errors import MissingExtra, UnknownName, UserError
from dubio.core.registry import METHODS, NETWORKS, TASKS, Entry
from dubio.core.specs import canonical, describe
from dubio.core.types import Split, Task
from dubio.encoders import Encoding, encoding_of
from dubio.encoders.pretrained import resolve_arguments
from dubio.runner.benchmark_file import Benchmark, TaskEntry
from dubio.tasks.sources.locate import DataMissing, NotYetHere

SCHEMA = 1

NOT_AVAILABLE = (DataMissing, MissingExtra)
"""Errors that skip a task instead of stopping the run: this machine lacks data or a package."""

LEAST = {"members": 1, "samples": 0}
"""A method whose own default exceeds this is an ensemble, or samples."""


@dataclass(frozen=True, eq=False)
class PreparedTask:
    """A task of a benchmark, ready to be planned.

    Attributes:
        index: Its position among the prepared tasks.
        entry: The entry of the benchmark.
        task: The data.
        encoding: How raw examples become numbers.
        network_arguments: Resolved, with every default.
        method_arguments: Method → its resolved arguments.
        method_networks: Method → network arguments, for methods whose network differs.
        left_out: Sentences on methods that were asked for and do not apply.
    """

    index: int
    entry: TaskEntry
    task: Task
    encoding: Encoding
    network_arguments: Mapping[str, Any]
    method_arguments: Mapping[str, Mapping[str, Any]]
    method_networks: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    left_out: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """The name of the task in the results."""
        return self.entry.called or self.task.name

    @property
    def methods(self) -> tuple[str, ...]:
        """The methods that run on it."""
        return tuple(self.method_arguments)

    @property
    def predicted(self) -> tuple[Split, ...]:
        """The splits that are predicted: all but the training split."""
        return tuple(split for split in self.task.splits if split.kind != "train")

    @property
    def notes(self) -> tuple[str, ...]:
        """Notes on the data, and which methods, and baselines where others run, do not apply to it."""
        inputs, baselines = self.task.inputs, [e for e in METHODS.entries() if e.facts.get("role") == "baseline"]
        others = [e for e in baselines if inputs not in e.facts.get("inputs", (inputs,))]
        present = any(entry.name in self.methods for entry in baselines)
        reasons = {entry.name: " and ".join(entry.facts["inputs"]) for entry in others if present}
        left_out = (f"The baseline {name} is for {kind} inputs and is left out." for name, kind in reasons.items())
        return (*self.task.notes, *left_out, *self.left_out)

    def network_of(self, method: str) -> Mapping[str, Any]:
        """Return the network's arguments for a method."""
        return self.method_networks.get(method, self.network_arguments)

    def opaque_spec(self, method: str, registered: str, version: int, seed: int) -> dict[str, Any]:
        """Return the identity of a prediction by a method that is not a recipe.

        Args:
            method: The method's name in the benchmark.
            registered: Its registered name.
            version: Its version, raised by its author whenever its results change.
            seed: The seed.
        """
        task, network = self.task, NETWORKS.entry(self.entry.network)
        facts = {"name": self.name, "inputs": task.inputs, "target": task.target, "classes": list(task.classes)}
        fingerprints = {split.kind: split.fingerprint for split in task.of_kind("train", "val")}
        arguments = describe(self.method_arguments[method])
        return {
            "schema": SCHEMA,
            "kind": "prediction",
            "method": {"name": registered, "version": version, "arguments": arguments},
            "task": {**facts, **fingerprints},
            "encoding": describe(self.encoding),
            "network": {
                "name": network.name,
                "version": network.facts["version"],
                "arguments": describe(self.network_of(method)),
            },
            "seed": seed,
        }


@dataclass(frozen=True)
class Skipped:
    """A task of a benchmark that this machine cannot run, and the reason."""

    entry: TaskEntry
    reason: UserError

    def to_json(self) -> dict[str, Any]:
        """Return it as the manifest stores it."""
        return {"task": _unread_name(self.entry), "network": self.entry.network, "reason": str(self.reason)}


class Prepared(NamedTuple):
    """The tasks of a benchmark that are ready, and those that were skipped."""

    tasks: tuple[PreparedTask, ...]
    skipped: tuple[Skipped, ...]


def prepare_available(benchmark: Benchmark, read: Mapping[int, Task] = MappingProxyType({})) -> Prepared:
    """Read the tasks of a benchmark and resolve all arguments; skip those whose data or packages are not available.

    Args:
        benchmark: The benchmark.
        read: Index → task, for tasks that have been read already.

    Raises:
        UserError: For an unknown name or argument, a network that cannot read the task's inputs, or two tasks of one
            name; and if every task is skipped, unless a run would fetch or prepare some of them.
    """
    check_tuning(benchmark)
    # All that can be checked before any data is read.
    resolved = [_resolved_arguments(benchmark, entry) for entry in benchmark.tasks]
    read_now: dict[bytes, Task | UserError] = {}
    tasks: dict[tuple[str, str], PreparedTask] = {}
    skipped: list[Skipped] = []
    for index, (entry, arguments) in enumerate(zip(benchmark.tasks, resolved, strict=True)):
        try:
            task = read[index] if index in read else _read(entry, read_now)
            prepared = _prepared(len(tasks), entry, task, *arguments)
        except NOT_AVAILABLE as error:
            skipped.append(Skipped(entry, error))
            continue
        key = prepared.name, entry.network
        if key in tasks:
            twice = f"task {key[0]!r} with network {key[1]!r} is named twice"
            raise UserError(f"{twice}; give one of them a name of its own, such as called = \"{key[0]}-2\".")
        tasks[key] = prepared
    if not tasks and not any(isinstance(item.reason, NotYetHere) for item in skipped):
        raise skipped[0].reason
    return Prepared(tuple(tasks.values()), tuple(skipped))


def _read(entry: TaskEntry, tasks: dict[bytes, Task | UserError]) -> Task:
    """Read a task once, however many networks are trained on it; missing data is not searched for twice."""
    key = canonical([entry.name, describe(entry.arguments)])
    if key not in tasks:
        try:
            tasks[key] = TASKS.make(entry.name, **entry.arguments)
        except NOT_AVAILABLE as error:
            tasks[key] = error
    task = tasks[key]
    if isinstance(task, UserError):
        raise task
    return task


Arguments = dict[str, Any]
ByMethod = dict[str, Arguments]


def _resolved_arguments(benchmark: Benchmark, entry: TaskEntry) -> tuple[Arguments, ByMethod, ByMethod]:
    """Return the arguments of the network, of the methods, and of the network for methods whose network differs."""
    network = NETWORKS.entry(entry.network).check(entry.network_arguments)
    TASKS.entry(entry.name).check(entry.arguments)
    return network, method_arguments(benchmark, entry), method_networks(benchmark, entry)


def _prepared(
    index: int, entry: TaskEntry, task: Task, arguments: Arguments, methods: ByMethod, method_networks: ByMethod
) -> PreparedTask:
    network = NETWORKS.entry(entry.network)
    inputs = network.facts.get("inputs")
    if inputs != task.inputs:
        fitting = [other.name for other in NETWORKS.entries() if other.facts.get("inputs") == task.inputs]
        raise UserError(
            f"network {entry.network!r} reads {inputs}; task {entry.name!r} has {task.inputs}. "
            f"Networks for {task.inputs}: {', '.join(fitting) or '(none)'}."
        )
    arguments = resolve_arguments(network, arguments)
    encoding = encoding_of(network, arguments, entry.encoding)
    networks = {name: resolve_arguments(network, own) for name, own in method_networks.items()}
    return PreparedTask(index, entry, task, encoding, arguments, methods, networks)


def _unread_name(entry: TaskEntry) -> str:
    """Return the probable name of a task that was not read, such as ``aapd-novelty``."""
    defaults = TASKS.entry(entry.name).defaults()
    texts = [value for key, value in entry.arguments.items() if isinstance(value, str) and value != defaults.get(key)]
    paths = {entry.arguments.get(key) for key in ("data", "shift_data", "data_dir", "parts")}
    return "-".join([entry.name, *(text for text in texts if text not in paths)])


# Arguments.


def make_method(benchmark: Benchmark, name: str, arguments: Mapping[str, Any], chosen: Mapping[str, Any]) -> Any:
    """Return a method of a benchmark.

    Args:
        benchmark: The benchmark.
        name: The method, or a variant.
        arguments: Its arguments on a task.
        chosen: Arguments that replace those, such as the ones tuning chose.

    Raises:
        UserError: For a value that the method refuses, with the option that sets it.
    """
    try:
        return METHODS.make(benchmark.base(name), **{**arguments, **chosen})
    except UserError as error:
        raise UserError(f"method {name!r} (--set {name}.KEY=VALUE, or KEY=VALUE for all methods): {error}") from error


def method_arguments(benchmark: Benchmark, entry: TaskEntry) -> dict[str, dict[str, Any]]:
    """Return method → its arguments on a task, with defaults.

    Raises:
        UserError: For an unknown method, an argument it does not have, a training argument that no method has, or a
            variant with the name of a registered method.
    """
    for name in benchmark.variants:
        if name in METHODS.names():  # its row would be taken for that method's
            raise UserError(
                f"[variant.{name}] has the name of a registered method; choose another name, or set the arguments of "
                f"{name!r} itself in [method.{name}]."
            )
    parameters = {key for method in METHODS.entries() for key in method.parameters()}
    for key in entry.training:
        if key not in parameters:
            raise _unknown_training_argument(entry, key, parameters)
    return {
        name: METHODS.entry(benchmark.base(name)).check(explicit_arguments(benchmark, entry, name))
        for name in benchmark.methods_of(entry)
    }


def _unknown_training_argument(entry: TaskEntry, key: str, parameters: Iterable[str]) -> UserError:
    for prefix, owner in (("network", NETWORKS.entry(entry.network)), ("task", TASKS.entry(entry.name))):
        if key in owner.parameters():
            return UserError(f"no method has a training argument {key!r}; {owner.name} has it: set {prefix}.{key}.")
    return UnknownName(f"training argument of task {entry.name}", key, parameters)


def explicit_arguments(benchmark: Benchmark, entry: TaskEntry, name: str) -> dict[str, Any]:
    """Return the arguments that the benchmark states for a method on a task, without the method's own defaults.

    A training argument is passed to the methods that have it.
    """
    base = benchmark.base(name)
    method = METHODS.entry(base)
    arguments = _counts(benchmark, method)
    arguments |= {key: value for key, value in entry.training.items() if key in method.parameters()}
    arguments |= {**benchmark.method_arguments.get(base, {}), **entry.method_arguments.get(base, {})}
    if name in benchmark.variants:
        arguments |= dict(benchmark.variants[name].arguments)
        arguments |= {**benchmark.method_arguments.get(name, {}), **entry.method_arguments.get(name, {})}
    return arguments


def _counts(benchmark: Benchmark, method: Entry[Any]) -> dict[str, Any]:
    counts = {"members": benchmark.members, "samples": benchmark.samples}
    defaults = method.defaults()
    return {key: value for key, value in counts.items() if value is not None and (defaults.get(key) or 0) > LEAST[key]}


def method_networks(benchmark: Benchmark, entry: TaskEntry) -> dict[str, dict[str, Any]]:
    """Return method → network arguments with defaults, for the methods whose network differs from the task's.

    Raises:
        UserError: For an argument the network does not have, or another pre-trained encoder: it would encode the
            task's examples differently from the other methods.
    """
    network = NETWORKS.entry(entry.network)
    networks = {}
    for name in benchmark.methods_of(entry):
        own = {**entry.method_network.get(benchmark.base(name), {}), **entry.method_network.get(name, {})}
        if (encoder := network.facts.get("pretrained")) in own:
            raise UserError(f"task {entry.name}: {encoder} must be the same for all methods; {name} has its own.")
        if own:
            networks[name] = network.check({**entry.network_arguments, **own})
    return networks


def check_tuning(benchmark: Benchmark) -> None:
    """Refuse a ``[tune]`` table with an argument or a value that its method does not take.

    Raises:
        UserError: Naming the argument.
    """
    for name, lists in benchmark.tune.items():
        method = METHODS.entry(benchmark.base(name))
        task = next(task for task in benchmark.tasks if name in benchmark.methods_of(task))
        arguments = explicit_arguments(benchmark, task, name)
        for key, values in lists.items():
            for value in values:
                method.check({**arguments, key: value})
