"""Deep-ensemble equivalents against the number of samples (P Figs 3 and 7–9)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, NullLocator, StrMethodFormatter

from dubio.pooling import FloatArray
from dubio.report.ensembles.panels import SHADE, legend_entries, samples_axis, study_legend
from dubio.report.ensembles.prefixes import SIZES
from dubio.report.ensembles.study import Line, Study
from dubio.report.figures.canvas import WIDTH, blank, legend_height, styled
from dubio.report.style import MUTED, Look
from dubio.statistics.ensemble_equivalent import Score, average_equivalent

TITLES: dict[Score, str] = {
    "nll": "by calibrated NLL", "error": "by error", "brier": "by calibrated Brier", "aurc": "by calibrated AURC",
}  # fmt: skip


@dataclass(frozen=True, eq=False)
class Worths:
    """One method's equivalents: ``[X]`` each, infinite beyond the longest ensemble."""

    line: Line
    sizes: tuple[int, ...]
    lower: FloatArray
    central: FloatArray
    upper: FloatArray


def worths_of(study: Study, lines: Sequence[Line], score: Score) -> list[Worths]:
    """The equivalents of these lines on one task."""
    found = []
    for line in lines:
        ranges = study.equivalents(line, score)
        parts = (np.array([getattr(each, part).size for each in ranges]) for part in ("lower", "central", "upper"))
        found.append(Worths(line, line.sizes, *parts))
    return found


def averaged_worths(studies: Sequence[Study], lines: Sequence[Line], score: Score) -> list[Worths]:
    """The means over tasks (P Fig. 3) of the methods that every task has, with the sizes that they share."""
    found = []
    for line in lines:
        own = [study.by_name[line.name] for study in studies if line.name in study.by_name]
        sizes = tuple(size for size in line.sizes if all(size in each.sizes for each in own))
        if len(own) < len(studies) or not sizes:
            continue
        parts = []
        for part in ("lower", "central", "upper"):
            values = []
            for size in sizes:
                ranges = [
                    study.equivalents(each, score)[each.sizes.index(size)]
                    for study, each in zip(studies, own, strict=True)
                ]
                values.append(average_equivalent([getattr(one, part) for one in ranges]).size)
            parts.append(np.array(values))
        found.append(Worths(line, sizes, *parts))
    return found


@styled
def worths_figure(panels: Sequence[tuple[Score, list[Worths]]], drawn: dict[str, Look], longest: int) -> Figure:
    """One panel a score: a line and a band a method; what is beyond the longest ensemble are upward arrows.

    Args:
        panels: Scores and the equivalents in each.
        drawn: The looks of the methods.
        longest: l_max, the size of the longest ensemble.
    """
    lines = [each.line for each in panels[0][1]]
    figure = blank(WIDTH, 5.7 + legend_height(legend_entries(lines)))
    axes = list(figure.subplots(2, 2, sharex=True, sharey=True).flat)
    for axis, (score, worths) in zip(axes, panels, strict=True):
        axis.axhline(longest, color=MUTED, linewidth=0.8, linestyle=(0, (2, 2)), zorder=1)
        for each in worths:
            _draw(axis, each, drawn[each.line.name], longest)
        axis.set_title(TITLES[score])
        samples_axis(axis, max(line.samples for line in lines))
        axis.set_yscale("log")
        axis.yaxis.set_major_locator(FixedLocator([size for size in SIZES if size <= longest]))
        axis.yaxis.set_minor_locator(NullLocator())
        axis.yaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
        axis.set_ylim(0.9, longest * 1.25)
    for axis in axes[2:]:
        axis.set_xlabel("samples")
    figure.supylabel("deep-ensemble equivalent, networks", fontsize=8.5)
    study_legend(figure, lines, drawn)
    return figure


def _draw(axis: Axes, each: Worths, look: Look, longest: int) -> None:
    x, beyond = np.array(each.sizes, dtype=float), longest * 1.11
    if look.ensemble and len(x) > 1:
        low, high = (np.minimum(bound, longest) for bound in (each.lower, each.upper))
        axis.fill_between(x, low, high, color=look.colour, alpha=SHADE, linewidth=0)
    style = {**look.line, "linewidth": 1.5 if look.ensemble else 1.1, "markersize": 3.9}
    axis.plot(x, np.where(np.isfinite(each.central), each.central, np.nan), zorder=3, **style)
    out = ~np.isfinite(each.central)
    if out.any():
        axis.plot(x[out], np.full(int(out.sum()), beyond), linestyle="none", marker=6, markersize=4.6,
                  color=look.colour)  # fmt: skip
