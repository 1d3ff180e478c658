"""Methods side by side: one metric with its spread, and against what it costs."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullFormatter, ScalarFormatter

from dubio.reporting.figures.canvas import WIDTH, blank, legend_height, method_legend, styled
from dubio.reporting.figures.series import CostPoint, Spread
from dubio.reporting.style import INK, MUTED


@styled
def ranking_figure(rows: Sequence[Spread], *, label: str) -> Figure:
    """One row a method: every run a faint dot, their mean a marker, one standard deviation a bar.

    Args:
        rows: One a method, in the benchmark's order.
        label: The metric, with the direction that is better.
    """
    figure = blank(WIDTH, 0.27 * len(rows) + 0.75)
    axis = figure.subplots()
    for place, row in enumerate(rows):
        mean = float(np.mean(row.values))
        axis.plot(
            row.values,
            np.full(row.values.shape, place),
            linestyle="none",
            marker="|",
            markersize=7,
            color=row.look.colour,
            alpha=0.45,
            markeredgewidth=1.0,
        )
        if row.values.size > 1:
            std = float(np.std(row.values, ddof=1))
            axis.hlines(place, mean - std, mean + std, color=row.look.colour, linewidth=1.6)
        axis.plot([mean], [place], linestyle="none", zorder=4, **row.look.point)
    axis.set_yticks(range(len(rows)), [row.look.title for row in rows])
    for tick, row in zip(axis.get_yticklabels(), rows, strict=True):
        tick.set_color(INK if row.best or row.tied else MUTED)
        tick.set_fontweight("bold" if row.best else "normal")
    axis.set(xlabel=label, ylim=(len(rows) - 0.4, -0.6))
    axis.grid(axis="y", visible=False)
    axis.tick_params(axis="y", length=0)
    axis.spines["left"].set_visible(False)
    return figure


@styled
def cost_figure(points: Sequence[CostPoint], *, cost: str, quality: str) -> Figure:
    """Quality against cost on a logarithmic axis; the better corner is the lower left.

    Args:
        points: One a method.
        cost: What the horizontal axis is.
        quality: What the vertical axis is.
    """
    figure = blank(WIDTH, 2.7 + legend_height(len(points)))
    axis = figure.subplots()
    for one in points:
        mean = float(np.mean(one.quality))
        std = float(np.std(one.quality, ddof=1)) if one.quality.size > 1 else 0.0
        axis.errorbar(
            [one.cost],
            [mean],
            yerr=[std],
            color=one.look.colour,
            elinewidth=1.0,
            capsize=0,
            linestyle="none",
            **{**one.look.point, "markersize": 7.0},
        )
    axis.set_xscale("log")
    axis.xaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axis.xaxis.set_major_formatter(ScalarFormatter())
    axis.xaxis.set_minor_formatter(NullFormatter())
    axis.set(xlabel=cost, ylabel=quality)
    method_legend(figure, [one.look for one in points])
    return figure
