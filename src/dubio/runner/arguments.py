"""What a method of a benchmark is given on a task: general words first, those that speak of it alone last."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from dubio.core.errors import UnknownName, UserError
from dubio.core.registry import METHODS, NETWORKS, TASKS, Entry
from dubio.runner.benchmark import Benchmark
from dubio.runner.entries import TaskEntry

LEAST = {"members": 1, "samples": 0}
"""A method whose own default is above this is an ensemble, or draws samples."""


def make_method(benchmark: Benchmark, name: str, arguments: Mapping[str, Any], chosen: Mapping[str, Any]) -> Any:
    """A method of a benchmark.

    Args:
        benchmark: The benchmark.
        name: The method, or a variant.
        arguments: Its arguments on a task.
        chosen: Arguments that go before all others, such as those chosen by tuning.

    Raises:
        UserError: For a value that the method refuses, naming where it is set.
    """
    try:
        return METHODS.make(benchmark.base(name), **{**arguments, **chosen})
    except UserError as fault:
        raise UserError(f"method {name!r} (--set {name}.KEY=VALUE, or KEY=VALUE for all methods): {fault}") from fault


def method_arguments(benchmark: Benchmark, entry: TaskEntry) -> dict[str, dict[str, Any]]:
    """Method → its arguments on a task, defaults filled in.

    Raises:
        UserError: For an unknown method, an argument it does not have, a training argument that no method has, or a
            variant that is called like a registered method.
    """
    _check_variants(benchmark)
    known = {key for method in METHODS.entries() for key in method.parameters()}
    for key in entry.training:
        if key not in known:
            raise _unknown_training(entry, key, known)
    return {
        name: METHODS.entry(benchmark.base(name)).check(given_arguments(benchmark, entry, name))
        for name in benchmark.methods_of(entry)
    }


def _check_variants(benchmark: Benchmark) -> None:
    """Refuse a variant that would stand in the place of a registered method: its row would be taken for that one's."""
    for name in benchmark.variants:
        if name in METHODS.names():
            raise UserError(
                f"[variant.{name}] is called like a registered method; give it another name, or set the arguments of "
                f"{name!r} itself in [method.{name}]."
            )


def _unknown_training(entry: TaskEntry, key: str, known: Iterable[str]) -> UserError:
    """What no method has may belong to the network or the task."""
    for place, owner in (("network", NETWORKS.entry(entry.network)), ("task", TASKS.entry(entry.name))):
        if key in owner.parameters():
            return UserError(f"no method has a training argument {key!r}; {owner.name} has it: set {place}.{key}.")
    return UnknownName(f"training argument of task {entry.name}", key, known)


def given_arguments(benchmark: Benchmark, entry: TaskEntry, name: str) -> dict[str, Any]:
    """What the benchmark says of a method on a task, without the method's own defaults.

    A training argument goes to the methods that have it.
    """
    base = benchmark.base(name)
    method = METHODS.entry(base)
    given = _counts(benchmark, method)
    given |= {key: value for key, value in entry.training.items() if key in method.parameters()}
    given |= {**benchmark.method_arguments.get(base, {}), **entry.method_arguments.get(base, {})}
    if name in benchmark.variants:
        given |= dict(benchmark.variants[name].arguments)
        given |= {**benchmark.method_arguments.get(name, {}), **entry.method_arguments.get(name, {})}
    return given


def method_networks(benchmark: Benchmark, entry: TaskEntry) -> dict[str, dict[str, Any]]:
    """Method → the network's arguments, defaults filled in, for the methods that have others than the task's.

    Raises:
        UserError: For an argument the network does not have, or another pre-trained encoder, which would read the
            task's examples in another way than the other methods do.
    """
    network = NETWORKS.entry(entry.network)
    found = {}
    for name in benchmark.methods_of(entry):
        own = {**entry.method_network.get(benchmark.base(name), {}), **entry.method_network.get(name, {})}
        if (encoder := network.facts.get("pretrained")) in own:
            raise UserError(f"task {entry.name}: {encoder} must be the same for all methods; {name} has its own.")
        if own:
            found[name] = network.check({**entry.network_arguments, **own})
    return found


def check_tuned(benchmark: Benchmark) -> None:
    """Refuse a ``[tune]`` table with an argument, or a value, that its method does not take.

    Raises:
        UserError: Naming the argument.
    """
    for name, lists in benchmark.tune.items():
        method = METHODS.entry(benchmark.base(name))
        task = next(task for task in benchmark.tasks if name in benchmark.methods_of(task))
        given = given_arguments(benchmark, task, name)
        for key, values in lists.items():
            for value in values:
                method.check({**given, key: value})


def _counts(benchmark: Benchmark, method: Entry[Any]) -> dict[str, Any]:
    said = {"members": benchmark.members, "samples": benchmark.samples}
    own = method.defaults()
    return {key: value for key, value in said.items() if value is not None and (own.get(key) or 0) > LEAST[key]}
