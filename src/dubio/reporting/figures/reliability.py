"""Reliability diagrams: how often a classifier is right when it says how sure it is."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.figure import Figure

from dubio.reporting.figures.canvas import panel_title, small_multiples, styled
from dubio.reporting.figures.series import Reliability
from dubio.reporting.style import MUTED


@styled
def reliability_figure(panels: Sequence[Reliability]) -> Figure:
    """Accuracy against mean confidence per bin, one panel a method; the area of a dot is its share of predictions.

    A dot below the diagonal is overconfident: right less often than it says.

    Args:
        panels: One a method, in the benchmark's order.
    """
    figure, axes = small_multiples(len(panels), panel_height=1.85)
    for axis, panel in zip(axes, panels, strict=True):
        filled = panel.count > 0
        share = panel.count[filled] / panel.count.sum()
        confidence, accuracy = panel.confidence[filled], panel.accuracy[filled]
        axis.plot([0, 1], [0, 1], color=MUTED, linewidth=0.8, linestyle="dotted", zorder=1)
        axis.vlines(confidence, confidence, accuracy, color=panel.look.colour, linewidth=1.3, alpha=0.45, zorder=2)
        axis.scatter(confidence, accuracy, s=7 + 110 * share, color=panel.look.colour, linewidth=0, alpha=0.9, zorder=3)
        axis.set_title(panel_title(panel.look.title))
        axis.set(xlim=(-0.03, 1.05), ylim=(-0.03, 1.05))
        axis.set_xticks(np.linspace(0, 1, 3), ["0", "0.5", "1"])
        axis.set_yticks(np.linspace(0, 1, 3), ["0", "0.5", "1"])
    figure.supxlabel("confidence", fontsize=8.5)
    figure.supylabel("accuracy", fontsize=8.5)
    return figure
