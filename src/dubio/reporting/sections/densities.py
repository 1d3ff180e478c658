"""How uncertainties are distributed over correct, incorrect, and OOD or shifted examples.

The range of an uncertainty is known only after every method has been visited, so that no bins can be counted on the
way. Each run stores quantiles instead: the share of examples below any value follows from them to within 1/400.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from dubio.core.predictions import Predictions
from dubio.core.types import BoolArray, FloatArray
from dubio.metrics.decisions import correct
from dubio.metrics.decomposition import decompose
from dubio.reporting.charts import PANEL, Rows, chart_of, method_row, panels_of, tooltips
from dubio.reporting.detectors import detection_on
from dubio.reporting.leaderboard import leaderboard, verdict_phrase
from dubio.reporting.manifest_view import TaskView, TestSet
from dubio.reporting.measures import detection_name
from dubio.reporting.run_view import RunView
from dubio.reporting.section import Block, Collected, Figure, Section, Visit, section
from dubio.reporting.style import INSIDE, MODEL, MUTED, NOISE, OUTSIDE, Style
from dubio.reporting.wording import file_name, quantity_words

if TYPE_CHECKING:
    import altair

    from dubio.reporting.charts import Chart

ENTROPY = "predictive_entropy"

LEVELS = (np.arange(200) + 0.5) / 200
"""Levels of the quantiles that are stored."""

CORRECT, INCORRECT = "correct", "incorrect"
"""The two groups of the in-domain test set; the others are named by their splits."""


class Shares(NamedTuple):
    """Shares of correct, incorrect, and OOD or shifted examples per bin; zeros where a group has no examples."""

    correct: FloatArray
    incorrect: FloatArray
    outside: FloatArray


@dataclass(frozen=True, eq=False)
class Density:
    """The predictive entropy of one method over three groups of examples, in the bins :data:`EDGES`."""

    style: Style
    groups: Shares
    note: str


@dataclass(frozen=True)
class QuantityColumn:
    """One quantity: the shares of every method that has it, in bins of :data:`GRID_EDGES` on the method's own scale."""

    title: str
    methods: tuple[tuple[Style, Shares | None], ...]


@section("densities", order=55)
class Densities(Section):
    """Distributions of uncertainty, in-domain and under shift."""

    title = "Distribution of the uncertainties"

    def __init__(self) -> None:
        """Start without any run."""
        self.quantiles: dict[tuple[str, str, str, str], list[FloatArray]] = {}
        self.entropies = Collected[FloatArray]()

    def visit(self, item: Visit) -> None:
        """Store quantiles of every uncertainty, and the two parts of predictive entropy."""
        if not item.is_shown:
            return
        everything = {item.split.name: np.ones(len(item.predictions), dtype=bool)}
        groups = by_correctness(item.predictions) if item.is_in_domain_test else everything
        for group, rows in groups.items():
            for quantity, values in item.uncertainties.items() if rows.any() else ():
                key = item.task.key, group, item.run.method, quantity
                quantiles = np.quantile(values[rows], LEVELS, method="inverted_cdf")
                self.quantiles.setdefault(key, []).append(quantiles)
        parts = decompose(item.predictions)
        self.entropies.add(item, np.array([parts.expected_entropy.mean(), parts.mutual_information.mean()]))

    def task_blocks(self, run: RunView, task: TaskView) -> Iterator[Block]:
        """Yield the densities of predictive entropy, its two parts, and the densities of all uncertainties."""
        sets = [shifted for shifted in task.test_sets if len(shifted.splits) == 1 or not task.many_corruptions]
        densities = [figure for shifted in sets for figure in self._density(run, task, shifted)]
        yield from (figure for figure in densities if not figure.folded)
        styles, panels = self.entropy_panels(run, task)
        if styles and task.farthest:
            chart = partial(entropies_chart, styles, panels)
            yield Figure("entropy", "Predictive entropy and its two parts", ENTROPY_CAPTION, chart)
        yield from (figure for figure in densities if figure.folded)
        for name in (split.name for split in task.of_kind("ood") or task.farthest):
            if grid := self.grid(run, task, name):
                title, caption = f"Every uncertainty on {name}", GRID_CAPTION.format(outside=name)
                chart, reading = partial(grid_chart, grid), grid_reading(run, task, name)
                yield Figure(f"ridges-{file_name(name)}", title, caption, chart, True, reading, name)

    def _groups(self, task: TaskView, method: str, quantity: str, split: str) -> list[FloatArray] | None:
        """Return ``[runs, levels]`` quantiles of correct, incorrect and other examples; None without the outer two."""
        keys = [(task.key, group, method, quantity) for group in (CORRECT, INCORRECT, split)]
        groups = [np.array(self.quantiles.get(key, [])) for key in keys]
        return groups if groups[0].size and groups[2].size else None

    def densities(self, run: RunView, task: TaskView, split: str) -> list[Density]:
        """Return predictive entropy in-domain and on another split, of every method predicted on both."""
        classes = len(task.classes)
        largest = classes * np.log(2) if task.target == "multilabel" else np.log(classes)
        panels = []
        for name, area in run.scores.row(task, split, detection_name("ood_auroc", ENTROPY)).items():
            groups = self._groups(task, name, ENTROPY, split)
            if groups is not None:
                spread = "" if area.std is None else f" ± {area.std:.3f}"
                shares_of_groups = grouped_shares([quantiles / largest for quantiles in groups], EDGES)
                panels.append(Density(run.styles[name], shares_of_groups, f"AUROC {area.mean:.3f}{spread}"))
        return panels

    def _density(self, run: RunView, task: TaskView, shifted: TestSet) -> Iterator[Figure]:
        """Yield the densities of one test set; of a corruption, at its worst severity and on demand."""
        graded = len(shifted.splits) > 1
        name = f"{shifted.title}, severity {len(shifted.splits)}" if graded else shifted.title
        if panels := self.densities(run, task, shifted.splits[-1]):
            title, chart = f"Predictive entropy in-domain and on {name}", partial(densities_chart, panels)
            reading = density_reading(run, task, shifted.splits[-1], panels)
            yield Figure(f"density-{file_name(shifted.title)}", title, DENSITY_CAPTION, chart, graded, reading,
                         shifted.splits[-1])  # fmt: skip

    def entropy_panels(self, run: RunView, task: TaskView) -> tuple[list[Style], dict[str, FloatArray]]:
        """Return the methods predicted on all test sets, and for each set ``[methods, 2]`` parts of their entropy."""
        graded = {splits[-1].name: f"{base}, worst severity" for base, splits in task.severities.items()}
        titles = {task.in_domain.name: "in-domain"}
        titles |= {split.name: graded.get(split.name, split.name) for split in task.farthest}
        values = {title: self.entropies.methods(run, task, name) for name, title in titles.items()}
        complete = [m.name for m in run.methods_of(task) if all(m.name in methods for methods in values.values())]
        means = {
            title: np.array([np.mean(methods[name], axis=0) for name in complete]) for title, methods in values.items()
        }
        return [run.styles[name] for name in complete], means

    def grid(self, run: RunView, task: TaskView, split: str) -> list[QuantityColumn]:
        """Return one column per quantity that some method has on correct and on other examples."""
        columns = []
        for quantity, title in drawn_quantities(run).items():
            groups = {m.name: self._groups(task, m.name, quantity, split) for m in run.methods_of(task)}
            if any(groups.values()):
                rows = tuple(
                    (run.styles[name], None if parts is None else grouped_shares(_own_scale(parts), GRID_EDGES))
                    for name, parts in groups.items()
                )
                columns.append(QuantityColumn(title, rows))
        return columns


def by_correctness(predictions: Predictions) -> dict[str, BoolArray]:
    """Return which examples are classified correctly and which incorrectly; those without labels are neither."""
    labelled = np.ones(len(predictions), dtype=bool) if predictions.target == "multilabel" else predictions.labels >= 0
    right = np.zeros(len(predictions), dtype=bool)
    if labelled.any():
        right[labelled] = correct(predictions.labelled)
    return {CORRECT: right, INCORRECT: labelled & ~right}


def shares(quantiles: FloatArray, edges: FloatArray) -> FloatArray:
    """Return the share of examples per bin, averaged over runs; values outside the edges count in the outermost bins.

    Args:
        quantiles: ``[runs, levels]``; without runs, all shares are zero.
        edges: Of the bins, increasing.
    """
    counts, _ = np.histogram(np.clip(quantiles, edges[0], edges[-1]), edges)
    return np.asarray(counts / max(quantiles.size, 1))


def grouped_shares(groups: Sequence[FloatArray], edges: FloatArray) -> Shares:
    """Return the shares of the three groups from their quantiles."""
    return Shares(*(shares(quantiles, edges) for quantiles in groups))


def _own_scale(groups: Sequence[FloatArray]) -> list[FloatArray]:
    """Return a method's values divided by their quantile :data:`TAIL`; a system's own may begin below zero."""
    low, end = np.quantile(np.concatenate([values.ravel() for values in groups]), (1 - TAIL, TAIL)).tolist()
    start = min(low, 0.0)
    return [(values - start) / (end - start if end > start else 1.0) for values in groups]


EDGES = np.linspace(0.0, 1.0, 26)
"""Bins of predictive entropy divided by its largest possible value."""

TICKS = (0.01, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0)
"""Shares that the square-root axis may label."""

DENSITY_CAPTION = (
    "Share of examples per bin of predictive entropy, divided by its largest value, all runs together; square-root "
    "axis. Dashed: in-domain examples that are classified incorrectly. AUROC is that of all in-domain examples against "
    "the others, by ranks: methods may use different parts of the axis."
)


def densities_chart(panels: Sequence[Density]) -> Chart:
    """Return the shares of three groups of examples per bin, one panel per method.

    The vertical axis is a square root: the tall bin of certain examples would hide all the others.
    """
    import altair

    top = 1.3 * max(float(np.max(panel.groups)) for panel in panels)
    ticks = altair.Axis(values=[tick for tick in TICKS if tick <= top], format=".0%", labelOverlap=True)
    y = altair.Y(
        "share:Q", title="share of examples", scale=altair.Scale(type="sqrt", domain=[0.0, top], nice=False), axis=ticks
    )
    x = altair.X("start:Q", title="predictive entropy / its maximum", scale=altair.Scale(domain=[0.0, 1.0]),
                 axis=altair.Axis(values=[0, 0.5, 1]))  # fmt: skip
    rows = [row for panel in panels for row in bin_rows(panel.groups, EDGES, method=panel.style.title)]
    rows += [{"method": panel.style.title, "note": panel.note} for panel in panels]
    chart, height = chart_of(rows), 0.75 * PANEL
    note = chart.transform_filter("isValid(datum.note)").mark_text(align="right", fontSize=10.5)
    layers = [
        *group_layers(chart.transform_filter("isValid(datum.start)"), x, y, height=height),
        note.encode(x=altair.XValue(PANEL - 4), y=altair.YValue(8), text=altair.Text("note:N")),
    ]
    return panels_of(altair.LayerChart(layer=layers), "method", [panel.style.title for panel in panels], height=height)


def bin_rows(groups: Shares, edges: FloatArray, **fields: str) -> Rows:
    """Return one row per bin with the shares of the three groups, and one that closes the last bin."""
    values = [np.where(share.any(), share, np.nan) for share in groups]
    ends = [*edges[1:], np.nan]
    return [
        {**fields, "start": start, "end": end, **dict(zip(groups._fields, shares_of_bin, strict=True))}
        for start, end, *shares_of_bin in zip(
            edges, ends, *(np.append(share, share[-1]) for share in values), strict=True
        )
    ]


def group_layers(chart: altair.Chart, x: altair.X, y: altair.Y, *, height: float) -> Iterator[altair.Chart]:
    """Yield the steps of the three groups, the incorrect ones dashed and not filled, and their values on hover."""
    import altair

    names = altair.Legend(labelExpr="datum.label == 'outside' ? 'shifted or OOD' : 'in-domain, ' + datum.label",
                          symbolType="stroke", symbolSize=400)  # fmt: skip
    groups: list[Any] = list(Shares._fields)
    colours, dashes = [INSIDE, "currentColor", OUTSIDE], [[1.0, 0.0], [3.0, 1.5], [1.0, 0.0]]
    colour = altair.Color("group:N", sort=None, scale=altair.Scale(domain=groups, range=colours), legend=names)
    dash = altair.StrokeDash("group:N", sort=None, scale=altair.Scale(domain=groups, range=dashes), legend=names)
    steps = chart.transform_fold(groups, ["group", "share"]).transform_filter("isValid(datum.share)")
    areas = steps.transform_filter("datum.group != 'incorrect'")
    # Vega-Lite would set areas of several colours one on top of the other
    yield areas.mark_area(interpolate="step-after", opacity=0.22, clip=True).encode(x, y.stack(None), color=colour)
    yield steps.mark_line(interpolate="step-after", strokeWidth=1).encode(x, y, color=colour, strokeDash=dash)
    values = {"method": "method:N", "from": "start:Q", "to": "end:Q", "correct": "correct:Q",
              "incorrect": "incorrect:Q", "shifted or OOD": "outside:Q"}  # fmt: skip
    bins = chart.transform_filter("isValid(datum.end)").mark_bar(opacity=0)
    yield bins.encode(x, x2=altair.X2("end:Q"), y=altair.YValue(0), y2=altair.Y2Value(height), tooltip=tooltips(values))


def density_reading(run: RunView, task: TaskView, split: str, panels: Sequence[Density]) -> str:
    """Return the methods with the highest and the lowest AUROC by predictive entropy, and the means of the former."""
    board = leaderboard(run, task, (split,), detection_name("ood_auroc", ENTROPY), test_set=split)
    if board is None:
        return ""
    areas = {d.method: d for d in detection_on(run, task, (split,)).detectors if d.quantity == ENTROPY}
    best, least = board.order[0], board.order[-1]
    text = f"Highest AUROC: {run.title(best)}, {areas[best].phrase}"
    if least != best:
        verdict = board.verdicts[least]
        both = "" if verdict.resolves is None else "the two are "
        text += f"; lowest: {run.title(least)}, {areas[least].phrase} ({both}{verdict_phrase(verdict)})"
    means = {panel.style.title: _means(panel.groups) for panel in panels}
    return f"{text}. Mean entropy of the former: {means[run.title(best)]}." if run.title(best) in means else f"{text}."


def _means(groups: Shares) -> str:
    names = {"correct": groups.correct, "incorrect": groups.incorrect, "shifted or OOD": groups.outside}
    return ", ".join(f"{_mean(share):.2f} ({name})" for name, share in names.items() if share.any())


def _mean(share: FloatArray) -> float:
    """Return the mean of a quantity in the bins :data:`EDGES`, each at its centre."""
    return float((share * (EDGES[:-1] + EDGES[1:]) / 2).sum() / share.sum())


ENTROPY_CAPTION = (
    "Mean over examples and runs. Predictive entropy is the sum of expected entropy, the uncertainty of each sample, "
    "and of mutual information, the disagreement of samples or members; a single pass has no second part. Under shift "
    "the second should grow. It describes methods and does not rank them."
)


PARTS = {"expected entropy (data)": NOISE, "mutual information (model)": MODEL}


def entropies_chart(styles: Sequence[Style], panels: Mapping[str, FloatArray]) -> Chart:
    """Return stacked bars, one per method, one panel per test set; all panels on one scale."""
    import altair

    rows = [
        {"method": style.title, "panel": title, "part": title_of_part, "order": order, "nats": values[order]}
        for title, parts in panels.items()
        for style, values in zip(styles, parts.tolist(), strict=True)
        for order, title_of_part in enumerate(PARTS)
    ]
    bars = (
        chart_of(rows)
        .mark_bar(height={"band": 0.7})
        .encode(
            altair.X("nats:Q", title="predictive entropy, nats"),
            method_row(styles),
            altair.Color("part:N", sort=None, scale=altair.Scale(domain=list(PARTS), range=list(PARTS.values()))),
            altair.Order("order:Q"),
            tooltip=tooltips({"method": "method:N", "test set": "panel:N", "part": "part:N", "nats": "nats:Q"}),
        )
    )
    return panels_of(bars, "panel", list(panels), columns=3, height=altair.Step(18))


QUANTITIES = {
    "confidence": "1 − confidence",
    "predictive_entropy": "predictive entropy",
    "mutual_information": "mutual information",
    "model_uncertainty": "model uncertainty",
    "data_uncertainty": "data uncertainty",
}
"""The quantities of the grid; higher is more uncertain."""

GRID_EDGES = np.linspace(0.0, 1.0, 25)
TAIL = 0.98
"""A method's axis ends at this quantile of all its examples; larger values count in the last bin."""

GRID_CAPTION = (
    "Density curves of each uncertainty over correct in-domain examples (blue), incorrect ones (dashed) and {outside} "
    "(orange), all runs together, each method on its own axis from 0 to its 98 % quantile, each curve scaled to its "
    "own height on a square root. An uncertainty is useful where the dashed and the orange curve lie to the right of "
    "the blue one."
)


CELL = (118, 26)
"""Pixels of the width and the height of one method and quantity."""


def drawn_quantities(run: RunView) -> dict[str, str]:
    """Return quantity → its title, the systems' own last."""
    return QUANTITIES | {name: quantity_words(name) for name in run.scores.own_quantities}


def grid_chart(columns: Sequence[QuantityColumn]) -> Chart:
    """Return density curves, one row per method, one column per quantity."""
    import altair

    rows: Rows = []
    for column in columns:
        for style, groups in column.methods:
            fields = {"method": style.title, "quantity": column.title}
            scaled = None if groups is None else Shares(*(share / (share.max() or 1.0) for share in groups))
            rows += [{**fields, "missing": "–"}] if scaled is None else bin_rows(scaled, GRID_EDGES, **fields)
    chart, (width, height) = chart_of(rows), CELL
    x = altair.X("start:Q", axis=None, scale=altair.Scale(domain=[0.0, 1.0]))
    y = altair.Y("share:Q", stack=None, axis=None, scale=altair.Scale(type="sqrt", domain=[0.0, 1.05], nice=False))
    missing = chart.transform_filter("isValid(datum.missing)").mark_text(color=MUTED)
    layers = [
        *group_layers(chart.transform_filter("isValid(datum.start)"), x, y, height=height),
        missing.encode(x=altair.XValue(width / 2), y=altair.YValue(height / 2), text=altair.Text("missing:N")),
    ]
    titles, methods = [column.title for column in columns], [style.title for style, _ in columns[0].methods]
    beside = altair.Header(labelAngle=0, labelAlign="left", labelLimit=220)
    panels = altair.LayerChart(layer=layers).properties(width=width, height=height, view={"stroke": None})
    return panels.facet(
        row=altair.Row("method:N", sort=methods, title=None, header=beside),
        column=altair.Column("quantity:N", sort=titles, title=None),
        spacing={"row": 2, "column": 12},
    )


def grid_reading(run: RunView, task: TaskView, split: str) -> str:
    """Return the highest and the lowest AUROC over all methods and quantities that are drawn."""
    every = [one for one in detection_on(run, task, (split,)).detectors if one.quantity in drawn_quantities(run)]
    if not every:
        return ""
    ends = max(every, key=lambda one: one.auroc), min(every, key=lambda one: one.auroc)
    high, low = (f"{one.words} of {run.title(one.method)} ({one.phrase})" for one in ends)
    return f"AUROC is highest by {high}, lowest by {low}."
