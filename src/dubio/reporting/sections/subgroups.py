"""Subgroups: calibration on parts of the test sets, by columns such as site or image quality.

Intervals resample the groups (such as patients) within each part, the same ones for all methods and runs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import TYPE_CHECKING, Literal

import numpy as np

from dubio.core.predictions import Predictions
from dubio.metrics.calibration_error import ece
from dubio.metrics.decisions import correct
from dubio.metrics.quantities import confidence
from dubio.reporting.charts import Rows, chart_of, method_colour, method_fill, method_shape, tooltips
from dubio.reporting.manifest_view import TaskView
from dubio.reporting.run_view import RunView
from dubio.reporting.section import Block, Figure, Json, Section, Text, Visit, section
from dubio.reporting.style import Style
from dubio.reporting.tables import Column, Row, Table, TableCell, folded, interval_cell, value_cell
from dubio.reporting.wording import file_name
from dubio.statistics.bootstrap import Interval, RunIntervals, Statistic, mean_statistic
from dubio.statistics.subgroups import UNDERPOWERED, parts_of

if TYPE_CHECKING:
    import altair

BINS = 15
"""Bins of the expected calibration error."""

Subset = tuple[str, str]
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
        """Resample the calibration of a run on every subset; of a corruption, at the worst severity alone."""
        if item.task.target == "multilabel" or not item.is_shown:
            return
        task, split, method = item.key
        for column, values in item.task.columns.get(split, {}).items():
            for value, rows in parts_of(values).items():
                chosen = np.flatnonzero(rows & (item.predictions.labels >= 0))
                if len(chosen):
                    subset, key = item.predictions.take(chosen), (task, split, column, value, method)
                    self.sizes[key] = len(subset)
                    self.intervals.add(("subgroup", *key), subset, calibration_statistics(subset))

    def parts(self, task: TaskView) -> dict[str, dict[Subset, dict[str, Subgroup]]]:
        """Return column → (split, value) → method → its calibration there, in the task's order."""
        columns: dict[str, dict[Subset, dict[str, Subgroup]]] = {}
        for key in self.sizes:
            name, split, column, value, method = key
            if name == task.key:
                columns.setdefault(column, {}).setdefault((split, value), {})[method] = self._subgroup(key)
        return columns

    def _subgroup(self, key: tuple[str, str, str, str, str]) -> Subgroup:
        accuracy, error, excess = (("subgroup", *key, name) for name in ("accuracy", "ece", "excess"))
        return Subgroup(
            self.sizes[key],
            self.intervals.units(error),
            self.intervals.interval(accuracy, "share"),
            self.intervals.interval(error, "centred"),
            self.intervals.interval(excess),
        )

    def task_blocks(self, run: RunView, task: TaskView) -> Iterator[Block]:
        """Yield, for each column, its calibration table, a figure of overconfidence, and accuracy on demand."""
        columns = self.parts(task)
        if columns:
            yield Text("Is the classifier equally well calibrated on every part of the test sets?")
            yield Text(how_to_read(columns), "small")
        for column, subgroups in columns.items():
            yield subgroup_table(run, task, column, subgroups, "ece")
            yield from overconfidence(run, column, subgroups)
            yield folded(subgroup_table(run, task, column, subgroups, "accuracy"), f"Accuracy by {column}")

    def document(self, run: RunView) -> Json:
        """Return the calibration of every method on every subset."""
        rows = []
        for key in self.sizes:
            subgroup, names = self._subgroup(key), zip(("task", "split", "fact", "value", "method"), key, strict=True)
            rows.append({**dict(names), **asdict(subgroup), "underpowered": subgroup.underpowered})
        return {"subgroups": rows}


def calibration_statistics(subset: Predictions) -> dict[str, Statistic]:
    """Return accuracy, expected calibration error and mean confidence minus accuracy, as functions of weights."""
    right = correct(subset).astype(np.float64)
    return {
        "accuracy": mean_statistic(right),
        "ece": lambda weights: np.asarray(ece(subset, bins=BINS, weights=weights)),
        "excess": mean_statistic(confidence(subset) - right),
    }


def first_of(methods: Mapping[str, Subgroup]) -> Subgroup:
    """Return the subgroup of the first method: numbers of examples and groups are the same for all."""
    return next(iter(methods.values()))


def subset_title(subset: Subset, methods: Mapping[str, Subgroup]) -> str:
    """Return the title of a subset's row."""
    split, value = subset
    return f"{value}, in “{split}”" + (" (underpowered)" if first_of(methods).underpowered else "")


def how_to_read(columns: Mapping[str, Mapping[Subset, Mapping[str, Subgroup]]]) -> str:
    """Return how subgroups are to be read, and which of them are too small."""
    small = [
        f"{value} in “{split}” ({first_of(methods).units})"
        for subgroups in columns.values()
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
    subgroups: Mapping[Subset, Mapping[str, Subgroup]],
    metric: Literal["ece", "accuracy"],
) -> Table:
    """Return subgroups × methods."""
    methods = run.methods_of(task)
    title, arrow = ("Expected calibration error", "↓") if metric == "ece" else ("Accuracy", "↑")
    heads = [Column("Examples"), Column("Groups", "resampled")]
    heads += [Column(method.title, "95 % interval", arrow, title) for method in methods]
    rows = []
    for subset, by_method in subgroups.items():
        first = first_of(by_method)
        few = first.underpowered
        hint = f"{first.units} groups, fewer than {UNDERPOWERED}: underpowered" if few else ""
        cells = [value_cell(count, ",") for count in (first.examples, first.units)]
        for subgroup in (by_method.get(method.name) for method in methods):
            interval = None if subgroup is None else getattr(subgroup, metric)
            cells.append(interval_cell(interval, underpowered=few, hint=hint) if interval else TableCell("–"))
        rows.append(Row(subset_title(subset, by_method), tuple(cells), control=few))
    return Table(tuple(heads), tuple(rows), f"{title} by {column}, mean over runs", first=column.capitalize())


CAPTION = "Mean over runs, with 95 % intervals that resample groups. Underpowered parts are in the table alone."


def overconfidence(run: RunView, column: str, subgroups: Mapping[Subset, Mapping[str, Subgroup]]) -> Iterator[Figure]:
    """Yield mean confidence minus accuracy of the subgroups that are large enough."""
    shown = {subset: methods for subset, methods in subgroups.items() if not first_of(methods).underpowered}
    rows: Rows = [
        {"method": run.title(name), "subset": subset_title(subset, methods), **asdict(subgroup.excess)}
        for subset, methods in shown.items()
        for name, subgroup in methods.items()
    ]
    if rows:
        names = dict.fromkeys(name for methods in shown.values() for name in methods)
        chart = partial(overconfidence_chart, rows, [run.styles[name] for name in names])
        yield Figure(f"subgroups-{file_name(column)}", f"Confidence minus accuracy by {column}", CAPTION, chart)


def overconfidence_chart(rows: Rows, styles: Sequence[Style]) -> altair.LayerChart:
    """Return mean confidence minus accuracy of each subgroup with its interval, one method below the other."""
    import altair

    title, subsets = (
        "mean confidence − accuracy (right of 0: overconfident)",
        list(dict.fromkeys(r["subset"] for r in rows)),
    )
    chart, colour = chart_of(rows), method_colour(styles)
    line = {
        "y": altair.Y("subset:N", sort=subsets, title=None, axis=altair.Axis(ticks=False, domain=False, grid=True)),
        "yOffset": altair.YOffset("method:N", sort=[style.title for style in styles]),
        "color": colour,
    }
    zero = chart_of([{"zero": 0}]).mark_rule(opacity=0.6).encode(x="zero:Q")
    bars = chart.mark_rule(strokeWidth=1.4).encode(x=altair.X("low:Q", title=title), x2=altair.X2("high:Q"), **line)
    values = {"subgroup": "subset:N", "method": "method:N", "confidence − accuracy": "value:Q"}
    points = chart.mark_point(size=40, opacity=1).encode(
        x=altair.X("value:Q", title=title), fill=method_fill(styles),
        shape=method_shape(styles),
        tooltip=tooltips({**values, "95 % from": "low:Q", "to": "high:Q"}), **line,
    )  # fmt: skip
    height = altair.Step(10, **{"for": "offset"})
    return altair.LayerChart(layer=[zero, bars, points]).properties(width="container", height=height)
