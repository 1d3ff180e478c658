"""Orders as pictures: what temperature does to the ranks of methods, and what thresholds and bins do to TACE's."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, LogLocator, NullLocator, StrMethodFormatter

from dubio.core.types import FloatArray
from dubio.reporting.canvas import WIDTH, blank, legend_height, styled
from dubio.reporting.style import INK, MUTED, Style
from dubio.studies.ensembles.orders import Reordering, Taces
from dubio.studies.ensembles.panels import legend_entries, study_legend
from dubio.studies.ensembles.thresholded import BINS, THRESHOLDS


@styled
def reordered_figure(found: Reordering, drawn: Mapping[str, Style], titles: Mapping[str, str]) -> Figure:
    """Ranks by NLL at temperature 1 at the left, by calibrated NLL at the right, a line a method.

    Args:
        found: Values under both.
        drawn: The looks of the methods.
        titles: What they are called.
    """
    before, after = found.ranks()
    count, moved = len(after), {name for pair in found.swapped for name in pair}
    figure = blank(WIDTH * 0.86, 0.21 * count + 0.75)
    axis = figure.subplots()
    for name in found.names:
        style, ends = drawn[name], (before[name], after[name])
        keywords = {**style.line, "linewidth": 1.6, "markersize": 4.6, "alpha": 1.0 if name in moved else 0.55}
        axis.plot([0, 1], ends, clip_on=False, **keywords)
        for x, side, values, align in ((-0.035, 0, found.before, "right"), (1.035, 1, found.after, "left")):
            text = f"{titles[name]}  {values[name]:.3f}" if side == 0 else f"{values[name]:.3f}  {titles[name]}"
            axis.text(x, ends[side], text, ha=align, va="center", fontsize=7.6, color=INK)
    axis.set(xlim=(-0.02, 1.02), ylim=(count + 0.6, 0.4), yticks=[])
    axis.set_xticks([0, 1], ["NLL at temperature 1", "calibrated NLL"])
    axis.xaxis.tick_top()
    axis.grid(visible=False)
    axis.tick_params(length=0, labelsize=8.2)
    for spine in axis.spines.values():
        spine.set_visible(False)
    return figure


@styled
def taces_figure(found: Taces, drawn: dict[str, Style]) -> Figure:
    """TACE (above) and the rank that it gives (below) against its threshold and its number of bins.

    Args:
        found: The calibration errors.
        drawn: The looks of the methods.
    """
    figure = blank(WIDTH, 5.0 + legend_height(legend_entries(found.lines)))
    axes = figure.subplots(2, 2, sharex="col", sharey="row")
    cut = len(THRESHOLDS)
    sides = ((slice(0, cut), THRESHOLDS, "threshold"), (slice(cut, None), BINS, "bins"))
    for column, (part, across, what) in enumerate(sides):
        for row, values in enumerate((found.values, found.ranks)):
            _lines(axes[row][column], found, drawn, np.array(across, dtype=float), values[:, part])
        axes[1][column].set_xlabel(what)
        axes[1][column].xaxis.set_major_locator(FixedLocator([float(each) for each in across]))
        axes[1][column].xaxis.set_minor_locator(NullLocator())
        axes[1][column].xaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
    axes[0][0].set(ylabel="TACE", yscale="log")
    axes[0][0].yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axes[0][0].yaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
    axes[0][0].yaxis.set_minor_locator(NullLocator())
    axes[1][0].set(ylabel="rank by TACE", ylim=(len(found.lines) + 0.5, 0.5))
    study_legend(figure, found.lines, drawn)
    return figure


def _lines(axis: Axes, found: Taces, drawn: Mapping[str, Style], x: FloatArray, values: FloatArray) -> None:
    axis.set_xscale("log")
    for line, own in zip(found.lines, values, strict=True):
        axis.plot(x, own, **{**drawn[line.name].line, "linewidth": 1.3, "markersize": 3.8})
    axis.tick_params(colors=MUTED, labelcolor=INK)
