"""Change a benchmark from outside its file: select tasks, methods and seeds, set arguments, name the data.

Some tasks have an argument ``data``: photographs that must not be redistributed, a user's own files. Their arguments
are data options, given beside a benchmark (``dubio run retina --data FOLDER --size 128``) or instead of one
(``dubio run --data reviews.csv``).
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shlex
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from dubio.core.documents import parse_toml
from dubio.core.errors import BadFile, UserError, check_known
from dubio.core.registry import METHODS, NETWORKS, TASKS
from dubio.core.specs import canonical, describe
from dubio.core.types import Task
from dubio.runner.benchmark_file import (
    Benchmark,
    Table,
    Tables,
    TaskEntry,
    benchmark_files,
    narrowed,
    parse_benchmark,
)
from dubio.runner.prepare import NOT_AVAILABLE

RANGE = re.compile(r"(\d{1,18})(?:-(\d{1,18}))?")
"""Seeds of up to 18 digits: those fit into 64 bits."""

MOST_SEEDS = 1000

TASK_TABLES = {"task": "arguments", "network": "network_arguments", "encoding": "encoding", "training": "training"}
"""Prefix of ``--set prefix.key=value`` → the table of every task that is changed."""

EVERY_METHOD = "training"
"""The prefix of what is set for all methods; may be omitted."""

DATA = "data"
"""The argument of a task that names its data."""

DATA_DIR = "data_dir"
"""The argument of a task that names a folder to look for its data in."""

VERIFY = "verify"
"""The argument of a task that makes it read its files again instead of trusting its cache."""

OWN_DATA_MODEL = "quick"
"""The benchmark whose methods, seeds and networks are used for a user's own data."""

ALL = "all"
"""In place of methods: every registered one that applies."""

Entries = tuple[TaskEntry, ...]


@dataclass(frozen=True)
class Overrides:
    """Changes to a benchmark; an empty field changes nothing.

    Attributes:
        tasks: Only these of the benchmark's tasks, by name (``amazon``), or by name and the text of an argument
            (``amazon-books``, ``20news-novelty``).
        methods: These methods instead, or ``all``. A method of the benchmark runs on the tasks that have it, and the
            name of a method with variants selects the variants; a new method runs on the tasks with the benchmark's own
            list.
        networks: For each of these, the entries with it if there are any, otherwise every task with it.
        seeds: These seeds instead, as :func:`parse_seeds` reads them.
        settings: ``key=value`` for every method, ``network.key=value``, ``encoding.key=value``, ``task.key=value`` or
            ``<method>.key=value``, with values as in TOML; or the same as a mapping.
        data_options: Arguments of the tasks that have an argument ``data``.
        data_dir: Folder with the data, for every task that takes one.
        baselines: Whether the registered baselines join, before the other methods, on the tasks they apply to.
    """

    tasks: Sequence[str] = ()
    methods: Sequence[str] = ()
    networks: Sequence[str] = ()
    seeds: int | str | Sequence[int] = ()
    settings: Sequence[str] | Mapping[str, Any] = ()
    data_options: Mapping[str, Any] = field(default_factory=dict)
    data_dir: str | Path | None = None
    baselines: bool = False

    def apply(self, benchmark: Benchmark) -> Benchmark:
        """Return the changed benchmark.

        Raises:
            UserError: For a name the benchmark does not have, or a setting that cannot be parsed.
        """
        tasks = _selected(benchmark, self.tasks)
        if self.networks:
            tasks = tuple(entry for network in self.networks for entry in _with_network(tasks, network))
        methods, tasks = _with_methods(benchmark, tasks, self.methods) if self.methods else (benchmark.methods, tasks)
        changed = narrowed(benchmark, tasks, methods, seeds=parse_seeds(self.seeds) or benchmark.seeds)
        changed = with_data_options(with_baselines(changed) if self.baselines else changed, self.data_options)
        if isinstance(self.settings, Mapping):
            settings = [(*_prefix_and_key(name), value) for name, value in self.settings.items()]
        else:
            settings = [parse_setting(text) for text in self.settings]
        # A setting of one method wins over a setting of all methods, in whatever order they are given.
        for setting in sorted(settings, key=lambda setting: setting[0] != EVERY_METHOD):
            changed = _with_setting(changed, *setting)
        return changed if self.data_dir is None else _with_data_dir(changed, Path(self.data_dir))

    def named(self) -> Overrides:
        """Return the same with the names of all registered methods in place of ``all``; baselines join as always."""
        if ALL not in self.methods:
            return self
        every = [entry for entry in METHODS.entries() if entry.facts.get("role") != "baseline"]
        complete = [entry.name for entry in every if entry.defaults().keys() == entry.parameters().keys()]
        return replace(self, methods=tuple(complete))

    def command(self, benchmark: str | None, preset: str, plugins: Iterable[str | Path]) -> str:
        """Return the command that makes the same run, with every option that changes it.

        Args:
            benchmark: Name or file of the benchmark; None for a user's own data.
            preset: The preset that was applied, or empty.
            plugins: Files and installed plugins that register what the run names.
        """
        written = ["dubio", "run", *([] if benchmark is None else [benchmark])]
        pairs: list[tuple[str, Any]] = [("preset", preset), *self._written_data()]
        pairs += [("task", name) for name in self.tasks] + [("method", name) for name in self.methods]
        pairs += [("network", name) for name in self.networks] + [("seeds", _written_seeds(self.seeds))]
        pairs += [("set", text) for text in self._written_settings()]
        pairs += [("data-dir", self.data_dir), *(("plugin", path) for path in plugins)]
        for option, value in pairs:
            written += [f"--{option}", str(value)] if value not in (None, "") else []
        return shlex.join(written if self.baselines else [*written, "--no-baselines"])

    def _written_data(self) -> Iterator[tuple[str, str]]:
        """Yield the data options as (option, text); what an option cannot say is an argument of the task."""
        for name, value in self.data_options.items():
            texts = [str(item) for item in value] if isinstance(value, list | tuple) else [str(value)]
            plain = name != "name" and all(text == text.strip() and text for text in texts)
            if plain and (not isinstance(value, list | tuple) or not any("," in text for text in texts)):
                yield name.replace("_", "-"), ",".join(texts)
            elif value is not None:
                yield "set", f"task.{name}={json.dumps(value, ensure_ascii=False)}"

    def _written_settings(self) -> Iterator[str]:
        if isinstance(self.settings, Mapping):
            yield from (f"{name}={json.dumps(value, ensure_ascii=False)}" for name, value in self.settings.items())
        else:
            yield from self.settings


def _written_seeds(seeds: int | str | Sequence[int]) -> str:
    if isinstance(seeds, int | str):
        return str(seeds)
    return f"{seeds[0]}-{seeds[0]}" if len(seeds) == 1 else ",".join(map(str, seeds))


def _with_methods(benchmark: Benchmark, tasks: Entries, names: Iterable[str]) -> tuple[tuple[str, ...], Entries]:
    """Return the requested methods, and the tasks that run any of them; a base without a row means its variants."""
    existing = dict.fromkeys(name for task in tasks for name in benchmark.methods_of(task))
    requested: dict[str, None] = {}
    for name in names:
        variants = [variant for variant in existing if variant != name and benchmark.base(variant) == name]
        requested |= dict.fromkeys([name] if name in existing or not variants else variants)
    new = {name for name in requested if name not in existing}
    # If every task has a list of its own, new methods run on all of them.
    open_to_new = [task for task in tasks if task.methods is None] or tasks
    entries = []
    for task in tasks:
        allowed = {*benchmark.methods_of(task), *(new if task in open_to_new else ())}
        methods = tuple(name for name in requested if name in allowed)
        if methods:
            entries.append(task if task.methods is None else replace(task, methods=methods))
    shared = tuple(name for name in requested if name in benchmark.methods or name in new)
    return shared or tuple(requested), tuple(entries)


def with_baselines(benchmark: Benchmark) -> Benchmark:
    """Return the benchmark with the registered baselines before its other methods, on the tasks they apply to."""
    entries = [entry for entry in METHODS.entries() if entry.facts.get("role") == "baseline"]
    entries.sort(key=lambda entry: (entry.facts.get("colour") is None, entry.facts.get("colour")))
    names = {entry.name for entry in entries}
    lists = []
    for task in benchmark.tasks:
        inputs = NETWORKS.entry(task.network).facts["inputs"]
        own = [entry.name for entry in entries if inputs in entry.facts.get("inputs", (inputs,))]
        lists.append((*own, *(name for name in benchmark.methods_of(task) if name not in names)))
    used = {name for methods in lists for name in methods}
    others = (name for name in benchmark.methods if name not in names)
    shared = (*(entry.name for entry in entries if entry.name in used), *others)
    tasks = [
        replace(task, methods=None if task.methods is None and methods == shared else methods)
        for task, methods in zip(benchmark.tasks, lists, strict=True)
    ]
    return replace(benchmark, tasks=tuple(tasks), methods=shared)


def _selected(benchmark: Benchmark, names: Iterable[str]) -> Entries:
    selected = set(names)
    labels = {label for task in benchmark.tasks for label in task.labels}
    with_preset = f" with preset {benchmark.preset}" if benchmark.preset else ""
    check_known(f"task of benchmark {benchmark.name}{with_preset}", sorted(selected), labels)
    return tuple(task for task in benchmark.tasks if not selected or selected & {*task.labels})


def _with_network(tasks: Entries, network: str) -> Entries:
    having = tuple(task for task in tasks if task.network == network)
    if having:
        return having
    # A task that several networks learn becomes one entry. The other network's arguments do not apply to this one.
    first = {(task.name, repr(task.arguments)): task for task in reversed(tasks)}
    return tuple(_trained_by(task, network) for task in tasks if first[task.name, repr(task.arguments)] is task)


def _trained_by(task: TaskEntry, network: str) -> TaskEntry:
    """Return the task with another network; its encoding is kept if both networks encode inputs the same way."""
    old, new = (NETWORKS.entry(name).facts.get("encoding") for name in (task.network, network))
    encoding = task.encoding if old == new else {}
    return replace(task, network=network, network_arguments={}, method_network={}, encoding=encoding)


# Settings.


def _with_setting(benchmark: Benchmark, prefix: str, key: str, value: Any) -> Benchmark:
    if prefix == EVERY_METHOD:
        with_tables = {name for task in benchmark.tasks for name in task.method_arguments}
        benchmark = _without_argument(benchmark, {*with_tables, *benchmark.method_arguments, *benchmark.tune}, key)
    if prefix in TASK_TABLES:
        table = TASK_TABLES[prefix]
        return replace(benchmark, tasks=tuple(_with(task, table, key, value) for task in benchmark.tasks))
    bases = {benchmark.base(name) for name in benchmark.all_methods}
    prefixes = (*TASK_TABLES, *dict.fromkeys((*benchmark.all_methods, *sorted(bases))))
    check_known(f"prefix in --set {prefix}.{key}", [prefix], prefixes)
    benchmark = _without_argument(benchmark, {prefix}, key)
    old = benchmark.method_arguments
    return replace(benchmark, method_arguments={**old, prefix: {**old.get(prefix, {}), key: value}})


def _without_argument(benchmark: Benchmark, methods: set[str], key: str) -> Benchmark:
    """Remove an argument of these methods, and its tuning, wherever the benchmark states it."""

    def without(tables: Tables) -> dict[str, Table]:
        return {name: _others(table, key) if name in methods else table for name, table in tables.items()}

    return replace(
        benchmark,
        tasks=tuple(replace(task, method_arguments=without(task.method_arguments)) for task in benchmark.tasks),
        method_arguments=without(benchmark.method_arguments),
        tune={name: lists for name, lists in without(benchmark.tune).items() if lists},
    )


def _others(table: Table, key: str) -> dict[str, Any]:
    return {name: value for name, value in table.items() if name != key}


def _with(task: TaskEntry, table: str, key: str, value: Any) -> TaskEntry:
    changes: dict[str, Any] = {table: {**getattr(task, table), key: value}}
    if table == "network_arguments":
        tables = task.method_network.items()
        changes["method_network"] = {name: others for name, own in tables if (others := _others(own, key))}
    return replace(task, **changes)


def parse_setting(text: str) -> tuple[str, str, Any]:
    """Return (prefix, key, value) of ``prefix.key=value``; the prefix is ``training`` if omitted.

    Raises:
        UserError: If there is no ``=`` or no key.
    """
    name, equals, value = text.partition("=")
    if not equals:
        raise UserError(f"--set must be KEY=VALUE or PREFIX.KEY=VALUE; given {text!r}.")
    return *_prefix_and_key(name), _toml_value(value.strip())


def _prefix_and_key(name: str) -> tuple[str, str]:
    prefix, dot, key = name.strip().rpartition(".")
    if not key or (dot and not prefix):
        raise UserError(f"--set must be KEY=VALUE or PREFIX.KEY=VALUE; given {name!r} before the value.")
    return prefix or EVERY_METHOD, key


def _toml_value(text: str) -> Any:
    """Return the value as TOML reads it; a bare word is a text, so that a shell needs no double quoting."""
    try:
        return parse_toml(f"value = {text}", "--set")["value"]
    except BadFile as fault:
        if isinstance(fault.__cause__, tomllib.TOMLDecodeError):
            return text
        raise


def parse_seeds(seeds: int | str | Sequence[int]) -> tuple[int, ...]:
    """Return the seeds of ``5`` (the seeds 0 to 4), ``0,1,2`` or ``0-4``; the seed 5 alone is ``5-5``.

    Args:
        seeds: A number of seeds, a text of these forms, or the seeds themselves.

    Raises:
        UserError: For anything else, and for very many seeds.
    """
    if isinstance(seeds, str) and not seeds.strip().isdecimal():
        return tuple(dict.fromkeys(seed for piece in seeds.split(",") for seed in _seed_range(piece.strip(), seeds)))
    if isinstance(seeds, Sequence) and not isinstance(seeds, str):
        if not all(isinstance(seed, int) and 0 <= seed < 10**18 for seed in seeds):
            raise UserError(f"seeds must be whole numbers from 0 to 10^18; given {list(seeds)}.")
        return tuple(seeds)
    if not isinstance(seeds, str | int):
        raise UserError(f"seeds must be a number of seeds, a list of them or a text such as '0-4'; given {seeds!r}.")
    if not 1 <= (count := int(seeds.strip()[:40] if isinstance(seeds, str) else seeds)) <= MOST_SEEDS:
        alone = f"The seed {count} alone is {count}-{count}."
        raise UserError(f"--seeds {count} is a number of seeds; give 1 to {MOST_SEEDS}. {alone}")
    return tuple(range(count))


def _seed_range(piece: str, text: str) -> range:
    match = RANGE.fullmatch(piece)
    if not match:
        allowed = "a number of seeds (5), a list such as 0,1,2 or a range such as 0-4"
        raise UserError(f"--seeds must be {allowed}; given {text!r}.")
    first, last = int(match[1]), int(match[2] or match[1])
    if last < first or last - first >= MOST_SEEDS:
        raise UserError(f"--seeds: {piece!r} is not a range of 1 to {MOST_SEEDS} seeds.")
    return range(first, last + 1)


# Data.


def with_data_options(benchmark: Benchmark, options: Mapping[str, Any]) -> Benchmark:
    """Return the benchmark with these arguments of the tasks that have an argument ``data``.

    Entries that become equal are merged into the first of them: with ``shift`` given, two entries of two shifts are
    one, unless each is called by a name of its own.

    Args:
        benchmark: The benchmark.
        options: Argument → value.

    Raises:
        UserError: For an argument that no such task of the benchmark has.
    """
    for name in options:
        _check_data_option(benchmark, name)
    if not options:
        return benchmark
    entries: dict[bytes, TaskEntry] = {}
    for entry in benchmark.tasks:
        own = {name: value for name, value in options.items() if name in _data_options(entry)}
        changed = replace(entry, arguments={**entry.arguments, **own}) if own else entry
        key = [changed.name, changed.network, changed.called, describe(changed.arguments)]
        entries.setdefault(canonical(key), changed)
    return replace(benchmark, tasks=tuple(entries.values()))


def verified_tasks(benchmark: Benchmark) -> dict[int, Task]:
    """Return index → task for every task that can verify its files, read with verification.

    It happens here, once: verification is no part of the benchmark, and workers do not repeat it.

    Raises:
        UserError: If no task of the benchmark can.
    """
    _check_data_option(benchmark, VERIFY)
    tasks = {}
    for index, entry in enumerate(benchmark.tasks):
        if VERIFY in _data_options(entry):
            with contextlib.suppress(*NOT_AVAILABLE):  # reported when the remaining tasks are prepared
                tasks[index] = TASKS.make(entry.name, **{**entry.arguments, VERIFY: True})
    return tasks


def own_data_benchmark(arguments: Table, preset: str | None, methods: Sequence[str]) -> tuple[Benchmark, Task]:
    """Return the benchmark of a user's own data, and the task that was read for it.

    Args:
        arguments: Of the task ``own``.
        preset: A preset of the benchmark whose methods are used.
        methods: Methods the user requests.
    """
    stem = re.sub(r"[^A-Za-z0-9._-]+", "-", whole_path(arguments[DATA]).stem).strip("-._") or "own"
    named = {"name": stem[:60], **arguments}
    task: Task = TASKS.make("own", **named)
    table = parse_toml(benchmark_files()[OWN_DATA_MODEL].read_bytes(), OWN_DATA_MODEL)
    networks = {NETWORKS.entry(entry["network"]).facts["inputs"]: entry["network"] for entry in table["task"]}
    plain = {key: list(value) if isinstance(value, tuple) else value for key, value in named.items()}
    entry = {"name": "own", "network": networks[task.inputs], "arguments": plain}
    own = {**table, "name": named["name"], "description": "", "task": [entry]}
    return parse_benchmark(own, preset, methods), task


def whole_path(path: str) -> Path:
    """Return a path as it is from anywhere: absolute, without ``.``, ``..`` and ``~``; links keep their names."""
    return Path(os.path.abspath(os.path.expanduser(path)))


def _data_options(entry: TaskEntry) -> Mapping[str, Any]:
    """Return the arguments of an entry's task if one of them is ``data``, else none."""
    parameters = TASKS.entry(entry.name).parameters()
    return parameters if DATA in parameters else {}


def _check_data_option(benchmark: Benchmark, name: str) -> None:
    options = dict.fromkeys(key for entry in benchmark.tasks for key in _data_options(entry))
    if name in options:
        return
    option, benchmark_name = f"--{name.replace('_', '-')}", f"benchmark {benchmark.name!r}"
    if not options:
        reason = f"{benchmark_name} has its own: give either a benchmark or --data"
        raise UserError(f"{option} is an option for your own data, but {reason}.")
    raise UserError(f"{option}: no task of {benchmark_name} has an argument {name!r}; they have {', '.join(options)}.")


def _with_data_dir(benchmark: Benchmark, folder: Path) -> Benchmark:
    if not folder.is_dir():
        raise UserError(f"--data-dir {str(folder)!r}: no such folder.")
    reading = [DATA_DIR in TASKS.entry(task.name).parameters() for task in benchmark.tasks]
    if not any(reading):
        raise UserError(f"--data-dir: no task of benchmark {benchmark.name!r} reads its data from a folder.")
    path = str(folder.resolve())
    pairs = zip(benchmark.tasks, reading, strict=True)
    tasks = tuple(_with(task, "arguments", DATA_DIR, path) if reads else task for task, reads in pairs)
    return replace(benchmark, tasks=tasks)
