"""In-domain: the scores of every method on the in-domain test set, and the sources of its variance."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from dubio.calibration.cross_validation import BY_POSITION, by_position
from dubio.core.predictions import Predictions
from dubio.core.types import FloatArray
from dubio.metrics.decomposition import decompose
from dubio.reporting.charts import (
    Rows,
    chart_of,
    method_colour,
    method_fill,
    method_row,
    method_shape,
    row_notes,
    tooltips,
)
from dubio.reporting.leaderboard import QUESTIONS, not_ranked_sentences
from dubio.reporting.manifest_view import TaskView
from dubio.reporting.measures import IN_DOMAIN_COLUMNS, RANKED_BY, plugin_metrics
from dubio.reporting.run_view import RunView
from dubio.reporting.section import Block, Collected, Figure, Section, Text, Visit, section
from dubio.reporting.style import INSIDE, NOISE, OUTSIDE, Style
from dubio.reporting.tables import ARROWS, Column, FilledColumn, Table, method_table, score_column, value_cell
from dubio.reporting.wording import listed, named, term
from dubio.statistics.verdicts import Place, Question

if TYPE_CHECKING:
    import altair

KEYS: dict[Question, str] = {
    "methods": "The question is whether methods differ, not only these trained systems: trainings vary as well as test "
    "examples; the training set and the split are fixed.",
    "systems": QUESTIONS["systems"],
}
KEY = (
    "Shaded: the best mean (bold) and every method that is not significantly different from it. No shading: no method "
    "that was judged is significantly worse than the best mean."
)


@section("in-domain", order=10)
class InDomainScores(Section):
    """Scores on the in-domain test set."""

    title = "In-domain"

    def __init__(self) -> None:
        """Start without any run."""
        self.variance = Collected[FloatArray]()
        self.by_position: set[str] = set()

    def visit(self, item: Visit) -> None:
        """Store the parts of the variance of a run on the in-domain test set."""
        if item.is_in_domain_test:
            self.variance.add(item, variance_parts(item.predictions))
            if by_position(item.predictions):
                self.by_position.add(item.task.key)
        if item.is_in_domain_test:
            self.variance.add(item, variance_parts(item.predictions))

    def document(self, run: RunView) -> dict[str, Any]:
        """Return what every method gains over the class frequencies."""
        learning = {task.key: run.scores.learning(task) for task in run.tasks}
        rows = [
            {"task": key, "method": name, **vars(own)} for key, every in learning.items() for name, own in every.items()
        ]
        return {"learning": rows}

    def task_blocks(self, run: RunView, task: TaskView) -> Iterator[Block]:
        """Yield the table of scores and the figures of one task."""
        table = in_domain_table(run, task)
        if table.columns:
            yield table
        remark = (BY_POSITION,) if task.key in self.by_position else ()
        notes = (*as_it_is(run, task), *not_ranked_reasons(run, task), *remark, *filter(None, [run.budget_note(task)]))
        yield Text((f"{KEYS[run.question]} {KEY}", *notes), "small")
        if sentences := not_ranked_sentences(run, task):
            yield Text(tuple(sentences), "warning")
        if warning := temperature_warning(run, task):
            yield Text(warning, "warning")
        yield from ranking(run, task)
        yield variance(run, self.variance.methods(run, task))


def in_domain_table(run: RunView, task: TaskView) -> Table:
    """Return methods × metrics on the in-domain test set."""
    split, scores = task.in_domain, run.scores
    columns = []
    for metric in (*IN_DOMAIN_COLUMNS, *(extra.name for extra in plugin_metrics() if extra.name in scores.better)):
        unranked = metric in scores.not_ranked
        arrow = "" if metric == "diversity" else ARROWS[scores.better[metric]]
        head = Column(
            term(metric).title, "not ranked" if unranked else "", arrow, term(metric).note, unranked, metric=metric
        )
        cells, verdicts = scores.row(task, split.name, metric), scores.verdicts(task, split.name, metric)
        columns.append(unmarked(run, task, score_column(head, cells, verdicts)))
    columns.append(gain_column(run, task))
    runs = scores.row(task, split.name, "accuracy") if run.question == "methods" else {}
    counts = {name: value_cell(cell.n, "d", place="unranked") for name, cell in runs.items()}
    note = "one per seed and member for single fits, one per seed for ensembles"
    columns.append(FilledColumn(Column("Runs", note=note, unranked=True), counts))
    caption = f"{split.examples:,} examples of the split “{split.name}”; mean ± standard deviation over runs"
    return method_table(run.methods_of(task), columns, run.styles, caption=caption, terminal=task.key)


GAIN = Column(
    "Gain",
    "over class frequencies",
    "↑",
    "mean gain in log-likelihood over the class frequencies, both recalibrated with an intercept per class on the "
    "other half of the test set; in brackets its upper limit",
    unranked=True,
)


def gain_column(run: RunView, task: TaskView) -> FilledColumn:
    """Return what every method gains over the class frequencies; nothing for class frequencies themselves."""
    rows = {name: row for name, row in run.scores.learning(task).items() if row.learned != "constant"}
    return FilledColumn(
        GAIN, {name: value_cell(row.gain, ".3f", f"(≤ {row.high:.3f})", "unranked") for name, row in rows.items()}
    )


def unmarked(run: RunView, task: TaskView, column: FilledColumn) -> FilledColumn:
    """Return the column with the cells of methods that are not ranked set apart."""
    learning = run.scores.learning(task)
    flagged = {name for name, evidence in learning.items() if evidence.learned != "learned"} & column.cells.keys()
    apart = {name: replace(column.cells[name], place="unranked", hint="this method is not ranked") for name in flagged}
    return FilledColumn(column.column, {**column.cells, **apart})


def as_it_is(run: RunView, task: TaskView) -> list[str]:
    """Return which metrics compare methods on this test set alone, because they have no values per example."""
    scores, split = run.scores, task.in_domain.name
    ranking = [metric for metric in IN_DOMAIN_COLUMNS if scores.ranks(metric) and scores.row(task, split, metric)]
    titles = [term(metric).title for metric in ranking if not scores.has_rows(task, split, metric)]
    verb = "has" if len(titles) == 1 else "have"
    reason = f"{verb} no values per example: in these comparisons trainings vary, and the test set is fixed."
    if run.question == "systems":
        reason = f"{verb} no values per example: the variance is that over bootstrap replicates of the test set."
    return [f"{listed(titles)} {reason}"] if titles else []


def not_ranked_reasons(run: RunView, task: TaskView) -> list[str]:
    """Return why each metric of the table that does not rank does not."""
    scores, split = run.scores, task.in_domain.name
    shown = {name: reason for name, reason in scores.not_ranked.items() if scores.row(task, split, name)}
    return [f"{term(name).title} does not rank. {named(reason)}" for name, reason in shown.items()]


def temperature_warning(run: RunView, task: TaskView) -> str:
    """Return a warning where temperatures have no optimum, so that the calibrated score depends on few examples."""
    methods = {name: fits for (key, name), fits in run.scores.temperatures.items() if key == task.key}
    at_bound = sum(fits.at_bound for fits in methods.values())
    total = sum(len(fits.values) for fits in methods.values())
    names = [run.title(name) for name, fits in methods.items() if fits.at_bound]
    if not names:
        return ""
    return (
        f"{at_bound} of {total} temperatures behind the calibrated NLL of this task have no optimum, because almost "
        f"every example of that half of the test set is classified correctly: {listed(names)}. The calibrated NLL "
        "then depends on a few examples; read the Brier score beside it, or use a larger test set."
    )


RANKING_CAPTION = (
    "Lower is better. Ticks are runs, the marker is their mean, the bar one standard deviation. At the right: the best "
    "mean, and how every other method compares with it."
)

SHORT_PLACE: dict[Place, str] = {
    "best": "best",
    "tied": "not significantly different",
    "behind": "significantly worse",
    "unjudged": "not judged",
}


def ranking(run: RunView, task: TaskView) -> Iterator[Figure]:
    """Yield the ranking metric of every method with its spread; infinite values are in the table alone."""
    cells = run.scores.row(task, task.in_domain.name, RANKED_BY)
    verdicts = run.scores.verdicts(task, task.in_domain.name, RANKED_BY)
    ranked = {name: cell for name, cell in cells.items() if name in verdicts and np.isfinite(cell.mean)}
    spreads = {name: cell.std or 0.0 for name, cell in ranked.items()}
    means: Rows = [
        {"method": run.title(name), "mean": cell.mean, "low": cell.mean - spreads[name],
         "high": cell.mean + spreads[name], "runs": cell.n, "note": SHORT_PLACE[verdicts[name].place]}
        for name, cell in ranked.items()
    ]  # fmt: skip
    ticks: Rows = [{"method": run.title(name), "value": v} for name, cell in ranked.items() for v in cell.values]
    if means:
        chart = partial(ranking_chart, means, ticks, [run.styles[name] for name in ranked])
        yield Figure("ranking", f"{term(RANKED_BY).title} of each method", RANKING_CAPTION, chart)


def ranking_chart(means: Rows, ticks: Rows, styles: Sequence[Style]) -> altair.LayerChart:
    """Return one row per method: its runs as ticks, their mean as a marker, one standard deviation as a bar."""
    import altair

    title, scale = f"{term(RANKED_BY).title} (lower is better)", altair.Scale(zero=False)
    row, colour, chart = method_row(styles), method_colour(styles).legend(None), chart_of(means)
    values = {"method": "method:N", "mean": "mean:Q", "minus one standard deviation": "low:Q",
              "plus one standard deviation": "high:Q", "runs": "runs:Q", "against the best": "note:N"}  # fmt: skip
    runs = chart_of(ticks).mark_tick(thickness=1, size=12, opacity=0.45).encode(
        altair.X("value:Q", title=title, scale=scale), row, color=colour,
        tooltip=tooltips({"method": "method:N", "run": "value:Q"}),
    )  # fmt: skip
    bars = chart.mark_rule(strokeWidth=2).encode(
        altair.X("low:Q", title=title), row, x2=altair.X2("high:Q"), color=colour
    )
    points = chart.mark_point(size=60, opacity=1).encode(
        altair.X("mean:Q", title=title), row, color=colour, fill=method_fill(styles).legend(None),
        shape=method_shape(styles).legend(None),
        tooltip=tooltips(values),
    )  # fmt: skip
    layers = [runs, bars, points, row_notes(chart, styles)]
    return altair.LayerChart(layer=layers).properties(width="container", height=altair.Step(20))


VARIANCE_CAPTION = (
    "Mean over runs of the total variance of the predictive distribution, mean p(1 − p) over classes. Grey: within "
    "each sample. Blue: between the samples of one training. Orange: between independent trainings. It describes "
    "methods and does not rank them."
)

VARIANCE_PARTS = {"within every sample": NOISE, "between samples of a member": INSIDE, "between members": OUTSIDE}


def variance_parts(predictions: Predictions) -> FloatArray:
    """Return the means over examples of the parts of the total variance (T eq. 3), as in :data:`VARIANCE_PARTS`."""
    parts = decompose(predictions)
    return np.array([parts.expected_variance.mean(), parts.within_members.mean(), parts.between_members.mean()])


def variance(run: RunView, parts: Mapping[str, Sequence[FloatArray]]) -> Figure:
    """Return the parts of the total variance of every method, from those of its runs."""
    rows: Rows = [
        {"method": run.title(name), "component": component, "order": order, "value": value}
        for name, runs in parts.items()
        for order, (component, value) in enumerate(zip(VARIANCE_PARTS, np.mean(runs, axis=0).tolist(), strict=True))
    ]
    chart = partial(variance_chart, rows, [run.styles[name] for name in parts])
    return Figure("variance", "Sources of the uncertainty", VARIANCE_CAPTION, chart)


def variance_chart(rows: Rows, styles: Sequence[Style]) -> altair.Chart:
    """Return one bar per method: the total variance as the sum of its parts."""
    import altair

    parts = altair.Scale(domain=list(VARIANCE_PARTS), range=list(VARIANCE_PARTS.values()))
    bars = chart_of(rows).mark_bar(height=12).encode(
        altair.X("value:Q", title="total variance, mean over examples and classes"),
        method_row(styles),
        color=altair.Color("component:N", scale=parts),
        order=altair.Order("order:Q"),
        tooltip=tooltips({"method": "method:N", "variance": "component:N", "mean": "value:Q"}),
    )  # fmt: skip
    sized: altair.Chart = bars.properties(width="container", height=altair.Step(20))
    return sized
