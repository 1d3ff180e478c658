"""When trainings converged (T Fig. 17): the epoch whose weights were kept."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from dubio.core.types import FloatArray
from dubio.reporting.canvas import WIDTH, label_rows, panel_title, small_multiples, styled
from dubio.reporting.figures.drawn_from import Subject
from dubio.reporting.style import Style
from dubio.reporting.wording import listed
from dubio.studies.text.trainings import trainings_of

CAPTION = (
    "The epoch with the lowest validation loss, whose weights were kept: one tick a training, the marker their mean, "
    "the bar one standard deviation. Methods that share their trainings are shown once."
)


@dataclass(frozen=True)
class Epochs:
    """One task: the methods with the best epoch of each of their trainings."""

    title: str
    methods: tuple[tuple[Style, FloatArray], ...]


def epochs_of(subject: Subject) -> Epochs | None:
    """Best epochs of one task; None where no record tells of any."""
    found = {
        method: np.array([fit.best_epoch for fit in fits if fit.best_epoch is not None])
        for method, fits in trainings_of(subject).items()
    }
    methods = tuple((subject.styles[m.name], epochs) for m, epochs in found.items() if epochs.size)
    return Epochs(subject.task.key, methods) if methods else None


@styled
def epochs_figure(panels: Sequence[Epochs]) -> Figure:
    """One row a method, one panel a task.

    Args:
        panels: One a task.
    """
    rows = list({style.title: style for panel in panels for style, _ in panel.methods}.values())
    figure, axes = small_multiples(len(panels), columns=3, panel_height=0.22 * len(rows) + 0.55, extra=0.15)
    figure.set_size_inches(WIDTH if len(panels) > 1 else 6.2, figure.get_size_inches()[1])
    for axis, panel in zip(axes, panels, strict=True):
        places = {style.title: place for place, style in enumerate(rows)}
        for style, epochs in panel.methods:
            place, mean = places[style.title], float(epochs.mean())
            axis.plot(epochs, np.full(epochs.shape, place), linestyle="none", marker="|", markersize=7,
                      color=style.colour, alpha=0.45, markeredgewidth=1.0)  # fmt: skip
            if epochs.size > 1:
                std = float(np.std(epochs, ddof=1))
                axis.hlines(place, mean - std, mean + std, color=style.colour, linewidth=1.6)
            axis.plot([mean], [place], linestyle="none", zorder=4, **style.point)
        label_rows(axis, rows)
        axis.set_title(panel_title(panel.title))
        axis.xaxis.set_major_locator(MaxNLocator(5, integer=True))
    axes[0].set_xlim(left=0)
    figure.supxlabel("epoch of convergence", fontsize=8.5)
    return figure


def epochs_reading(panels: Sequence[Epochs]) -> str:
    """Of one task who is first and who is last; of several the mean of each."""
    if len(panels) > 1:
        means = [float(np.concatenate([epochs for _, epochs in panel.methods]).mean()) for panel in panels]
        parts = [f"{mean:.1f} on {panel.title}" for mean, panel in zip(means, panels, strict=True)]
        return f"The mean epoch of convergence is {listed(parts)}."
    ordered = sorted(panels[0].methods, key=lambda entry: float(entry[1].mean()))
    (first, soon), (last, late) = ordered[0], ordered[-1]
    if soon.mean() == late.mean():
        return f"Every method converges in epoch {soon.mean():.1f} on average."
    return (
        f"{first.title} converges first, in epoch {soon.mean():.1f} on average, {last.title} last, in epoch "
        f"{late.mean():.1f}."
    )
