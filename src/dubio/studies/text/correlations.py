"""Correlation of each uncertainty with being shifted or OOD (T Figs 8 and 23), signed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from dubio.core.types import FloatArray
from dubio.metrics.quantities import QUANTITIES
from dubio.reporting.canvas import blank, styled
from dubio.reporting.manifest_view import TaskView
from dubio.reporting.measures import DETECTED_BY, detection_name
from dubio.reporting.run_view import RunView
from dubio.reporting.section import Block, Figure, Section, section
from dubio.reporting.style import INK, INSIDE, MUTED, OUTSIDE
from dubio.reporting.wording import file_name, signed

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Drawing

CAPTION = (
    "Point-biserial correlation of each quantity with the flag in-domain / {}. Uncertainties should be positive "
    "(orange) and confidence negative (blue)."
)
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
                draw, reading = partial(correlation_figure, table), correlations_reading(table)
                yield Figure("correlation", f"{title}, all test sets", caption, draw, reading=reading)
            return
        for index, split in enumerate(task.of_kind("ood") or task.farthest):
            table = correlations_of(run, task, split.name)
            if table is not None:
                name, caption = f"correlation-{file_name(split.name)}", CAPTION.format(f"{split.name}; mean over runs")
                caption += " A dash: the method has no such quantity."
                draw, reading = partial(correlation_figure, table), correlations_reading(table)
                yield Figure(name, f"{title}: {split.name}", caption, draw, folded=index > 0, reading=reading)


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


@styled
def correlation_figure(table: Correlations) -> Drawing:
    """Draw a table of coloured cells with their numbers."""
    from matplotlib.patches import Patch

    longest = max(len(row) for row in table.rows)
    figure = blank(0.075 * longest + 0.72 * len(table.quantities) + 0.4, 0.235 * len(table.rows) + 0.95)
    axis = figure.subplots()
    for (row, column), value in np.ndenumerate(table.values):
        _cell(axis, row, column, float(value))
    axis.set(xlim=(-0.5, len(table.quantities) - 0.5), ylim=(len(table.rows) - 0.5, -0.5))
    axis.set_xticks(range(len(table.quantities)), [name.replace("_", "\n") for name in table.quantities])
    axis.set_yticks(range(len(table.rows)), table.rows)
    axis.tick_params(length=0, labelcolor=INK, top=True, labeltop=True, bottom=False, labelbottom=False)
    axis.grid(visible=False)
    axis.spines[:].set_visible(False)
    handles = [Patch(color=OUTSIDE, alpha=DEEPEST, label="higher when shifted or OOD"),
               Patch(color=INSIDE, alpha=DEEPEST, label="lower when shifted or OOD")]  # fmt: skip
    figure.legend(handles=handles, loc="outside lower center", ncols=2, handlelength=1.2)
    return figure


def _cell(axis: Axes, row: int, column: int, value: float) -> None:
    from matplotlib.patches import Rectangle

    text, colour = ("–", MUTED) if np.isnan(value) else (signed(value, 2), INK)
    if not np.isnan(value):
        axis.add_patch(Rectangle((column - 0.47, row - 0.45), 0.94, 0.9, facecolor=OUTSIDE if value > 0 else INSIDE,
                                 linewidth=0, alpha=DEEPEST * min(1.0, abs(value))))  # fmt: skip
    axis.text(column, row, text, ha="center", va="center", fontsize=7.2, color=colour)


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
