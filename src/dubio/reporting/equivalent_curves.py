"""Draw the deep-ensemble equivalent against the number of samples."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from dubio.reporting.canvas import WIDTH, blank, legend_height, method_legend, styled
from dubio.reporting.style import CONTROL, FAMILIES, MUTED, SPARE, Style
from dubio.statistics.ensemble_equivalent import EquivalentRange

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SHADE = 0.16
LOG_FROM = 20
"""From this many samples on, the horizontal axis is logarithmic."""


@dataclass(frozen=True, eq=False)
class EquivalentSeries:
    """One method's equivalents with 1, 2, … samples."""

    style: Style
    ranges: tuple[EquivalentRange, ...]


def styles_by_name(names: Sequence[str]) -> dict[str, Style]:
    """Return a style for each system: that of the family of its name, else a spare one."""
    spare = iter(SPARE * (1 + len(names) // len(SPARE)))
    return {name: Style(name, *(FAMILIES[name] if name in FAMILIES else next(spare)), False) for name in names}


@styled
def equivalents_figure(series: Sequence[EquivalentSeries], *, longest: int, score: str) -> Figure:
    """Draw the deep-ensemble equivalent of each method, with bounds; values beyond the longest ensemble are arrows.

    Args:
        series: One per method.
        longest: l_max, the size of the longest ensemble.
        score: The score of the equivalence, for the axis.
    """
    from matplotlib.ticker import LogLocator, MaxNLocator, NullFormatter, StrMethodFormatter

    figure = blank(WIDTH * 0.72, 3.1 + legend_height(len(series) + 1, 3))
    axes = figure.subplots()
    top = longest + max(0.35, 0.06 * longest)
    axes.axhline(longest, color=MUTED, linewidth=0.8, linestyle=(0, (2, 2)))
    axes.text(1.01, longest, "longest\nensemble", transform=axes.get_yaxis_transform(), fontsize=7.2, color=MUTED,
              va="center", ha="left")  # fmt: skip
    counts = [len(one.ranges) for one in series]
    sizes = np.arange(1, max(2, min(longest, max(counts))) + 1)
    axes.plot(sizes, sizes, color=CONTROL, linewidth=1.4, linestyle="dotted")
    for one in series:
        _draw(axes, one, longest, top)
    if max(counts) >= LOG_FROM:
        axes.set_xscale("log")
        axes.xaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
        axes.xaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
        axes.xaxis.set_minor_formatter(NullFormatter())
    else:
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.yaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set_ylim(min(0.8, 1 - 0.03 * longest), top + 0.1)
    axes.set_xlabel("samples of the method")
    axes.set_ylabel(f"deep-ensemble equivalent, {score}")
    method_legend(figure, [one.style for one in series], control="a deep ensemble itself", columns=3)
    return figure


def _draw(axes: Axes, one: EquivalentSeries, longest: int, top: float) -> None:
    """Draw the curve with its band; beyond the longest ensemble, upward arrows on its line."""
    x = np.arange(1, len(one.ranges) + 1)
    lower, centre, upper = (
        np.array([getattr(each, part).size for each in one.ranges]) for part in ("lower", "central", "upper")
    )
    line = {**one.style.line, "markersize": 3.6, "markevery": max(1, len(x) // 12)}
    axes.fill_between(x, np.minimum(lower, longest), np.minimum(upper, longest), color=one.style.colour, alpha=SHADE,
                      linewidth=0)  # fmt: skip
    axes.plot(x, np.where(np.isfinite(centre), centre, np.nan), **line)
    beyond = x[~np.isfinite(centre)]
    if len(beyond):
        axes.plot(beyond, np.full(len(beyond), (longest + top) / 2), linestyle="none", marker=6, markersize=5,
                  color=one.style.colour, markevery=max(1, len(beyond) // 12))  # fmt: skip
