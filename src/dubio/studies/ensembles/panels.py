"""How the study draws: a colour and marker a method, solid without augmentation and dashed with it, samples across."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, NullLocator, StrMethodFormatter

from dubio.core.types import FloatArray
from dubio.reporting.canvas import method_legend
from dubio.reporting.manifest_view import MethodView
from dubio.reporting.style import CONTROL, INK, MUTED, Style, styles_of
from dubio.studies.ensembles.prefixes import SIZES
from dubio.studies.ensembles.study import Line, Study

SHADE = 0.13
AUGMENTED = "dashed, hollow: with test-time augmentation"


def study_looks(methods: Sequence[MethodView], study: Study) -> dict[str, Style]:
    """The look of every line: that of its method without augmentation, dashed and hollow with it.

    The networks are black and grey, since all else is measured in them.
    """
    plain = styles_of(methods)
    found = {}
    for line in study.lines:
        own = plain[line.base]
        if line.role == "pool":
            own = replace(own, colour=INK, marker="s")
        elif line.role == "network":
            own = replace(own, colour=CONTROL, marker="o")
        found[line.name] = replace(own, ensemble=not line.augmented, augmented=False)
    return found


def samples_axis(axes: Axes, most: int) -> None:
    """Numbers of samples on a logarithmic axis, marked where they are looked at."""
    axes.set_xscale("log")
    axes.xaxis.set_major_locator(FixedLocator([size for size in SIZES if size <= most] or [1]))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
    axes.set_xlim(0.88, most * 1.14)


def draw_line(axes: Axes, line: Line, style: Style, values: FloatArray) -> None:
    """A line's mean over runs with a band of one standard deviation; augmented lines go without the band.

    The band of a deep ensemble ends at half the networks: beyond, random orders share most of them.

    Args:
        axes: Where.
        line: Whose sizes are across.
        style: How.
        values: ``[R, X]``.
    """
    x, mean = np.array(line.sizes, dtype=float), values.mean(axis=0)
    if len(values) > 1 and style.ensemble and len(x) > 1:
        spread = values.std(axis=0, ddof=1)
        shown = x <= (line.samples / 2 if line.role == "pool" else line.samples)
        low, high = (mean - spread)[shown], (mean + spread)[shown]
        axes.fill_between(x[shown], low, high, color=style.colour, alpha=SHADE, linewidth=0)
    axes.plot(x, mean, **{"zorder": 4 if line.role == "pool" else 3, **stroke(style, len(x))})


def stroke(style: Style, points: int) -> dict[str, Any]:
    """How a line is drawn: heavier without augmentation; a single point is larger, over all lines."""
    keywords = {**style.line, "linewidth": 1.5 if style.ensemble else 1.1, "markersize": 3.9}
    return keywords if points > 1 else {**keywords, "markersize": 5.4, "zorder": 5}


def study_legend(figure: Figure, lines: Sequence[Line], drawn: dict[str, Style], columns: int = 4) -> None:
    """Every method once; where some lines are augmented, what dashes mean."""
    names = dict.fromkeys(line.base for line in lines)
    known = [drawn[name] for name in names if name in drawn]
    if any(line.augmented for line in lines):
        known.append(Style(AUGMENTED, MUTED, "o", False))
    method_legend(figure, known, columns=columns)


def legend_entries(lines: Sequence[Line]) -> int:
    """How many entries the legend has."""
    return len({line.base for line in lines}) + any(line.augmented for line in lines)
