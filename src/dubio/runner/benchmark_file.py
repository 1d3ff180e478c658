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

    [preset.longer]
    extends = "paper"               # all of another preset, which extends none itself; what stands here comes later

Unknown keys are refused with the nearest known name.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Annotated, Any, Literal

from dubio.core.documents import parse_toml, read_document
from dubio.core.errors import BadFile, UserError, check_known
from dubio.core.specs import canonical
from dubio.core.validate import DISTINCT, NonNegative, Positive, at_least, decode, entries, matching

Table = Mapping[str, Any]
Tables = Mapping[str, Table]
Name = Annotated[str, matching(r"[A-Za-z0-9][A-Za-z0-9._-]{0,79}", "of letters, digits, '.', '_' and '-'")]
Names = tuple[str, ...]
Seeds = tuple[NonNegative, ...]
Members = Annotated[int, at_least(2)]
Tune = Mapping[str, Mapping[str, Annotated[tuple[Any, ...], entries(1)]]]

TABLES = ("arguments", "network_arguments", "encoding", "training")
METHOD_TABLES = ("method_arguments", "method_network")


@dataclass(frozen=True, kw_only=True)
class _TaskTables:
    """The tables of a task: in its own entry, in the defaults of its network, and in the conditions of a preset."""

    arguments: Table = field(default_factory=dict)
    network_arguments: Table = field(default_factory=dict)
    encoding: Table = field(default_factory=dict)
    training: Table = field(default_factory=dict)
    methods: Names | None = None
    method_arguments: Tables = field(default_factory=dict, metadata={"key": "method"})
    method_network: Tables = field(default_factory=dict)


@dataclass(frozen=True)
class TaskEntry(_TaskTables):
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
    methods: Annotated[Names, entries(1), DISTINCT] | None = field(default=None, kw_only=True)
    called: Name = ""
    most_samples: Positive | None = None

    @property
    def labels(self) -> tuple[str, ...]:
        """Names that select the entry: ``amazon`` and ``amazon-books`` for ``amazon`` with ``source = "books"``."""
        if self.called:
            return (self.called,)
        return (self.name, *(f"{self.name}-{value}" for value in self.arguments.values() if isinstance(value, str)))


@dataclass(frozen=True)
class Variant:
    """A registered method under another name, with other arguments."""

    method: str
    arguments: Table = field(default_factory=dict, metadata={"extra": True})
    title: str = ""


@dataclass(frozen=True)
class _Condition(_TaskTables):
    """Tables of a preset for some tasks and networks; None for all. An empty list of methods removes the entry."""

    task: tuple[str, ...] | None = None
    network: tuple[str, ...] | None = None

    def matches(self, entry: TaskEntry) -> bool:
        return (self.task is None or bool({*self.task} & {*entry.labels})) and (
            self.network is None or entry.network in self.network
        )


@dataclass(frozen=True)
class _Preset:
    """A named overlay of a benchmark; None changes nothing. It may extend another one."""

    description: str = ""
    extends: str = ""
    seeds: Seeds | None = None
    members: Members | None = None
    samples: Positive | None = None
    methods: Names | None = None
    training: Table = field(default_factory=dict)
    method_arguments: Tables = field(default_factory=dict, metadata={"key": "method"})
    tune: Tune | None = None
    where: tuple[_Condition, ...] = ()

    def over(self, base: _Preset) -> _Preset:
        """Return the preset that changes what ``base`` leaves."""
        own = {key: value for key in ("seeds", "members", "samples", "methods", "tune")
               if (value := getattr(self, key)) is not None}  # fmt: skip
        return replace(
            base,
            **own,
            description=self.description,
            training={**base.training, **self.training},
            method_arguments=_merged(base.method_arguments, self.method_arguments),
            where=base.where + self.where,
        )


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

    name: Name
    tasks: tuple[TaskEntry, ...] = field(metadata={"key": "task"})
    methods: Names
    seeds: Seeds = (0,)
    method_arguments: Tables = field(default_factory=dict, metadata={"key": "method"})
    tune: Tune = field(default_factory=dict)
    description: str = ""
    variants: Mapping[str, Variant] = field(default_factory=dict, metadata={"key": "variant"})
    members: Members | None = None
    samples: Positive | None = None
    thresholds: Literal["half", "validation"] = "half"
    preset: str = ""

    def __post_init__(self) -> None:
        lists: dict[str, tuple[Any, ...]] = {"task": self.tasks, "methods": self.methods, "seeds": self.seeds}
        for key, values in lists.items():
            if not values:
                raise UserError(f"benchmark {self.name!r}: {key} must not be empty.")
            for value in values if key != "task" else ():
                if values.count(value) > 1:
                    raise UserError(f"benchmark {self.name!r}: {key} has {value!r} twice.")
        used = set(self.all_methods)
        with_bases = used | {self.base(name) for name in used}
        check_known("method in [method]", self.method_arguments, with_bases)
        check_known("method in [tune]", self.tune, used)
        for task in self.tasks:
            check_known(f"method in task.method of {task.name}", task.method_arguments, with_bases)
            check_known(f"method in task.method_network of {task.name}", task.method_network, with_bases)
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
        _drop(document, variants={}, members=None, samples=None, preset="", thresholds="half")
        for task in document["tasks"]:
            _drop(task, methods=None, method_arguments={}, method_network={}, called="", most_samples=None)
        return document


@dataclass(frozen=True)
class _File:
    """The tables of a file: tasks, defaults of networks, presets, and the other fields of the benchmark."""

    task: Annotated[tuple[TaskEntry, ...], entries(1)]
    benchmark: Table = field(metadata={"extra": True})
    network: Mapping[str, _TaskTables] = field(default_factory=dict)
    preset: Mapping[str, _Preset] = field(default_factory=dict)
    default_preset: str = ""


def _drop(document: dict[str, Any], **defaults: Any) -> None:
    """Remove the keys that have these values."""
    for key, default in defaults.items():
        if document[key] == default:
            del document[key]


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
        text = read_document(path)
    else:
        shipped = benchmark_files()
        check_known("benchmark (or TOML file)", [name], shipped)
        text = shipped[name].read_bytes()
    table = parse_toml(text, f"benchmark {name!r}")
    try:
        return parse_benchmark(table, preset, methods)
    except UserError as error:
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
    try:
        canonical(table)
    except (TypeError, ValueError) as error:
        raise UserError(f"values must be numbers, texts, true or false, lists or tables: {error}.") from error
    file = decode(_File, _one_entry_per_network(table))
    benchmark = decode(Benchmark, {**file.benchmark, "task": _with_network_defaults(file.task, file.network)})
    presets = {name: _extended(name, file.preset) for name in file.preset}
    for name, overlay in presets.items():
        _check_preset(benchmark, name, overlay)
    chosen = _chosen_preset(benchmark.name, file, preset)
    return _with_preset(benchmark, chosen, presets[chosen], methods) if chosen else benchmark


def _one_entry_per_network(table: Table) -> dict[str, Any]:
    tasks = table.get("task")
    if not isinstance(tasks, list):
        return dict(table)  # refused when it is decoded
    split: list[Any] = []
    for entry in tasks:
        several = isinstance(entry, dict) and isinstance(entry.get("network"), list)
        split += [{**entry, "network": name} for name in entry["network"]] if several else [entry]
    return {**table, "task": split}


def _with_network_defaults(tasks: Sequence[TaskEntry], defaults: Mapping[str, _TaskTables]) -> list[TaskEntry]:
    """Return the entries with ``[network.NAME]`` as defaults of every task with that network."""
    check_known("network in [network]", defaults, {entry.network for entry in tasks})
    merged = []
    for entry in tasks:
        default = defaults.get(entry.network, _TaskTables())
        keys = (*TABLES, *METHOD_TABLES)
        changes: dict[str, Any] = {key: {**getattr(default, key), **getattr(entry, key)} for key in keys}
        merged.append(replace(entry, **changes, methods=default.methods if entry.methods is None else entry.methods))
    return merged


def _extended(name: str, presets: Mapping[str, _Preset]) -> _Preset:
    """Return a preset with what it takes over from the one it extends."""
    preset = presets[name]
    if not preset.extends:
        return preset
    where = f"preset in [preset.{name}] extends"
    check_known(where, [preset.extends], [other for other, table in presets.items() if not table.extends])
    return preset.over(presets[preset.extends])


def _chosen_preset(benchmark: str, file: _File, requested: str | None) -> str:
    """Return the name of the preset to apply; empty for none."""
    if file.default_preset:
        check_known("preset in default_preset", [file.default_preset], file.preset)
    if requested is None:
        return file.default_preset
    if not file.preset:
        raise UserError(f"benchmark {benchmark!r} has no presets; omit --preset {requested}.")
    check_known(f"preset of benchmark {benchmark}", [requested], file.preset)
    return requested


def _check_preset(benchmark: Benchmark, name: str, preset: _Preset) -> None:
    labels = {label for entry in benchmark.tasks for label in entry.labels}
    networks = {entry.network for entry in benchmark.tasks}
    methods = {*benchmark.all_methods, *benchmark.variants, *map(benchmark.base, benchmark.variants)}
    check_known(f"method in [preset.{name}]", preset.method_arguments, {*methods, *(preset.methods or ())})
    for condition in preset.where:
        where = f"[[preset.{name}.where]]"
        for tables in (condition.method_arguments, condition.method_network):
            check_known(f"method in {where}", tables, {*methods, *(condition.methods or ())})
        check_known(f"task in {where}", condition.task or (), labels)
        check_known(f"network in {where}", condition.network or (), networks)


def _with_preset(benchmark: Benchmark, name: str, preset: _Preset, requested: Iterable[str]) -> Benchmark:
    """Return the benchmark with a preset applied.

    Methods that the user requests are kept even if the preset leaves them out; tables of others that no entry runs any
    more are dropped.
    """
    layered = (_entry_with_preset(entry, preset) for entry in benchmark.tasks)
    tasks = [entry for entry in layered if entry.methods != ()]
    if not tasks:
        raise UserError("the preset removes every task.")
    methods = benchmark.methods if preset.methods is None else preset.methods
    used = {*methods, *(name for entry in tasks for name in entry.methods or ())}
    available = {*benchmark.all_methods, *benchmark.variants}
    methods += tuple(name for name in dict.fromkeys(requested) if name in available and name not in used)
    numbers = {key: getattr(preset, key) for key in ("seeds", "members", "samples", "tune")}
    return narrowed(
        benchmark,
        tasks,
        methods,
        method_arguments=_merged(benchmark.method_arguments, preset.method_arguments),
        preset=name,
        **{key: number for key, number in numbers.items() if number is not None},
    )


def narrowed(benchmark: Benchmark, tasks: Iterable[TaskEntry], methods: Names, **changes: Any) -> Benchmark:
    """Return the benchmark of these tasks and methods, without the tables of other methods.

    Args:
        benchmark: The benchmark.
        tasks: The entries to keep.
        methods: The methods of entries that have none of their own.
        changes: Other fields that change.
    """
    tasks = tuple(tasks)
    used = {*methods, *(name for entry in tasks for name in entry.methods or ())}
    with_bases = used | {benchmark.base(name) for name in used}
    fields: dict[str, Any] = {**vars(benchmark), **changes, "methods": methods}
    fields["tasks"] = tuple(_narrowed_entry(entry, with_bases) for entry in tasks)
    fields["method_arguments"] = _only(fields["method_arguments"], with_bases)
    return Benchmark(**fields | {key: _only(fields[key], used) for key in ("tune", "variants")})


def _narrowed_entry(entry: TaskEntry, methods: set[str]) -> TaskEntry:
    tables: dict[str, Any] = {key: _only(getattr(entry, key), methods) for key in METHOD_TABLES}
    return replace(entry, **tables)


def _entry_with_preset(entry: TaskEntry, preset: _Preset) -> TaskEntry:
    conditions = (condition for condition in preset.where if condition.matches(entry))
    for layer in (_TaskTables(training=preset.training), *conditions):
        changes: dict[str, Any] = {key: {**getattr(entry, key), **getattr(layer, key)} for key in TABLES}
        changes |= {key: _merged(getattr(entry, key), getattr(layer, key)) for key in METHOD_TABLES}
        entry = replace(entry, **changes, methods=entry.methods if layer.methods is None else layer.methods)
    return entry


def _merged(below: Tables, above: Tables) -> Tables:
    return {name: {**below.get(name, {}), **above.get(name, {})} for name in dict.fromkeys((*below, *above))}


def _only(tables: Mapping[str, Any], names: Iterable[str]) -> dict[str, Any]:
    return {name: table for name, table in tables.items() if name in names}
