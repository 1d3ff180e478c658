"""Rank methods over datasets, from a table of results or from a stored run."""

from __future__ import annotations

import math
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, cast

from dubio.core.data_frame import data_frame
from dubio.core.errors import UserError, listing, one_of
from dubio.core.types import Direction
from dubio.reporting.stored_run import Run
from dubio.reporting.wording import RANDOM
from dubio.statistics.choose_metrics import Chosen, choose
from dubio.statistics.ranks import Comparison, compare
from dubio.statistics.result_files import read_results
from dubio.statistics.result_table import Columns, ResultTable, table_of

if TYPE_CHECKING:
    import pandas

Kind = Literal["id", "shift", "ood"]

RUN_METRIC: Mapping[Kind, str] = {"id": "calibrated_nll", "shift": "accuracy", "ood": "ood_auroc"}
"""The metric by which the methods of a run are ranked, unless another one is named."""


P_OF = {
    "exact": "(over all exchanges of ranks)",
    "sampled": "(over a sample of the exchanges of ranks)",
    "chi2": "(of the χ² distribution)",
}
"""What a p-value is of → the words for it."""


@dataclass(frozen=True, eq=False)
class MethodRanks:
    """Average ranks of methods over datasets, with tests. It prints as a table.

    Attributes:
        comparison: Ranks, Friedman's test, Nemenyi's critical difference, wins, draws and losses.
        chosen: The metrics that were ranked, and why others were not.
        notes: How the table was read, and what of it was not.
    """

    comparison: Comparison
    chosen: Chosen
    notes: tuple[str, ...] = ()

    def to_frame(self) -> pandas.DataFrame:
        """Return one row per method: rank, wins, draws, losses.

        Raises:
            UserError: If pandas is not installed.
        """
        return data_frame(self._rows())

    def to_json(self) -> dict[str, Any]:
        """Return everything as plain values."""
        return {
            **_document(self.comparison),
            "by_metric": {name: _document(single) for name, single in self.comparison.by_metric.items()},
            "cautions": self.chosen.cautions,
            "not_ranked": self.chosen.left_out,
            "notes": list(self.notes),
        }

    def diagram(self, path: str | Path) -> Path:
        """Draw the critical-difference diagram to an .svg, .png or .pdf file, and return its path."""
        from dubio.reporting.cd_diagram import draw_cd_diagram
        from dubio.reporting.charts import write_figure

        comparison, test = self.comparison, self.comparison.friedman
        blocks = "datasets" if test.datasets == len(comparison.datasets) else "blocks"
        note = f"Friedman χ² = {test.chi2:.2f}, p = {test.p:.3g}; {test.datasets} {blocks}, α = {comparison.alpha:g}"
        title = "Average rank by " + " and ".join(comparison.metrics)
        ranks, difference, cliques = comparison.average_ranks, comparison.critical_difference, comparison.cliques
        chart = draw_cd_diagram(ranks, difference, cliques, title=title, note=note)
        return write_figure(chart, Path(path), "--diagram")

    def __str__(self) -> str:
        return "\n".join(self._lines())

    def _rows(self) -> list[dict[str, Any]]:
        ranks, records = self.comparison.average_ranks, self.comparison.win_draw_loss
        return [{"method": name, "rank": rank, **records[name]._asdict()} for name, rank in ranks.items()]

    def _lines(self) -> Iterator[str]:
        comparison, test = self.comparison, self.comparison.friedman
        width = max(6, *(len(name) for name in comparison.average_ranks))
        digits = comparison.digits
        rounding = "not rounded" if digits is None else f"rounded half-even to {digits} decimals"
        metrics = ", ".join(comparison.metrics)
        datasets = f"{len(comparison.datasets)} datasets"
        if test.datasets < len(comparison.datasets):
            datasets += f" in {test.datasets} blocks, which are the independent measurements,"
        yield f"{test.methods} methods on {datasets} by {metrics}; averages {rounding}\n"
        yield f"{'method':<{width}}  {'rank':>6}  {'wins':>5}  {'draws':>5}  {'losses':>6}"
        for row in self._rows():
            counts = f"{row['wins']:>5}  {row['draws']:>5}  {row['losses']:>6}"
            yield f"{row['method']:<{width}}  {row['rank']:>6.2f}  {counts}"
        f_test = f"Iman–Davenport F = {test.iman_davenport:.3f}"
        f_test += f", p = {test.iman_davenport_p:.3g}" if test.distribution == "chi2" else ", with the same p"
        if math.isinf(test.iman_davenport):
            where = "on every dataset" if test.datasets == len(comparison.datasets) else "in every block"
            same = "order" if where == "on every dataset" and len(comparison.metrics) == 1 else "mean ranks"
            f_test = f"Iman–Davenport F = ∞, the methods have the same {same} {where}"
        yield f"\nFriedman χ² = {test.chi2:.3f}, p = {test.p:.3g} {P_OF[test.distribution]}; {f_test}"
        name = "Critical" if test.methods == 2 else "Nemenyi critical"
        yield (
            f"{name} difference at α = {comparison.alpha:g}: {comparison.critical_difference:.3f} "
            "(mean ranks that differ less are not significantly different)"
        )
        if test.p > comparison.alpha:
            yield "Friedman's test finds no significant differences between the methods: do not interpret their order."
        yield from (f"not significantly different: {', '.join(clique)}" for clique in comparison.cliques)
        yield from (f"not ranked: {name}. {reason}" for name, reason in self.chosen.left_out.items())


def rank_methods(
    results: Run | ResultTable | str | Path | pandas.DataFrame | Sequence[Any] | Mapping[str, Any],
    *,
    metrics: Sequence[str] = (),
    better: Mapping[str, Direction] | None = None,
    digits: int | None = None,
    alpha: float = 0.05,
    kind: Kind | None = None,
    columns: Columns | None = None,
) -> MethodRanks:
    """Rank methods over datasets: average ranks, Friedman, Nemenyi, wins, draws and losses.

    Datasets count as independent measurements, unless they share a block: on datasets that share the trained networks
    methods that are equal would differ significantly far too often. Tasks of a run that share their training data are
    a block; of a table a column may name the blocks.

    Args:
        results: A run, or a table of results: a file (CSV, TSV, Markdown or LaTeX) or a data frame, long or wide
            (:mod:`dubio.statistics.result_files`); several of these, one per data set; or data set → one of these.
        metrics: Metrics to rank by. If omitted: of a table all that may rank models, of a run or its ``results.csv``
            the calibrated NLL (shift: accuracy, ood: OOD AUROC).
        better: Metric → ``"lower"`` or ``"higher"``, for metrics that dubio does not know.
        digits: Decimals to round averages to before ranking, half to even; None for no rounding.
        alpha: Level of the tests.
        kind: The test splits of a run, or of its ``results.csv``: ``"id"`` (if omitted), ``"shift"`` or ``"ood"``;
            refused for other tables.
        columns: Names of the columns of a table, refused for a run.

    Raises:
        UserError: For an unknown metric, a gap in the table, fewer than two methods, datasets or blocks, or columns of
            results that are no table to be read.
    """
    if columns is not None and columns.chosen and isinstance(results, Run | ResultTable):
        named = listing(f"--{column}-col {name}" for column, name in columns.chosen.items())
        which = "a run, whose tasks of the same training data are a block"
        which = which if isinstance(results, Run) else "a table that is read already"
        raise UserError(f"{named}: only columns of a file or of a data frame have names to choose; given {which}.")
    refused: Mapping[str, str] = {}
    directions = dict(better or {})
    if kind is not None:
        one_of("--kind", kind, RUN_METRIC)
        if isinstance(results, ResultTable):
            raise UserError(f"--kind {kind}: only a run has kinds of test splits; given a table that is read already.")
    if isinstance(results, Run):
        kind = kind or "id"
        metrics = metrics or (RUN_METRIC[kind],)
        table, refused, of_run = _run_table(results, kind, metrics)
        directions = {name: of_run[name] for name in table.metrics if name in of_run} | directions
    else:
        alone = metrics[0] if len(metrics) == 1 else None
        table = results if isinstance(results, ResultTable) else read_results(results, columns, metric=alone, kind=kind)
        if table.kind is not None:
            metrics = metrics or (RUN_METRIC[cast(Kind, table.kind)],)
            table = _complete(table, metrics)
    chosen = choose(table.metrics, metrics, directions, refused)
    comparison = compare(table, chosen.metrics, digits=digits, alpha=alpha, blocks=table.blocks)
    return MethodRanks(comparison, chosen, table.notes)


def _run_table(
    run: Run, kind: Kind, metrics: Sequence[str]
) -> tuple[ResultTable, Mapping[str, str], Mapping[str, Direction]]:
    """Return the scores of a run as a long table; splits of one task and kind are averaged, as they share its fits.

    Methods that are not ranked on some task, or have no value there, are left out with a note: a baseline for tables
    on a run that has texts too, say.
    """
    view, scores = run.built.run, run.results
    rows = [
        {"dataset": score.task, "method": score.method, "metric": score.metric, "value": score.value,
         "seed": score.seed}
        for score in scores.scores
        if score.kind == kind and score.method != RANDOM and math.isfinite(score.value)
    ]  # fmt: skip
    if not rows:
        raise UserError(f"--kind {kind}: this run has no scores on such a split.")
    unranked = {n for task in view.tasks for n, own in scores.learning(task).items() if own.learned != "learned"}
    blocks = {task.key: task.training_data for task in view.tasks}
    table = _complete(replace(table_of(rows), blocks=blocks), metrics, unranked)
    return table, scores.not_ranked, scores.better


def _complete(table: ResultTable, metrics: Sequence[str], unranked: Container[str] = ()) -> ResultTable:
    """Return the results of a run without methods that are not ranked, or lack a value on some task, with a note.

    Args:
        table: Its results.
        metrics: Those that are ranked.
        unranked: Methods that are not ranked anyway.
    """
    results = [result for result in table.results if result.method != RANDOM]
    scored = {(result.dataset, result.metric) for result in results if result.metric in metrics}
    values = {(result.dataset, result.metric, result.method) for result in results}
    methods = dict.fromkeys(result.method for result in results)
    left_out = [name for name in methods if name in unranked or any((*key, name) not in values for key in scored)]
    note = f"left out, because they are not ranked, or have no value, on every task: {', '.join(left_out)}."
    return replace(
        table,
        results=tuple(result for result in results if result.method not in left_out),
        notes=(*table.notes, *((note,) if left_out else ())),
    )


def _document(comparison: Comparison) -> dict[str, Any]:
    return {
        "metrics": dict(comparison.metrics),
        "round": comparison.digits,
        "alpha": comparison.alpha,
        "datasets": list(comparison.datasets),
        "blocks": comparison.friedman.datasets,
        "average_ranks": dict(comparison.average_ranks),
        "friedman": vars(comparison.friedman),
        "critical_difference": comparison.critical_difference,
        "cliques": [list(clique) for clique in comparison.cliques],
        "win_draw_loss": {name: list(record) for name, record in comparison.win_draw_loss.items()},
        "pairs": [vars(pair) for pair in comparison.pairs],
    }
