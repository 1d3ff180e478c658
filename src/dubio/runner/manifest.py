"""The manifest of a benchmark run: what was run, under which names, and where its predictions are.

It holds no timings and no dates: a run that was interrupted and resumed leaves the same manifest as one that was not.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from dubio.parts import describe
from dubio.runner.benchmark import Benchmark
from dubio.runner.plan import Plan, method_rows
from dubio.runner.setting import Setting
from dubio.runner.tuning import Choice
from dubio.store import identity
from dubio.types import Run

SCHEMA = 1


def manifest_key(benchmark: Benchmark, settings: Iterable[Setting]) -> str:
    """The hash of what a run is about: the benchmark and the data."""
    prints = [[[split.name, split.fingerprint] for split in setting.task.splits] for setting in settings]
    return identity({"schema": SCHEMA, "benchmark": benchmark.to_json(), "data": prints})


def make_manifest(
    benchmark: Benchmark, settings: Sequence[Setting], plan: Plan, choices: Iterable[Choice],
    failures: Mapping[str, Mapping[str, Any]],
) -> dict[str, Any]:  # fmt: skip
    """The manifest of a run.

    Args:
        benchmark: What was to be run.
        settings: Its tasks.
        plan: The plan.
        choices: What tuning chose.
        failures: Id → what went wrong.
    """
    return {
        "schema": SCHEMA,
        "name": benchmark.name,
        "benchmark": benchmark.to_json(),
        "tasks": [_task(setting) for setting in settings],
        "methods": [asdict(row) for row in method_rows(benchmark, settings[0], plan)],
        "runs": [_run(run) for run in plan.runs if run.id not in failures],
        "tuning": [choice.to_json() for choice in choices],
        "failures": [dict(failure) for failure in failures.values()],
    }


def _task(setting: Setting) -> dict[str, Any]:
    task, entry = setting.task, setting.entry
    return {
        "name": setting.name,
        "task": entry.name,
        "arguments": describe(entry.arguments),
        "inputs": task.inputs,
        "target": task.target,
        "classes": list(task.classes),
        "network": entry.network,
        "network_arguments": describe(setting.network_arguments),
        "encoding": describe(setting.encoding),
        "training": describe(entry.training),
        "card": asdict(task.card),
        "notes": list(task.notes),
        "splits": [
            {"name": split.name, "kind": split.kind, "fingerprint": split.fingerprint, "examples": len(split)}
            for split in task.splits
        ],
    }


def _run(run: Run) -> dict[str, Any]:
    return {
        "id": run.id,
        "task": run.task,
        "network": run.network,
        "method": run.method,
        "seed": run.seed,
        "member": run.member,
        "fits": list(run.fits),
        "spec": dict(run.spec),
    }
