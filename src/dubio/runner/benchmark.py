"""A benchmark: which tasks, networks, methods and seeds, read from a short TOML file.

::

    name = "quick"
    seeds = [0, 1, 2]
    methods = ["deterministic", "deep-ensemble"]

    [method.deep-ensemble]          # arguments of one method
    members = 3

    [tune.deterministic]            # lists: the best on validation is chosen, task by task
    lr = [1e-3, 3e-4]

    [[task]]
    name = "digits"
    network = "cnn"
    arguments = {}                  # of the task
    network_arguments = {}
    encoding = {}
    training = { epochs = 20 }      # given to every method that has such an argument

Every key is known or refused with the nearest known name.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from importlib.resources import files
from pathlib import Path
from typing import Any

from dubio.errors import BadFile, UnknownName, UserError
from dubio.store import canonical

KEYS: dict[str, type] = {
    "name": str, "description": str, "seeds": list, "methods": list, "method": dict, "tune": dict, "task": list,
}  # fmt: skip

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,79}")

Table = Mapping[str, Any]


@dataclass(frozen=True)
class TaskEntry:
    """A task of a benchmark, with the network that learns it."""

    name: str
    network: str
    arguments: Table = field(default_factory=dict)
    network_arguments: Table = field(default_factory=dict)
    encoding: Table = field(default_factory=dict)
    training: Table = field(default_factory=dict)


@dataclass(frozen=True)
class Benchmark:
    """What is to be run.

    Attributes:
        name: Names the run's manifest.
        tasks: Tasks, each with its network.
        methods: Names of methods, in the order of the report.
        seeds: Seeds; every method is run with each.
        method_arguments: Arguments of single methods.
        tune: Lists of values of single methods' arguments, chosen from by validation nll.
        description: One or two sentences.
    """

    name: str
    tasks: tuple[TaskEntry, ...]
    methods: tuple[str, ...]
    seeds: tuple[int, ...] = (0,)
    method_arguments: Mapping[str, Table] = field(default_factory=dict)
    tune: Mapping[str, Mapping[str, tuple[Any, ...]]] = field(default_factory=dict)
    description: str = ""

    def __post_init__(self) -> None:
        if not NAME.fullmatch(self.name):
            raise UserError(f"a benchmark's name is letters, digits, '.', '_' and '-'; given {self.name!r}.")
        for what, values in (("task", self.tasks), ("methods", self.methods), ("seeds", self.seeds)):
            if not values:
                raise UserError(f"benchmark {self.name!r}: {what} must not be empty.")
        _once("methods", self.methods)
        _once("seeds", self.seeds)
        for where, tables in (("method", self.method_arguments), ("tune", self.tune)):
            for name in tables:
                if name not in self.methods:
                    raise UnknownName(f"method in [{where}.{name}]", name, self.methods)

    def to_json(self) -> dict[str, Any]:
        """As the manifest keeps it."""
        return asdict(self)


def built_in() -> tuple[str, ...]:
    """The names of the benchmarks that come with dubio."""
    return tuple(sorted(item.name[:-5] for item in _home().iterdir() if item.name.endswith(".toml")))


def load_benchmark(name: str) -> Benchmark:
    """A benchmark by name, or from the TOML file at that path.

    Raises:
        UnknownName: When it is neither.
        BadFile: When the file is not TOML, or not a benchmark.
    """
    path = Path(name)
    if path.suffix == ".toml" or path.is_file():
        try:
            text = path.read_text("utf-8")
        except OSError as fault:
            raise BadFile(f"benchmark {name!r} cannot be read: {fault.strerror}.") from fault
        except UnicodeDecodeError as fault:
            raise BadFile(f"benchmark {name!r} is not UTF-8: {fault}.") from fault
    elif name in built_in():
        text = (_home() / f"{name}.toml").read_text("utf-8")
    else:
        raise UnknownName("benchmark (or TOML file)", name, built_in())
    try:
        return parse_benchmark(tomllib.loads(text))
    except (tomllib.TOMLDecodeError, UserError) as fault:
        raise BadFile(f"benchmark {name!r}: {fault}") from fault


def parse_benchmark(table: Table) -> Benchmark:
    """A benchmark from its table.

    Raises:
        UserError: For a key that is unknown or missing, or a value of another type.
    """
    _check("benchmark", table, KEYS, needed=("name", "methods", "task"))
    try:
        canonical(table)
    except (TypeError, ValueError) as fault:
        raise UserError(f"values must be numbers, texts, true or false, lists or tables: {fault}.") from fault
    tune = _tables("tune", table.get("tune", {}))
    return Benchmark(
        name=table["name"],
        tasks=tuple(_task(entry) for entry in table["task"]),
        methods=_names(table["methods"]),
        seeds=_seeds(table.get("seeds", [0])),
        method_arguments=_tables("method", table.get("method", {})),
        tune={name: {key: _choices(name, key, item) for key, item in lists.items()} for name, lists in tune.items()},
        description=table.get("description", ""),
    )


def _task(entry: Any) -> TaskEntry:
    if not isinstance(entry, dict):
        raise UserError("[[task]] must be a table.")
    tables = ("arguments", "network_arguments", "encoding", "training")
    known: dict[str, type] = {"name": str, "network": str, **dict.fromkeys(tables, dict)}
    _check("[[task]]", entry, known, needed=("name", "network"))
    return TaskEntry(**entry)


def _tables(where: str, tables: Table) -> dict[str, Table]:
    for name, table in tables.items():
        if not isinstance(table, dict):
            raise UserError(f"[{where}.{name}] must be a table; given {table!r}.")
    return dict(tables)


def _choices(method: str, key: str, values: Any) -> tuple[Any, ...]:
    if not isinstance(values, list) or not values:
        raise UserError(f"[tune.{method}] {key} must be a list of values to try; given {values!r}.")
    return tuple(values)


def _check(where: str, table: Table, known: Mapping[str, type], needed: Iterable[str]) -> None:
    spoken: dict[type, str] = {str: "a text", list: "a list", dict: "a table"}
    for key, value in table.items():
        if key not in known:
            raise UnknownName(f"key in {where}", key, known)
        if not isinstance(value, known[key]):
            raise UserError(f"{where}: {key} must be {spoken[known[key]]}; given {value!r}.")
    for key in needed:
        if key not in table:
            raise UserError(f"{where} needs the key {key!r}.")


def _names(values: list[Any]) -> tuple[str, ...]:
    for value in values:
        if not isinstance(value, str):
            raise UserError(f"methods: every entry must be a name; given {value!r}.")
    return tuple(values)


def _seeds(values: list[Any]) -> tuple[int, ...]:
    for value in values:
        if not isinstance(value, int) or isinstance(value, bool) or value < 0:
            raise UserError(f"seeds: every entry must be a whole number, zero or more; given {value!r}.")
    return tuple(values)


def _once(what: str, values: Iterable[Any]) -> None:
    seen = set()
    for value in values:
        if value in seen:
            raise UserError(f"{what}: {value!r} is named twice.")
        seen.add(value)


def _home() -> Any:
    return files("dubio") / "benchmarks"
