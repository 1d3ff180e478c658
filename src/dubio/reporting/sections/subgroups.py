"""Subgroups: calibration on parts of the test sets, by columns such as site or image quality.

Intervals resample the groups (such as patients) within each part, the same ones for all methods and runs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from functools import partial
from typing import TYPE_CHECKING, Literal

import numpy as np

from dubio.core.predictions import Predictions
from dubio.metrics.calibration_error import ece
from dubio.metrics.decisions import correct
from dubio.metrics.quantities import confidence
from dubio.reporting.canvas import WIDTH, blank, legend_height, method_legend, styled
from dubio.reporting.manifest_view import TaskView, parts_of
from dubio.reporting.measures import UNDERPOWERED
from dubio.reporting.run_view import RunView
from dubio.reporting.section import Block, Figure, Json, Section, Text, Visit, section
from dubio.reporting.style import MUTED, RULE, Style
from dubio.reporting.tables import Column, Row, Table, TableCell, folded
from dubio.reporting.wording import file_name
from dubio.statistics.bootstrap import Interval, RunIntervals, Statistic, mean_statistic

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Drawing

BINS = 15
"""Bins of the expected calibration error."""

Part = tuple[str, str]
"""(split, value of a column)."""


@dataclass(frozen=True)
class Subgroup:
    """Calibration of one method on a part of a split, averaged over runs.

    Attributes:
        examples: Number of examples.
        units: Number of groups (examples, where there are no groups).
        accuracy: Share of correct predictions.
        ece: Expected calibration error.
        excess: Mean confidence minus accuracy; positive where the method is overconfident.
    """

    examples: int
    units: int
    accuracy: Interval
    ece: Interval
    excess: Interval

    @property
    def underpowered(self) -> bool:
        """Whether it is too small for a conclusion."""
        return self.units < UNDERPOWERED


@section("subgroups", order=36)
class Subgroups(Section):
    """Calibration by the columns that a task has beside its labels."""

    title = "Subgroups"

    def __init__(self) -> None:
        """Start without any run."""
        self.intervals = RunIntervals()
        self.sizes: dict[tuple[str, str, str, str, str], int] = {}

    def visit(self, item: Visit) -> None:
        """Resample the calibration of a run on every part; of a corruption, at the worst severity alone."""
        task, split = item.task, item.split
        if task.target == "multilabel" or not (item.is_in_domain_test or split in task.farthest):
            return
        for column, values in task.columns.get(split.name, {}).items():
            for value, rows in parts_of(values).items():
                chosen = np.flatnonzero(rows & (item.predictions.labels >= 0))
                if len(chosen):
                    part, key = item.predictions.take(chosen), (task.key, split.name, column, value, item.run.method)
                    self.sizes[key] = len(part)
                    self.intervals.add(("subgroup", *key), part, calibration_statistics(part))

    def columns(self, task: TaskView) -> tuple[str, ...]:
        """Return the columns with subgroups, in the task's order."""
        return tuple(dict.fromkeys(column for key, _, column, _, _ in self.sizes if key == task.key))

    def parts(self, task: TaskView, column: str) -> dict[Part, dict[str, Subgroup]]:
        """Return (split, value) → method → its calibration there."""
        parts: dict[Part, dict[str, Subgroup]] = {}
        for key in self.sizes:
            name, split, other, value, method = key
            if (name, other) == (task.key, column):
                parts.setdefault((split, value), {})[method] = self._subgroup(key)
        return parts

    def _subgroup(self, key: tuple[str, str, str, str, str]) -> Subgroup:
        names = {name: ("subgroup", *key, name) for name in ("accuracy", "ece", "excess")}
        return Subgroup(
            self.sizes[key],
            self.intervals.units(names["ece"]),
            self.intervals.interval(names["accuracy"]),
            self.intervals.interval(names["ece"], centred=True),
            self.intervals.interval(names["excess"]),
        )

    def blocks(self, run: RunView, task: TaskView | None) -> Iterator[Block]:
        """Yield, for each column, its calibration table, a figure of overconfidence, and accuracy on demand."""
        if task is None or not self.columns(task):
            return
        parts = {column: self.parts(task, column) for column in self.columns(task)}
        yield Text("Is the classifier equally well calibrated on every part of the test sets?")
        yield Text(how_to_read(parts), "small")
        for column, subgroups in parts.items():
            yield subgroup_table(run, task, column, subgroups, "ece")
            yield from overconfidence(run, task, column, subgroups)
            yield folded(subgroup_table(run, task, column, subgroups, "accuracy"), f"Accuracy by {column}")

    def document(self, run: RunView) -> Json:
        """Return the calibration of every method on every part."""
        tasks = {task.key for task in run.tasks}
        subgroups = [
            {"task": key[0], "split": key[1], "fact": key[2], "value": key[3], "method": key[4], **asdict(subgroup),
             "underpowered": subgroup.underpowered}
            for key in self.sizes
            if key[0] in tasks
            for subgroup in [self._subgroup(key)]
        ]  # fmt: skip
        return {"subgroups": subgroups}


def calibration_statistics(part: Predictions) -> dict[str, Statistic]:
    """Return accuracy, expected calibration error and mean confidence minus accuracy, as functions of weights."""
    right = correct(part).astype(np.float64)
    return {
        "accuracy": mean_statistic(right),
        "ece": lambda weights: np.asarray(ece(part, bins=BINS, weights=weights)),
        "excess": mean_statistic(confidence(part) - right),
    }


def first_of(methods: Mapping[str, Subgroup]) -> Subgroup:
    """Return the subgroup of the first method: numbers of examples and groups are the same for all."""
    return next(iter(methods.values()))


def part_title(part: Part, methods: Mapping[str, Subgroup]) -> str:
    """Return the title of a part's row."""
    split, value = part
    return f"{value}, in “{split}”" + (" (underpowered)" if first_of(methods).underpowered else "")


def how_to_read(parts: Mapping[str, Mapping[Part, Mapping[str, Subgroup]]]) -> str:
    """Return how subgroups are to be read, and which of them are too small: column → part → method → subgroup."""
    small = [
        f"{value} in “{split}” ({first_of(methods).units})"
        for subgroups in parts.values()
        for (split, value), methods in subgroups.items()
        if first_of(methods).underpowered
    ]
    warning = f" Underpowered, with fewer than {UNDERPOWERED} groups: {'; '.join(small)}." if small else ""
    return (
        "The intervals resample the groups within each part (patients, where they are known) and are for the mean over "
        "runs. The calibration error of a small part is biased upwards: compare parts of similar size, or compare mean "
        f"confidence minus accuracy, which is not biased.{warning}"
    )


def subgroup_table(
    run: RunView,
    task: TaskView,
    column: str,
    subgroups: Mapping[Part, Mapping[str, Subgroup]],
    metric: Literal["ece", "accuracy"],
) -> Table:
    """Return subgroups × methods."""
    methods = run.methods_of(task)
    title, arrow = ("Expected calibration error", "↓") if metric == "ece" else ("Accuracy", "↑")
    heads = [Column("Examples"), Column("Groups", "resampled")]
    heads += [Column(method.title, "95 % interval", arrow, title) for method in methods]
    rows = []
    for part, by_method in subgroups.items():
        first = first_of(by_method)
        counts = [TableCell(f"{count:,}", sort=str(count)) for count in (first.examples, first.units)]
        cells = [
            interval_cell(by_method[m.name], getattr(by_method[m.name], metric))
            if m.name in by_method
            else TableCell("–")
            for m in methods
        ]
        rows.append(Row(part_title(part, by_method), (*counts, *cells), control=first.underpowered))
    return Table(tuple(heads), tuple(rows), f"{title} by {column}, mean over runs", first=column.capitalize())


def interval_cell(subgroup: Subgroup, interval: Interval) -> TableCell:
    """Return a value with its interval; that of a small subgroup is unranked, with the reason."""
    bounds = "(no interval)" if np.isnan(interval.low) else f"[{interval.low:.3f}, {interval.high:.3f}]"
    hint = f"{subgroup.units} groups, fewer than {UNDERPOWERED}: underpowered" if subgroup.underpowered else ""
    place = "unranked" if subgroup.underpowered else ""
    return TableCell(f"{interval.value:.3f}", bounds, f"{interval.value:.9g}", place, hint)


CAPTION = (
    "Mean over runs, with the 95 % interval from resampling the groups within each part. Underpowered parts are in the "
    "table alone."
)


def overconfidence(
    run: RunView, task: TaskView, column: str, subgroups: Mapping[Part, Mapping[str, Subgroup]]
) -> Iterator[Figure]:
    """Yield mean confidence minus accuracy of the subgroups that are large enough."""
    parts = {
        part_title(part, methods): methods for part, methods in subgroups.items() if not first_of(methods).underpowered
    }
    if parts:
        styles = {method.name: run.styles[method.name] for method in run.methods_of(task)}
        draw, title = partial(overconfidence_figure, parts, styles), f"Confidence minus accuracy by {column}"
        yield Figure(f"subgroups-{file_name(column)}", title, CAPTION, draw)


@styled
def overconfidence_figure(parts: Mapping[str, Mapping[str, Subgroup]], styles: Mapping[str, Style]) -> Drawing:
    """Draw mean confidence minus accuracy of each subgroup with its interval, one method below the other.

    Args:
        parts: Title of a part → method → its calibration.
        styles: Method → how it is drawn.
    """
    step, gap = 0.11, 0.16
    figure = blank(
        WIDTH, 0.75 + sum(step * len(methods) + gap for methods in parts.values()) + legend_height(len(styles))
    )
    axis = figure.subplots()
    axis.axvline(0, color=MUTED, linewidth=0.9)
    middles, height = [], 0.0
    for methods in parts.values():
        start = height
        for method, subgroup in methods.items():
            _draw_excess(axis, subgroup.excess, height, styles[method])
            height += step
        middles.append((start + height - step) / 2)
        axis.axhline(height + 0.08 - step / 2, color=RULE, linewidth=0.5)
        height += gap
    axis.set_yticks(middles, list(parts))
    axis.grid(axis="y", visible=False)
    axis.tick_params(axis="y", length=0)
    axis.set_ylim(height - 0.08, -0.1)
    axis.set_xlabel("mean confidence − accuracy (right of 0: overconfident)")
    method_legend(figure, list(styles.values()))
    return figure


def _draw_excess(axis: Axes, excess: Interval, height: float, style: Style) -> None:
    if np.isfinite([excess.low, excess.high]).all():
        axis.hlines(height, excess.low, excess.high, color=style.colour, linewidth=1.1)
    axis.plot([excess.value], [height], linestyle="none", **style.point)
