"""``dubio show``: a run, a fit or a prediction of a store."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from dubio.cli.options import STORE, JsonOption, StoreOption
from dubio.cli.output import print_json, print_table
from dubio.core.errors import BadFile


def show(
    name: Annotated[str, typer.Argument(metavar="WHAT")], store: StoreOption = STORE, json: JsonOption = False
) -> None:
    """Show what is stored of a run, a fit or a prediction, or the card of an exported model.

    Args:
        name: The name of a run, or the id of a fit or prediction, or the beginning of either; or a model's folder.
    """
    if Path(name, "model.json").is_file():
        _show_model(Path(name), as_json=json)
        return
    from dubio.reporting.stored_run import describe

    document = describe(name, store)
    if json:
        print_json(document)
    else:
        _print(document)


def _show_model(folder: Path, *, as_json: bool) -> None:
    """Print the card of a model, or its description without the long lists, after comparing every file's hash."""
    from dubio.core.validate import encode
    from dubio.deployment.folder import CARD, read_description

    content = read_description(folder)
    if as_json:
        fields = ("identity", "names", "form", "recalibration", "source", "files", "version")
        classes = content.fits[0].spec["task"]["classes"]
        print_json({"kind": "model", "classes": classes, **{name: encode(getattr(content, name)) for name in fields}})
    else:
        try:
            typer.echo((folder / CARD).read_text("utf-8").rstrip())
        except UnicodeDecodeError as fault:
            raise BadFile(f"{str(folder / CARD)!r} is not text in UTF-8: {fault}.") from fault


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
