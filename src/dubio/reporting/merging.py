"""Several runs of one store in one report: the union of their tasks, methods and results.

A large benchmark is run in parts: one corpus with the published settings, the others with smaller ones, another network
at another time. Their manifests are put together here into one that everything behind reads as if it were a single run.
The same method on the same task and network may come from several runs (further seeds, say), but only if it is the
same: what its fits and predictions were made from is compared, and a difference is refused.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from dubio.core.errors import UserError
from dubio.reporting.manifest_view import Source

Raw = Mapping[str, Any]

SEEDED = ("seed", "member")
"""What may differ between two runs of the same thing."""


def merge(store: Source, manifests: Mapping[str, Raw]) -> dict[str, Any]:
    """One manifest of several.

    Args:
        store: Where all of them keep their fits and predictions.
        manifests: What each run is called → its manifest, in the order of the report.

    Raises:
        UserError: When a method differs between two runs on the same task and network, or a task does.
    """
    tasks = _tasks(manifests)
    runs = _runs(store, manifests)
    return {
        "schema": 1,
        "name": " + ".join(manifests),
        "benchmark": {
            "name": " + ".join(dict.fromkeys(str(raw["name"]) for raw in manifests.values())),
            "description": _shared_description(manifests.values()),
            "runs": {name: raw.get("benchmark") for name, raw in manifests.items()},
        },
        "tasks": tasks,
        "methods": _methods(manifests),
        "runs": runs,
        "tuning": _each(manifests, "tuning"),
        "failures": _each(manifests, "failures"),
        "advice": _each(manifests, "advice"),
        "skipped": _skipped(manifests, tasks),
        "parts": [_part(name, raw) for name, raw in manifests.items()],
    }


def _tasks(manifests: Mapping[str, Raw]) -> list[Raw]:
    """Tasks by (name, network); the same one must have the same splits, encoding and network arguments."""
    found: dict[tuple[str, str], tuple[str, Raw]] = {}
    for run, raw in manifests.items():
        for task in raw["tasks"]:
            first, known = found.setdefault((task["name"], task["network"]), (run, task))
            for field in ("splits", "classes", "target", "network_arguments", "encoding"):
                if known.get(field) != task.get(field):
                    raise UserError(
                        f"runs {first!r} and {run!r} both have the task {task['name']!r} with network "
                        f"{task['network']!r}, but their {field.replace('_', ' ')} differ; report them apart."
                    )
    return [task for _, task in found.values()]


def _runs(store: Source, manifests: Mapping[str, Raw]) -> list[Raw]:
    """All runs, each (task, network, method, seed, member) once; refused where one method means two things."""
    kept: dict[tuple[Any, ...], Raw] = {}
    meant: dict[tuple[str, str, str], tuple[str, Raw]] = {}
    for name, raw in manifests.items():
        for run in raw["runs"]:
            what = run["task"], run["network"], run["method"]
            first, known = meant.setdefault(what, (name, run))
            if first != name:
                _same(store, (first, known), (name, run))
            kept.setdefault((*what, run["seed"], run.get("member")), run)
    return list(kept.values())


def _same(store: Source, first: tuple[str, Raw], other: tuple[str, Raw]) -> None:
    """Refuse two runs of one method on one task that were not made the same way."""
    if first[1]["id"] == other[1]["id"]:
        return
    one, two = (dict(_flat(recipe_of(store, run["id"]))) for _, run in (first, other))
    apart = [key for key in sorted(one.keys() | two.keys()) if one.get(key) != two.get(key)]
    if apart:
        run, key = other[1], apart[0]
        raise UserError(
            f"runs {first[0]!r} and {other[0]!r} both have {run['method']!r} on {run['task']!r} ({run['network']}), "
            f"but not the same: {key} is {_short(one.get(key))} in one and {_short(two.get(key))} in the other. "
            "Report them apart, or run one of them again with the settings of the other."
        )


def recipe_of(store: Source, pred_id: str) -> dict[str, Any]:
    """What a prediction is made of, whatever its seed: its own settings and those of every fit behind it."""
    spec = store.spec("predictions", pred_id)
    if "members" in spec:
        parts = [recipe_of(store, member) for member in spec["members"]]
        return {"members": len(parts), **(parts[0] if parts else {})}
    made = {name: value for name, value in spec.items() if name not in (*SEEDED, "fit")}
    if "fit" in spec:
        made["fit"] = _fit_recipe(store, spec["fit"])
    return made


def _fit_recipe(store: Source, fit_id: str) -> dict[str, Any]:
    fit = store.spec("fits", fit_id)
    made = {name: value for name, value in fit.items() if name not in (*SEEDED, "start")}
    if fit.get("start"):
        made["start"] = _fit_recipe(store, fit["start"])
    return made


def _flat(value: Any, path: str = "") -> Iterable[tuple[str, str]]:
    """Every leaf of nested dicts with its path, as text."""
    if isinstance(value, Mapping):
        for name, inner in value.items():
            yield from _flat(inner, f"{path}.{name}" if path else str(name))
    else:
        yield path, repr(value)


def _short(text: str | None) -> str:
    if text is None:
        return "not set"
    return text if len(text) <= 60 else f"{text[:57]}…"


def _methods(manifests: Mapping[str, Raw]) -> list[dict[str, Any]]:
    """Methods by name, in order of appearance; where runs pool different numbers, ``pools`` says which does what."""
    found: dict[str, dict[str, Any]] = {}
    sizes: dict[str, dict[tuple[int, int], list[str]]] = {}
    for raw in manifests.values():
        tasks: dict[str, list[str]] = {}
        for run in raw["runs"]:
            tasks.setdefault(run["method"], []).append(run["task"])
        for method in raw["methods"]:
            found.setdefault(method["name"], dict(method))
            size = int(method.get("members") or 1), int(method.get("samples") or 0)
            sizes.setdefault(method["name"], {}).setdefault(size, []).extend(tasks.get(method["name"], ()))
    for name, pooled in sizes.items():
        if len(pooled) > 1:
            told = [f"{_draws(*size)} on {', '.join(dict.fromkeys(on)) or 'nothing'}" for size, on in pooled.items()]
            found[name]["pools"] = "; ".join(told)
    return list(found.values())


def _draws(members: int, samples: int) -> str:
    each = f"{samples} samples" if samples else "one pass"
    return f"{members} × {each}" if members > 1 else each


def _each(manifests: Mapping[str, Raw], field: str) -> list[Any]:
    """The entries of a list of every manifest, each once."""
    found: list[Any] = []
    for raw in manifests.values():
        found += [entry for entry in raw.get(field) or () if entry not in found]
    return found


def _skipped(manifests: Mapping[str, Raw], tasks: Sequence[Raw]) -> list[Raw]:
    """What was skipped in one run and not run in another."""
    there = {(name, task["network"]) for task in tasks for name in (task["name"], task.get("task"))}
    return [entry for entry in _each(manifests, "skipped") if (entry["task"], entry.get("network")) not in there]


def _part(name: str, raw: Raw) -> dict[str, Any]:
    return {
        "name": name,
        "benchmark": raw["name"],
        "data": next((task["arguments"]["data"] for task in raw["tasks"] if "data" in task["arguments"]), ""),
        "preset": (raw.get("benchmark") or {}).get("preset") or "",
        "tasks": [f"{task['name']} ({task['network']})" for task in raw["tasks"]],
        "methods": len(raw["methods"]),
        "seeds": sorted({run["seed"] for run in raw["runs"]}),
    }


def _shared_description(manifests: Iterable[Raw]) -> str:
    told = list(dict.fromkeys(str((raw.get("benchmark") or {}).get("description") or "") for raw in manifests))
    return told[0] if len(told) == 1 else ""
