"""Tables and curves over the fraction of examples retained, for every section that shows referral.

The control, random referral, needs no draw: its expected accuracy (and area under the ROC curve) at every fraction is
that of all examples.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from dubio.core.types import FloatArray
from dubio.metrics.referral_curve import FRACTIONS
from dubio.reporting.charts import (
    WIDTH,
    Rows,
    Series,
    chart_of,
    curves,
    line_legend,
    method_colour,
    method_dash,
    tooltips,
)
from dubio.reporting.manifest_view import TaskView
from dubio.reporting.measures import RETAINED, referral_name
from dubio.reporting.run_view import RunView
from dubio.reporting.style import CONTROL, Style
from dubio.reporting.tables import Column, FilledColumn, Table, method_table, score_column
from dubio.reporting.wording import RANDOM, term

if TYPE_CHECKING:
    import altair

    from dubio.reporting.charts import Chart

HEIGHT = 260
"""Pixels of a figure of curves."""
HALF = WIDTH // 2 - 55
"""Pixels of the width of one of two panels."""

REFERRAL_CAPTION = (
    "Accuracy (and AUC) of the retained examples when the most uncertain, by predictive entropy, are referred. From "
    "left to right, more examples are referred. Bands are one standard deviation over runs. Dotted: random referral. "
    "A baseline far from all methods is outside the plot."
)


def retention_columns(run: RunView, task: TaskView, split: str, metric: str) -> dict[str, FilledColumn]:
    """Return the score's name → accuracy, or AUC, at each fraction retained, of every method and of random referral."""
    columns = {}
    for fraction in sorted(FRACTIONS, reverse=True):
        name = referral_name(metric, fraction)
        cells, verdicts = run.scores.row(task, split, name), run.scores.verdicts(task, split, name)
        control = run.scores.cell(task, split, RANDOM, name)
        if control is not None:
            cells = {**cells, RANDOM: control}
        head = Column(f"{fraction:.0%}", "retained", "↑", term(metric).note, metric=name)
        columns[name] = score_column(head, cells, verdicts, places=3)
    return columns


@dataclass(frozen=True)
class OverTrainings:
    """A mean with its standard error, s/√n over n independent trainings; None with one."""

    mean: float
    error: float | None


def over_trainings(run: RunView, task: TaskView, split: str, metric: str) -> dict[str, OverTrainings]:
    """Return method → mean and standard error over trainings, where a value is defined for some.

    All seeds of a task share its splits, and what is random in a training depends on its seed and member
    (:mod:`dubio.training.seeds`): two trainings of one seed are as independent as two of different seeds, so that each
    is a unit. An ensemble pools the members of a seed, so that its units are seeds. Other splits would vary more.
    """
    return {
        method: OverTrainings(cell.mean, None if cell.std is None else cell.std / math.sqrt(cell.n))
        for (key, name, method, measure), cell in run.scores.cells.items()
        if (key, name, measure) == (task.key, split, metric) and cell.n
    }


def with_standard_errors(column: FilledColumn, trainings: Mapping[str, OverTrainings]) -> FilledColumn:
    """Return the column with the standard error over trainings instead of the spread over runs."""
    cells = dict(column.cells)
    for name, cell in cells.items():
        if name in trainings:
            error = trainings[name].error
            spread = "(1 run)" if error is None else f"± {error:.3f}"
            spread += " †" if cell.spread.endswith("†") else ""
            cells[name] = replace(cell, text=f"{trainings[name].mean:.3f}", spread=spread)
    return FilledColumn(column.column, cells)


def retention_table(
    run: RunView, task: TaskView, methods: Iterable[str], columns: Iterable[FilledColumn], caption: str
) -> Table:
    """Return columns over fractions retained, with random referral as the last row."""
    reference = run.manifest.reference(task)
    title = f"Random referral ({run.title(reference) if reference else ''})"
    shown = [method for method in run.methods if method.name in methods]
    return method_table(shown, columns, run.styles, caption=caption, controls={RANDOM: title})


Curves = Mapping[str, Sequence[FloatArray]]
"""Method → one curve per run."""


def series_of(run: RunView, x: FloatArray, curves: Curves) -> list[Series]:
    """Return curves over a common axis, each method in its style."""
    return [Series(run.styles[name], x, np.array(runs)) for name, runs in curves.items()]


def referral_of(run: RunView, task: TaskView, accuracy: Curves, area: Curves) -> Chart:
    """Return curves over :data:`RETAINED` with random referral of the reference method, or of the first of them."""
    reference = run.manifest.reference(task) or ""
    index = list(accuracy).index(reference) if reference in accuracy else 0
    return referral_chart(series_of(run, RETAINED, accuracy), series_of(run, RETAINED, area), reference=index)


def random_referral(series: Series) -> Rows:
    """Return random referral of a method over its axis: everywhere the value of all examples."""
    name, value = f"random referral ({series.style.title})", float(series.mean[-1])
    return [{"control": name, "x": float(x), "y": value} for x in (series.x[0], series.x[-1])]


def referral_chart(accuracy: Sequence[Series], area: Sequence[Series], *, reference: int) -> Chart:
    """Return accuracy, and for two classes the AUC, against the fraction retained, with random referral.

    Args:
        accuracy: One series per method over the fraction retained.
        area: The same for the AUC; empty where it is not defined.
        reference: The place of the method that random referral is shown for.
    """
    import altair

    x, x_scale = "fraction retained", altair.Scale(domain=[0.5, 1.0], reverse=True)
    panels: list[Chart] = []
    for y, series in (("accuracy of the retained", accuracy), ("AUC of the retained", area)):
        if series:
            control, y_scale = random_referral(series[reference]), scale_of_means(series)
            styles = [*(one.style for one in series), Style(control[0]["control"], CONTROL, "o", False, augmented=True)]
            methods = curves(rows_of(series), styles, x=x, y=y, x_scale=x_scale, y_scale=y_scale)
            line = (
                chart_of(control)
                .mark_line(strokeWidth=1.8, clip=True)
                .encode(
                    altair.X("x:Q", title=x, scale=x_scale),
                    altair.Y("y:Q", title=y, scale=y_scale),
                    color=method_colour(styles, "control").legend(**line_legend(styles)),
                    strokeDash=method_dash(styles, "control"),
                    tooltip=tooltips({"control": "control:N", y: "y:Q"}),
                )
            )
            panels.append(methods + line)
    if len(panels) == 1:
        return panels[0].properties(width="container", height=HEIGHT)
    return altair.hconcat(*(panel.properties(width=HALF, height=HEIGHT) for panel in panels))


def rows_of(series: Sequence[Series], **fields: Any) -> Rows:
    """Return the rows of several methods."""
    return [row for one in series for row in one.rows(**fields)]


def scale_of_means(series: Sequence[Series]) -> altair.Scale:
    """Return a vertical scale that contains the means: neither the noisy end of a band nor a baseline squeezes curves.

    A baseline is left out if all of it lies below the methods by more than their range, as class frequencies do.
    """
    import altair

    def finite(some: Sequence[Series]) -> FloatArray:
        values = np.concatenate([one.mean for one in some]) if some else np.empty(0)
        return np.asarray(values[np.isfinite(values)])

    own = finite([one for one in series if not one.style.baseline])
    floor = 2 * own.min() - own.max() if len(own) else -np.inf
    values = finite([one for one in series if not one.style.baseline or (finite([one]) >= floor).any()])
    if not len(values):
        return altair.Scale(zero=False)
    low, high = float(values.min()), float(values.max())
    space = 0.06 * (high - low) or 0.05 * max(abs(high), 1e-3)
    return altair.Scale(domain=[low - space, high + space], nice=False, zero=False)
