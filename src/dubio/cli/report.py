"""``dubio report``: the web page, the long table and the figures of a benchmark run, from its stored predictions."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from dubio.cli.options import MARGIN, STORE, MarginOption, PluginOption, RawCsvOption, StoreOption, load_plugins
from dubio.cli.output import print_json, print_table, say


def report(
    name: Annotated[
        str | None, typer.Argument(metavar="[RUN]", help="Name of the run; may be omitted if the store has one.")
    ] = None,
    run: Annotated[
        list[str] | None, typer.Option(help="Several runs in one report: repeat it, in the order of the report.")
    ] = None,
    store: StoreOption = STORE,
    out: Annotated[Path, typer.Option(help="Folder for report.html and results.csv.")] = Path("dubio-report"),
    figures: Annotated[Path | None, typer.Option(help="Also write every figure into this folder, for papers.")] = None,
    format: Annotated[str, typer.Option(help="Formats of the figures, among png, svg and pdf.")] = "png,svg,pdf",
    plugin: PluginOption = None,
    as_published: Annotated[
        bool, typer.Option("--as-published", help="Also report published definitions that are mistaken.")
    ] = False,
    margin: MarginOption = MARGIN,
    raw_csv: RawCsvOption = False,
    json: Annotated[bool, typer.Option("--json", help="Print the scores as one JSON document.")] = False,
) -> None:
    """Write the report of a run, or of several together."""
    from dubio.reporting.stored_run import open_run

    load_plugins(plugin)
    opened = open_run(*([name] if name is not None else ()), *(run or ()), store=store)
    formats = [text.strip() for text in format.split(",") if text.strip()]
    written = opened.report(
        out, figures=figures, formats=formats, as_published=as_published, margin=margin, raw_csv=raw_csv
    )
    if json:
        paths = {"report": str(written.page), "figures": [str(path) for path in written.figures]}
        print_json({**paths, **written.report.document()})
        return
    print_table(opened)
    say(f"report: {written.page}")
    if figures is not None:
        say(f"figures: {len(written.figures)} files in {figures}")
