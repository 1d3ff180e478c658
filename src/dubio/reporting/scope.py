"""What a report covers beside its results: the runs it is put together from, and tasks that were not run."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
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
    """One of several runs that are reported together: what it was about.

    ``data`` is the file or folder of the user's own that it was run on, or empty.
    """

    name: str
    benchmark: str
    data: str
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
        benchmark=printable(entry["benchmark"]),
        data=printable(entry["data"]),
        preset=printable(entry.get("preset") or ""),
        tasks=tuple(printable(task) for task in entry["tasks"]),
        methods=int(entry["methods"]),
        seeds=tuple(int(seed) for seed in entry["seeds"]),
    )


def read_tuned(entries: Iterable[Mapping[str, Any]], task: str, network: str) -> tuple[str, ...]:
    """What tuning chose on a task, a sentence a method."""
    sentences = []
    for entry in entries:
        if (printable(entry["task"]), printable(entry["network"])) == (task, network):
            chosen = ", ".join(f"{name} = {value}" for name, value in entry["chosen"].items())
            scores = [trial["val_nll"] for trial in entry["trials"] if trial["val_nll"] is not None]
            sentences.append(
                f"{printable(entry['method'])}: {printable(chosen)}, the lowest validation NLL ({min(scores):.4g}) of "
                f"{len(entry['trials'])} trials"
            )
    return tuple(sentences)
