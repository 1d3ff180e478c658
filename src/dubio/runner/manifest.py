"""Write the manifest of a benchmark run: what was run, under which names, and where its predictions are.

It holds no timings and no dates: a run that was interrupted and resumed leaves the same manifest as one that was not.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from dubio.core.errors import CorruptFile, listing
from dubio.core.registry import METHODS
from dubio.core.specs import describe, identity, restore
from dubio.core.types import Task
from dubio.runner.benchmark_file import Benchmark, Table, TaskEntry
from dubio.runner.execute import Outcome
from dubio.runner.overrides import DATA, whole_path
from dubio.runner.plan import Plan, method_rows
from dubio.runner.prepare import PreparedTask, Skipped, explicit_arguments
from dubio.runner.tuning import Choice
from dubio.store import Store

SCHEMA = 1

PATHS = (DATA, "shift_data", "parts")
"""Arguments of tasks that name a file or folder."""

SPLIT_FACTS = ("name", "kind", "family", "severity", "fingerprint")

RATE = "p"
"""The argument that fixes the rate of the noise that a method samples."""

AT_BOUND = "_at_bound"
"""Suffix of the field of a fit's record that says at which end of its range a search ended."""

ENDS = {"low": "smallest", "high": "largest"}


def manifest_key(benchmark: Benchmark, tasks: Iterable[PreparedTask]) -> str:
    """Return the hash of a run: the benchmark and the content of its data, wherever the files are.

    Of the path of a file or folder only its name counts, however it is spelled and from wherever it is named.
    """
    fingerprints = [[[split.name, split.fingerprint] for split in task.task.splits] for task in tasks]
    document = benchmark.to_json()
    for entry in document["tasks"]:
        entry["arguments"].pop("data_dir", None)
        named = {key: entry["arguments"].get(key) for key in PATHS}
        entry["arguments"] |= {key: whole_path(path).name for key, path in named.items() if isinstance(path, str)}
    return identity({"schema": SCHEMA, "benchmark": document, "data": fingerprints})


def make_manifest(
    benchmark: Benchmark, tasks: Sequence[PreparedTask], plan: Plan, choices: Iterable[Choice], outcome: Outcome,
    *, skipped: Iterable[Skipped] = (), warnings: Iterable[str] = (), command: str = "", plugins: Iterable[str] = (),
    examples: bool = True,
) -> dict[str, Any]:  # fmt: skip
    """Return the manifest of a run.

    Args:
        benchmark: The benchmark.
        tasks: Its tasks that were run.
        plan: The plan.
        choices: The choices of tuning.
        outcome: The outcome of the plan.
        skipped: Its tasks that this machine could not run.
        warnings: Reasons to distrust the results.
        command: The command that makes the same run, where there is one.
        plugins: The plugins that were loaded, as a person reads them.
        examples: Whether examples of its data may be stored and shown.
    """
    loaded = list(plugins)
    completed = [run for run in plan.runs if run.id not in outcome.failures.keys() | outcome.blocked]
    tuning = [choice.to_json() for choice in choices]
    return {
        "schema": SCHEMA,
        "name": benchmark.name,
        "benchmark": benchmark.to_json(),
        "tasks": [_task(task, benchmark) | _budgets(task, benchmark, plan, tuning) for task in tasks],
        "methods": method_rows(benchmark, tasks, plan),
        "runs": [{**vars(run), "fits": list(run.fits), "spec": dict(run.spec)} for run in completed],
        "tuning": tuning,
        "failures": list(outcome.failures.values()),
        "skipped": [item.to_json() for item in skipped],
        "advice": list(warnings),
        **({"command": f"{command}{'' if examples else ' --no-examples'}"} if command else {}),
        **({} if examples else {"examples": False}),
        **({"plugins": loaded} if loaded else {}),
    }


def _task(prepared: PreparedTask, benchmark: Benchmark) -> dict[str, Any]:
    task, entry = prepared.task, prepared.entry
    optional: dict[str, Any] = {}
    if task.target == "multilabel":
        optional |= {"thresholds": benchmark.thresholds, "empty_decision": task.empty_decision}
    if task.rows is not None:
        optional |= {"rows": task.rows, "left_out": dict(task.left_out)}
    if prepared.method_networks:
        optional["method_networks"] = describe(prepared.method_networks)
    return {
        **optional,
        "name": prepared.name,
        "task": entry.name,
        "arguments": describe(entry.arguments),
        "inputs": task.inputs,
        "target": task.target,
        "classes": list(task.classes),
        "network": entry.network,
        "network_arguments": describe(prepared.network_arguments),
        "encoding": describe(prepared.encoding),
        "training": describe(entry.training),
        "card": asdict(task.card),
        "notes": list(prepared.notes),
        "splits": [
            {key: getattr(split, key) for key in SPLIT_FACTS} | {"examples": len(split)} for split in task.splits
        ],
        **subgroup_columns(task),
    }


def _budgets(task: PreparedTask, benchmark: Benchmark, plan: Plan, tuning: Iterable[Table]) -> dict[str, Any]:
    """Return the budget of every method that trains the task's network: epochs, patience, and trials of its tuning.

    Epochs and patience are those of the recipe as it was resolved, with all trainings that a fit starts from; None
    where a method that is not a recipe has no such argument, so that its budget is not known.
    """
    trials = {
        choice["method"]: len(choice["trials"])
        for choice in tuning
        if (choice["task"], choice["network"]) == (task.name, task.entry.network)
    }
    budgets: dict[str, Any] = {}
    for run in plan.runs:
        if (run.task, run.network) != (task.name, task.entry.network) or run.method in budgets:
            continue
        if METHODS.entry(benchmark.base(run.method)).facts.get("role") == "baseline":
            continue  # it trains no network
        effort = _effort(plan, run.fits[0]) if run.fits else _stated_effort(task.method_arguments[run.method])
        budgets[run.method] = {**effort, "trials": trials.get(run.method, 0)}
    return {"budgets": budgets}


def _effort(plan: Plan, fit_id: str) -> dict[str, int | None]:
    """Return the epochs of a fit with those it starts from, and the largest patience among them."""
    spec = plan.nodes[fit_id].spec
    own = _stated_effort(vars(getattr(restore(spec["recipe"]), "objective", restore(spec["recipe"]))))
    if spec["start"] is None:
        return own
    first = _effort(plan, spec["start"])
    pairs = {key: (own[key] or 0, first[key] or 0) for key in own}
    return {"epochs": sum(pairs["epochs"]), "patience": max(pairs["patience"])}


def _stated_effort(arguments: Mapping[str, Any]) -> dict[str, int | None]:
    return {key: arguments.get(key) for key in ("epochs", "patience")}


def subgroup_columns(task: Task) -> dict[str, Any]:
    """Return the columns of every test split beside its labels (a site, a device), one number per row."""
    columns: dict[str, dict[str, Any]] = {}
    for split in task.of_kind("id", "shift", "ood"):
        for name, column in split.data.facts.items():
            values, rows = np.unique(column, return_inverse=True)
            coded = {"values": values.tolist(), "rows": " ".join(map(str, rows.tolist()))}
            columns.setdefault(split.name, {})[name] = coded
    return {"facts": columns} if columns else {}


# Warnings.


def benchmark_warnings(benchmark: Benchmark) -> tuple[str, ...]:
    """Return one sentence for each thing in a benchmark that the papers advise against."""
    tasks, names = benchmark.tasks, benchmark.all_methods
    idle = [name for name in names if any(_stated(benchmark, task, name).get("epochs") == 0 for task in tasks)]
    nothing = "predictions are those of the weights that training would start from"
    sentences = [f"epochs = 0 trains nothing ({listing(idle)}): {nothing}."] if idle else []
    untuned = [name for name in names if any(_untuned(benchmark, task, name) for task in tasks)]
    if not untuned:
        return tuple(sentences)
    return (
        *sentences,
        f"Sampling noise at a rate that was not tuned to the task often underestimates uncertainty: "
        f"{', '.join(untuned)}. Tune it with [tune.METHOD] {RATE} = […], set {RATE} yourself, or prefer a method that "
        "learns the rate.",
    )


def _stated(benchmark: Benchmark, task: TaskEntry, name: str) -> Mapping[str, Any]:
    """Return the arguments of a method that the benchmark or its user states for a task."""
    return explicit_arguments(benchmark, task, name) if name in benchmark.methods_of(task) else {}


def _untuned(benchmark: Benchmark, task: TaskEntry, name: str) -> bool:
    """Return whether a method samples noise at a rate that nobody chose for the task."""
    if name not in benchmark.methods_of(task) or RATE in benchmark.tune.get(name, {}):
        return False
    parameters = METHODS.entry(benchmark.base(name)).parameters()
    return {RATE, "samples"} <= parameters.keys() and RATE not in explicit_arguments(benchmark, task, name)


def fit_warnings(store: Store, runs: Iterable[Mapping[str, Any]]) -> tuple[str, ...]:
    """Return one sentence for each task, network, value and end of its range at which the search of some fit ended.

    A fit that chose a value on validation records it with the end it lies at: ``{"scale": 18, "scale_at_bound":
    "high"}``.

    Args:
        store: Holds the fits.
        runs: As a manifest lists them.
    """
    users: dict[str, dict[str, dict[str, None]]] = {}
    for run in runs:
        for fit in run["fits"]:
            users.setdefault(f"{run['task']}/{run['network']}", {}).setdefault(fit, {})[run["method"]] = None
    return tuple(
        f"{setup}: {sentence}"
        for setup, methods in users.items()
        for sentence in _bound_sentences({fit: _search_values(store, fit) for fit in methods}, methods)
    )


def _search_values(store: Store, fit: str) -> Mapping[str, Any]:
    """Return the part of a fit's record that holds values found by a search; empty if it has none."""
    # A fit whose predictions exist may be gone or damaged, which the survey of the plan reports.
    with contextlib.suppress(CorruptFile):
        for values in store.record(fit).values() if store.has_fit(fit) else ():
            if isinstance(values, Mapping) and any(str(key).endswith(AT_BOUND) for key in values):
                return values
    return {}


def _bound_sentences(searches: Mapping[str, Mapping[str, Any]], methods: Mapping[str, Iterable[str]]) -> Iterator[str]:
    count = sum(map(bool, searches.values()))
    keys = dict.fromkeys(key for values in searches.values() for key in values if key.endswith(AT_BOUND))
    for key, end in itertools.product(keys, ENDS):
        hits = [fit for fit, values in searches.items() if values.get(key) == end]
        if hits:
            name, users = key.removesuffix(AT_BOUND), dict.fromkeys(method for fit in hits for method in methods[fit])
            yield (
                f"in {len(hits)} of {count} fits with a search on validation ({', '.join(users)}) the best "
                f"{name.replace('_', ' ')} is the {ENDS[end]} value tried, {searches[hits[0]][name]:.2g}; a better one "
                "may lie outside the range."
            )
