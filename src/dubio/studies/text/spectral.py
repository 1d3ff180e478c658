"""Scores against the multiplier s of spectral normalisation (T Figs 20 and 21)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import takewhile

import numpy as np
from matplotlib.figure import Figure

from dubio.core.types import FloatArray
from dubio.reporting.canvas import WIDTH, blank, label_below, legend_height, method_legend, panel_title, styled
from dubio.reporting.figures.drawn_from import Subject
from dubio.reporting.manifest_view import MethodView
from dubio.reporting.measures import RANKED_BY, detection_name
from dubio.reporting.style import SPARE, Style
from dubio.reporting.wording import term

CAPTION = (
    "Methods that differ in the multiplier s alone, as their recipes say it, joined by a line: a dense layer may "
    "stretch its inputs at most s times, a convolution of k positions at most √k · s times. Bars are one standard "
    "deviation over runs. AUROC is that of confidence."
)


@dataclass(frozen=True, eq=False)
class Line:
    """One group of methods that differ in s alone: ``[S]`` multipliers and the values over runs at each."""

    style: Style
    s: FloatArray
    runs: tuple[FloatArray, ...]


@dataclass(frozen=True)
class Multiplied:
    """One score against s."""

    title: str
    lines: tuple[Line, ...]


def multiplied_of(subject: Subject) -> list[Multiplied]:
    """Detection at every place, accuracy and calibrated nll against s; empty where s does not vary."""
    groups = _groups(subject)
    area = detection_name("ood_auroc", "confidence")
    wanted = [(f"AUROC, {split.name}", split.name, area) for split in subject.task.farthest]
    wanted += [(term(metric).title, subject.home, metric) for metric in ("accuracy", RANKED_BY)]
    found = []
    for title, split, metric in wanted:
        cells = subject.results.cells_of(subject.task, split, metric)
        lines = [
            Line(style, np.array([s for s, _ in known]), tuple(np.array(cells[name].values) for _, name in known))
            for style, methods in groups
            if (known := [(s, m.name) for s, m in methods if m.name in cells and cells[m.name].n]) and len(known) > 1
        ]
        if lines:
            found.append(Multiplied(title, tuple(lines)))
    return found


def _groups(subject: Subject) -> list[tuple[Style, list[tuple[float, MethodView]]]]:
    """Methods with the same recipe but for s, the same members and samples, ordered by s."""
    groups: dict[tuple[str, int, int], list[tuple[float, MethodView]]] = {}
    for method in subject.methods:
        runs = subject.results.manifest.runs_of(subject.task.key, method.name)
        facts = [subject.results.fits[fit] for run in runs for fit in run.fits if fit in subject.results.fits]
        told = {(fact.spectral, fact.otherwise) for fact in facts}
        multiplier, otherwise = told.pop() if len(told) == 1 else (None, "")
        if multiplier is not None:
            groups.setdefault((otherwise, method.members, method.samples), []).append((multiplier, method))
    varied = [sorted(each, key=lambda entry: entry[0]) for each in groups.values() if len({s for s, _ in each}) > 1]
    return [
        (Style(_common([m.title for _, m in each]), *SPARE[place % len(SPARE)], each[0][1].ensemble), each)
        for place, each in enumerate(varied)
    ]


def _common(titles: Sequence[str]) -> str:
    """What titles have in common, without the beginning of what tells them apart."""
    alike = takewhile(lambda letters: len(set(letters)) == 1, zip(*titles, strict=False))
    shared = "".join(letters[0] for letters in alike).rstrip("0123456789.")
    for ending in (" s =", " s=", "-s", " s", "s =", "s="):
        shared = shared.rstrip(" (,-")
        shared = shared.removesuffix(ending)
    return shared.rstrip(" (,-=") or titles[0]


@styled
def multiplied_figure(panels: Sequence[Multiplied]) -> Figure:
    """One panel a score, multipliers at equal distances.

    Args:
        panels: Scores against s.
    """
    every = sorted({float(s) for panel in panels for line in panel.lines for s in line.s})
    at = {s: place for place, s in enumerate(every)}
    styles = {line.style.title: line.style for panel in panels for line in panel.lines}
    columns = min(3, len(panels))
    rows = math.ceil(len(panels) / columns)
    figure = blank(WIDTH, 2.2 * rows + legend_height(len(styles), 3) + 0.15)
    axes = list(figure.subplots(rows, columns, squeeze=False).flat)
    for unused in axes[len(panels) :]:
        unused.remove()
    for axis, panel in zip(axes[: len(panels)], panels, strict=True):
        for line in panel.lines:
            spread = [float(np.std(run, ddof=1)) if run.size > 1 else 0.0 for run in line.runs]
            axis.errorbar([at[float(s)] for s in line.s], [float(run.mean()) for run in line.runs], yerr=spread,
                          elinewidth=0.9, capsize=0, **line.style.line)  # fmt: skip
        axis.set_title(panel_title(panel.title))
        axis.set_xticks(range(len(every)), [f"{s:g}" for s in every])
    label_below(axes[: len(panels)], columns, "multiplier s")
    method_legend(figure, list(styles.values()), columns=3)
    return figure


def multiplied_reading(panels: Sequence[Multiplied]) -> str:
    """The multiplier with the best mean of the first score, against the smallest one."""
    panel = panels[0]
    parts = []
    for line in panel.lines:
        means = [float(run.mean()) for run in line.runs]
        best = int(np.argmin(means) if panel.title == term(RANKED_BY).title else np.argmax(means))
        parts.append(
            f"{line.style.title}: best at s = {line.s[best]:g} ({means[best]:.3f}; {means[0]:.3f} at s = {line.s[0]:g})"
        )
    return f"{panel.title}, {'; '.join(parts)}."
