"""``dubio report``: the web page, the long table and the figures of a benchmark run, from its stored predictions."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dubio.cli.output import print_json, say
from dubio.errors import UserError

if TYPE_CHECKING:
    from dubio.report import Results


def report(
    run: Annotated[str | None, typer.Argument(help="Which run; may be left out where the store has one.")] = None,
    store: Annotated[Path, typer.Option(help="The store that the run is in.")] = Path("dubio-store"),
    out: Annotated[Path, typer.Option(help="Where report.html and results.csv are written.")] = Path("dubio-report"),
    figures: Annotated[
        Path | None, typer.Option(help="Also write every figure into this directory, for papers.")
    ] = None,
    format: Annotated[str, typer.Option(help="Formats of the figures, among png, svg and pdf.")] = "png,svg,pdf",
    plugin: Annotated[
        list[Path] | None, typer.Option(help="A Python file whose metrics are scored too; may be repeated.")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print the scores as one JSON document.")] = False,
) -> None:
    """Write the report of a run."""
    from dubio.registry import load_entry_points, load_plugin
    from dubio.report import score_run, terminal_table, write_figures, write_report
    from dubio.store import Store

    load_entry_points()
    for path in plugin or ():
        load_plugin(path)
    opened = Store.open(store, create=False)
    manifest = opened.manifest(_chosen(run, opened.manifests(), store))
    results = score_run(opened, manifest)
    page = write_report(opened, manifest, out, results=results)
    drawn: tuple[Path, ...] = ()
    if figures is not None:
        kinds = [kind.strip() for kind in format.split(",") if kind.strip()]
        drawn = write_figures(opened, manifest, figures, kinds, results=results)
    if json:
        print_json({"report": str(page), "figures": [str(path) for path in drawn], **document(results)})
        return
    from rich.console import Console

    Console().print(terminal_table(opened, manifest, results=results))
    say(f"report: {page}")
    if drawn:
        say(f"figures: {len(drawn)} files in {figures}")


def document(results: Results) -> dict[str, Any]:
    """Scores, comparisons and failures as JSON."""
    from dubio.report.measures import RANKED_BY

    cells = [
        {
            "task": task,
            "split": split,
            "method": method,
            "metric": metric,
            "mean": cell.mean,
            "std": cell.std,
            "runs": cell.n,
            "undefined": cell.undefined,
        }
        for (task, split, method, metric), cell in results.cells.items()
    ]
    standing = [
        {
            "task": task.key,
            "metric": RANKED_BY,
            "method": method,
            "place": verdict.place,
            "difference": verdict.difference,
            "resolves": verdict.resolves,
        }
        for task in results.manifest.tasks
        for method, verdict in results.verdicts(task, task.of_kind("id")[0].name, RANKED_BY).items()
    ]
    return {
        "run": results.manifest.name,
        "scores": cells,
        "standing": standing,
        "costs": _costs(results),
        "not_ranked": dict(results.not_ranked),
        "failures": [vars(failure) for failure in results.failures],
    }


def _costs(results: Results) -> list[dict[str, Any]]:
    return [
        {"task": task, "method": method}
        | {name: {"mean": cell.mean, "std": cell.std, "runs": cell.n} for name, cell in vars(cost).items()}
        for (task, method), cost in results.costs.items()
    ]


def _chosen(run: str | None, known: tuple[str, ...], store: Path) -> str:
    """The run that is meant."""
    if run is not None:
        return run
    if len(known) == 1:
        return known[0]
    if not known:
        raise UserError(f"the store {str(store)!r} has no benchmark run to report on; make one with: dubio run quick")
    raise UserError(f"the store {str(store)!r} has {len(known)} runs; name one of: {', '.join(known)}.")
