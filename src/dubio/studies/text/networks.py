"""Two or more networks on one task (T Figs 13 and 14), method by method."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from dubio.core.types import Direction
from dubio.reporting.canvas import (
    WIDTH,
    blank,
    label_rows,
    styled,
)
from dubio.reporting.manifest_view import MethodView, TaskView
from dubio.reporting.measures import HEADLINE, RANKED_BY, detection_name
from dubio.reporting.run_view import RunView
from dubio.reporting.section import Block, Figure, Section, section
from dubio.reporting.style import MUTED, PAPER, Style
from dubio.reporting.wording import file_name, listed, term

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Drawing

CAPTION = (
    "One row per method, one marker per network, mean over runs. Lines show the effect of the network; compare them "
    "with the effect of the method, down a column."
)
MARKERS = (("o", "#0065a9"), ("s", "#c94f00"), ("D", "#2f7f86"), ("^", "#93357a"))
"""Marker and colour of each network, in the benchmark's order."""


@section("text-networks", order=85)
class Networks(Section):
    """Networks that learned the same task."""

    def blocks(self, run: RunView, task: TaskView | None) -> Iterator[Block]:
        """Yield one figure per task that several networks learned."""
        for each in architectures_of(run) if task is None else ():
            title, name = f"{each.task}: {' against '.join(each.networks)}", f"networks-{file_name(each.task)}"
            draw, reading = partial(architectures_figure, each), architectures_reading(each)
            yield Figure(name, title, CAPTION, draw, reading=reading)


@dataclass(frozen=True)
class ScorePanel:
    """One score: its title, which direction is better, and ``network → mean`` of every method."""

    title: str
    better: Direction
    values: tuple[dict[str, float], ...]


@dataclass(frozen=True)
class Architectures:
    """One task under several networks."""

    task: str
    networks: tuple[str, ...]
    styles: tuple[Style, ...]
    panels: tuple[ScorePanel, ...]


def architectures_of(run: RunView) -> list[Architectures]:
    """Return every task that several networks learned with at least one method in common."""
    by_name: dict[str, list[TaskView]] = {}
    for task in run.tasks:
        if run.methods_of(task):
            by_name.setdefault(task.name, []).append(task)
    compared = [_compared(run, tasks) for tasks in by_name.values() if len(tasks) > 1]
    return [each for each in compared if each is not None]


def _compared(run: RunView, tasks: Sequence[TaskView]) -> Architectures | None:
    names = [{method.name for method in run.methods_of(task)} for task in tasks]
    shared = [m for m in run.methods if sum(m.name in some for some in names) > 1]
    if not shared:
        return None
    inside, area = tasks[0].in_domain.name, detection_name("ood_auroc", HEADLINE)
    panels = [_panel(run, tasks, shared, metric, inside, term(metric).title) for metric in ("accuracy", RANKED_BY)]
    panels += [_panel(run, tasks, shared, area, s.name, f"AUROC, {s.name}") for s in tasks[0].farthest]
    return Architectures(
        tasks[0].name,
        tuple(task.network for task in tasks),
        tuple(run.styles[method.name] for method in shared),
        tuple(panel for panel in panels if any(panel.values)),
    )


def _panel(
    run: RunView, tasks: Sequence[TaskView], methods: Sequence[MethodView], metric: str, split: str, title: str
) -> ScorePanel:
    values: list[dict[str, float]] = [{} for _ in methods]
    for task in tasks:
        cells = run.scores.row(task, split, metric)
        for place, method in enumerate(methods):
            if method.name in cells and np.isfinite(cells[method.name].mean):
                values[place][task.network] = cells[method.name].mean
    return ScorePanel(title, run.scores.better[metric], tuple(values))


@styled
def architectures_figure(task_networks: Architectures) -> Drawing:
    """Draw one panel per score."""
    from matplotlib.lines import Line2D
    from matplotlib.ticker import MaxNLocator

    figure = blank(WIDTH, 0.25 * len(task_networks.styles) + 1.15)
    axes = figure.subplots(1, len(task_networks.panels), sharey=True, squeeze=False)[0]
    drawn = dict(zip(task_networks.networks, MARKERS * len(task_networks.networks), strict=False))
    for axis, column in zip(axes, task_networks.panels, strict=True):
        for place, values in enumerate(column.values):
            if len(values) > 1:
                axis.hlines(place, min(values.values()), max(values.values()), color=MUTED, linewidth=1.0, zorder=1)
            for network, value in values.items():
                marker, colour = drawn[network]
                face = PAPER if network == task_networks.networks[0] else colour
                axis.plot([value], [place], marker=marker, markersize=5.2, linestyle="none", markeredgecolor=colour,
                          markerfacecolor=face, markeredgewidth=1.2, zorder=3)  # fmt: skip
        label_rows(axis, task_networks.styles)
        axis.xaxis.set_major_locator(MaxNLocator(4))
        axis.set_title(f"{column.title} {'↑' if column.better == 'higher' else '↓'}")
    handles = [
        Line2D([], [], marker=marker, linestyle="none", markersize=5.5, markeredgecolor=colour, label=network,
               markerfacecolor=PAPER if network == task_networks.networks[0] else colour)
        for network, (marker, colour) in drawn.items()
    ]  # fmt: skip
    figure.legend(handles=handles, loc="outside lower center", ncols=len(handles))
    return figure


def architectures_reading(task_networks: Architectures) -> str:
    """Return for how many methods each score is better with the last network than with the first, and by how much."""
    first, last = task_networks.networks[0], task_networks.networks[-1]
    parts = []
    for column in task_networks.panels:
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
