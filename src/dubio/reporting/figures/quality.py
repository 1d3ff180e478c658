"""Methods side by side: one metric with its spread, and against what it costs."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullFormatter, ScalarFormatter

from dubio.reporting.canvas import WIDTH, blank, legend_height, method_legend, styled
from dubio.reporting.figures.series import CostPoint


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
            color=one.style.colour,
            elinewidth=1.0,
            capsize=0,
            linestyle="none",
            **{**one.style.point, "markersize": 7.0},
        )
    axis.set_xscale("log")
    axis.xaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axis.xaxis.set_major_formatter(ScalarFormatter())
    axis.xaxis.set_minor_formatter(NullFormatter())
    axis.set(xlabel=cost, ylabel=quality)
    method_legend(figure, [one.style for one in points])
    return figure
