"""The critical-difference diagram (Demšar 2006): methods on a line of mean ranks, bars over those that do not differ.

The best rank is on the left. Half of the methods hang to the left of the line and half to the right, one a row, so that
names of any length stay legible whatever the number of methods.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import ceil, floor
from typing import TYPE_CHECKING

from dubio.core.errors import UserError
from dubio.reporting.canvas import blank, styled
from dubio.reporting.style import INK, MUTED

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

BAR = "#0065a9"
ROW, BAR_STEP, LETTER = 0.24, 0.15, 0.073
"""Inches: between two names, between two bars, and the mean width of a letter."""
AXIS_WIDTH = 4.2
LABEL_GAP = 0.28
"""Inches between the end of the line of ranks and a name."""


def draw_cd_diagram(
    average_ranks: Mapping[str, float],
    critical_difference: float,
    cliques: Sequence[Sequence[str]],
    *,
    title: str = "",
    note: str = "",
) -> Figure:
    """Draw the diagram.

    Args:
        average_ranks: Method to mean rank.
        critical_difference: Length of the bar that shows what differs.
        cliques: Sets of methods that do not differ significantly.
        title: Above, to the left.
        note: Below the title, e.g. Friedman's test.

    Raises:
        MissingExtra: When matplotlib is not installed.
        UserError: For fewer than two methods.
    """
    if len(average_ranks) < 2:
        raise UserError(f"a critical-difference diagram needs at least two methods; given {len(average_ranks)}.")
    return _drawn(average_ranks, critical_difference, cliques, title, note)


@styled
def _drawn(
    ranks: Mapping[str, float], difference: float, cliques: Sequence[Sequence[str]], title: str, note: str
) -> Figure:
    names = sorted(ranks, key=lambda name: (ranks[name], name))
    half = ceil(len(names) / 2)
    sides = names[:half], names[half:]
    margins = [LABEL_GAP + 0.55 + LETTER * max(len(name) for name in side) for side in sides]
    top, bars = 1.25 if title or note else 0.75, 0.12 + BAR_STEP * len(cliques)
    depth = bars + ROW * half + 0.1
    figure = blank(sum(margins) + AXIS_WIDTH, top + depth)
    figure.set_layout_engine("none")
    # one unit is an inch, the origin lies at the left end of the line of ranks
    axes = figure.add_axes((0.0, 0.0, 1.0, 1.0))
    axes.set_xlim(-margins[0], AXIS_WIDTH + margins[1])
    axes.set_ylim(-depth, top)
    axes.axis("off")
    low, high = floor(min(ranks.values())), ceil(max(ranks.values()))
    scale = _Scale(low, max(high, low + 1))
    _draw_line(axes, scale)
    _draw_difference(axes, scale, difference)
    _draw_bars(axes, scale, ranks, cliques)
    _draw_names(axes, scale, ranks, sides, bars)
    axes.text(-margins[0] + 0.1, top - 0.1, title, ha="left", va="top", fontsize=10, weight="bold", color=INK)
    axes.text(-margins[0] + 0.1, top - 0.32, note, ha="left", va="top", fontsize=8.5, color=MUTED)
    return figure


class _Scale:
    """Ranks to inches along the line."""

    def __init__(self, low: int, high: int) -> None:
        self.low, self.high = low, high

    def __call__(self, rank: float) -> float:
        """Return the position of a rank."""
        return AXIS_WIDTH * (rank - self.low) / (self.high - self.low)


def _draw_line(axes: Axes, scale: _Scale) -> None:
    axes.plot([0, AXIS_WIDTH], [0, 0], color=INK, linewidth=1.2, solid_capstyle="butt")
    step = 1 if scale.high - scale.low <= 12 else 2
    for tick in range(scale.low, scale.high + 1):
        labelled = (tick - scale.low) % step == 0
        axes.plot([scale(tick)] * 2, [0, 0.09 if labelled else 0.05], color=INK, linewidth=0.9)
        if labelled:
            axes.text(scale(tick), 0.13, str(tick), ha="center", va="bottom", fontsize=8, color=INK)


def _draw_difference(axes: Axes, scale: _Scale, difference: float) -> None:
    """Draw the length of the critical difference above the line; an arrow where it is longer than the line."""
    end = min(AXIS_WIDTH, scale(scale.low + difference))
    axes.plot([0, end], [0.46, 0.46], color=BAR, linewidth=1.6, solid_capstyle="butt")
    for x in (0.0, end) if scale(scale.low + difference) <= AXIS_WIDTH else (0.0,):
        axes.plot([x, x], [0.41, 0.51], color=BAR, linewidth=1.2)
    if scale(scale.low + difference) > AXIS_WIDTH:
        arrow = {"arrowstyle": "->", "color": BAR, "lw": 1.4}
        axes.annotate("", (AXIS_WIDTH + 0.14, 0.46), (AXIS_WIDTH - 0.02, 0.46), arrowprops=arrow)
    axes.text(end / 2, 0.5, f"CD = {difference:.3f}", ha="center", va="bottom", fontsize=8.5, color=BAR)


def _draw_bars(axes: Axes, scale: _Scale, ranks: Mapping[str, float], cliques: Sequence[Sequence[str]]) -> None:
    for index, clique in enumerate(cliques):
        y = -0.13 - BAR_STEP * index
        first, last = (scale(ranks[name]) for name in (clique[0], clique[-1]))
        axes.plot([first - 0.05, last + 0.05], [y, y], color=BAR, linewidth=3.2, solid_capstyle="round", zorder=3)


def _draw_names(
    axes: Axes, scale: _Scale, ranks: Mapping[str, float], sides: tuple[Sequence[str], Sequence[str]], bars: float
) -> None:
    """Draw names with their ranks; on either side the outermost rank takes the uppermost row, so no lines cross."""
    for side, names in ((-1, sides[0]), (1, sides[1][::-1])):
        edge = -LABEL_GAP if side < 0 else AXIS_WIDTH + LABEL_GAP
        for row, name in enumerate(names):
            x, y = scale(ranks[name]), -bars - ROW * (row + 0.6)
            axes.plot([x, x, edge], [0, y, y], color=MUTED, linewidth=0.7, zorder=1)
            axes.plot([x], [0], marker="o", markersize=2.6, color=INK, zorder=4)
            align = "right" if side < 0 else "left"
            axes.text(edge + side * 0.42, y, name, ha=align, va="center", fontsize=9, color=INK)
            axes.text(edge + side * 0.05, y, f"{ranks[name]:.2f}", ha=align, va="center", fontsize=7.5, color=MUTED)
