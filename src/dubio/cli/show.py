"""``dubio show``: a run, a fit or a prediction of a store."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from dubio.cli.options import STORE, JsonOption, StoreOption
from dubio.cli.output import print_json, print_table


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
    from dubio.reporting.stored_run import describe

    document = describe(name, store)
    if json:
        print_json(document)
    else:
        _print(document)


def _print(document: dict[str, Any]) -> None:
    """Print scores as a table, everything else as indented text."""
    from rich.pretty import Pretty

    from dubio.formats.text_tables import text_table

    typer.echo(f"{document['kind']} {document.get('id') or document['name']}")
    for name in ("spec", "record", "tasks", "methods", "failures"):
        if document.get(name):
            typer.echo(name)
            print_table(Pretty(document[name], expand_all=name in ("spec", "record")))
    if document["kind"] == "prediction":
        for split, values in document["scores"].items():
            text = ", ".join(f"{name} {value:.4g}" for name, value in values.items())
            typer.echo(f"{split}: {text or 'no metric applies'}")
    elif document.get("scores"):
        rows = [["task", "split", "method", "metric", "mean ± std (runs)"]]
        for cell in document["scores"]:
            mean = "undefined" if cell["runs"] == 0 else f"{cell['mean']:.4f}"
            spread = "" if cell["std"] is None else f" ± {cell['std']:.4f}"
            rows.append([*(str(cell[key]) for key in rows[0][:4]), f"{mean}{spread} ({cell['runs']})"])
        typer.echo("\n".join(text_table(rows)))
