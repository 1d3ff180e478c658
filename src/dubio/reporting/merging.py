"""Merge several runs of one store for one report: the union of their tasks, methods and results.

A large benchmark is run in parts: one corpus with the published settings, the others with smaller ones, another network
at another time. Their manifests are merged into one that is read like that of a single run. The same method on the same
task and network may come from several runs (further seeds, say), but only if it is the same: the specifications of its
fits and predictions are compared, and a difference is refused.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from dubio.core.errors import UserError
from dubio.reporting.manifest_view import Source
from dubio.reporting.wording import sample_count

Raw = Mapping[str, Any]

SEEDED = ("seed", "member")
"""Fields of a specification that may differ between two runs of the same method."""

SAME = ("splits", "classes", "target", "network_arguments", "encoding")
"""Fields of a task that must not differ between two runs."""


def merge(store: Source, manifests: Mapping[str, Raw]) -> dict[str, Any]:
    """Return one manifest of several.

    Args:
        store: The store with the fits and predictions of all of them.
        manifests: Name of each run → its manifest, in the order of the report.

    Raises:
        UserError: When a method differs between two runs on the same task and network, or a task does.
    """
    raws = list(manifests.values())
    tasks = _tasks(manifests)
    present = {(name, task["network"]) for task in tasks for name in (task["name"], task.get("task"))}
    descriptions = {str((raw.get("benchmark") or {}).get("description") or "") for raw in raws}
    lists = {field: _union(raws, field) for field in ("tuning", "failures", "advice", "skipped", "plugins")}
    skipped = [entry for entry in lists["skipped"] if (entry.get("task"), entry.get("network")) not in present]
    return {
        "schema": 1,
        "name": " + ".join(manifests),
        "benchmark": {
            "name": " + ".join(dict.fromkeys(str(raw["name"]) for raw in raws)),
            "description": descriptions.pop() if len(descriptions) == 1 else "",
            "runs": {name: raw.get("benchmark") for name, raw in manifests.items()},
        },
        "tasks": tasks,
        "methods": _methods(raws),
        "runs": _runs(store, manifests),
        **lists,
        "skipped": skipped,
        "parts": [_part(name, raw) for name, raw in manifests.items()],
        "examples": all(raw.get("examples", True) for raw in raws),
    }


def _union(raws: list[Raw], field: str) -> list[Any]:
    """Return the entries of a list of every manifest, each once."""
    entries: list[Any] = []
    for raw in raws:
        entries += [entry for entry in raw.get(field) or () if entry not in entries]
    return entries


def _tasks(manifests: Mapping[str, Raw]) -> list[Raw]:
    """Return tasks by (name, network); the same one must have the same splits, encoding and network arguments."""
    tasks: dict[tuple[str, str], tuple[str, Raw]] = {}
    for run, raw in manifests.items():
        for task in raw["tasks"]:
            first, other = tasks.setdefault((task["name"], task["network"]), (run, task))
            for field in SAME:
                if other.get(field) != task.get(field):
                    raise UserError(
                        f"runs {first!r} and {run!r} both have the task {task['name']!r} with network "
                        f"{task['network']!r}, but their {field.replace('_', ' ')} differ; report them apart."
                    )
            budgets = {**task.get("budgets", {}), **other.get("budgets", {})}
            tasks[task["name"], task["network"]] = first, {**other, "budgets": budgets}
    return [task for _, task in tasks.values()]


def _runs(store: Source, manifests: Mapping[str, Raw]) -> list[Raw]:
    """Return every (task, network, method, seed, member) once; two definitions of one method are refused."""
    runs: dict[tuple[Any, ...], Raw] = {}
    firsts: dict[tuple[str, str, str], tuple[str, Raw]] = {}
    for name, raw in manifests.items():
        for run in raw["runs"]:
            key = run["task"], run["network"], run["method"]
            first, other = firsts.setdefault(key, (name, run))
            if first != name and other["id"] != run["id"]:
                _refuse_differences(store, (first, other), (name, run))
            runs.setdefault((*key, run["seed"], run.get("member")), run)
    return list(runs.values())


def _refuse_differences(store: Source, first: tuple[str, Raw], other: tuple[str, Raw]) -> None:
    """Refuse two runs of one method on one task whose specifications differ in more than seeds."""
    one, two = (dict(_leaves(unseeded_spec(store, run["id"]))) for _, run in (first, other))
    for key in sorted(one.keys() | two.keys()):
        if one.get(key) != two.get(key):
            run, values = other[1], [_shortened(spec.get(key, "not set")) for spec in (one, two)]
            raise UserError(
                f"runs {first[0]!r} and {other[0]!r} both have {run['method']!r} on {run['task']!r} "
                f"({run['network']}), but not the same: {key} is {values[0]} in one and {values[1]} in the other. "
                "Report them apart, or run one of them again with the settings of the other."
            )


def unseeded_spec(store: Source, pred_id: str) -> dict[str, Any]:
    """Return the specification of a prediction and of every fit behind it, without seeds."""
    spec = store.spec("predictions", pred_id)
    if "members" in spec:
        members = [unseeded_spec(store, member) for member in spec["members"]]
        return {"members": len(members), **(members[0] if members else {})}
    own = {name: value for name, value in spec.items() if name not in (*SEEDED, "fit")}
    return own | ({"fit": _unseeded_fit(store, spec["fit"])} if "fit" in spec else {})


def _unseeded_fit(store: Source, fit_id: str) -> dict[str, Any]:
    fit = store.spec("fits", fit_id)
    own = {name: value for name, value in fit.items() if name not in (*SEEDED, "start")}
    return own | ({"start": _unseeded_fit(store, fit["start"])} if fit.get("start") else {})


def _leaves(value: Any, path: str = "") -> Iterator[tuple[str, str]]:
    """Yield every leaf of nested dicts with its path, as text."""
    if isinstance(value, Mapping):
        for name, inner in value.items():
            yield from _leaves(inner, f"{path}.{name}" if path else str(name))
    else:
        yield path, repr(value)


def _shortened(text: str) -> str:
    return text if len(text) <= 60 else f"{text[:57]}…"


def _methods(raws: list[Raw]) -> list[dict[str, Any]]:
    """Return methods by name, in order of appearance; ``pools`` states their sizes by task where runs differ."""
    methods: dict[str, dict[str, Any]] = {}
    sizes: dict[str, dict[str, list[str]]] = {}
    for raw in raws:
        for method in raw["methods"]:
            name, size = method["name"], sample_count(method.get("members") or 1, method.get("samples") or 0)
            methods.setdefault(name, dict(method))
            tasks = [run["task"] for run in raw["runs"] if run["method"] == name]
            sizes.setdefault(name, {}).setdefault(size, []).extend(tasks)
    for name, tasks_by_size in sizes.items():
        if len(tasks_by_size) > 1:
            phrases = [f"{s} on {', '.join(dict.fromkeys(tasks)) or 'nothing'}" for s, tasks in tasks_by_size.items()]
            methods[name]["pools"] = "; ".join(phrases)
    return list(methods.values())


def _part(name: str, raw: Raw) -> dict[str, Any]:
    return {
        "name": name,
        "benchmark": raw["name"],
        "data": next((task["arguments"]["data"] for task in raw["tasks"] if "data" in task["arguments"]), ""),
        "preset": (raw.get("benchmark") or {}).get("preset") or "",
        "command": raw.get("command", ""),
        "tasks": [f"{task['name']} ({task['network']})" for task in raw["tasks"]],
        "methods": len(raw["methods"]),
        "seeds": sorted({run["seed"] for run in raw["runs"]}),
    }
