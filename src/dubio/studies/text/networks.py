"""Two or more networks on one task (T Figs 13 and 14), method by method."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from dubio.core.types import Direction
from dubio.reporting.charts import Rows, chart_of, method_row, panels_of, tooltips
from dubio.reporting.manifest_view import TaskView
from dubio.reporting.measures import HEADLINE, RANKED_BY, detection_name
from dubio.reporting.run_view import RunView
from dubio.reporting.section import Block, Figure, Section, section
from dubio.reporting.style import MUTED, SHAPES, Style
from dubio.reporting.tables import ARROWS
from dubio.reporting.wording import file_name, listed, signed, term

if TYPE_CHECKING:
    from dubio.reporting.charts import Chart

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
        for learned in architectures_of(run) if task is None else ():
            title, name = f"{learned.task}: {' against '.join(learned.networks)}", f"networks-{file_name(learned.task)}"
            chart, reading = partial(architectures_chart, learned), architectures_reading(learned)
            yield Figure(name, title, CAPTION, chart, reading=reading)


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
    return [learned for learned in compared if learned.styles]


def _compared(run: RunView, tasks: Sequence[TaskView]) -> Architectures:
    present = [{method.name for method in run.methods_of(task)} for task in tasks]
    shared = [method.name for method in run.methods if sum(method.name in names for names in present) > 1]
    area = detection_name("ood_auroc", HEADLINE)
    scores = [(term(metric).title, tasks[0].in_domain.name, metric) for metric in ("accuracy", RANKED_BY)]
    scores += [(f"AUROC, {split.name}", split.name, area) for split in tasks[0].farthest]
    panels = []
    for title, split, metric in scores:
        rows = {task.network: run.scores.row(task, split, metric) for task in tasks}
        values = tuple(
            {net: row[name].mean for net, row in rows.items() if name in row and np.isfinite(row[name].mean)}
            for name in shared
        )
        if any(values):
            panels.append(ScorePanel(title, run.scores.better[metric], values))
    styles = tuple(run.styles[name] for name in shared)
    return Architectures(tasks[0].name, tuple(task.network for task in tasks), styles, tuple(panels))


def architectures_chart(learned: Architectures) -> Chart:
    """Return one panel per score, one row per method, one marker per network."""
    import altair

    markers = [MARKERS[index % len(MARKERS)] for index in range(len(learned.networks))]
    domain, chart = list(learned.networks), chart_of(architecture_rows(learned))
    shapes = altair.Scale(domain=domain, range=[SHAPES[marker] for marker, _ in markers])
    colours = altair.Scale(domain=domain, range=[colour for _, colour in markers])
    y, scale = method_row(learned.styles), altair.Scale(zero=False, padding=8)
    x = altair.X("value:Q", title=None, scale=scale, axis=altair.Axis(tickCount=4, grid=False))
    between = chart.mark_rule(color=MUTED).encode(
        altair.X("min(value):Q", title=None, scale=scale), y, x2="max(value):Q", detail="method:N"
    )
    points = chart.mark_point(size=50, filled=True).encode(
        x,
        y,
        color=altair.Color("network:N", scale=colours),
        shape=altair.Shape("network:N", scale=shapes),
        tooltip=tooltips({"method": "method:N", "network": "network:N", "mean": "value:Q"}),
    )
    titles = [_panel_title(panel) for panel in learned.panels]
    layers = altair.LayerChart(layer=[between, points])
    figure = panels_of(layers, "panel", titles, columns=3, height=altair.Step(19))
    apart: altair.FacetChart = figure.resolve_scale(x="independent")
    return apart


def architecture_rows(learned: Architectures) -> Rows:
    """Return one row per score, method and network."""
    return [
        {"panel": _panel_title(panel), "method": style.title, "network": network, "value": value}
        for panel in learned.panels
        for style, values in zip(learned.styles, panel.values, strict=True)
        for network, value in values.items()
    ]


def _panel_title(panel: ScorePanel) -> str:
    return f"{panel.title} {ARROWS[panel.better]}"


def architectures_reading(learned: Architectures) -> str:
    """Return for how many methods each score is better with the last network than with the first, and by how much."""
    first, last = learned.networks[0], learned.networks[-1]
    texts = []
    for panel in learned.panels:
        changes = [values[last] - values[first] for values in panel.values if first in values and last in values]
        if changes:
            title = panel.title if panel.title[:2].isupper() else panel.title[:1].lower() + panel.title[1:]
            won = sum(change > 0 if panel.better == "higher" else change < 0 for change in changes)
            mean = signed(float(np.mean(changes)))
            texts.append(f"{title} for {won} of {len(changes)} methods (mean change {mean})")
    return f"{last} is better than {first} in {listed(texts)}." if texts else ""
