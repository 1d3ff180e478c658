"""Deep-ensemble equivalents against the number of samples (P Figs 3 and 7–9)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, NullLocator, StrMethodFormatter

from dubio.core.types import FloatArray
from dubio.reporting.canvas import WIDTH, blank, legend_height, styled
from dubio.reporting.style import MUTED, NOISE, PAPER, Style
from dubio.statistics.ensemble_equivalent import Score, average_equivalent
from dubio.studies.ensembles.panels import SHADE, legend_entries, samples_axis, stroke, study_legend
from dubio.studies.ensembles.prefixes import SIZES
from dubio.studies.ensembles.study import Line, Study

TITLES: dict[Score, str] = {
    "nll": "by calibrated NLL", "error": "by error", "brier": "by calibrated Brier", "aurc": "by calibrated AURC",
}  # fmt: skip

BESIDE = 1.07
"""From one arrow to the next, as a factor of the number of samples."""


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
def worths_figure(panels: Sequence[tuple[Score, list[Worths]]], drawn: dict[str, Style], longest: int) -> Figure:
    """One panel a score: a line and a band a method; what is beyond the longest ensemble are upward arrows.

    Above half of the networks, where all orders come to share them, the ground is grey.

    Args:
        panels: Scores and the equivalents in each.
        drawn: The looks of the methods.
        longest: l_max, the size of the longest ensemble.
    """
    lines = [each.line for each in panels[0][1]]
    figure = blank(WIDTH, 5.7 + legend_height(legend_entries(lines)))
    axes = list(figure.subplots(2, 2, sharex=True, sharey=True).flat)
    for axis, (score, worths) in zip(axes, panels, strict=True):
        _cap(axis, longest)
        for each in worths:
            _draw(axis, each, drawn[each.line.name], longest)
        _arrows(axis, worths, drawn, longest)
        axis.set_title(TITLES[score])
        samples_axis(axis, max(line.samples for line in lines))
        axis.set_yscale("log")
        axis.yaxis.set_major_locator(FixedLocator([size for size in SIZES if size <= longest]))
        axis.yaxis.set_minor_locator(NullLocator())
        axis.yaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
        axis.set_ylim(0.9, longest * 1.22)
    for axis in axes[2:]:
        axis.set_xlabel("samples")
    figure.supylabel("deep-ensemble equivalent, networks", fontsize=8.5)
    study_legend(figure, lines, drawn)
    return figure


def _cap(axis: Axes, longest: int) -> None:
    """The longest ensemble, and the part below it where orders share most of their networks."""
    axis.axhspan(longest / 2, longest, color=NOISE, alpha=0.3, linewidth=0, zorder=0)
    axis.axhline(longest, color=MUTED, linewidth=0.8, linestyle=(0, (2, 2)), zorder=1)
    words, place = f"all {longest} networks", axis.get_yaxis_transform()
    # below the line: above it stand the arrows
    axis.text(0.985, longest * 0.97, words, transform=place, ha="right", va="top", fontsize=6.6, color=MUTED)


def _draw(axis: Axes, each: Worths, style: Style, longest: int) -> None:
    x = np.array(each.sizes, dtype=float)
    if style.ensemble and len(x) > 1:
        low, high = (np.minimum(bound, longest) for bound in (each.lower, each.upper))
        axis.fill_between(x, low, high, color=style.colour, alpha=SHADE, linewidth=0)
    central = np.where(np.isfinite(each.central), each.central, np.nan)
    axis.plot(x, central, **{"zorder": 3, **stroke(style, len(x))})


def _arrows(axis: Axes, worths: Sequence[Worths], drawn: dict[str, Style], longest: int) -> None:
    """Arrows over the longest ensemble, side by side where several methods are beyond it with as many samples."""
    for size in sorted({size for each in worths for size in each.sizes}):
        beyond = [each for each in worths if size in each.sizes and np.isinf(each.central[each.sizes.index(size)])]
        for place, each in enumerate(beyond):
            style, x = drawn[each.line.name], size * BESIDE ** (place - (len(beyond) - 1) / 2)
            inside = style.colour if style.ensemble else PAPER
            axis.plot([x], [longest * 1.1], linestyle="none", marker=6, markersize=4.4, color=style.colour,
                      markerfacecolor=inside, clip_on=False)  # fmt: skip
