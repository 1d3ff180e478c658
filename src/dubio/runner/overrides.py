"""A benchmark with parts of it exchanged from the command line."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from dubio.errors import UnknownName, UserError
from dubio.runner.benchmark import Benchmark, TaskEntry

RANGE = re.compile(r"(\d+)(?:-(\d+))?")
MOST_SEEDS = 1000

TASK_TABLES = {"task": "arguments", "network": "network_arguments", "encoding": "encoding", "training": "training"}
"""First word of ``--set word.key=value`` → the table of every task it goes to."""


@dataclass(frozen=True)
class Overrides:
    """What is to be exchanged; empty means: as the benchmark has it.

    Attributes:
        tasks: Only these of the benchmark's tasks.
        methods: These methods instead.
        seeds: These seeds instead.
        network: This network for every task.
        settings: ``key=value`` for every method's training, ``network.key=value``, ``encoding.key=value``,
            ``task.key=value`` or ``<method>.key=value``; values are written as in TOML.
    """

    tasks: Sequence[str] = ()
    methods: Sequence[str] = ()
    seeds: Sequence[int] = ()
    network: str | None = None
    settings: Sequence[str] = ()

    def apply(self, benchmark: Benchmark) -> Benchmark:
        """The benchmark with these exchanged.

        Raises:
            UserError: For a name it does not have, or a setting that cannot be read.
        """
        tasks = self._chosen_tasks(benchmark)
        methods = tuple(dict.fromkeys(self.methods)) or benchmark.methods
        arguments = {name: dict(table) for name, table in benchmark.method_arguments.items() if name in methods}
        for setting in self.settings:
            where, key, value = parse_setting(setting)
            if where in TASK_TABLES:
                tasks = tuple(_with(task, TASK_TABLES[where], key, value) for task in tasks)
            elif where in methods:
                arguments.setdefault(where, {})[key] = value
            else:
                raise UnknownName(f"place in --set {setting}", where, (*TASK_TABLES, *methods))
        return replace(
            benchmark,
            tasks=tasks,
            methods=methods,
            seeds=tuple(self.seeds) or benchmark.seeds,
            method_arguments=arguments,
            tune={name: lists for name, lists in benchmark.tune.items() if name in methods},
        )

    def _chosen_tasks(self, benchmark: Benchmark) -> tuple[TaskEntry, ...]:
        known = {task.name for task in benchmark.tasks}
        for name in self.tasks:
            if name not in known:
                raise UnknownName(f"task of benchmark {benchmark.name}", name, known)
        chosen = tuple(task for task in benchmark.tasks if not self.tasks or task.name in self.tasks)
        if self.network is None:
            return chosen
        # Another network's arguments would mean nothing to this one.
        return tuple(
            task if task.network == self.network else replace(task, network=self.network, network_arguments={})
            for task in chosen
        )


def parse_setting(setting: str) -> tuple[str, str, Any]:
    """``place.key=value`` → (place, key, value); without a place it is ``training``.

    Raises:
        UserError: When there is no ``=`` or no key.
    """
    left, equals, right = setting.partition("=")
    place, dot, key = left.strip().rpartition(".")
    if not equals or not key or (dot and not place):
        raise UserError(f"--set wants key=value or place.key=value; given {setting!r}.")
    return place or "training", key, _value(right.strip())


def parse_seeds(text: str) -> tuple[int, ...]:
    """``0,1,2`` or ``0-4`` → seeds.

    Raises:
        UserError: For anything else.
    """
    seeds: list[int] = []
    for piece in text.split(","):
        found = RANGE.fullmatch(piece.strip())
        if not found:
            raise UserError(f"--seeds wants numbers such as 0,1,2 or a range such as 0-4; given {text!r}.")
        first, last = int(found[1]), int(found[2] or found[1])
        if last < first or last - first >= MOST_SEEDS:
            raise UserError(f"--seeds: {piece.strip()!r} is not a range of one to {MOST_SEEDS} seeds.")
        seeds += range(first, last + 1)
    return tuple(dict.fromkeys(seeds))


def _value(text: str) -> Any:
    """A value as TOML reads it; a bare word is a text, so that nobody has to quote twice in a shell."""
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text


def _with(task: TaskEntry, table: str, key: str, value: Any) -> TaskEntry:
    old: Mapping[str, Any] = getattr(task, table)
    changes: dict[str, Any] = {table: {**old, key: value}}
    return replace(task, **changes)
