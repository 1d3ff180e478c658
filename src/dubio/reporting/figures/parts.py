"""What a method's figures are made of: likelihood before and after temperature, and the parts of its variance."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from dubio.core.types import FloatArray
from dubio.reporting.figures.canvas import WIDTH, blank, styled
from dubio.reporting.style import INK, INSIDE, MUTED, NOISE, OUTSIDE, PAPER, Look

PARTS = ("within every sample", "between samples of a member", "between members")
"""The parts of the total variance, in the order they are kept."""

COLOURS = (NOISE, INSIDE, OUTSIDE)


@dataclass(frozen=True, eq=False)
class Tempered:
    """One method's negative log-likelihood as it predicts and at its cross-validated temperature, over its runs.

    ``temperature`` is the median of those that were fitted.
    """

    look: Look
    plain: FloatArray
    calibrated: FloatArray
    temperature: float


@dataclass(frozen=True, eq=False)
class VarianceParts:
    """One method's parts of the total variance, ``[3]``: see :data:`PARTS`."""

    look: Look
    parts: FloatArray


@styled
def tempered_figure(rows: Sequence[Tempered]) -> Figure:
    """One row a method: a hollow dot at temperature 1, a full one at the fitted temperature, a line between them."""
    figure = blank(WIDTH, 0.27 * len(rows) + 0.95)
    axis = figure.subplots()
    for place, row in enumerate(rows):
        before, after = float(np.mean(row.plain)), float(np.mean(row.calibrated))
        axis.hlines(place, min(before, after), max(before, after), color=row.look.colour, linewidth=1.4, zorder=2)
        for value, face in ((before, PAPER), (after, row.look.colour)):
            axis.plot([value], [place], marker="o", markersize=5.4, linestyle="none", zorder=3,
                      markeredgecolor=row.look.colour, markerfacecolor=face)  # fmt: skip
        axis.text(1.02, place, f"T = {row.temperature:.2f}", transform=axis.get_yaxis_transform(), va="center",
                  fontsize=7.8, color=INK)  # fmt: skip
    label_rows(axis, [row.look for row in rows])
    axis.set_xlabel("NLL: hollow at temperature 1, full at the cross-validated temperature")
    return figure


@styled
def variance_figure(rows: Sequence[VarianceParts]) -> Figure:
    """One bar a method: the total variance of its predictive and the parts it is the sum of."""
    figure = blank(WIDTH, 0.27 * len(rows) + 1.15)
    axis = figure.subplots()
    for place, row in enumerate(rows):
        ends = np.concatenate([[0.0], np.cumsum(row.parts)])
        axis.barh([place] * len(PARTS), row.parts, left=ends[:-1], height=0.62, color=COLOURS, linewidth=0, zorder=2)
    label_rows(axis, [row.look for row in rows])
    axis.set_xlabel("total variance, mean over examples and classes")
    handles = [Patch(color=colour, label=part) for colour, part in zip(COLOURS, PARTS, strict=True)]
    figure.legend(handles=handles, loc="outside lower center", ncols=3)
    return figure


def label_rows(axis: Axes, looks: Sequence[Look]) -> None:
    """One row a method, the first on top, named at the left."""
    axis.set_yticks(range(len(looks)), [look.title for look in looks])
    axis.set_ylim(len(looks) - 0.4, -0.6)
    axis.tick_params(axis="y", length=0, labelcolor=INK)
    axis.grid(axis="y", visible=False)
    axis.spines["left"].set_visible(False)
    axis.spines["bottom"].set_color(MUTED)
