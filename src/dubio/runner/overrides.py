"""A benchmark with parts of it exchanged from the command line."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from dubio.core.errors import UnknownName, UserError
from dubio.core.registry import NETWORKS, TASKS
from dubio.runner.benchmark import Benchmark
from dubio.runner.entries import TaskEntry
from dubio.runner.told import with_told

RANGE = re.compile(r"(\d+)(?:-(\d+))?")
MOST_SEEDS = 1000

TASK_TABLES = {"task": "arguments", "network": "network_arguments", "encoding": "encoding", "training": "training"}
"""First word of ``--set word.key=value`` → the table of every task it goes to."""

EVERY_METHOD = "training"
"""The place of what is said of all methods."""

DATA_DIR = "data_dir"
"""The argument of a task that names a folder with its data."""

Entries = tuple[TaskEntry, ...]


@dataclass(frozen=True)
class Overrides:
    """What is to be exchanged; empty means: as the benchmark has it.

    Attributes:
        tasks: Only these of the benchmark's tasks: by name (``amazon``), or by name and the text of an argument
            (``amazon-books``, ``20news-novelty``).
        methods: These methods instead. One that the benchmark has runs where the benchmark has it, and what its
            variants are made of stands for them; another one runs on the tasks that take the benchmark's own list.
        seeds: These seeds instead.
        network: The entries of this network, where there are any; else this network for every task.
        settings: ``key=value`` for every method's training, ``network.key=value``, ``encoding.key=value``,
            ``task.key=value`` or ``<method>.key=value``; values are written as in TOML.
        data_dir: The folder with the data of every task that takes one.
        about_data: Arguments of the tasks that are told their data (:mod:`dubio.runner.told`), by name.
    """

    tasks: Sequence[str] = ()
    methods: Sequence[str] = ()
    seeds: Sequence[int] = ()
    network: str | None = None
    settings: Sequence[str] = ()
    data_dir: Path | None = None
    about_data: Mapping[str, Any] = field(default_factory=dict)

    def apply(self, benchmark: Benchmark) -> Benchmark:
        """The benchmark with these exchanged.

        Raises:
            UserError: For a name it does not have, or a setting that cannot be read.
        """
        tasks = _with_network(_chosen(benchmark, self.tasks), self.network)
        methods, tasks = self._with_methods(benchmark, tasks)
        changed = _narrowed(benchmark, tasks, methods, tuple(self.seeds) or benchmark.seeds)
        changed = with_told(changed, self.about_data)
        # What is said of one method stands before what is said of all, in whatever order they come.
        for setting in sorted(self.settings, key=lambda each: parse_setting(each)[0] != EVERY_METHOD):
            changed = _with_setting(changed, setting)
        return changed if self.data_dir is None else _with_data_dir(changed, self.data_dir)

    def _with_methods(self, benchmark: Benchmark, tasks: Entries) -> tuple[tuple[str, ...], Entries]:
        """The benchmark's methods, and the tasks that have any of those asked for."""
        if not self.methods:
            return benchmark.methods, tasks
        asked = _without_bases(benchmark, tasks, self.methods)
        known = {name for task in tasks for name in benchmark.methods_of(task)}
        new = tuple(name for name in asked if name not in known)
        # Where every task has a list of its own, what is new goes to all of them.
        open_to_new = [task for task in tasks if task.methods is None] or list(tasks)
        kept = []
        for task in tasks:
            have = benchmark.methods_of(task)
            mine = tuple(name for name in asked if name in have or (name in new and task in open_to_new))
            if mine:
                kept.append(task if task.methods is None else replace(task, methods=mine))
        shared = [name for name in asked if name in benchmark.methods or name in new]
        return tuple(shared) or asked, tuple(kept)


def _chosen(benchmark: Benchmark, names: Iterable[str]) -> Entries:
    """The tasks of these names."""
    known = {label for task in benchmark.tasks for label in task.labels}
    wanted = set(names)
    for name in sorted(wanted):
        if name not in known:
            raise UnknownName(f"task of benchmark {benchmark.name}", name, known)
    return tuple(task for task in benchmark.tasks if not wanted or wanted & {*task.labels})


def _with_network(tasks: Entries, network: str | None) -> Entries:
    if network is None:
        return tasks
    having = tuple(task for task in tasks if task.network == network)
    if having:
        return having
    # Another network's arguments would mean nothing to this one; a task that several networks learn comes once.
    first: dict[str, TaskEntry] = {}
    for task in tasks:
        first.setdefault(task.spoken, _learned_by(task, network))
    return tuple(first.values())


def _learned_by(task: TaskEntry, network: str) -> TaskEntry:
    """The task with another network; how texts are cut stays where that network wants them cut the same way."""
    old, new = (NETWORKS.entry(name).facts.get("encoding") for name in (task.network, network))
    encoding = task.encoding if old == new else {}
    return replace(task, network=network, network_arguments={}, method_network={}, encoding=encoding)


def _without_bases(benchmark: Benchmark, tasks: Entries, asked: Iterable[str]) -> tuple[str, ...]:
    """Names asked for, each that is no method of these tasks but has variants among them replaced by those."""
    known = dict.fromkeys(name for task in tasks for name in benchmark.methods_of(task))
    found: list[str] = []
    for name in asked:
        variants = [variant for variant in known if variant != name and benchmark.base(variant) == name]
        found += [name] if name in known or not variants else variants
    return tuple(dict.fromkeys(found))


def _narrowed(benchmark: Benchmark, tasks: Entries, methods: tuple[str, ...], seeds: tuple[int, ...]) -> Benchmark:
    """The benchmark of these tasks and methods, without what it says of others."""
    used = {*methods, *(name for task in tasks for name in task.methods or ())}
    with_bases = used | {benchmark.base(name) for name in used}
    return replace(
        benchmark,
        tasks=tuple(
            replace(
                task,
                method_arguments=_only(task.method_arguments, with_bases),
                method_network=_only(task.method_network, with_bases),
            )
            for task in tasks
        ),
        methods=methods,
        seeds=seeds,
        method_arguments=_only(benchmark.method_arguments, with_bases),
        tune=_only(benchmark.tune, used),
        variants=_only(benchmark.variants, used),
    )


def _only(tables: Mapping[str, Any], names: Iterable[str]) -> dict[str, Any]:
    return {name: table for name, table in tables.items() if name in names}


def _with_setting(benchmark: Benchmark, setting: str) -> Benchmark:
    where, key, value = parse_setting(setting)
    if where == EVERY_METHOD:
        spoken_of = {name for task in benchmark.tasks for name in task.method_arguments}
        benchmark = _unsaid(benchmark, {*spoken_of, *benchmark.method_arguments, *benchmark.tune}, key)
    if where in TASK_TABLES:
        return replace(benchmark, tasks=tuple(_with(task, TASK_TABLES[where], key, value) for task in benchmark.tasks))
    bases = {benchmark.base(name) for name in benchmark.all_methods}
    known = (*TASK_TABLES, *dict.fromkeys((*benchmark.all_methods, *sorted(bases))))
    if where not in known:
        raise UnknownName(f"place in --set {setting}", where, known)
    benchmark = _unsaid(benchmark, [where], key)
    old = benchmark.method_arguments
    return replace(benchmark, method_arguments={**old, where: {**old.get(where, {}), key: value}})


def _unsaid(benchmark: Benchmark, methods: Iterable[str], key: str) -> Benchmark:
    """The benchmark without what it says of one argument of these methods, nor a choice of it: the user has said it."""
    return replace(
        benchmark,
        tasks=tuple(
            replace(task, method_arguments=_without(task.method_arguments, methods, key)) for task in benchmark.tasks
        ),
        method_arguments=_without(benchmark.method_arguments, methods, key),
        tune={name: lists for name, lists in _without(benchmark.tune, methods, key).items() if lists},
    )


def _without(tables: Mapping[str, Mapping[str, Any]], names: Iterable[str], key: str) -> dict[str, Mapping[str, Any]]:
    """The tables, those of these names without one key."""
    chosen = set(names)
    return {
        name: {k: v for k, v in table.items() if k != key} if name in chosen else table
        for name, table in tables.items()
    }


def _with_data_dir(benchmark: Benchmark, folder: Path) -> Benchmark:
    if not folder.is_dir():
        raise UserError(f"--data-dir {str(folder)!r}: no such folder.")
    takers = {task.name for task in benchmark.tasks if DATA_DIR in TASKS.entry(task.name).parameters()}
    if not takers:
        raise UserError(f"--data-dir: no task of benchmark {benchmark.name!r} reads its data from a folder.")
    tasks = (
        _with(task, "arguments", DATA_DIR, str(folder.resolve())) if task.name in takers else task
        for task in benchmark.tasks
    )
    return replace(benchmark, tasks=tuple(tasks))


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
    """``5`` (so many: 0 to 4), ``0,1,2`` or ``0-4`` → seeds; the seed 5 alone is ``5-5``.

    Raises:
        UserError: For anything else.
    """
    if text.strip().isdecimal():
        count = int(text)
        if not 1 <= count <= MOST_SEEDS:
            raise UserError(
                f"--seeds {count} asks for {count} seeds; give 1 to {MOST_SEEDS}. The seed {count} alone is "
                f"{count}-{count}."
            )
        return tuple(range(count))
    seeds: list[int] = []
    for piece in text.split(","):
        found = RANGE.fullmatch(piece.strip())
        if not found:
            raise UserError(
                f"--seeds wants how many (5), numbers such as 0,1,2 or a range such as 0-4; given {text!r}."
            )
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
    if table == "network_arguments":
        single = {name: {k: v for k, v in own.items() if k != key} for name, own in task.method_network.items()}
        changes["method_network"] = {name: own for name, own in single.items() if own}
    return replace(task, **changes)
