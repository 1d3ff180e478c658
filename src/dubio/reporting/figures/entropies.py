"""Predictive entropy at home and elsewhere, and the two parts it is the sum of."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from matplotlib.figure import Figure
from matplotlib.patches import Patch

from dubio.core.types import FloatArray
from dubio.reporting.canvas import label_rows, panel_title, small_multiples, styled
from dubio.reporting.style import MODEL, NOISE, Style


@dataclass(frozen=True, eq=False)
class Entropies:
    """One place: its title, the methods and ``[methods, 2]`` expected entropy and mutual information."""

    title: str
    styles: tuple[Style, ...]
    parts: FloatArray


@styled
def entropies_figure(panels: Sequence[Entropies]) -> Figure:
    """Stacked bars, one a method, one panel a place; all panels on one scale.

    Args:
        panels: The in-domain test set first; the same methods in each.
    """
    rows = len(panels[0].styles)
    figure, axes = small_multiples(len(panels), panel_height=0.19 * rows + 0.6, extra=0.45)
    longest = max(float(panel.parts.sum(axis=1).max()) for panel in panels)
    for axis, panel in zip(axes, panels, strict=True):
        noise, model = panel.parts.T
        axis.barh(range(rows), noise, height=0.64, color=NOISE, linewidth=0, zorder=2)
        axis.barh(range(rows), model, left=noise, height=0.64, color=MODEL, linewidth=0, zorder=2)
        axis.set_title(panel_title(panel.title))
        label_rows(axis, panel.styles)
        axis.set_xlim(0, 1.04 * longest)
    handles = [
        Patch(color=NOISE, label="expected entropy (data)"),
        Patch(color=MODEL, label="mutual information (model)"),
    ]
    figure.legend(handles=handles, loc="outside upper right", ncols=2, handlelength=1.2)
    figure.supxlabel("predictive entropy, nats", fontsize=8.5)
    return figure
