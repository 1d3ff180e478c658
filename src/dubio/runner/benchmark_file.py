"""Read a benchmark (tasks, networks, methods, seeds) from a TOML file: the only module that knows its keys.

::

    name = "quick"
    seeds = [0, 1, 2]
    methods = ["deterministic", "deep-ensemble"]
    members = 3                     # of every ensemble
    samples = 10                    # of every method that samples
    thresholds = "validation"       # multi-label: also score at each label's best threshold on validation

    [method.deep-ensemble]          # arguments of one method
    members = 3

    [variant.swag-low]              # a method under another name with other arguments: a row of its own
    method = "swag"
    title = "SWAG, low rate"        # optional
    lr = 1e-3

    [tune.deterministic]            # lists: the best value on validation is chosen for each task
    lr = [1e-3, 3e-4]

    [network.textcnn-v2]            # defaults for every task with this network
    methods = ["sngp"]

    [[task]]
    name = "digits"
    network = "cnn"                 # a list of networks is one entry per network
    arguments = {}                  # of the task
    network_arguments = {}
    encoding = {}
    training = { epochs = 20 }      # passed to every method that has such an argument
    methods = ["deterministic"]     # instead of the benchmark's
    method.deterministic = {}       # arguments of one method on this task
    method_network.mean-field-vi = { width = 32 } # other arguments of the network for one method
    called = "digits-far"           # name in the results, where another entry has the same task and network
    most_samples = 5                # predict with at most this number of samples; of snapshots, the latest

A preset is a named overlay, applied to this table before it is parsed: a preset can state nothing that a benchmark
could not state itself. A method that a preset leaves out can still be requested; its tables then apply. ::

    default_preset = "small"        # used if the user names none

    [preset.paper]
    members = 5
    samples = 10
    seeds = [0, 1, 2]
    training = { epochs = 45 }      # merged into the training arguments of every task
    method.swag = { lr = 0.01 }     # merged into the arguments of one method
    tune.swag = { lr = [0.1, 0.01] } # replaces all [tune] tables of the benchmark
    methods = ["deterministic"]     # instead of the benchmark's

    [[preset.paper.where]]          # only for some tasks or networks; of two that match, the later one wins
    task = ["cifar100"]
    network = ["wrn-28-10"]
    training = { lr = 0.1, epochs = 300 }   # also: encoding, arguments, network_arguments
    method.swag = { lr = 0.05 }
    method_network.swag = { depth = 2 }
    methods = ["deterministic"]     # instead of the entry's; [] removes the entry

Unknown keys are refused with the nearest known name.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any, Literal, cast

from dubio.core.errors import BadFile, UnknownName, UserError, one_of
from dubio.core.specs import canonical

Table = Mapping[str, Any]
Thresholds = Literal["half", "validation"]
THRESHOLDS: tuple[Thresholds, ...] = ("half", "validation")

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,79}")
"""Names of a benchmark, and of a task in its results."""

MERGED = ("network_arguments", "encoding", "training")
PER_METHOD = ("method", "method_network")

BENCHMARK_KEYS: dict[str, type] = {
    "name": str, "description": str, "seeds": list, "methods": list, "members": int, "samples": int, "thresholds": str,
    "method": dict, "variant": dict, "tune": dict, "network": dict, "task": list, "preset": dict,
    "default_preset": str,
}  # fmt: skip
NETWORK_KEYS: dict[str, type] = {"methods": list, **dict.fromkeys((*MERGED, *PER_METHOD), dict)}
TASK_KEYS: dict[str, type] = {
    "name": str, "network": str, "called": str, "most_samples": int, "arguments": dict, **NETWORK_KEYS,
}  # fmt: skip
PRESET_KEYS: dict[str, type] = {
    "description": str, "seeds": list, "members": int, "samples": int, "methods": list, "training": dict,
    "method": dict, "tune": dict, "where": list,
}  # fmt: skip
WHERE_KEYS: dict[str, type] = {"task": list, "network": list, "arguments": dict, **NETWORK_KEYS}

_TYPE_NAMES: dict[type, str] = {str: "a text", list: "a list", dict: "a table", int: "a whole number"}


@dataclass(frozen=True)
class TaskEntry:
    """A task of a benchmark and the network trained on it.

    Attributes:
        name: Registered name of the task.
        network: Registered name of the network.
        arguments: Arguments of the task.
        network_arguments: Arguments of the network.
        encoding: Arguments of the encoding.
        training: Passed to every method that has such an argument.
        methods: Methods instead of the benchmark's; None for the benchmark's.
        method_arguments: Method → its arguments on this task.
        method_network: Method → network arguments that differ from the other methods'.
        called: Name in the results, if not the task's own.
        most_samples: Largest number of samples a method predicts with (snapshots: the latest); None for all.
    """

    name: str
    network: str
    arguments: Table = field(default_factory=dict)
    network_arguments: Table = field(default_factory=dict)
    encoding: Table = field(default_factory=dict)
    training: Table = field(default_factory=dict)
    methods: tuple[str, ...] | None = None
    method_arguments: Mapping[str, Table] = field(default_factory=dict)
    method_network: Mapping[str, Table] = field(default_factory=dict)
    called: str = ""
    most_samples: int | None = None

    @property
    def labels(self) -> tuple[str, ...]:
        """Names by which a user can select the entry, such as ``amazon`` and ``amazon-books``."""
        return _labels({"name": self.name, "arguments": self.arguments, "called": self.called})


@dataclass(frozen=True)
class Variant:
    """A registered method under another name, with other arguments."""

    method: str
    arguments: Table = field(default_factory=dict)
    title: str = ""


@dataclass(frozen=True)
class Benchmark:
    """Tasks, methods and seeds to run.

    Attributes:
        name: Name of the run's manifest.
        tasks: Tasks, each with its network.
        methods: Names of methods or variants, in the order of the report.
        seeds: Seeds; every method runs with each of them.
        method_arguments: Method → its arguments.
        tune: Method → argument → values; the one with the lowest validation NLL is chosen.
        description: One or two sentences.
        variants: Name → variant.
        members: Members of every ensemble, unless the method's or the task's arguments state another number.
        samples: Samples of every method that samples, likewise.
        thresholds: Multi-label decisions at 0.5, or also at thresholds fitted on validation.
        preset: Name of the preset that was applied, or empty.
    """

    name: str
    tasks: tuple[TaskEntry, ...]
    methods: tuple[str, ...]
    seeds: tuple[int, ...] = (0,)
    method_arguments: Mapping[str, Table] = field(default_factory=dict)
    tune: Mapping[str, Mapping[str, tuple[Any, ...]]] = field(default_factory=dict)
    description: str = ""
    variants: Mapping[str, Variant] = field(default_factory=dict)
    members: int | None = None
    samples: int | None = None
    thresholds: Thresholds = "half"
    preset: str = ""

    def __post_init__(self) -> None:
        if not NAME.fullmatch(self.name):
            raise UserError(f"name of the benchmark: use letters, digits, '.', '_' and '-'; given {self.name!r}.")
        for key, values in (("task", self.tasks), ("methods", self.methods), ("seeds", self.seeds)):
            if not values:
                raise UserError(f"benchmark {self.name!r}: {key} must not be empty.")
        _check_unique("methods", self.methods)
        _check_unique("seeds", self.seeds)
        used = set(self.all_methods)
        with_bases = used | {self.base(name) for name in used}
        _check_names("method in [method]", self.method_arguments, with_bases)
        _check_names("method in [tune]", self.tune, used)
        for task in self.tasks:
            _check_names(f"method in task.method of {task.name}", task.method_arguments, with_bases)
            _check_names(f"method in task.method_network of {task.name}", task.method_network, with_bases)
        for name in self.variants:
            if name not in used:
                raise UserError(f"[variant.{name}] is not used; add {name!r} to methods = […].")

    @property
    def all_methods(self) -> tuple[str, ...]:
        """The methods of the benchmark and of its tasks, in the order of the report."""
        return tuple(dict.fromkeys((*self.methods, *(name for task in self.tasks for name in task.methods or ()))))

    def methods_of(self, entry: TaskEntry) -> tuple[str, ...]:
        """Return the methods that run on a task."""
        return self.methods if entry.methods is None else entry.methods

    def base(self, name: str) -> str:
        """Return the registered method behind a name."""
        return self.variants[name].method if name in self.variants else name

    def to_json(self) -> dict[str, Any]:
        """Return the benchmark as the manifest stores it.

        Fields added after version 1 of the manifest are omitted at their defaults, so that keys of runs stay the same.
        """
        document = asdict(self)
        for key in ("variants", "members", "samples", "preset"):
            if not document[key]:
                del document[key]
        if self.thresholds == "half":
            del document["thresholds"]
        for task in document["tasks"]:
            if task["methods"] is None:
                del task["methods"]
            for key in ("method_arguments", "method_network", "called", "most_samples"):
                if not task[key]:
                    del task[key]
        return document


def benchmark_files() -> dict[str, Traversable]:
    """Return name → TOML file of the benchmarks that come with dubio."""
    studies = sorted((files("dubio") / "studies").iterdir(), key=lambda folder: folder.name)
    return {study.name: file for study in studies if (file := study / "benchmark.toml").is_file()}


def load_benchmark(name: str, preset: str | None = None, methods: Sequence[str] = ()) -> Benchmark:
    """Return a benchmark by its name, or from the TOML file at that path.

    Args:
        name: The name or path.
        preset: One of its presets; None for its default preset, if it has one.
        methods: Methods the user requests: their tables are kept even if the preset leaves the methods out.

    Raises:
        UnknownName: For an unknown benchmark or preset.
        BadFile: If the file is not TOML, or not a benchmark.
    """
    path = Path(name)
    if path.suffix == ".toml" or path.is_file():
        try:
            text = path.read_text("utf-8")
        except OSError as error:
            raise BadFile(f"benchmark {name!r} cannot be read: {error.strerror}.") from error
        except UnicodeDecodeError as error:
            raise BadFile(f"benchmark {name!r} is not UTF-8: {error}.") from error
    else:
        shipped = benchmark_files()
        if name not in shipped:
            raise UnknownName("benchmark (or TOML file)", name, shipped)
        text = shipped[name].read_text("utf-8")
    try:
        return parse_benchmark(tomllib.loads(text), preset, methods)
    except (tomllib.TOMLDecodeError, UserError) as error:
        raise BadFile(f"benchmark {name!r}: {error}") from error


def parse_benchmark(table: Table, preset: str | None = None, methods: Sequence[str] = ()) -> Benchmark:
    """Return the benchmark of a parsed TOML table, with a preset applied.

    Args:
        table: The content of the TOML file.
        preset: As for :func:`load_benchmark`.
        methods: Likewise.

    Raises:
        UserError: For an unknown or missing key, or a value of the wrong type.
    """
    _check_table("benchmark", table, BENCHMARK_KEYS, required=("name", "methods", "task"))
    try:
        canonical(table)
    except (TypeError, ValueError) as error:
        raise UserError(f"values must be numbers, texts, true or false, lists or tables: {error}.") from error
    expanded = _one_entry_per_network(table)
    plain = _benchmark(expanded)
    _check_presets(expanded)
    chosen = _chosen_preset(expanded, preset)
    return _benchmark(_with_preset(expanded, expanded["preset"][chosen], methods), chosen) if chosen else plain


def _benchmark(table: Table, preset: str = "") -> Benchmark:
    return Benchmark(
        name=table["name"],
        tasks=tuple(_task_entry(entry) for entry in table["task"]),
        methods=_names("methods", table["methods"]),
        seeds=_seeds(table.get("seeds", [0])),
        method_arguments=_tables("method", table.get("method", {})),
        tune={
            name: {key: _choices(name, key, values) for key, values in lists.items()}
            for name, lists in _tables("tune", table.get("tune", {})).items()
        },
        description=table.get("description", ""),
        variants={name: _variant(name, entry) for name, entry in table.get("variant", {}).items()},
        members=_at_least("benchmark", table, "members", 2),
        samples=_at_least("benchmark", table, "samples", 1),
        thresholds=cast(Thresholds, one_of("thresholds", table.get("thresholds", "half"), THRESHOLDS)),
        preset=preset,
    )


def _task_entry(entry: Any) -> TaskEntry:
    _check_table("[[task]]", entry, TASK_KEYS, required=("name", "network"))
    methods = None if "methods" not in entry else _names(f"methods of task {entry['name']}", entry["methods"])
    if methods == ():
        raise UserError(f"task {entry['name']}: methods must not be empty; omit it to use the benchmark's.")
    _at_least(f"task {entry['name']}", entry, "most_samples", 1)
    if "called" in entry and not NAME.fullmatch(entry["called"]):
        raise UserError(f"called: use letters, digits, '.', '_' and '-'; given {entry['called']!r}.")
    return TaskEntry(
        **{key: value for key, value in entry.items() if key not in ("methods", *PER_METHOD)},
        methods=methods,
        method_arguments=_tables("task.method", entry.get("method", {})),
        method_network=_tables("task.method_network", entry.get("method_network", {})),
    )


def _variant(name: str, entry: Any) -> Variant:
    where = f"[variant.{name}]"
    if not isinstance(entry, dict):
        raise UserError(f"{where} must be a table; given {entry!r}.")
    header = {key: value for key, value in entry.items() if key in ("method", "title")}
    _check_table(where, header, {"method": str, "title": str}, required=("method",))
    arguments = {key: value for key, value in entry.items() if key not in header}
    return Variant(header["method"], arguments, header.get("title", ""))


def _labels(entry: Table) -> tuple[str, ...]:
    """Return the names of an entry: ``amazon`` with ``source = "books"`` is ``amazon`` and ``amazon-books``."""
    if entry.get("called"):
        return (entry["called"],)
    name, arguments = entry["name"], entry.get("arguments", {})
    return (name, *(f"{name}-{value}" for value in arguments.values() if isinstance(value, str)))


# Networks: tables of [network.NAME] are defaults of every task with that network.


def _one_entry_per_network(table: Table) -> dict[str, Any]:
    """Return the table with one entry per task and network, [network.NAME] merged into the entries."""
    entries: list[Any] = []
    for entry in table["task"]:
        several = isinstance(entry, dict) and isinstance(entry.get("network"), list)
        entries += [{**entry, "network": name} for name in entry["network"]] if several else [entry]
    defaults = table.get("network", {})
    networks = {entry["network"] for entry in entries if isinstance(entry, dict) and "network" in entry}
    for name, default in defaults.items():
        _check_table(f"[network.{name}]", default, NETWORK_KEYS)
        _check_names(f"network in [network.{name}]", [name], networks)
    others = {key: value for key, value in table.items() if key != "network"}
    return {**others, "task": [_with_network_defaults(entry, defaults) for entry in entries]}


def _with_network_defaults(entry: Any, defaults: Table) -> Any:
    if not isinstance(entry, dict) or not isinstance(entry.get("network"), str):
        return entry  # refused by _task_entry, with the reason
    default = defaults.get(entry["network"], {})
    merged = {**default, **entry}
    for key in (*MERGED, *PER_METHOD):
        if key in default and key in entry:
            if not isinstance(entry[key], dict):
                raise UserError(f"[[task]]: {key} must be a table; given {entry[key]!r}.")
            merged[key] = {**default[key], **entry[key]}
    return merged


# Presets.


def _chosen_preset(table: Table, requested: str | None) -> str:
    """Return the name of the preset to apply; empty for none."""
    presets, default = table.get("preset", {}), table.get("default_preset", "")
    if default:
        _check_names("preset in default_preset", [default], presets)
    if requested is None:
        return str(default)
    if not presets:
        raise UserError(f"benchmark {table.get('name')!r} has no presets; omit --preset {requested}.")
    _check_names(f"preset of benchmark {table.get('name')}", [requested], presets)
    return requested


def _check_presets(table: Table) -> None:
    entries = table["task"]
    allowed = {
        "task": {label for entry in entries for label in _labels(entry)},
        "network": {entry["network"] for entry in entries},
    }
    variants = table.get("variant", {})
    bases = {variant.get("method", "") for variant in variants.values() if isinstance(variant, dict)}
    methods = {*_used_methods(table), *variants, *bases}
    for name, preset in table.get("preset", {}).items():
        _check_table(f"[preset.{name}]", preset, PRESET_KEYS)
        new = {*preset.get("methods", ())}
        _check_names(f"method in [preset.{name}]", preset.get("method", {}), methods | new)
        for condition in preset.get("where", ()):
            where = f"[[preset.{name}.where]]"
            _check_table(where, condition, WHERE_KEYS)
            for key in PER_METHOD:
                new = {*condition.get("methods", ())}
                _check_names(f"{key} in {where}", condition.get(key, {}), methods | new)
            for key, names in allowed.items():
                _check_names(f"{key} in {where}", condition.get(key, ()), names)


def _with_preset(table: Table, preset: Table, requested: Iterable[str]) -> dict[str, Any]:
    """Return the table with a preset applied; methods the user requests are kept even if the preset omits them."""
    merged = {key: value for key, value in table.items() if key not in ("preset", "default_preset")}
    merged |= {key: preset[key] for key in ("seeds", "members", "samples", "methods", "tune") if key in preset}
    merged["method"] = _merge_tables(merged.get("method", {}), preset.get("method", {}))
    entries = [_entry_with_preset(entry, preset) for entry in merged["task"]]
    merged["task"] = [entry for entry in entries if entry.get("methods") != []]
    if not merged["task"]:
        raise UserError("the preset removes every task.")
    used, available = _used_methods(merged), {*_used_methods(table), *table.get("variant", {})}
    extra = [name for name in dict.fromkeys(requested) if name in available and name not in used]
    merged["methods"] = [*merged["methods"], *extra]
    return _without_unused_methods(merged)


def _entry_with_preset(entry: Table, preset: Table) -> dict[str, Any]:
    merged = dict(entry)
    labels = set(_labels(entry))
    matching = [
        condition
        for condition in preset.get("where", ())
        if ("task" not in condition or labels & {*condition["task"]})
        and entry["network"] in condition.get("network", [entry["network"]])
    ]
    for layer in ({"training": preset.get("training", {})}, *matching):
        for key in ("arguments", *MERGED):
            if layer.get(key):
                merged[key] = {**merged.get(key, {}), **layer[key]}
        if "methods" in layer:
            merged["methods"] = layer["methods"]
        for key in PER_METHOD:
            if key in layer:
                merged[key] = _merge_tables(merged.get(key, {}), layer[key])
    return merged


def _merge_tables(below: Mapping[str, Table], above: Mapping[str, Table]) -> dict[str, Table]:
    return {name: {**below.get(name, {}), **above.get(name, {})} for name in dict.fromkeys((*below, *above))}


def _used_methods(table: Table) -> set[str]:
    return set(table["methods"]).union(*(entry.get("methods", ()) for entry in table["task"]))


def _without_unused_methods(table: dict[str, Any]) -> dict[str, Any]:
    """Drop the tables of methods that no entry runs any more."""
    used = _used_methods(table)
    variants = {name: variant for name, variant in table.get("variant", {}).items() if name in used}
    used |= {variant["method"] for variant in variants.values() if "method" in variant}

    def only_used(tables: Table) -> dict[str, Any]:
        return {name: value for name, value in tables.items() if name in used}

    entries = [
        {**entry, **{key: only_used(entry[key]) for key in PER_METHOD if key in entry}} for entry in table["task"]
    ]
    tables = {key: only_used(table.get(key, {})) for key in ("method", "tune")}
    return {**table, **tables, "variant": variants, "task": entries}


# Checks of single values.


def _check_table(where: str, table: Any, types: Mapping[str, type], required: Iterable[str] = ()) -> None:
    if not isinstance(table, dict):
        raise UserError(f"{where} must be a table; given {table!r}.")
    for key, value in table.items():
        if key not in types:
            raise UnknownName(f"key in {where}", key, types)
        if not isinstance(value, types[key]) or (types[key] is int and isinstance(value, bool)):
            raise UserError(f"{where}: {key} must be {_TYPE_NAMES[types[key]]}; given {value!r}.")
    for key in required:
        if key not in table:
            raise UserError(f"{where} needs the key {key!r}.")


def _check_names(where: str, names: Iterable[str], allowed: Iterable[str]) -> None:
    for name in names:
        if name not in allowed:
            raise UnknownName(where, name, allowed)


def _check_unique(where: str, values: Sequence[Any]) -> None:
    for index, value in enumerate(values):
        if value in values[:index]:
            raise UserError(f"{where}: {value!r} is named twice.")


def _tables(where: str, tables: Table) -> dict[str, Table]:
    for name, table in tables.items():
        if not isinstance(table, dict):
            raise UserError(f"[{where}.{name}] must be a table; given {table!r}.")
    return dict(tables)


def _names(where: str, values: Iterable[Any]) -> tuple[str, ...]:
    names = tuple(values)
    for value in names:
        if not isinstance(value, str):
            raise UserError(f"{where}: every entry must be a name; given {value!r}.")
    _check_unique(where, names)
    return names


def _seeds(values: Iterable[Any]) -> tuple[int, ...]:
    seeds = tuple(values)
    for value in seeds:
        if not isinstance(value, int) or isinstance(value, bool) or value < 0:
            raise UserError(f"seeds: every entry must be a whole number, zero or more; given {value!r}.")
    return seeds


def _choices(method: str, key: str, values: Any) -> tuple[Any, ...]:
    if not isinstance(values, list) or not values:
        raise UserError(f"[tune.{method}] {key} must be a list of values to try; given {values!r}.")
    return tuple(values)


def _at_least(where: str, table: Table, key: str, least: int) -> int | None:
    value: int | None = table.get(key)
    if value is not None and value < least:
        raise UserError(f"{where}: {key} must be at least {least}; given {value}.")
    return value
