"""How an uncertainty is spread over in-domain examples that are right, those that are wrong, and foreign ones."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from dubio.core.types import FloatArray
from dubio.reporting.canvas import panel_title, small_multiples, styled
from dubio.reporting.figures.series import Density
from dubio.reporting.style import INK, INSIDE, MUTED, OUTSIDE

TICKS = (0.01, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0)
"""Shares that the square-root axis may name."""


FAINT = 0.005
"""A smaller difference of mean uncertainties, of one, is not called one."""

BROKEN = (0.0, (2.6, 1.4))


@styled
def densities_figure(panels: Sequence[Density], *, quantity: str, outside: str) -> Figure:
    """Shares of correct, of incorrect and of foreign examples per bin of an uncertainty, one panel a method.

    The vertical axis is a square root: the tall bin of certain examples would hide all the others.

    Args:
        panels: One a method, in the benchmark's order.
        quantity: What the horizontal axis is.
        outside: What the foreign examples are called.
    """
    each = [(panel.groups.correct, panel.groups.incorrect, panel.groups.outside) for panel in panels]
    tallest = max(float(share.max()) for shares in each for share in shares)
    ticks = [tick for tick in TICKS if tick <= 1.15 * tallest]
    figure, axes = small_multiples(len(panels), panel_height=1.6, extra=0.3)
    for axis, panel in zip(axes, panels, strict=True):
        _draw(axis, panel)
        axis.set_title(panel_title(panel.style.title), pad=14)
        axis.annotate(panel.note, (0, 1), (0, 3), "axes fraction", "offset points", fontsize=7.2, color=MUTED)
        axis.set(xlim=(float(panel.edges[0]), float(panel.edges[-1])), ylim=(0, float(np.sqrt(1.15 * tallest))))
        axis.set_yticks(np.sqrt(ticks), [f"{round(100 * tick)}%" for tick in ticks])
        axis.set_xticks([0, 0.5, 1], ["0", "0.5", "1"])
    figure.legend(handles=group_handles(outside), loc="outside upper right", ncols=3, handlelength=1.4)
    figure.supxlabel(quantity, fontsize=8.5)
    figure.supylabel("share of examples", fontsize=8.5)
    return figure


def _draw(axis: Axes, panel: Density) -> None:
    for share, colour in ((panel.groups.correct, INSIDE), (panel.groups.outside, OUTSIDE)):
        axis.stairs(np.sqrt(share), panel.edges, fill=True, color=colour, alpha=0.22, linewidth=0)
        axis.stairs(np.sqrt(share), panel.edges, color=colour, linewidth=1.1)
    if panel.groups.incorrect.any():
        axis.stairs(np.sqrt(panel.groups.incorrect), panel.edges, color=INK, linewidth=0.9, linestyle=BROKEN)


def group_handles(outside: str) -> list[Patch | Line2D]:
    """The legend of the three groups of examples."""
    return [
        Patch(facecolor=INSIDE, alpha=0.5, label="in-domain, right"),
        Line2D([], [], color=INK, linewidth=1.0, linestyle=BROKEN, label="in-domain, wrong"),
        Patch(facecolor=OUTSIDE, alpha=0.5, label=outside),
    ]


def densities_reading(panels: Sequence[Density]) -> str:
    """Mean uncertainty of the three groups where foreign examples stand out most, and where they do least."""
    apart = [_mean(panel, panel.groups.outside) - _mean(panel, panel.groups.correct) for panel in panels]
    most, least = panels[int(np.argmax(apart))], panels[int(np.argmin(apart))]
    first = (
        f"{most.style.title} sets them apart most" if max(apart) >= FAINT else f"None stands out; {most.style.title}"
    )
    told = (
        f"{first}: {_mean(most, most.groups.correct):.2f} on average where it is right"
        f"{_wrong(most)}, {_mean(most, most.groups.outside):.2f} on foreign examples"
    )
    if most is least:
        return f"{told}."
    low = f"{_mean(least, least.groups.correct):.2f}{_wrong(least)} and {_mean(least, least.groups.outside):.2f}"
    return f"{told}; {least.style.title} least: {low}."


def _wrong(panel: Density) -> str:
    known = panel.groups.incorrect.any()
    return f", {_mean(panel, panel.groups.incorrect):.2f} where it is wrong" if known else ""


def _mean(panel: Density, share: FloatArray) -> float:
    """The mean of a binned quantity, each bin at its middle."""
    return float((share * (panel.edges[:-1] + panel.edges[1:]) / 2).sum() / share.sum())
