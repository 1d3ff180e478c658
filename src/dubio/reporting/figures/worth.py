"""What each method is worth in independent networks, as one dot a method."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from dubio.reporting.canvas import WIDTH, blank, label_rows, styled
from dubio.reporting.style import INK, MUTED, Style
from dubio.statistics.ensemble_equivalent import EquivalentRange


@dataclass(frozen=True)
class Worth:
    """One method's deep-ensemble equivalent."""

    style: Style
    range: EquivalentRange


@styled
def worth_figure(rows: Sequence[Worth], *, longest: int) -> Figure:
    """One row a method: the equivalent as a marker, its bounds as a bar; what lies beyond the longest is an arrow.

    Args:
        rows: One a method, in the benchmark's order.
        longest: l_max, how many networks there are.
    """
    figure = blank(WIDTH, 0.27 * len(rows) + 0.75)
    axis = figure.subplots()
    edge = longest + 0.03 * longest
    axis.axvline(longest, color=MUTED, linewidth=0.8, linestyle=(0, (2, 2)), zorder=1)
    for place, row in enumerate(rows):
        found, point = row.range, row.style.point
        low, high = (min(part.size, edge) for part in (found.lower, found.upper))
        axis.hlines(place, low, high, color=row.style.colour, linewidth=1.6, zorder=2)
        if found.central.beyond:
            point = {**point, "marker": ">", "markerfacecolor": row.style.colour}
        axis.plot([min(found.central.size, edge)], [place], linestyle="none", zorder=4, clip_on=False, **point)
        axis.text(1.02, place, str(found.central), transform=axis.get_yaxis_transform(), va="center", fontsize=7.8,
                  color=INK)  # fmt: skip
    label_rows(axis, [row.style for row in rows])
    axis.set(xlabel="deep-ensemble equivalent, independent networks", xlim=(1 - 0.02 * longest, edge))
    axis.xaxis.set_major_locator(MaxNLocator(integer=True))
    return figure
