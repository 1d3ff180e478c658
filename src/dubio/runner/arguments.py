"""What a method of a benchmark is given on a task: general words first, those that speak of it alone last."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dubio.errors import UnknownName
from dubio.registry import METHODS, Entry
from dubio.runner.benchmark import Benchmark, TaskEntry

LEAST = {"members": 1, "samples": 0}
"""A method whose own default is above this is an ensemble, or draws samples."""


def make_method(benchmark: Benchmark, name: str, arguments: Mapping[str, Any], chosen: Mapping[str, Any]) -> Any:
    """A method of a benchmark.

    Args:
        benchmark: The benchmark.
        name: The method, or a variant.
        arguments: Its arguments on a task.
        chosen: Arguments that go before all others, such as those chosen by tuning.
    """
    return METHODS.make(benchmark.base(name), **{**arguments, **chosen})


def method_arguments(benchmark: Benchmark, entry: TaskEntry) -> dict[str, dict[str, Any]]:
    """Method → its arguments on a task, defaults filled in.

    Raises:
        UserError: For an unknown method, an argument it does not have, or a training argument that no method has.
    """
    known = {key for method in METHODS.entries() for key in method.parameters()}
    for key in entry.training:
        if key not in known:
            raise UnknownName(f"training argument of task {entry.name}", key, known)
    return {
        name: METHODS.entry(benchmark.base(name)).check(given_arguments(benchmark, entry, name))
        for name in benchmark.methods_of(entry)
    }


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
