"""What each further member of an ensemble brings (T Fig. 15)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from dubio.reporting.canvas import WIDTH, blank, label_below, legend_height, method_legend, styled
from dubio.reporting.figures.drawn_from import Subject
from dubio.reporting.figures.series import Series
from dubio.reporting.wording import number

CAPTION = (
    "Ensembles of the first 1, 2, … members, the members taken round a circle so that each is once the first. Lines "
    "are means and bands one standard deviation over these orders and over runs; all orders end in the same whole "
    "ensemble. AUROC is that of confidence."
)
ACCURACY, NLL = "Accuracy", "Calibrated NLL"


@dataclass(frozen=True)
class Sized:
    """One score of every ensemble against the number of members."""

    title: str
    series: tuple[Series, ...]


def sized_of(subject: Subject) -> list[Sized]:
    """Accuracy, calibrated nll and the AUROC of every place away from home; empty without an ensemble."""
    grown = {m: subject.results.sizes.get((subject.task.key, m.name), ()) for m in subject.methods}
    whole = {m: runs for m, runs in grown.items() if runs and len({run.nll.shape for run in runs}) == 1}
    places = [split.name for split in subject.task.farthest]
    panels = [(ACCURACY, [[run.accuracy for run in runs] for runs in whole.values()])]
    panels.append((NLL, [[run.nll for run in runs] for runs in whole.values()]))
    for place in places:
        if all(place in run.area for runs in whole.values() for run in runs):
            panels.append((f"AUROC, {place}", [[run.area[place] for run in runs] for runs in whole.values()]))
    return [
        Sized(
            title,
            tuple(
                Series(subject.styles[method.name], np.arange(1, parts[0].shape[1] + 1.0), np.concatenate(parts))
                for method, parts in zip(whole, runs, strict=True)
            ),
        )
        for title, runs in panels
        if whole
    ]


@styled
def sized_figure(panels: Sequence[Sized]) -> Figure:
    """One panel a score, one line an ensemble.

    Args:
        panels: Accuracy, calibrated nll, and detection; the same methods in each.
    """
    styles = [series.style for series in panels[0].series]
    columns = min(3, len(panels))
    rows = math.ceil(len(panels) / columns)
    figure = blank(WIDTH, 2.3 * rows + legend_height(len(styles), 3) + 0.15)
    axes = list(figure.subplots(rows, columns, squeeze=False).flat)
    for unused in axes[len(panels) :]:
        unused.remove()
    for axis, panel in zip(axes[: len(panels)], panels, strict=True):
        for series in panel.series:
            axis.fill_between(series.x, series.mean - series.std, series.mean + series.std, color=series.style.colour,
                              alpha=0.10, linewidth=0)  # fmt: skip
            axis.plot(series.x, series.mean, **{**series.style.line, "linewidth": 1.4, "markersize": 4.2})
        axis.set_title(panel.title)
        axis.xaxis.set_major_locator(MaxNLocator(integer=True))
    label_below(axes[: len(panels)], columns, "members")
    method_legend(figure, styles, columns=3)
    return figure


def sized_reading(panels: Sequence[Sized]) -> str:
    """How much accuracy and calibrated nll gain from one member to all, and how soon."""
    by_title = {panel.title: panel.series for panel in panels}
    gains, falls = (
        [float(series.mean[-1] - series.mean[0]) for series in by_title[title]] for title in (ACCURACY, NLL)
    )
    longest = max(len(series.x) for series in by_title[NLL])
    half = max(2, math.ceil(longest / 2))
    early = [float(series.mean[half - 1] - series.mean[0]) for series in by_title[NLL] if len(series.x) >= half]
    soon = ""
    if longest > 2 and sum(falls) < 0:
        soon = f"; {sum(early) / sum(falls):.0%} of the mean fall is reached with {number(half)} members"
    return (
        f"From one member to {number(longest)}, accuracy changes by {_span(gains)} and calibrated NLL by "
        f"{_span(falls)}{soon}."
    )


def _span(values: Sequence[float]) -> str:
    low, high = (f"{value:+.3f}".replace("-", "−") for value in (min(values), max(values)))
    return low if low == high else f"{low} to {high}"
