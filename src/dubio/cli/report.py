"""``dubio report``: the web page, the long table and the figures of a benchmark run, from its stored predictions."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from dubio.cli.output import print_json, say


def report(
    name: Annotated[
        str | None, typer.Argument(metavar="[RUN]", help="Which run; may be left out where the store has one.")
    ] = None,
    run: Annotated[
        list[str] | None, typer.Option(help="Several runs in one report: repeat it, in the order of the report.")
    ] = None,
    store: Annotated[Path, typer.Option(help="The store that the run is in.")] = Path("dubio-store"),
    out: Annotated[Path, typer.Option(help="Where report.html and results.csv are written.")] = Path("dubio-report"),
    figures: Annotated[
        Path | None, typer.Option(help="Also write every figure into this directory, for papers.")
    ] = None,
    format: Annotated[str, typer.Option(help="Formats of the figures, among png, svg and pdf.")] = "png,svg,pdf",
    plugin: Annotated[
        list[Path] | None, typer.Option(help="A Python file whose metrics are scored too; may be repeated.")
    ] = None,
    as_published: Annotated[
        bool, typer.Option("--as-published", help="Also compute published definitions that are mistaken, apart.")
    ] = False,
    json: Annotated[bool, typer.Option("--json", help="Print the scores as one JSON document.")] = False,
) -> None:
    """Write the report of a run, or of several together."""
    from dubio.core.registry import load_entry_points, load_plugin
    from dubio.reporting.stored_run import open_run

    load_entry_points()
    for path in plugin or ():
        load_plugin(path)
    opened = open_run(*([name] if name is not None else ()), *(run or ()), store=store)
    formats = [text.strip() for text in format.split(",") if text.strip()]
    written = opened.report(out, figures=figures, formats=formats, as_published=as_published)
    if json:
        paths = {"report": str(written.page), "figures": [str(path) for path in written.figures]}
        print_json({**paths, **written.report.document()})
        return
    from rich.console import Console

    Console().print(opened)
    say(f"report: {written.page}")
    if figures is not None:
        say(f"figures: {len(written.figures)} files in {figures}")
