"""How an uncertainty is spread over in-domain examples and over others."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from dubio.report.figures.canvas import panel_title, small_multiples, styled
from dubio.report.figures.series import Density
from dubio.report.style import INSIDE, MUTED, OUTSIDE

TICKS = (0.01, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0)
"""Shares that the square-root axis may name."""


@styled
def densities_figure(panels: Sequence[Density], *, quantity: str, outside: str) -> Figure:
    """Shares of in-domain and of other examples per bin of an uncertainty, one panel a method.

    The vertical axis is a square root: the tall bin of certain examples would hide all the others.

    Args:
        panels: One a method, in the benchmark's order.
        quantity: What the horizontal axis is.
        outside: What the other examples are called.
    """
    tallest = max(float(max(panel.inside.max(), panel.outside.max())) for panel in panels)
    ticks = [tick for tick in TICKS if tick <= 1.15 * tallest]
    figure, axes = small_multiples(len(panels), panel_height=1.6, extra=0.3)
    for axis, panel in zip(axes, panels, strict=True):
        for share, colour in ((panel.inside, INSIDE), (panel.outside, OUTSIDE)):
            axis.stairs(np.sqrt(share), panel.edges, fill=True, color=colour, alpha=0.22, linewidth=0)
            axis.stairs(np.sqrt(share), panel.edges, color=colour, linewidth=1.1)
        axis.set_title(panel_title(panel.look.title), pad=14)
        axis.annotate(panel.note, (0, 1), (0, 3), "axes fraction", "offset points", fontsize=7.2, color=MUTED)
        axis.set(xlim=(float(panel.edges[0]), float(panel.edges[-1])), ylim=(0, float(np.sqrt(1.15 * tallest))))
        axis.set_yticks(np.sqrt(ticks), [f"{round(100 * tick)}%" for tick in ticks])
        axis.set_xticks([0, 0.5, 1], ["0", "0.5", "1"])
    handles = [
        Patch(facecolor=INSIDE, alpha=0.5, label="in-domain"),
        Patch(facecolor=OUTSIDE, alpha=0.5, label=outside),
    ]
    figure.legend(handles=handles, loc="outside upper right", ncols=2, handlelength=1.2)
    figure.supxlabel(quantity, fontsize=8.5)
    figure.supylabel("share of examples", fontsize=8.5)
    return figure
