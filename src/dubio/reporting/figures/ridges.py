"""Every uncertainty of every method over correct, incorrect and foreign examples (T Fig. 24), in one table of hills."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from dubio.core.types import FloatArray
from dubio.reporting.canvas import WIDTH, blank, label_rows, styled
from dubio.reporting.figures.densities import group_handles
from dubio.reporting.figures.drawn_from import Subject
from dubio.reporting.figures.series import Groups
from dubio.reporting.sketches import CORRECT, INCORRECT, shares
from dubio.reporting.style import INK, INSIDE, MUTED, OUTSIDE, Style

SHOWN = {
    "confidence": "1 − confidence",
    "predictive_entropy": "predictive\nentropy",
    "mutual_information": "mutual\ninformation",
    "model_uncertainty": "model\nuncertainty",
    "data_uncertainty": "data\nuncertainty",
}
"""The quantities of the table, turned so that higher is more uncertain."""

BINS = 24
TAIL = 0.98
"""The horizontal axis ends at this quantile of all examples of all methods; what lies beyond is in the last bin."""

CAPTION = (
    "Share of examples per bin of each uncertainty, over the in-domain examples a method gets right, those it gets "
    "wrong, and {outside}; runs taken together. Hills are scaled to their own height, on a square root; the range of a "
    "quantity is the same for all methods. An uncertainty is useful where the dashed and the orange hill lie to the "
    "right of the blue one."
)


@dataclass(frozen=True)
class Ridge:
    """One quantity: its bins, and the three shares of every method that has it."""

    title: str
    edges: FloatArray
    methods: tuple[tuple[Style, Groups | None], ...]


def ridges_of(subject: Subject, split: str) -> list[Ridge]:
    """A ridge a quantity that some method has on all three groups of examples."""
    key, found = subject.task.key, []
    for quantity, title in SHOWN.items():
        groups = [
            [subject.results.sketches.get((key, group, m.name, quantity)) for group in (CORRECT, INCORRECT, split)]
            for m in subject.methods
        ]
        whole = [np.concatenate([part for part in parts if part is not None]) for parts in groups if _whole(parts)]
        if not whole:
            continue
        edges = _edges(np.concatenate([each.ravel() for each in whole]))
        rows = tuple(
            (subject.styles[m.name], Groups(*(shares(p, edges) if p is not None else np.zeros(BINS) for p in parts))
             if _whole(parts) else None)
            for m, parts in zip(subject.methods, groups, strict=True)
        )  # fmt: skip
        found.append(Ridge(title, edges, rows))
    return found


def _whole(parts: Sequence[FloatArray | None]) -> bool:
    """Whether there are correct and foreign examples; a method may be right about all."""
    return parts[0] is not None and parts[2] is not None


def _edges(values: FloatArray) -> FloatArray:
    top = float(np.quantile(values, TAIL))
    return np.linspace(0.0, top if top > 0 else 1.0, BINS + 1)


@styled
def ridges_figure(ridges: Sequence[Ridge], *, outside: str) -> Figure:
    """One row a method, one column a quantity.

    Args:
        ridges: One a quantity, the same methods in each.
        outside: What the foreign examples are called.
    """
    styles = [style for style, _ in ridges[0].methods]
    figure = blank(WIDTH, 0.34 * len(styles) + 1.0)
    axes = figure.subplots(1, len(ridges), sharey=True, squeeze=False)[0]
    for axis, ridge in zip(axes, ridges, strict=True):
        label_rows(axis, styles)
        for place, (_, groups) in enumerate(ridge.methods):
            if groups is None:
                middle = float(ridge.edges[-1]) / 2
                axis.text(middle, place + 0.1, "–", ha="center", va="center", fontsize=7.5, color=MUTED)
            else:
                _hill(axis, place + 0.38, groups, ridge.edges)
        axis.set_title(ridge.title)
        axis.set(xlim=(0.0, float(ridge.edges[-1])), ylim=(len(styles) - 0.45, -0.6))
        axis.set_xticks([0.0, float(ridge.edges[-1])], ["0", f"{ridge.edges[-1]:.2g}"])
        axis.grid(visible=False)
        axis.spines["left"].set_visible(False)
    figure.legend(handles=group_handles(outside), loc="outside upper right", ncols=3, handlelength=1.4)
    return figure


def _hill(axis: Axes, base: float, groups: Groups, edges: FloatArray) -> None:
    """Three densities over a base line; up is towards smaller values, since rows are counted from the top."""
    for share, colour, filled in ((groups.correct, INSIDE, True), (groups.outside, OUTSIDE, True),
                                  (groups.incorrect, INK, False)):  # fmt: skip
        if share.max() <= 0:
            continue
        height = base - 0.82 * np.sqrt(share / share.max())
        if filled:
            axis.stairs(height, edges, baseline=base, fill=True, color=colour, alpha=0.22, linewidth=0)
        axis.stairs(
            height, edges, baseline=None, color=colour, linewidth=0.8, linestyle="solid" if filled else (0, (2, 1))
        )
    axis.axhline(base, color=MUTED, linewidth=0.4)


def ridges_reading(ridges: Sequence[Ridge]) -> str:
    """The hills that overlap least: right at home against foreign, over all quantities and methods."""
    overlaps = [
        (float(np.minimum(groups.correct, groups.outside).sum()), ridge.title.replace("\n", " "), style.title)
        for ridge in ridges
        for style, groups in ridge.methods
        if groups is not None
    ]
    least, most = min(overlaps), max(overlaps)
    return (
        f"What is answered rightly and what is foreign overlap least in {least[1]} of {least[2]} ({least[0]:.0%} of "
        f"their shares), most in {most[1]} of {most[2]} ({most[0]:.0%})."
    )
