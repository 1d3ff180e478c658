"""``dubio report``: the web page, the long table and the figures of a benchmark run, from its stored predictions."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dubio.cli.output import print_json, say

if TYPE_CHECKING:
    from dubio.reporting import Results


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
        print_json({**paths, **document(written.results)})
        return
    from rich.console import Console

    Console().print(opened)
    say(f"report: {written.page}")
    if figures is not None:
        say(f"figures: {len(written.figures)} files in {figures}")


def document(results: Results) -> dict[str, Any]:
    """Scores, comparisons, promises, advice and failures as JSON."""
    from dubio.reporting.advice import advice
    from dubio.reporting.capacity_tables import capacities_document
    from dubio.reporting.ensembles.document import study_document
    from dubio.reporting.measures import RANKED_BY
    from dubio.reporting.screening.document import gains_document, subgroups_document

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
        "parts": [vars(part) for part in results.manifest.parts],
        "scores": cells,
        "standing": standing,
        "costs": _costs(results),
        "promises": _promises(results),
        "capacities": capacities_document(results),
        "deep_ensemble_equivalents": _equivalents(results),
        "referral_gains": gains_document(results),
        "subgroups": subgroups_document(results),
        "advice": [vars(each) for each in advice(results)],
        "ensembling_study": study_document(results),
        "as_published": [vars(score) for score in results.as_published],
        "not_ranked": dict(results.not_ranked),
        "failures": [vars(failure) for failure in results.failures],
        "skipped": [vars(skipped) for skipped in results.manifest.skipped],
    }


def _costs(results: Results) -> list[dict[str, Any]]:
    return [
        {"task": task, "method": method}
        | {name: {"mean": cell.mean, "std": cell.std, "runs": cell.n} for name, cell in vars(cost).items()}
        for (task, method), cost in results.costs.items()
    ]


def _promises(results: Results) -> list[dict[str, Any]]:
    """The referral policy of every method and what became of it."""
    from dataclasses import asdict

    return [
        {
            "task": task,
            "method": method,
            "target": promise.target,
            "threshold": None if promise.policy is None else promise.policy.threshold,
            "best_bound": promise.best,
            "needed": None if promise.needed is None else asdict(promise.needed),
            "home": None if promise.home is None else asdict(promise.home),
            "away": [asdict(seen) for seen in promise.away],
        }
        for task, promises in results.promises.items()
        for method, promise in promises.items()
    ]


def _equivalents(results: Results) -> list[dict[str, Any]]:
    """How many independently trained networks every method is worth on every task."""
    from dubio.reporting.measures import RANKED_BY
    from dubio.reporting.worth import equivalents

    found = []
    for task in results.manifest.tasks:
        curve = results.growth.get(task.key)
        if curve is None:
            continue
        cells = results.cells_of(task, task.of_kind("id")[0].name, RANKED_BY)
        for method, worth in equivalents(curve, cells).items():
            bounds = {part: getattr(worth, part) for part in ("lower", "central", "upper")}
            told = {part: str(bound) if bound.beyond else bound.size for part, bound in bounds.items()}
            found.append({"task": task.key, "method": method, "longest": len(curve), **told})
    return found
