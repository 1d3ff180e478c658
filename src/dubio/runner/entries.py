"""The entries of a benchmark: its tasks, each with the network that learns it, and methods under other names."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from dubio.core.errors import UserError
from dubio.runner.presets import labels
from dubio.runner.tables import Table, at_least, check, names, tables

TASK_KEYS: dict[str, type] = {
    "name": str, "network": str, "methods": list, "called": str, "most_samples": int,
    **dict.fromkeys(("arguments", "network_arguments", "encoding", "training", "method", "method_network"), dict),
}  # fmt: skip

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,79}")
"""What a benchmark, or a task in its results, may be called."""


@dataclass(frozen=True)
class TaskEntry:
    """A task of a benchmark, with the network that learns it.

    Attributes:
        name: The task.
        network: The network.
        arguments: Of the task.
        network_arguments: Of the network.
        encoding: Of the encoding.
        training: Given to every method that has such an argument.
        methods: Methods instead of the benchmark's, or None for those.
        method_arguments: Arguments of single methods on this task alone.
        method_network: Other arguments of the network for single methods.
        called: What results call it, where that is not the task's own name.
        most_samples: Methods predict with so many of their samples (snapshots: the latest), or with all where None.
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
        """What it answers to, such as ``amazon`` and ``amazon-books``."""
        return labels({"name": self.name, "arguments": self.arguments, "called": self.called})

    @property
    def spoken(self) -> str:
        """Its task with the arguments it is given."""
        told = ", ".join(f"{key}={value}" for key, value in self.arguments.items())
        return f"{self.name} ({told})" if told else self.name


@dataclass(frozen=True)
class Variant:
    """A method under a name of its own, with other arguments."""

    method: str
    arguments: Table = field(default_factory=dict)
    title: str = ""


def task_of(entry: Any) -> TaskEntry:
    """A task from its table in a benchmark file.

    Raises:
        UserError: For a key that is unknown or missing, or a value that means nothing.
    """
    check("[[task]]", entry, TASK_KEYS, needed=("name", "network"))
    said = {key: value for key, value in entry.items() if key not in ("method", "methods", "method_network")}
    own = None if "methods" not in entry else names(f"methods of task {entry['name']}", entry["methods"])
    if own == ():
        raise UserError(f"task {entry['name']}: methods must not be empty; leave it out for the benchmark's.")
    single = (tables(f"task.{key}", entry.get(key, {})) for key in ("method", "method_network"))
    arguments, networks = single
    at_least(f"task {entry['name']}", entry, "most_samples", 1)
    if "called" in entry and not NAME.fullmatch(entry["called"]):
        raise UserError(f"called must be letters, digits, '.', '_' and '-'; given {entry['called']!r}.")
    return TaskEntry(**said, methods=own, method_arguments=arguments, method_network=networks)


def variant_of(name: str, made: Any) -> Variant:
    """A method under another name, from its table.

    Raises:
        UserError: When it is none, or names no method.
    """
    place = f"[variant.{name}]"
    if not isinstance(made, dict):
        raise UserError(f"{place} must be a table; given {made!r}.")
    about = {key: value for key, value in made.items() if key in ("method", "title")}
    check(place, about, {"method": str, "title": str}, needed=("method",))
    rest = {key: value for key, value in made.items() if key not in about}
    return Variant(about["method"], rest, about.get("title", ""))
