"""A benchmark: which tasks, networks, methods and seeds, read from a short TOML file.

::

    name = "quick"
    seeds = [0, 1, 2]
    methods = ["deterministic", "deep-ensemble"]
    members = 3                     # of every ensemble
    samples = 10                    # of every method that draws any
    thresholds = "validation"       # multi-label: also score at each label's best threshold on validation

    [method.deep-ensemble]          # arguments of one method
    members = 3

    [variant.swag-low]              # a method under another name with other arguments: a row of its own
    method = "swag"
    title = "SWAG, low rate"        # may be left out
    lr = 1e-3

    [tune.deterministic]            # lists: the best on validation is chosen, task by task
    lr = [1e-3, 3e-4]

    [[task]]
    name = "digits"
    network = "cnn"
    arguments = {}                  # of the task
    network_arguments = {}
    encoding = {}
    training = { epochs = 20 }      # given to every method that has such an argument
    methods = ["deterministic"]     # instead of the benchmark's
    method.deterministic = {}       # arguments of one method on this task
    method_network.mean-field-vi = { width = 32 } # other arguments of the network for one method
    called = "digits-far"           # what results call it, where another entry has the same task and network
    most_samples = 5                # predict with so many samples of each method; of snapshots, the latest

What holds for all tasks of a network is said once (:mod:`dubio.runner.expanding`); presets
(:mod:`dubio.runner.presets`) are laid over all of this. Every key is known or refused with the nearest known name.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from importlib.resources import files
from pathlib import Path
from typing import Any, Literal, cast

from dubio.core.errors import BadFile, UnknownName, UserError, one_of
from dubio.runner.entries import NAME, TaskEntry, Variant, task_of, variant_of
from dubio.runner.expanding import expanded
from dubio.runner.presets import check_presets, chosen_preset, overlaid
from dubio.runner.tables import Table, at_least, check, choices, names, once, seeds, tables
from dubio.store import canonical

KEYS: dict[str, type] = {
    "name": str, "description": str, "seeds": list, "methods": list, "members": int, "samples": int, "thresholds": str,
    "method": dict, "variant": dict, "tune": dict, "network": dict, "task": list, "preset": dict,
    "default_preset": str,
}  # fmt: skip

Thresholds = Literal["half", "validation"]
THRESHOLDS: tuple[Thresholds, ...] = ("half", "validation")


@dataclass(frozen=True)
class Benchmark:
    """What is to be run.

    Attributes:
        name: Names the run's manifest.
        tasks: Tasks, each with its network.
        methods: Names of methods or variants, in the order of the report.
        seeds: Seeds; every method is run with each.
        method_arguments: Arguments of single methods.
        tune: Lists of values of single methods' arguments, chosen from by validation nll.
        description: One or two sentences.
        variants: Methods under other names.
        members: Of every ensemble, where neither the method's own arguments nor the task's say otherwise.
        samples: Of every method that draws samples, likewise.
        thresholds: Where multi-label decisions are cut: at one half, or also where validation says.
        preset: The name of the preset that was laid over it, or empty.
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
            raise UserError(f"a benchmark's name is letters, digits, '.', '_' and '-'; given {self.name!r}.")
        for what, values in (("task", self.tasks), ("methods", self.methods), ("seeds", self.seeds)):
            if not values:
                raise UserError(f"benchmark {self.name!r}: {what} must not be empty.")
        once("methods", self.methods)
        once("seeds", self.seeds)
        used = self.all_methods
        bases = tuple(dict.fromkeys(self.base(name) for name in used))
        for place, given, known in (
            ("method", self.method_arguments, {*used, *bases}),
            ("tune", self.tune, {*used}),
            *((f"task.method of {task.name}", task.method_arguments, {*used, *bases}) for task in self.tasks),
            *((f"task.method_network of {task.name}", task.method_network, {*used, *bases}) for task in self.tasks),
        ):
            for name in given:
                if name not in known:
                    raise UnknownName(f"method in [{place}.{name}]", name, known)

        for name in self.variants:
            if name not in used:
                raise UserError(f"[variant.{name}] is in no list of methods; name {name!r} in methods = […].")

    @property
    def all_methods(self) -> tuple[str, ...]:
        """The methods of the benchmark and of its tasks, in the order of the report."""
        return tuple(dict.fromkeys((*self.methods, *(name for task in self.tasks for name in task.methods or ()))))

    def methods_of(self, entry: TaskEntry) -> tuple[str, ...]:
        """The methods that are run on a task."""
        return self.methods if entry.methods is None else entry.methods

    def base(self, name: str) -> str:
        """The registered method behind a name."""
        return self.variants[name].method if name in self.variants else name

    def to_json(self) -> dict[str, Any]:
        """As the manifest keeps it; what is left at its default and came later is left out, so that keys stay."""
        said = asdict(self)
        for key in ("variants", "members", "samples", "preset"):
            if not said[key]:
                del said[key]
        if self.thresholds == "half":
            del said["thresholds"]
        for task in said["tasks"]:
            if task["methods"] is None:
                del task["methods"]
            for key in ("method_arguments", "method_network", "called", "most_samples"):
                if not task[key]:
                    del task[key]
        return said


def built_in() -> tuple[str, ...]:
    """The names of the benchmarks that come with dubio."""
    return tuple(sorted(item.name[:-5] for item in _home().iterdir() if item.name.endswith(".toml")))


def load_benchmark(name: str, preset: str | None = None, methods: Sequence[str] = ()) -> Benchmark:
    """A benchmark by name, or from the TOML file at that path.

    Args:
        name: The name or path.
        preset: One of its presets; None for its default one, if it has any.
        methods: Methods that will be asked for: what is said of them is kept, whatever the preset leaves out.

    Raises:
        UnknownName: When it is neither, or has no such preset.
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
        return parse_benchmark(tomllib.loads(text), preset, methods)
    except (tomllib.TOMLDecodeError, UserError) as fault:
        raise BadFile(f"benchmark {name!r}: {fault}") from fault


def parse_benchmark(table: Table, preset: str | None = None, methods: Sequence[str] = ()) -> Benchmark:
    """A benchmark from its table, with one of its presets or its default one laid over it.

    Args:
        table: As the TOML file has it.
        preset: As for :func:`load_benchmark`.
        methods: Likewise.

    Raises:
        UserError: For a key that is unknown or missing, or a value of another type.
    """
    check("benchmark", table, KEYS, needed=("name", "methods", "task"))
    try:
        canonical(table)
    except (TypeError, ValueError) as fault:
        raise UserError(f"values must be numbers, texts, true or false, lists or tables: {fault}.") from fault
    whole = expanded(table)
    plain = _parse(whole, "")
    check_presets(whole)
    chosen = chosen_preset(whole, preset)
    return _parse(overlaid(whole, whole["preset"][chosen], methods), chosen) if chosen else plain


def _parse(table: Table, preset: str) -> Benchmark:
    tune = tables("tune", table.get("tune", {}))
    return Benchmark(
        name=table["name"],
        tasks=tuple(task_of(entry) for entry in table["task"]),
        methods=names("methods", table["methods"]),
        seeds=seeds(table.get("seeds", [0])),
        method_arguments=tables("method", table.get("method", {})),
        tune={name: {key: choices(name, key, item) for key, item in lists.items()} for name, lists in tune.items()},
        description=table.get("description", ""),
        variants={name: variant_of(name, made) for name, made in table.get("variant", {}).items()},
        members=at_least("benchmark", table, "members", 2),
        samples=at_least("benchmark", table, "samples", 1),
        thresholds=cast(Thresholds, one_of("thresholds", table.get("thresholds", "half"), THRESHOLDS)),
        preset=preset,
    )


def _home() -> Any:
    return files("dubio") / "benchmarks"
