"""What a report covers beside its results: the runs it is put together from, and tasks that were not run."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

_UNPRINTABLE = re.compile("[^\\t\\n\\x20-\\x7e\\xa0-\\ud7ff\\ue000-\\ufffd\\U00010000-\\U0010ffff]")


@dataclass(frozen=True)
class Skipped:
    """A task that was not run, and why."""

    task: str
    network: str
    reason: str


@dataclass(frozen=True)
class PartView:
    """One of several runs that are reported together: what it was about."""

    name: str
    preset: str
    tasks: tuple[str, ...]
    methods: int
    seeds: tuple[int, ...]


def printable(value: object) -> str:
    """A text that any page or figure can hold: what cannot be printed is replaced."""
    return _UNPRINTABLE.sub("\N{REPLACEMENT CHARACTER}", str(value))


def read_skipped(entry: Mapping[str, Any]) -> Skipped:
    """A skipped task as a manifest tells it."""
    return Skipped(printable(entry["task"]), printable(entry.get("network") or ""), printable(entry["reason"]))


def read_part(entry: Mapping[str, Any]) -> PartView:
    """A run as a merged manifest tells it."""
    return PartView(
        name=printable(entry["name"]),
        preset=printable(entry.get("preset") or ""),
        tasks=tuple(printable(task) for task in entry["tasks"]),
        methods=int(entry["methods"]),
        seeds=tuple(int(seed) for seed in entry["seeds"]),
    )
