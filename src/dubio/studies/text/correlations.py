"""Correlation of each uncertainty with being shifted or OOD (T Figs 8 and 23), signed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from dubio.core.types import FloatArray
from dubio.metrics.quantities import QUANTITIES
from dubio.reporting.charts import Rows, chart_of, tooltips
from dubio.reporting.manifest_view import TaskView
from dubio.reporting.measures import DETECTED_BY, detection_name
from dubio.reporting.run_view import RunView
from dubio.reporting.section import Block, Figure, Section, section
from dubio.reporting.style import INSIDE, OUTSIDE
from dubio.reporting.wording import file_name, signed

if TYPE_CHECKING:
    from dubio.reporting.charts import Chart

CAPTION = (
    "Point-biserial correlation of each quantity with the flag in-domain / {}. Uncertainties should be positive "
    "(orange) and confidence negative (blue)."
)
SIGNS = "higher when shifted or OOD", "lower when shifted or OOD"
DEEPEST = 0.62
"""Opacity of a perfect correlation: numbers stay legible on light and on dark pages."""


@section("text-correlations", order=57)
class UncertaintyCorrelations(Section):
    """Correlation of every uncertainty with being shifted or OOD."""

    title = "Which uncertainty reacts to shift"

    def blocks(self, run: RunView, task: TaskView | None) -> Iterator[Block]:
        """Yield the correlations of a task's novel classes (or shifted test sets), or of all test sets."""
        title = "Uncertainties and distribution shift"
        if task is None:
            table = correlations_across(run)
            several = sum(bool(run.methods_of(scored)) for scored in run.tasks) > 1
            if several and table is not None and len(table.rows) > 1:
                caption = CAPTION.format("shifted or OOD, averaged over the methods that have the quantity")
                chart, reading = partial(correlation_chart, table, "test_set"), correlations_reading(table)
                yield Figure("correlation", f"{title}, all test sets", caption, chart, reading=reading)
            return
        for index, split in enumerate(task.of_kind("ood") or task.farthest):
            table = correlations_of(run, task, split.name)
            if table is not None:
                name, caption = f"correlation-{file_name(split.name)}", CAPTION.format(f"{split.name}; mean over runs")
                caption += " A dash: the method has no such quantity."
                yield Figure(
                    name,
                    f"{title}: {split.name}",
                    caption,
                    partial(correlation_chart, table, "method"),
                    folded=index > 0,
                    reading=correlations_reading(table),
                    split=split.name,
                )


@dataclass(frozen=True)
class Correlations:
    """Rows × quantities with ``[rows, quantities]`` values, NaN where there is none; no row or column is empty."""

    rows: tuple[str, ...]
    quantities: tuple[str, ...]
    values: FloatArray


def correlations_of(run: RunView, task: TaskView, split: str) -> Correlations | None:
    """Return methods × quantities on one split; None where there are no correlations."""
    names = [detection_name("ood_correlation", quantity) for quantity in DETECTED_BY]
    columns = [run.scores.row(task, split, name) for name in names]
    methods = run.methods_of(task)
    values = [[cells[m.name].mean if m.name in cells else np.nan for cells in columns] for m in methods]
    return _trimmed([method.title for method in methods], values)


def correlations_across(run: RunView) -> Correlations | None:
    """Return test sets × quantities, each the mean over methods."""
    rows, values = [], []
    for task in (task for task in run.tasks if run.methods_of(task)):
        for split in task.farthest:
            table = correlations_of(run, task, split.name)
            if table is not None:
                means = dict(zip(table.quantities, np.nanmean(table.values, axis=0), strict=True))
                rows.append(f"{task.key} → {split.name}")
                values.append([float(means.get(name, np.nan)) for name in DETECTED_BY])
    return _trimmed(rows, values)


def _trimmed(rows: Sequence[str], values: Sequence[Sequence[float]]) -> Correlations | None:
    """Return a table over :data:`DETECTED_BY` without its empty rows and columns."""
    table = np.array(values, dtype=float).reshape(len(rows), len(DETECTED_BY))
    filled, columns = (np.flatnonzero(np.isfinite(table).any(axis=axis)).tolist() for axis in (1, 0))
    if not filled:
        return None
    names = tuple(DETECTED_BY[column] for column in columns)
    return Correlations(tuple(rows[row] for row in filled), names, table[np.ix_(filled, columns)])


def correlation_chart(table: Correlations, field: str) -> Chart:
    """Return a table of coloured cells with their numbers.

    Args:
        table: The correlations.
        field: The field that names a row: ``method``, or ``test_set``.
    """
    import altair

    chart, colours = chart_of(correlation_rows(table, field)), altair.Scale(domain=list(SIGNS), range=[OUTSIDE, INSIDE])
    quantities = [name.replace("_", " ") for name in table.quantities]
    names = altair.Axis(
        orient="top",
        labelAngle=0,
        labelExpr="split(datum.label, ' ')",
        labelPadding=4 + 13 * max(name.count(" ") for name in quantities),  # further lines stand below the first
        ticks=False,
        domain=False,
    )
    x = altair.X("quantity:N", sort=quantities, title=None, axis=names)
    y = altair.Y(f"{field}:N", sort=list(table.rows), title=None, axis=altair.Axis(ticks=False, domain=False))
    shown = tooltips({field.replace("_", " "): f"{field}:N", "quantity": "quantity:N", "correlation": "text:N"})
    cells = chart.mark_rect(strokeWidth=0).encode(
        x,
        y,
        fill=altair.Fill("sign:N", scale=colours, legend=altair.Legend(symbolType="square")),
        fillOpacity=altair.FillOpacity("size:Q", scale=altair.Scale(domain=[0, 1], range=[0, DEEPEST]), legend=None),
        tooltip=shown,
    )
    numbers = chart.mark_text(fontSize=10.5).encode(x, y, text=altair.Text("text:N"), tooltip=shown)
    return altair.LayerChart(layer=[cells, numbers]).properties(width="container", height=altair.Step(21))


def correlation_rows(table: Correlations, field: str) -> Rows:
    """Return one row per cell; a quantity that does not exist has a dash for text and no colour."""
    rows: Rows = []
    for (row, column), value in np.ndenumerate(table.values):
        quantity = table.quantities[column].replace("_", " ")
        cell: dict[str, object] = {field: table.rows[row], "quantity": quantity, "text": "–"}
        if np.isfinite(value):
            cell |= {"text": signed(float(value), 2), "sign": SIGNS[int(value < 0)], "size": float(abs(value))}
        rows.append(cell)
    return rows


def correlations_reading(table: Correlations) -> str:
    """Return the quantities that correlate most and least, in the right direction, and the strongest cell."""
    sign = [1.0 if QUANTITIES[name].higher_is_more_uncertain else -1.0 for name in table.quantities]
    names, means = [name.replace("_", " ") for name in table.quantities], np.nanmean(table.values, axis=0)
    ends = int(np.argmax(sign * means)), int(np.argmin(sign * means))
    best, worst = (f"{names[column]} ({signed(means[column], 2)})" for column in ends)
    row, column = np.unravel_index(int(np.nanargmax(table.values * sign)), table.values.shape)
    return (
        f"Averaged over rows, {best} correlates most with being shifted or OOD and {worst} least; the strongest is "
        f"{names[column]} of {table.rows[row]} ({signed(table.values[row, column], 2)})."
    )
