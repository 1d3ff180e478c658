"""``dubio show``: a run, a fit or a prediction of a store."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dubio.cli.options import STORE, JsonOption, StoreOption
from dubio.cli.output import print_json
from dubio.core.errors import UnknownName, UserError

if TYPE_CHECKING:
    from dubio.store import Store

SHORTEST = 6
"""Least number of digits of an id."""


def show(
    name: Annotated[
        str,
        typer.Argument(
            metavar="WHAT", help="The name of a run, or the id of a fit or prediction, or the beginning of either."
        ),
    ],
    store: StoreOption = STORE,
    json: JsonOption = False,
) -> None:
    """Show what is stored of a run, a fit or a prediction."""
    from dubio.store import open_store

    opened = open_store(store)
    is_run = Path(name).is_file() or any(run.startswith(name) for run in opened.manifests())
    document = _run(name, store) if is_run else _artefact(opened, name)
    if json:
        print_json(document)
    else:
        _print(document)


def _run(name: str, store: Path) -> dict[str, Any]:
    """Return what a benchmark run is made of, and its scores."""
    from dubio.reporting.stored_run import open_run

    run = open_run(name, store=store)
    manifest = run.manifest
    return {
        "kind": "run",
        "name": manifest["name"],
        "tasks": [task["name"] for task in manifest["tasks"]],
        "methods": [method["name"] for method in manifest["methods"]],
        "predictions": [
            {key: row[key] for key in ("id", "task", "method", "seed", "member", "fits")} for row in manifest["runs"]
        ],
        **run.built.document(),
    }


def _artefact(store: Store, name: str) -> dict[str, Any]:
    """Return the specification and record of a fit or a prediction, and the scores of a prediction."""
    folder, identifier = _found(store, name)
    record = store.record(identifier)
    document = {"kind": folder[:-1], "id": identifier, "spec": store.spec(folder, identifier), "record": record}
    if folder == "predictions":
        document["scores"] = _scores(store, identifier, record)
    return document


def _found(store: Store, name: str) -> tuple[Any, str]:
    """Return (folder, id) of an id or its beginning."""
    if not re.fullmatch(r"[0-9a-f]+", name) or len(name) < SHORTEST:
        raise UnknownName("run", name, store.manifests())
    folders: Any = ("fits", "predictions")
    hits = [(folder, id) for folder in folders for id in store.ids(folder) if id.startswith(name)]
    if not hits:
        raise UserError(f"the store {str(store.path)!r} has no fit or prediction whose id begins with {name!r}.")
    if len(hits) > 1:
        listed = ", ".join(f"{id[:16]}… ({folder[:-1]})" for folder, id in hits[:5])
        raise UserError(f"{name!r} is the beginning of {len(hits)} ids: {listed}; give more digits.")
    return hits[0]


def _scores(store: Store, identifier: str, record: dict[str, Any]) -> dict[str, dict[str, float]]:
    """Return split → metric → value of a prediction; an ensemble has the splits of its first member."""
    from dubio.reporting.measures import in_domain_metrics, measure

    files = record["files"] or store.record(record["members"][0])["files"]
    metrics = in_domain_metrics()
    scores = {}
    for facts in files.values():
        predictions = store.read_predictions(identifier, facts["split"], facts["fingerprint"])
        scores[facts["split"]] = measure(metrics, predictions)
    return scores


def _print(document: dict[str, Any]) -> None:
    """Print scores as a table, everything else as indented text."""
    from rich.console import Console
    from rich.pretty import Pretty
    from rich.table import Table
    from rich.text import Text

    console = Console()
    console.print(Text.assemble((f"{document['kind']} ", "bold"), str(document.get("id") or document["name"])))
    for name in ("spec", "record", "tasks", "methods", "failures"):
        if document.get(name):
            console.print(Text(name, style="bold"), Pretty(document[name], expand_all=name in ("spec", "record")))
    scores = document.get("scores")
    if document["kind"] == "prediction" and isinstance(scores, dict):
        for split, values in scores.items():
            text = ", ".join(f"{name} {value:.4g}" for name, value in values.items())
            console.print(Text(split, style="bold"), Text(text or "no metric applies"))
    elif scores:
        table = Table("task", "split", "method", box=None, pad_edge=False)
        table.add_column("metric", overflow="fold")
        table.add_column("mean ± std (runs)", no_wrap=True)
        for cell in scores:
            mean = "undefined" if cell["runs"] == 0 else f"{cell['mean']:.4f}"
            spread = "" if cell["std"] is None else f" ± {cell['std']:.4f}"
            names = (Text(str(cell[key])) for key in ("task", "split", "method", "metric"))
            table.add_row(*names, f"{mean}{spread} ({cell['runs']})")
        console.print(table)
