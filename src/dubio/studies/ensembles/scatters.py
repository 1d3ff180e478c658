"""The likelihood beside other scores (P Figs 4 and 6): Brier score and accuracy, before and after temperature."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.figure import Figure
from scipy.stats import pearsonr, spearmanr

from dubio.core.types import FloatArray
from dubio.reporting.canvas import WIDTH, blank, legend_height, styled
from dubio.reporting.style import PAPER, Style
from dubio.studies.ensembles.panels import legend_entries, study_legend
from dubio.studies.ensembles.study import Line

PAIRS = (
    ("nll", "brier", "NLL", "Brier"),
    ("calibrated_nll", "calibrated_brier", "calibrated NLL", "calibrated Brier"),
    ("nll", "accuracy", "NLL", "accuracy"),
    ("calibrated_nll", "accuracy", "calibrated NLL", "accuracy"),
)
"""What stands beside what: two measures and what they are called."""


@dataclass(frozen=True, eq=False)
class Beside:
    """Two measures over all (method, number of samples, run), as one array a line.

    Attributes:
        names: What they are called.
        lines: Whose points.
        x: One array a line.
        y: One array a line.
        pearson: Pearson's correlation over all points.
        spearman: Spearman's.
    """

    names: tuple[str, str]
    lines: tuple[Line, ...]
    x: tuple[FloatArray, ...]
    y: tuple[FloatArray, ...]
    pearson: float
    spearman: float


def beside_of(lines: Sequence[Line]) -> list[Beside]:
    """The four pairs of measures; a point that is not finite is left out."""
    found = []
    for first, second, *names in PAIRS:
        x, y = [], []
        for line in lines:
            one, other = line.of(first).ravel(), _measure(line, second)
            finite = np.isfinite(one) & np.isfinite(other)
            x.append(one[finite])
            y.append(other[finite])
        told = correlations_of(np.concatenate(x), np.concatenate(y))
        found.append(Beside((names[0], names[1]), tuple(lines), tuple(x), tuple(y), *told))
    return found


def correlations_of(x: FloatArray, y: FloatArray) -> tuple[float, float]:
    """Pearson's and Spearman's correlation; NaN where one side does not vary or there are fewer than two points."""
    if len(x) < 2 or np.ptp(x) == 0 or np.ptp(y) == 0:
        return float("nan"), float("nan")
    return float(pearsonr(x, y).statistic), float(spearmanr(x, y).statistic)


def coefficient(value: float) -> str:
    """A correlation with its sign, or that there is none."""
    return f"{value:.3f}".replace("-", "−") if np.isfinite(value) else "undefined"


def _measure(line: Line, name: str) -> FloatArray:
    return 1.0 - line.of("error").ravel() if name == "accuracy" else line.of(name).ravel()


@styled
def beside_figure(panels: Sequence[Beside], drawn: dict[str, Style]) -> Figure:
    """Every point a method with some number of samples in one run.

    Args:
        panels: The four pairs.
        drawn: The looks of the methods.
    """
    lines = panels[0].lines
    figure = blank(WIDTH, 5.4 + legend_height(legend_entries(lines)))
    for axis, panel in zip(figure.subplots(2, 2).flat, panels, strict=True):
        for line, x, y in zip(panel.lines, panel.x, panel.y, strict=True):
            style = drawn[line.name]
            axis.scatter(x, y, s=11, marker=style.marker, linewidths=0.7, edgecolors=style.colour, alpha=0.8,
                         facecolors=style.colour if style.ensemble else PAPER)  # fmt: skip
        axis.set(xlabel=panel.names[0], ylabel=panel.names[1])
        axis.set_title(f"ρ = {coefficient(panel.pearson)}")
    study_legend(figure, lines, drawn)
    return figure
