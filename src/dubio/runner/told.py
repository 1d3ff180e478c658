"""Benchmarks whose tasks are told their data: photographs that nobody may pass on, the user's own files.

A task with an argument ``data`` reads what it is told. On the command line its arguments have options of their own:
``dubio run retina --data FOLDER --size 128 --shift severity``.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from dubio.core.errors import UserError
from dubio.core.registry import TASKS
from dubio.core.specs import describe
from dubio.core.types import Task
from dubio.runner.benchmark import Benchmark
from dubio.runner.entries import TaskEntry
from dubio.runner.setting import NOT_HERE
from dubio.store import canonical

DATA = "data"
"""The argument of a task that names its data."""

VERIFY = "verify"
"""The argument of a task that has its files read again, whatever is remembered of them."""


def with_told(benchmark: Benchmark, arguments: Mapping[str, Any]) -> Benchmark:
    """The benchmark with these arguments of the tasks that are told their data.

    Entries that become the same task by it are one, as the first of them has it: with ``shift`` given, two entries of
    two shifts are one.

    Args:
        benchmark: The benchmark.
        arguments: Argument → value.

    Raises:
        UserError: For an argument that no such task of the benchmark has.
    """
    for name in arguments:
        _check_taken(benchmark, name)
    if not arguments:
        return benchmark
    entries: dict[bytes, TaskEntry] = {}
    for entry in benchmark.tasks:
        mine = {name: value for name, value in arguments.items() if name in _told(entry)}
        changed = replace(entry, arguments={**entry.arguments, **mine}) if mine else entry
        entries.setdefault(canonical([changed.name, changed.network, describe(changed.arguments)]), changed)
    return replace(benchmark, tasks=tuple(entries.values()))


def read_verified(benchmark: Benchmark) -> dict[int, Task]:
    """Index → task, for every task that can check its files, read with that check.

    The check is done here, once: it is no part of the benchmark, and workers need not repeat it.

    Raises:
        UserError: When no task of the benchmark can.
    """
    _check_taken(benchmark, VERIFY)
    read = {}
    for place, entry in enumerate(benchmark.tasks):
        if VERIFY in _told(entry):
            # what this machine lacks is left to whoever reads the rest: said, and skipped
            with contextlib.suppress(*NOT_HERE):
                read[place] = TASKS.make(entry.name, **{**entry.arguments, VERIFY: True})
    return read


def _told(entry: TaskEntry) -> Mapping[str, Any]:
    """The arguments of an entry's task if it is told its data, else none."""
    known = TASKS.entry(entry.name).parameters()
    return known if DATA in known else {}


def _check_taken(benchmark: Benchmark, name: str) -> None:
    if any(name in _told(entry) for entry in benchmark.tasks):
        return
    option = f"--{name.replace('_', '-')}"
    told = {key: None for entry in benchmark.tasks for key in _told(entry)}
    if not told:
        raise UserError(
            f"{option} speaks of your own data, and benchmark {benchmark.name!r} has its own: name a benchmark or "
            "give --data, one of the two."
        )
    raise UserError(
        f"{option}: no task of benchmark {benchmark.name!r} has an argument {name!r}; they have {', '.join(told)}."
    )
