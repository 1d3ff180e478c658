"""``dubio show``: what is known about a run, a fit or a prediction."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dubio.cli.output import print_json
from dubio.core.errors import UnknownName, UserError

if TYPE_CHECKING:
    from dubio.store import Store

SHORTEST = 6
"""Digits of an id that are asked for at least."""


def show(
    what: Annotated[
        str, typer.Argument(help="The name of a run, or the id of a fit or prediction (or its beginning).")
    ],
    store: Annotated[Path, typer.Option(help="The store to look in.")] = Path("dubio-store"),
    json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """Show what is known about a run, a fit or a prediction."""
    from dubio.store import Store

    opened = Store.open(store, create=False)
    found = _run(opened, what) if _is_run(opened, what) else _stored(opened, what)
    if json:
        print_json(found)
    else:
        _print(found)


def _is_run(store: Store, what: str) -> bool:
    return Path(what).is_file() or any(name.startswith(what) for name in store.manifests())


def _run(store: Store, what: str) -> dict[str, Any]:
    """A benchmark run: what it is made of, and its scores."""
    from dubio.reporting import build_report

    manifest = store.manifest(what)
    return {
        "kind": "run",
        "name": manifest["name"],
        "tasks": [task["name"] for task in manifest["tasks"]],
        "methods": [method["name"] for method in manifest["methods"]],
        "predictions": [
            {name: run[name] for name in ("id", "task", "method", "seed", "member", "fits")} for run in manifest["runs"]
        ],
        **build_report(store, manifest).document(),
    }


def _stored(store: Store, what: str) -> dict[str, Any]:
    """A fit or a prediction: its specification, its record, and the scores of a prediction."""
    room, identifier = _found(store, what)
    record = store.record(identifier)
    found = {"kind": room[:-1], "id": identifier, "spec": store.spec(room, identifier), "record": record}
    if room == "predictions":
        found["scores"] = _scores(store, identifier, record)
    return found


def _found(store: Store, what: str) -> tuple[Any, str]:
    """(room, id) of what a whole id or its beginning names."""
    if not re.fullmatch(r"[0-9a-f]+", what) or len(what) < SHORTEST:
        raise UnknownName("run", what, store.manifests())
    hits = [(room, name) for room in ("fits", "predictions") for name in store.ids(room) if name.startswith(what)]
    if not hits:
        raise UserError(f"the store {str(store.path)!r} has no fit or prediction whose id begins with {what!r}.")
    if len(hits) > 1:
        listed = ", ".join(f"{name[:16]}… ({room[:-1]})" for room, name in hits[:5])
        raise UserError(f"{what!r} is the beginning of {len(hits)} ids: {listed}; give more digits.")
    return hits[0]


def _scores(store: Store, identifier: str, record: dict[str, Any]) -> dict[str, dict[str, float]]:
    """Split → metric → value, for every split the prediction was made on; an ensemble asks its first member which."""
    from dubio.reporting.measures import in_domain_metrics, measure

    files = record["files"] or store.record(record["members"][0])["files"]
    metrics = in_domain_metrics()
    scores = {}
    for facts in files.values():
        predictions = store.read_predictions(identifier, facts["split"], facts["fingerprint"])
        scores[facts["split"]] = dict(measure(metrics, predictions).values)
    return scores


def _print(found: dict[str, Any]) -> None:
    """The same for a reader: scores as a table, everything else as indented text."""
    from rich.console import Console
    from rich.pretty import Pretty
    from rich.text import Text

    console = Console()
    title = found.get("id") or found["name"]
    console.print(Text.assemble((f"{found['kind']} ", "bold"), str(title)))
    scores = found.get("scores")
    for name in ("spec", "record", "tasks", "methods", "failures"):
        if found.get(name):
            console.print(Text(name, style="bold"), Pretty(found[name], expand_all=name in ("spec", "record")))
    if found["kind"] == "prediction" and isinstance(scores, dict):
        for split, values in scores.items():
            console.print(Text(split, style="bold"), Text(_values(values)))
    elif scores:
        console.print(_score_table(scores))


def _values(values: dict[str, float]) -> str:
    return ", ".join(f"{name} {value:.4g}" for name, value in values.items()) or "nothing can be scored here"


def _score_table(scores: list[dict[str, Any]]) -> Any:
    """The cells of a run on its in-domain and other splits, a line each."""
    from rich.table import Table
    from rich.text import Text

    table = Table("task", "split", "method", box=None, pad_edge=False)
    table.add_column("metric", overflow="fold")
    table.add_column("mean ± std (runs)", no_wrap=True)
    for cell in scores:
        mean = "undefined" if cell["runs"] == 0 else f"{cell['mean']:.4f}"
        spread = "" if cell["std"] is None else f" ± {cell['std']:.4f}"
        row = (cell["task"], cell["split"], cell["method"], cell["metric"], f"{mean}{spread} ({cell['runs']})")
        table.add_row(*(Text(str(text)) for text in row))
    return table
