"""``dubio compare``: rank methods over datasets, from any table of results or from a store."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from dubio.cli.options import JsonOption
from dubio.cli.output import print_result, say
from dubio.core.errors import UserError


def compare(
    names: Annotated[list[str] | None, typer.Argument()] = None,
    results: list[Path] | None = None,
    store: Path | None = None,
    metric: list[str] | None = None,
    better: list[str] | None = None,
    round_to: Annotated[int | None, typer.Option("--round", min=0, max=30)] = None,
    alpha: float = 0.05,
    kind: str | None = None,
    dataset_col: str = "dataset",
    method_col: str = "method",
    metric_col: str = "metric",
    value_col: str = "value",
    seed_col: str | None = None,
    block_col: str | None = None,
    diagram: Path | None = None,
    json: JsonOption = False,
) -> None:
    """Compare methods over datasets: average ranks, Friedman, Nemenyi, wins, draws and losses.

    Args:
        names: Tables of results; with --store the name of the run, which may be omitted if the store has one.
        results: A table (CSV, TSV, Markdown, LaTeX) with one row per value, or one column per metric or method; may be
            repeated, one table per data set.
        store: A dubio store, instead of a table.
        metric: A metric to compare by; may be repeated. If omitted: of a table all that may rank, of a store, or the
            results.csv of a run, calibrated_nll (shift: accuracy, ood: ood_auroc).
        better: METRIC=lower or METRIC=higher, for metrics dubio does not know.
        round_to: Decimals to round averages to before ranking, half to even.
        alpha: Level of the tests.
        kind: With --store, or the results.csv of a run: the test splits, id (if omitted), shift or ood.
        dataset_col: Column of the dataset.
        method_col: Column of the method.
        metric_col: Column of the metric.
        value_col: Column of the value.
        seed_col: Column of the seed, if any; rows are averaged over it.
        block_col: Column that is the same for data sets that share their trained networks, such as the source of a
            transfer: only these blocks are independent measurements.
        diagram: Draw the critical-difference diagram here: .svg, .png or .pdf.
    """
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
        columns=Columns(dataset_col, method_col, metric_col, value_col, seed_col, block_col),
    )
    say(*ranks.notes)
    for name, reason in ranks.chosen.cautions.items():
        say(f"caution: {name} is ranked as requested, but should not rank models. {reason}")
    if diagram is not None:
        say(f"diagram: {ranks.diagram(diagram)}")
    print_result(json, ranks.to_json(), [str(ranks)])
