"""The manifest of a benchmark run: what was run, under which names, and where its predictions are.

It holds no timings and no dates: a run that was interrupted and resumed leaves the same manifest as one that was not.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from dubio.core.specs import describe, identity
from dubio.core.types import Run, Task
from dubio.runner.benchmark import Benchmark
from dubio.runner.execute import Outcome
from dubio.runner.plan import Plan, method_rows
from dubio.runner.setting import Setting, Skipped
from dubio.runner.tuning import Choice

SCHEMA = 1


def manifest_key(benchmark: Benchmark, settings: Iterable[Setting]) -> str:
    """The hash of what a run is about: the benchmark and the data, wherever it lies."""
    prints = [[[split.name, split.fingerprint] for split in setting.task.splits] for setting in settings]
    said = benchmark.to_json()
    for task in said["tasks"]:
        task["arguments"].pop("data_dir", None)
    return identity({"schema": SCHEMA, "benchmark": said, "data": prints})


def make_manifest(
    benchmark: Benchmark, settings: Sequence[Setting], plan: Plan, choices: Iterable[Choice], outcome: Outcome,
    *, skipped: Iterable[Skipped] = (), cautions: Iterable[str] = (),
) -> dict[str, Any]:  # fmt: skip
    """The manifest of a run.

    Args:
        benchmark: What was to be run.
        settings: Its tasks that were run.
        plan: The plan.
        choices: What tuning chose.
        outcome: What came of it.
        skipped: Its tasks that this machine could not run.
        cautions: What one should know before trusting it.
    """
    lacking = outcome.failures.keys() | outcome.blocked
    return {
        "schema": SCHEMA,
        "name": benchmark.name,
        "benchmark": benchmark.to_json(),
        "tasks": [_task(setting, benchmark) for setting in settings],
        "methods": [asdict(row) for row in method_rows(benchmark, settings, plan)],
        "runs": [_run(run) for run in plan.runs if run.id not in lacking],
        "tuning": [choice.to_json() for choice in choices],
        "failures": [dict(failure) for failure in outcome.failures.values()],
        "skipped": [item.to_json() for item in skipped],
        "advice": list(cautions),
    }


def _task(setting: Setting, benchmark: Benchmark) -> dict[str, Any]:
    task, entry = setting.task, setting.entry
    cut: dict[str, Any] = {"thresholds": benchmark.thresholds} if task.target == "multilabel" else {}
    if setting.method_networks:
        cut["method_networks"] = describe(setting.method_networks)
    return {
        **cut,
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
        **_facts(task),
    }


def _facts(task: Task) -> dict[str, Any]:
    """What is known of every test example beside its label, a number a row: subgroups for the report."""
    found: dict[str, dict[str, Any]] = {}
    for split in task.of_kind("id", "shift", "ood"):
        for name, column in split.data.facts.items():
            values, rows = np.unique(column, return_inverse=True)
            told = {"values": values.tolist(), "rows": " ".join(map(str, rows.tolist()))}
            found.setdefault(split.name, {})[name] = told
    return {"facts": found} if found else {}


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
