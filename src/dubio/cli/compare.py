"""``dubio compare``: rank methods over datasets, from any table of results or from a store."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from dubio.cli.options import JsonOption
from dubio.cli.output import print_result, say
from dubio.core.errors import UserError


def compare(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            help="Tables of results; with --store the name of the run, which may be omitted if the store has one."
        ),
    ] = None,
    results: Annotated[
        list[Path] | None,
        typer.Option(
            help="A table (CSV, TSV, Markdown, LaTeX) with one row per value, or one column per metric or method; may "
            "be repeated, one table per data set."
        ),
    ] = None,
    store: Annotated[Path | None, typer.Option(help="A dubio store, instead of a table.")] = None,
    metric: Annotated[
        list[str] | None,
        typer.Option(
            help="A metric to compare by; may be repeated. If omitted: of a table all that may rank, of a "
            "store calibrated_nll (shift: accuracy, ood: ood_auroc)."
        ),
    ] = None,
    better: Annotated[
        list[str] | None, typer.Option(help="METRIC=lower or METRIC=higher, for metrics dubio does not know.")
    ] = None,
    round_to: Annotated[
        int | None,
        typer.Option("--round", min=0, max=30, help="Decimals to round averages to before ranking, half to even."),
    ] = None,
    alpha: Annotated[float, typer.Option(help="Level of the tests.")] = 0.05,
    kind: Annotated[str, typer.Option(help="With --store: the test splits, id, shift or ood.")] = "id",
    dataset_col: Annotated[str, typer.Option(help="Column of the dataset.")] = "dataset",
    method_col: Annotated[str, typer.Option(help="Column of the method.")] = "method",
    metric_col: Annotated[str, typer.Option(help="Column of the metric.")] = "metric",
    value_col: Annotated[str, typer.Option(help="Column of the value.")] = "value",
    seed_col: Annotated[str | None, typer.Option(help="Column of the seed, if any; rows are averaged over it.")] = None,
    diagram: Annotated[
        Path | None, typer.Option(help="Draw the critical-difference diagram here: .svg, .png or .pdf.")
    ] = None,
    json: JsonOption = False,
) -> None:
    """Compare methods over datasets: average ranks, Friedman, Nemenyi, wins, draws and losses."""
    from dubio.reporting.method_ranks import rank_methods
    from dubio.reporting.stored_run import open_run
    from dubio.statistics.choose_metrics import parse_direction
    from dubio.statistics.result_table import Columns

    tables = [*(results or ()), *(map(Path, names or ()) if store is None else ())]
    if bool(tables) == (store is not None) or (store is not None and len(names or ()) > 1):
        raise UserError("give either --results TABLE (one or several) or --store DIR [RUN].")
    ranks = rank_methods(
        tables if store is None else open_run(*(names or ()), store=store),
        metrics=metric or (),
        better=dict(parse_direction(text) for text in better or ()),
        digits=round_to,
        alpha=alpha,
        kind=kind,  # type: ignore[arg-type]
        columns=Columns(dataset_col, method_col, metric_col, value_col, seed_col),
    )
    for note in ranks.notes:
        say(note)
    for name, reason in ranks.chosen.cautions.items():
        say(f"caution: {name} is ranked as requested, but should not rank models. {reason}")
    if diagram is not None:
        say(f"diagram: {ranks.diagram(diagram)}")
    print_result(json, ranks.to_json(), [str(ranks)])
