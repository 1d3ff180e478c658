"""``dubio report``: the web page, the long table and the figures of a benchmark run, from its stored predictions."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dubio.cli.output import print_json, say
from dubio.core.errors import UserError

if TYPE_CHECKING:
    from dubio.reporting import Results
    from dubio.store import Store


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
    from dubio.reporting import score_run, terminal_table, with_as_published, write_figures, write_report
    from dubio.store import Store

    load_entry_points()
    for path in plugin or ():
        load_plugin(path)
    opened = Store.open(store, create=False)
    manifest = _manifest(opened, [*([name] if name is not None else []), *(run or ())], store)
    results = score_run(opened, manifest)
    if as_published:
        results = with_as_published(opened, results)
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


def _manifest(opened: Store, runs: list[str], store: Path) -> dict[str, Any]:
    """The manifest of one run, or of several put together."""
    from dubio.reporting.merging import merge

    if len(runs) < 2:
        how = "name one of them, or several with --run"
        return opened.manifest(chosen_run(runs[0] if runs else None, opened.manifests(), store, how))
    return merge(opened, {each: opened.manifest(each) for each in dict.fromkeys(runs)})


def chosen_run(run: str | None, known: tuple[str, ...], store: Path, how: str = "name one of them with --run") -> str:
    """The run that is meant; ``how`` says what to do where it was not named and there are several."""
    if run is not None:
        return run
    if len(known) == 1:
        return known[0]
    if not known:
        raise UserError(f"the store {str(store)!r} has no benchmark run to report on; make one with: dubio run quick")
    raise UserError(f"the store {str(store)!r} has {len(known)} runs; {how}: {', '.join(known)}.")
