"""Methods as points in a plane, one panel a test set."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, MaxNLocator, NullFormatter, StrMethodFormatter

from dubio.core.types import FloatArray
from dubio.reporting.canvas import (
    WIDTH,
    blank,
    finite_limits,
    label_below,
    legend_height,
    method_legend,
    panel_title,
    styled,
)
from dubio.reporting.style import CONTROL, Style

LOG_FROM = 20.0
"""A positive axis whose largest value is this many times its smallest is logarithmic."""

Limits = tuple[float, float]


@dataclass(frozen=True, eq=False)
class Point:
    """One method: its values over runs on either axis."""

    style: Style
    x: FloatArray
    y: FloatArray


@dataclass(frozen=True)
class Cloud:
    """One panel: its title and a point a method."""

    title: str
    points: tuple[Point, ...]


@styled
def clouds_figure(
    panels: Sequence[Cloud], *, x: str, y: str, frame: tuple[Limits, Limits] | None = None, diagonal: str = ""
) -> Figure:
    """Points with one standard deviation over runs either way.

    Args:
        panels: One a test set.
        x: What the horizontal axis is.
        y: What the vertical axis is.
        frame: Limits of both axes, the same for all panels; each panel has its own where it is left out.
        diagonal: What the line of equal values is called, where it is drawn.
    """
    columns = min(len(panels), 3)
    rows = math.ceil(len(panels) / columns)
    drawn = _methods(panels)
    height = 3.1 if columns == 1 else 2.35
    figure = blank(WIDTH, height * rows + legend_height(len(drawn)))
    axes = list(figure.subplots(rows, columns, squeeze=False).flat)
    for unused in axes[len(panels) :]:
        unused.remove()
    for axis, panel in zip(axes[: len(panels)], panels, strict=True):
        _draw(axis, panel)
        if frame is not None:
            axis.set(xlim=frame[0], ylim=frame[1])
        else:
            _own_scale(axis, panel)
        if diagonal:
            _diagonal(axis)
    label_below(axes[: len(panels)], columns, x)
    figure.supylabel(y, fontsize=8.5)
    method_legend(figure, drawn, control=diagonal or None)
    return figure


def common_frame(panels: Sequence[Cloud]) -> tuple[Limits, Limits] | None:
    """Limits that hold all panels, spread included."""
    sides = [_extent(panels, side) for side in ("x", "y")]
    return None if sides[0] is None or sides[1] is None else (sides[0], sides[1])


def mean_of(values: FloatArray) -> float:
    """The mean over runs."""
    return float(np.mean(values))


def _extent(panels: Sequence[Cloud], side: str) -> Limits | None:
    every = [getattr(point, side) for panel in panels for point in panel.points]
    return finite_limits(mean_of(v) + sign * _std(v) for v in every for sign in (-1, 1))


def _methods(panels: Sequence[Cloud]) -> list[Style]:
    return list({(point.style.title, point.style.ensemble): point.style for p in panels for point in p.points}.values())


def _draw(axis: Axes, panel: Cloud) -> None:
    for point in panel.points:
        axis.errorbar(
            [mean_of(point.x)], [mean_of(point.y)], xerr=[_std(point.x)], yerr=[_std(point.y)],
            color=point.style.colour, elinewidth=0.9, capsize=0, linestyle="none",
            **{**point.style.point, "markersize": 6.2},
        )  # fmt: skip
    axis.set_title(panel_title(panel.title))


def _own_scale(axis: Axes, panel: Cloud) -> None:
    """Few ticks; a logarithmic axis where values span more than an order of magnitude."""
    for line, scale, side in ((axis.xaxis, axis.set_xscale, "x"), (axis.yaxis, axis.set_yscale, "y")):
        means = [mean_of(getattr(point, side)) for point in panel.points]
        if min(means) > 0 and max(means) / min(means) >= LOG_FROM:
            scale("log")
            line.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0), numticks=8))
            line.set_major_formatter(StrMethodFormatter("{x:g}"))
            line.set_minor_formatter(NullFormatter())
        else:
            line.set_major_locator(MaxNLocator(5))


def _diagonal(axis: Axes) -> None:
    """The line of equal values, where it runs through the panel."""
    limits = axis.get_xlim(), axis.get_ylim()
    low, high = max(limits[0][0], limits[1][0]), min(limits[0][1], limits[1][1])
    if low < high:
        axis.plot([low, high], [low, high], color=CONTROL, linewidth=1.2, linestyle="dotted", zorder=1)
    axis.set(xlim=limits[0], ylim=limits[1])


def _std(values: FloatArray) -> float:
    return float(np.std(values, ddof=1)) if values.size > 1 else 0.0
