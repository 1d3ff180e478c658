"""Correlation of each uncertainty with being shifted or OOD (T Figs 8 and 23), signed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from dubio.core.types import FloatArray
from dubio.metrics.quantities import QUANTITIES
from dubio.reporting.canvas import (
    blank,
    styled,
)
from dubio.reporting.manifest_view import TaskView
from dubio.reporting.measures import DETECTED_BY, detection_name
from dubio.reporting.run_view import RunView
from dubio.reporting.section import Block, Figure, Section, section
from dubio.reporting.style import INK, INSIDE, MUTED, OUTSIDE
from dubio.reporting.wording import file_name

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Drawing

CAPTION = (
    "Point-biserial correlation of each quantity with the flag in-domain / {place}; mean over runs. Uncertainties "
    "should be positive (orange) and confidence negative (blue). A dash: the method has no such quantity."
)
ACROSS = (
    "Point-biserial correlation of each quantity with the flag in-domain / shifted or OOD, averaged over the methods "
    "that have the quantity. Uncertainties should be positive (orange) and confidence negative (blue)."
)
DEEPEST = 0.62
"""Opacity of a perfect correlation: numbers stay legible on light and on dark pages."""


@section("text-correlations", order=57)
class UncertaintyCorrelations(Section):
    """Correlation of every uncertainty with being shifted or OOD."""

    title = "Which uncertainty reacts to shift"

    def blocks(self, run: RunView, task: TaskView | None) -> Iterator[Block]:
        """Yield the correlations of a task's novel classes (or shifted test sets), or of all test sets."""
        if task is None:
            table = correlations_across(run)
            several = len([each for each in run.tasks if run.methods_of(each)]) > 1
            if several and table is not None and len(table.rows) > 1:
                title, draw = "Uncertainties and distribution shift, all test sets", partial(correlation_figure, table)
                yield Figure("correlation", title, ACROSS, draw, reading=correlations_reading(table))
            return
        for place, split in enumerate(task.of_kind("ood") or task.farthest):
            table = correlations_of(run, task, split.name)
            if table is not None:
                yield Figure(
                    f"correlation-{file_name(split.name)}",
                    f"Uncertainties and distribution shift: {split.name}",
                    CAPTION.format(place=split.name),
                    partial(correlation_figure, table),
                    folded=place > 0,
                    reading=correlations_reading(table),
                )


@dataclass(frozen=True)
class Correlations:
    """Rows × quantities with ``[rows, quantities]`` values, NaN where there is none."""

    rows: tuple[str, ...]
    quantities: tuple[str, ...]
    values: FloatArray


def correlations_of(run: RunView, task: TaskView, split: str) -> Correlations | None:
    """Return methods × quantities on one split; None where there are no correlations."""
    values = np.full((len(run.methods_of(task)), len(DETECTED_BY)), np.nan)
    for column, quantity in enumerate(DETECTED_BY):
        cells = run.scores.row(task, split, detection_name("ood_correlation", quantity))
        for row, method in enumerate(run.methods_of(task)):
            if method.name in cells and cells[method.name].n:
                values[row, column] = cells[method.name].mean
    return _trimmed(tuple(method.title for method in run.methods_of(task)), values)


def correlations_across(run: RunView) -> Correlations | None:
    """Return test sets × quantities, each the mean over methods."""
    rows, values = [], []
    for task in (each for each in run.tasks if run.methods_of(each)):
        for split in task.farthest:
            table = correlations_of(run, task, split.name)
            if table is not None:
                by_quantity = {
                    name: _mean(column) for name, column in zip(table.quantities, table.values.T, strict=True)
                }
                rows.append(f"{task.key} → {split.name}")
                values.append([by_quantity.get(name, np.nan) for name in DETECTED_BY])
    return _trimmed(tuple(rows), np.array(values)) if rows else None


def _trimmed(rows: tuple[str, ...], table: FloatArray) -> Correlations | None:
    known = np.isfinite(table)
    if not known.any():
        return None
    kept, columns = np.flatnonzero(known.any(axis=1)), np.flatnonzero(known.any(axis=0))
    names = tuple(DETECTED_BY[column] for column in columns)
    return Correlations(tuple(rows[row] for row in kept), names, table[np.ix_(kept, columns)])


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
    for spine in axis.spines.values():
        spine.set_visible(False)
    handles = [Patch(color=OUTSIDE, alpha=DEEPEST, label="higher when shifted or OOD"),
               Patch(color=INSIDE, alpha=DEEPEST, label="lower when shifted or OOD")]  # fmt: skip
    figure.legend(handles=handles, loc="outside lower center", ncols=2, handlelength=1.2)
    return figure


def _cell(axis: Axes, row: int, column: int, value: float) -> None:
    from matplotlib.patches import Rectangle

    if not np.isfinite(value):
        axis.text(column, row, "–", ha="center", va="center", fontsize=7.2, color=MUTED)
        return
    colour = OUTSIDE if value > 0 else INSIDE
    axis.add_patch(Rectangle((column - 0.47, row - 0.45), 0.94, 0.9, facecolor=colour, linewidth=0,
                             alpha=DEEPEST * min(1.0, abs(value))))  # fmt: skip
    axis.text(column, row, f"{value:+.2f}".replace("-", "−"), ha="center", va="center", fontsize=7.2, color=INK)


def correlations_reading(table: Correlations) -> str:
    """Return the quantities that correlate most and least, in the right direction, and the strongest cell."""
    turned = table.values * [1.0 if QUANTITIES[name].higher_is_more_uncertain else -1.0 for name in table.quantities]
    means = [_mean(column) for column in turned.T]
    most, least = int(np.argmax(means)), int(np.argmin(means))
    place = np.unravel_index(int(np.nanargmax(turned)), turned.shape)
    strongest = float(table.values[place])
    names = [name.replace("_", " ") for name in table.quantities]
    best, worst = (f"{names[place]} ({_mean(table.values[:, place]):+.2f})" for place in (most, least))
    return (
        f"Averaged over rows, {best} correlates most with being shifted or OOD and {worst} least; the strongest is "
        f"{names[place[1]]} of {table.rows[place[0]]} ({strongest:+.2f})."
    ).replace("(-", "(−")


def _mean(values: FloatArray) -> float:
    known = values[np.isfinite(values)]
    return float(known.mean()) if known.size else float("nan")
