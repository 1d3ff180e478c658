"""Two or more networks on one task (T Figs 13 and 14), method by method."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from dubio.core.types import Direction
from dubio.reporting.canvas import WIDTH, blank, label_rows, styled
from dubio.reporting.figures.drawn_from import Subject
from dubio.reporting.manifest_view import MethodView
from dubio.reporting.measures import RANKED_BY, detection_name
from dubio.reporting.results import Results
from dubio.reporting.style import FAMILIES, MUTED, PAPER, Style
from dubio.reporting.wording import listed, term

CAPTION = (
    "One row a method, one marker a network, mean over runs; the line between them is what the choice of the network "
    "changes. Compare it with what the choice of the method changes, down a column."
)
MARKERS = (
    ("o", FAMILIES["mc-dropout"][0]),
    ("s", FAMILIES["mc-concrete-dropout"][0]),
    ("D", "#2f7f86"),
    ("^", "#93357a"),
)
"""One a network, in the benchmark's order."""


@dataclass(frozen=True)
class Column:
    """One score: its title, which way is better, and a method ``network → mean``."""

    title: str
    better: Direction
    values: tuple[dict[str, float], ...]


@dataclass(frozen=True)
class Architectures:
    """One task under several networks."""

    task: str
    networks: tuple[str, ...]
    styles: tuple[Style, ...]
    columns: tuple[Column, ...]


def architectures_of(results: Results) -> list[Architectures]:
    """Every task that several networks learned and at least one method shares."""
    by_name: dict[str, list[Subject]] = {}
    for task in results.manifest.tasks:
        if results.methods_of(task):
            by_name.setdefault(task.name, []).append(Subject(results, task))
    found = [_compared(name, subjects) for name, subjects in by_name.items() if len(subjects) > 1]
    return [each for each in found if each is not None]


def _compared(name: str, subjects: Sequence[Subject]) -> Architectures | None:
    sets = [{method.name for method in subject.methods} for subject in subjects]
    shared = [m for m in subjects[0].results.manifest.methods if sum(m.name in names for names in sets) > 1]
    if not shared:
        return None
    columns = [_column(subjects, shared, "accuracy", subjects[0].home, term("accuracy").title),
               _column(subjects, shared, RANKED_BY, subjects[0].home, term(RANKED_BY).title)]  # fmt: skip
    area = detection_name("ood_auroc", "confidence")
    for split in subjects[0].task.farthest:
        columns.append(_column(subjects, shared, area, split.name, f"AUROC, {split.name}"))
    return Architectures(
        name,
        tuple(subject.task.network for subject in subjects),
        tuple(subjects[0].styles[method.name] for method in shared),
        tuple(column for column in columns if any(column.values)),
    )


def _column(subjects: Sequence[Subject], methods: Sequence[MethodView], metric: str, split: str, title: str) -> Column:
    values: list[dict[str, float]] = [{} for _ in methods]
    for subject in subjects:
        cells = subject.results.cells_of(subject.task, split, metric)
        for place, method in enumerate(methods):
            if method.name in cells and np.isfinite(cells[method.name].mean):
                values[place][subject.task.network] = cells[method.name].mean
    return Column(title, subjects[0].results.better[metric], tuple(values))


@styled
def architectures_figure(found: Architectures) -> Figure:
    """One panel a score.

    Args:
        found: One task under several networks.
    """
    figure = blank(WIDTH, 0.25 * len(found.styles) + 1.15)
    axes = figure.subplots(1, len(found.columns), sharey=True, squeeze=False)[0]
    drawn = dict(zip(found.networks, MARKERS * len(found.networks), strict=False))
    for axis, column in zip(axes, found.columns, strict=True):
        for place, values in enumerate(column.values):
            if len(values) > 1:
                axis.hlines(place, min(values.values()), max(values.values()), color=MUTED, linewidth=1.0, zorder=1)
            for network, value in values.items():
                marker, colour = drawn[network]
                face = PAPER if network == found.networks[0] else colour
                axis.plot([value], [place], marker=marker, markersize=5.2, linestyle="none", markeredgecolor=colour,
                          markerfacecolor=face, markeredgewidth=1.2, zorder=3)  # fmt: skip
        label_rows(axis, found.styles)
        axis.xaxis.set_major_locator(MaxNLocator(4))
        axis.set_title(f"{column.title} {'↑' if column.better == 'higher' else '↓'}")
    handles = [
        Line2D([], [], marker=marker, linestyle="none", markersize=5.5, markeredgecolor=colour, label=network,
               markerfacecolor=PAPER if network == found.networks[0] else colour)
        for network, (marker, colour) in drawn.items()
    ]  # fmt: skip
    figure.legend(handles=handles, loc="outside lower center", ncols=len(handles))
    return figure


def architectures_reading(found: Architectures) -> str:
    """For how many methods each score is better under the last network than under the first, and by how much."""
    first, last = found.networks[0], found.networks[-1]
    parts = []
    for column in found.columns:
        pairs = [(values[first], values[last]) for values in column.values if first in values and last in values]
        if pairs:
            sign = 1.0 if column.better == "higher" else -1.0
            gains = [sign * (after - before) for before, after in pairs]
            title = column.title[:1].lower() + column.title[1:] if not column.title[:2].isupper() else column.title
            mean = float(np.mean([after - before for before, after in pairs]))
            change = f"{mean:+.3f}".replace("-", "−")
            won = sum(gain > 0 for gain in gains)
            parts.append(f"{title} for {won} of {len(gains)} methods (mean change {change})")
    return f"{last} is better than {first} in {listed(parts)}." if parts else ""
