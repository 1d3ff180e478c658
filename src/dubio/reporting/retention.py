"""Tables and curves over the fraction of examples retained, for every section that shows referral.

The control, random referral, needs no draw: its expected accuracy (and area under the ROC curve) at every fraction is
that of all examples.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from dubio.core.types import FloatArray
from dubio.metrics.referral_curve import FRACTIONS
from dubio.reporting.canvas import WIDTH, Series, blank, draw_band, finite_limits, legend_height, method_legend, styled
from dubio.reporting.manifest_view import TaskView
from dubio.reporting.measures import RETAINED, referral_name
from dubio.reporting.run_view import RunView
from dubio.reporting.style import CONTROL
from dubio.reporting.tables import Column, FilledColumn, Table, method_table, score_column
from dubio.reporting.wording import RANDOM, term

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Drawing

REFERRAL_CAPTION = (
    "Accuracy (and AUC) of the retained examples when the most uncertain, by predictive entropy, are referred. From "
    "left to right, more examples are referred. Bands are one standard deviation over runs. Dotted: random referral."
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
        head = Column(f"{fraction:.0%}", "retained", "↑", term(metric).note)
        columns[name] = score_column(head, cells, verdicts, places=3)
    return columns


@dataclass(frozen=True)
class OverSeeds:
    """A mean with its standard error, s/√n over seeds, the members of a seed averaged first; None with one seed."""

    mean: float
    error: float | None


def over_seeds(run: RunView, task: TaskView, split: str, metric: str) -> dict[str, OverSeeds]:
    """Return method → mean and standard error over seeds, where a value is defined for some seed."""
    values: dict[str, dict[int, list[float]]] = {}
    for score in run.scores.scores:
        if (score.task, score.split, score.metric) == (task.key, split, metric) and not math.isnan(score.value):
            values.setdefault(score.method, {}).setdefault(score.seed, []).append(score.value)
    means = {method: np.array([np.mean(seed) for seed in seeds.values()]) for method, seeds in values.items()}
    errors = {m: float(s.std(ddof=1) / np.sqrt(len(s))) if len(s) > 1 else None for m, s in means.items()}
    return {method: OverSeeds(float(seeds.mean()), errors[method]) for method, seeds in means.items()}


def with_standard_errors(column: FilledColumn, seeds: Mapping[str, OverSeeds]) -> FilledColumn:
    """Return the column with the standard error over seeds instead of the spread over runs."""
    cells = dict(column.cells)
    for name, cell in cells.items():
        if name in seeds:
            error = seeds[name].error
            spread = "(1 seed)" if error is None else f"± {error:.3f}"
            spread += " †" if cell.spread.endswith("†") else ""
            cells[name] = replace(cell, text=f"{seeds[name].mean:.3f}", spread=spread)
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


def draw_referral(run: RunView, task: TaskView, accuracy: Curves, area: Curves) -> Drawing:
    """Draw curves over :data:`RETAINED` with random referral of the reference method, or of the first of them."""
    reference = run.manifest.reference(task) or ""
    index = list(accuracy).index(reference) if reference in accuracy else 0
    return referral_figure(series_of(run, RETAINED, accuracy), series_of(run, RETAINED, area), reference=index)


def random_referral(series: Series) -> Series:
    """Return random referral of a method: the value of all examples at every fraction."""
    return Series(series.style, series.x, np.repeat(series.runs[:, -1:], len(series.x), axis=1))


@styled
def referral_figure(accuracy: Sequence[Series], area: Sequence[Series], *, reference: int) -> Drawing:
    """Draw accuracy, and for two classes the AUC, against the fraction retained.

    Args:
        accuracy: One series per method over the fraction retained.
        area: The same for the AUC; empty where it is not defined.
        reference: The place of the method that random referral is shown for.
    """
    figure = blank(WIDTH, 2.9 + legend_height(len(accuracy) + 1))
    axes = figure.subplots(1, 2, sharex=True) if area else [figure.subplots()]
    panels = [("accuracy of the retained", accuracy), ("AUC of the retained", area)]
    for axis, (label, series) in zip(axes, panels, strict=False):
        draw_curves(axis, series)
        control = random_referral(series[reference])
        axis.plot(control.x, control.mean, color=CONTROL, linestyle="dotted", linewidth=1.4, zorder=1.5)
        axis.set(xlabel="fraction retained", ylabel=label, xlim=(1.0, 0.5))
        fit_limits(axis, [*series, control])
    label = f"random referral ({accuracy[reference].style.title})"
    method_legend(figure, [series.style for series in accuracy], control=label)
    return figure


def draw_curves(axis: Axes, series: Sequence[Series], *, every: int = 10) -> None:
    """Draw means with a band of one standard deviation over runs; markers of methods are staggered."""
    for index, one in enumerate(series):
        offset = (index * every) // max(len(series), 1)
        draw_band(axis, one, markevery=(offset, every), zorder=3 if one.style.ensemble else 2)


def fit_limits(axis: Axes, series: Sequence[Series]) -> None:
    """Set limits by the means: the noisy end of a band must not squeeze the rest."""
    low, high = sorted(axis.get_xlim())
    values = [float(y) for one in series for x, y in zip(one.x, one.mean, strict=True) if low <= x <= high]
    limits = finite_limits(values)
    if limits is not None:
        axis.set_ylim(*limits)
