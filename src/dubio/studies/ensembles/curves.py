"""Scores against the number of samples, and what temperature does to the likelihood (P Figs 1 and 5)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from dubio.reporting.canvas import WIDTH, blank, finite_limits, legend_height, styled
from dubio.reporting.style import CONTROL, Style
from dubio.studies.ensembles.panels import draw_line, legend_entries, samples_axis, study_legend
from dubio.studies.ensembles.study import Line

SCORES: Mapping[str, str] = {
    "calibrated_nll": "Calibrated NLL", "error": "Error", "calibrated_brier": "Calibrated Brier",
    "calibrated_aurc": "Calibrated AURC",
}  # fmt: skip
LIKELIHOODS: Mapping[str, str] = {"nll": "NLL", "calibrated_nll": "Calibrated NLL", "temperature": "Best temperature"}


@styled
def curves_figure(lines: Sequence[Line], drawn: dict[str, Style]) -> Figure:
    """One panel a score, one line a method.

    Args:
        lines: What is drawn.
        drawn: Their looks.
    """
    figure = blank(WIDTH, 5.5 + legend_height(legend_entries(lines)))
    axes = list(figure.subplots(2, 2, sharex=True).flat)
    for axis, (measure, title) in zip(axes, SCORES.items(), strict=True):
        _fill(axis, lines, drawn, measure)
        axis.set_title(title)
    for axis in axes[2:]:
        axis.set_xlabel("samples")
    study_legend(figure, lines, drawn)
    return figure


@styled
def tempered_figure(lines: Sequence[Line], drawn: dict[str, Style]) -> Figure:
    """The likelihood at temperature 1 and at the best one on a common axis, and the best temperature itself.

    Args:
        lines: What is drawn.
        drawn: Their looks.
    """
    figure = blank(WIDTH, 3.0 + legend_height(legend_entries(lines)))
    axes = list(figure.subplots(1, 3).flat)
    for axis, (measure, title) in zip(axes, LIKELIHOODS.items(), strict=True):
        _fill(axis, lines, drawn, measure)
        axis.set_title(title)
        axis.set_xlabel("samples")
    limits = finite_limits(float(v) for line in lines for name in ("nll", "calibrated_nll") for v in line.mean(name))
    if limits is not None:
        for axis in axes[:2]:
            axis.set_ylim(*limits)
    axes[2].axhline(1.0, color=CONTROL, linewidth=1.2, linestyle="dotted", zorder=1)
    study_legend(figure, lines, drawn)
    return figure


def _fill(axis: Axes, lines: Sequence[Line], drawn: dict[str, Style], measure: str) -> None:
    for line in lines:
        values = line.of(measure)
        draw_line(axis, line, drawn[line.name], np.where(np.isfinite(values), values, np.nan))
    samples_axis(axis, max(line.samples for line in lines))
