"""``dubio compare``: which methods differ over several datasets, from anyone's table of results or from a store."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dubio.cli.output import print_json, say
from dubio.core.errors import UserError

if TYPE_CHECKING:
    from dubio.core.types import Direction
    from dubio.statistics.choose_metrics import Chosen
    from dubio.statistics.ranks import Comparison
    from dubio.statistics.result_table import Columns, ResultTable


STORE_METRIC = {"id": "calibrated_nll", "shift": "accuracy", "ood": "ood_auroc"}
"""What the methods of a store are compared by, unless told otherwise."""


def compare(
    run: Annotated[
        str | None, typer.Argument(help="With --store: name of the run to compare; the only one if left out.")
    ] = None,
    results: Annotated[
        Path | None, typer.Option(help="A long table, CSV or TSV: a row a dataset, method, metric and value.")
    ] = None,
    store: Annotated[Path | None, typer.Option(help="A dubio store, instead of a table.")] = None,
    metric: Annotated[
        list[str] | None,
        typer.Option(help="A metric to compare by; may be repeated. If left out: of a table all that may rank, of a "
                     "store calibrated_nll (shift: accuracy, ood: ood_auroc)."),
    ] = None,
    better: Annotated[
        list[str] | None, typer.Option(help="METRIC=lower or METRIC=higher, for metrics dubio does not know.")
    ] = None,
    round_to: Annotated[
        int | None,
        typer.Option("--round", min=0, max=30, help="Decimals to round averages to before ranking, half to even."),
    ] = None,
    alpha: Annotated[float, typer.Option(help="Level of the tests.")] = 0.05,
    kind: Annotated[str, typer.Option(help="With --store: which test splits, id, shift or ood.")] = "id",
    dataset_col: Annotated[str, typer.Option(help="Column of the dataset.")] = "dataset",
    method_col: Annotated[str, typer.Option(help="Column of the method.")] = "method",
    metric_col: Annotated[str, typer.Option(help="Column of the metric.")] = "metric",
    value_col: Annotated[str, typer.Option(help="Column of the value.")] = "value",
    seed_col: Annotated[str | None, typer.Option(help="Column of the seed, if any; rows are averaged over it.")] = None,
    diagram: Annotated[
        Path | None, typer.Option(help="Draw the critical-difference diagram here: .svg, .png or .pdf.")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """Compare methods over datasets: average ranks, Friedman, Nemenyi, wins, draws and losses."""
    from dubio.statistics.choose_metrics import choose, parse_direction
    from dubio.statistics.ranks import compare as compare_methods
    from dubio.statistics.result_table import Columns

    given = dict(parse_direction(text) for text in better or ())
    if results is not None and store is None and run is None:
        table, refused = _from_file(results, Columns(dataset_col, method_col, metric_col, value_col, seed_col))
    elif store is not None and results is None:
        table, refused, known = _from_store(store, run, kind)
        given = {**{name: known[name] for name in table.metrics if name in known}, **given}
        metric = metric or [STORE_METRIC[kind]]
    else:
        raise UserError("give either --results TABLE or --store DIR [RUN].")
    chosen = choose(table.metrics, metric or (), given, refused)
    found = compare_methods(table, chosen.metrics, digits=round_to, alpha=alpha)
    for name, reason in chosen.cautions.items():
        say(f"caution: {name} was asked for and is ranked, but should not rank models. {reason}")
    if diagram is not None:
        _draw(found, diagram)
    if json:
        print_json(_document(found, chosen))
    else:
        _print(found, chosen)


def _from_file(path: Path, columns: Columns) -> tuple[ResultTable, dict[str, str]]:
    from dubio.statistics.result_table import read_results

    return read_results(path, columns), {}


def _from_store(path: Path, run: str | None, kind: str) -> tuple[ResultTable, dict[str, str], dict[str, Direction]]:
    """The scores of a run as a long table; the splits of that kind of one task are averaged, as they share its fits."""
    from dubio.core.errors import one_of
    from dubio.reporting.stored_run import open_run
    from dubio.reporting.wording import RANDOM
    from dubio.statistics.result_table import table_of

    one_of("--kind", kind, ("id", "shift", "ood"))
    scored = open_run(*([] if run is None else [run]), store=path).results
    rows = [
        {"dataset": score.task, "method": score.method, "metric": score.metric, "value": score.value,
         "seed": score.seed}
        for score in scored.scores
        if score.kind == kind and score.method != RANDOM and math.isfinite(score.value)
    ]
    if not rows:
        raise UserError(f"--kind {kind}: this run has no scores on such a split.")
    return table_of(rows), dict(scored.not_ranked), dict(scored.better)


def _draw(found: Comparison, path: Path) -> None:
    from dubio.reporting.cd_diagram import draw_cd_diagram, save_cd_diagram

    tested = found.friedman
    note = f"Friedman χ² = {tested.chi2:.2f}, p = {tested.p:.3g}; {tested.datasets} datasets, α = {found.alpha:g}"
    title = "Average rank by " + " and ".join(found.metrics)
    figure = draw_cd_diagram(found.average_ranks, found.critical_difference, found.cliques, title=title, note=note)
    say(f"diagram: {save_cd_diagram(figure, path)}")


def _document(found: Comparison, chosen: Chosen) -> dict[str, Any]:
    """The comparison as JSON."""
    return {
        **_one(found),
        "by_metric": {name: _one(each) for name, each in found.by_metric.items()},
        "cautions": chosen.cautions,
        "not_ranked": chosen.left_out,
    }


def _one(found: Comparison) -> dict[str, Any]:
    return {
        "metrics": dict(found.metrics),
        "round": found.digits,
        "alpha": found.alpha,
        "datasets": list(found.datasets),
        "average_ranks": dict(found.average_ranks),
        "friedman": vars(found.friedman),
        "critical_difference": found.critical_difference,
        "cliques": [list(clique) for clique in found.cliques],
        "win_draw_loss": {name: list(record) for name, record in found.win_draw_loss.items()},
        "pairs": [vars(pair) for pair in found.pairs],
    }


def _print(found: Comparison, chosen: Chosen) -> None:
    tested, width = found.friedman, max(6, *(len(name) for name in found.average_ranks))
    rounding = "not rounded" if found.digits is None else f"rounded half-even to {found.digits} decimals"
    typer.echo(f"{tested.methods} methods on {tested.datasets} datasets by {', '.join(found.metrics)}; "
               f"averages {rounding}")
    typer.echo("")
    typer.echo(f"{'method':<{width}}  {'rank':>6}  {'wins':>5}  {'draws':>5}  {'losses':>6}")
    for name, rank in found.average_ranks.items():
        record = found.win_draw_loss[name]
        typer.echo(f"{name:<{width}}  {rank:>6.2f}  {record.wins:>5}  {record.draws:>5}  {record.losses:>6}")
    typer.echo("")
    typer.echo(f"Friedman χ² = {tested.chi2:.3f}, p = {tested.p:.3g}; "
               f"Iman–Davenport F = {tested.iman_davenport:.3f}, p = {tested.iman_davenport_p:.3g}")
    typer.echo(f"Nemenyi critical difference at α = {found.alpha:g}: {found.critical_difference:.3f} "
               "(mean ranks closer than this are not distinguishable)")
    if tested.p > found.alpha:
        typer.echo("Friedman's test does not reject that all methods rank alike: read nothing into the order.")
    for clique in found.cliques:
        typer.echo(f"not distinguishable: {', '.join(clique)}")
    for name, reason in chosen.left_out.items():
        typer.echo(f"not ranked: {name}. {reason}")
