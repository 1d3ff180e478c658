"""Check everything that a Python file registers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dubio.core.errors import MissingExtra, UserError
from dubio.core.registry import REGISTRIES, Entry, load_plugin
from dubio.testing.rules import Outcome


@dataclass(frozen=True)
class CheckedEntry:
    """A registered task, network, method or metric and the outcome of every rule."""

    kind: str
    entry: Entry[Any]
    outcomes: tuple[Outcome, ...]

    @property
    def passed(self) -> bool:
        """Whether no rule failed."""
        return all(outcome.state != "failed" for outcome in self.outcomes)


def check_plugin(file: Path, inputs: Sequence[str] = ("table",)) -> tuple[CheckedEntry, ...]:
    """Load a file and check everything it registers.

    Args:
        file: A Python file that registers tasks, networks, methods or metrics.
        inputs: Kinds of data that methods are fitted on: ``table``, ``text``, ``image``.

    Raises:
        UserError: If the file cannot be loaded or registers nothing.
    """
    return tuple(CheckedEntry(kind, entry, _outcomes(kind, entry, inputs)) for kind, entry in _registered_by(file))


def _outcomes(kind: str, entry: Entry[Any], inputs: Sequence[str]) -> tuple[Outcome, ...]:
    from dubio import testing

    examine: Callable[..., list[Outcome]] = getattr(testing, f"examine_{kind}")
    return tuple(examine(entry, inputs=inputs) if kind == "method" else examine(entry))


def _registered_by(file: Path) -> list[tuple[str, Entry[Any]]]:
    """Return (kind, entry) of everything that loading the file adds to the registries."""
    before: dict[str, tuple[str, ...] | MissingExtra] = {}
    for kind, registry in REGISTRIES.items():
        try:
            before[kind] = registry.names()
        except MissingExtra as missing:  # networks and methods without torch
            before[kind] = missing
    load_plugin(file)
    added = [
        (kind.removesuffix("s"), entry)
        for kind, names in before.items()
        if not isinstance(names, MissingExtra)
        for entry in REGISTRIES[kind].entries()
        if entry.name not in names
    ]
    if added:
        return added
    for names in before.values():
        if isinstance(names, MissingExtra):
            raise names
    raise UserError(
        f"{str(file)!r} registers nothing; decorate a function with @dubio.task, @dubio.network, @dubio.method or "
        "@dubio.metric."
    )
