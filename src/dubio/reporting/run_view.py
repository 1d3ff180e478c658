"""A benchmark run as sections see it: its manifest, its scores, the cost of its methods, and the store."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from dubio.core.errors import DubioError
from dubio.reporting.manifest_view import Failure, Manifest, MethodRun, MethodView, Source, TaskView
from dubio.reporting.score_table import Cell, Score, ScoreTable
from dubio.reporting.style import Style, styles_of
from dubio.reporting.tables import Column, FilledColumn, Table, TableCell, method_table
from dubio.statistics.ensemble_equivalent import GrowthCurve


@dataclass(frozen=True)
class Cost:
    """The cost of one method on one task, for one run of it; cells hold a value for every run.

    A member that several methods share counts in full for each of them: it is what that method needs on its own.

    Attributes:
        trainings: Fits a run draws from.
        training_seconds: Their seconds, summed.
        seconds_per_epoch: Seconds an epoch of one of its fits takes, their mean.
        best_epoch: The epoch of convergence, whose weights were kept, the mean over its fits.
        examples_per_second: Speed of prediction of the whole method: all members, all samples.
        parameters: Parameters of all its fits together.
        stored_bytes: Bytes of its fits.
    """

    trainings: Cell
    training_seconds: Cell
    seconds_per_epoch: Cell
    best_epoch: Cell
    examples_per_second: Cell
    parameters: Cell
    stored_bytes: Cell


def cost_of(store: Source, runs: Sequence[MethodRun], cache: dict[str, Mapping[str, Any]]) -> Cost:
    """The cost of one method from the records of its runs; what no record tells is left out, not guessed.

    Args:
        store: Where the records are.
        runs: The method's runs on one task.
        cache: Records already read, by id; filled here.
    """
    seconds, epochs, best, speed, parameters, size = [], [], [], [], [], []
    for run in runs:
        fits = [_record(store, fit, cache) for fit in run.fits]
        seconds.append(_total(fits, "seconds"))
        epochs.append(_mean(fits, "seconds_per_epoch"))
        best.append(_mean(fits, "best_epoch"))
        parameters.append(_total(fits, "parameters"))
        size.append(_total(fits, "bytes"))
        prediction = _record(store, run.id, cache)
        taken, examples = _number(prediction, "seconds"), _number(prediction, "examples")
        speed.append(examples / taken if taken and examples else None)
    return Cost(
        trainings=Cell(tuple(float(len(run.fits)) for run in runs)),
        training_seconds=_known(seconds),
        seconds_per_epoch=_known(epochs),
        best_epoch=_known(best),
        examples_per_second=_known(speed),
        parameters=_known(parameters),
        stored_bytes=_known(size),
    )


def environment_of(records: Mapping[str, Mapping[str, Any]]) -> dict[str, str]:
    """Every name in the records' environments with the values it had, joined where runs differ."""
    found: dict[str, list[str]] = {}
    for record in records.values():
        for name, value in (record.get("environment") or {}).items():
            values = found.setdefault(str(name), [])
            if str(value) not in values:
                values.append(str(value))
    return {name: " / ".join(values) for name, values in sorted(found.items())}


def _record(store: Source, identifier: str, cache: dict[str, Mapping[str, Any]]) -> Mapping[str, Any]:
    """A record; one that cannot be read is empty, since costs must not hide the scores they stand beside."""
    if identifier not in cache:
        try:
            cache[identifier] = store.record(identifier)
        except DubioError:
            cache[identifier] = {}
    return cache[identifier]


def _number(record: Mapping[str, Any], name: str) -> float | None:
    value = record.get(name)
    return float(value) if isinstance(value, int | float) else None


def _total(records: Sequence[Mapping[str, Any]], name: str) -> float | None:
    """The sum over records, or None where one of them does not say."""
    values = [_number(record, name) for record in records]
    known = [value for value in values if value is not None]
    return sum(known) if known and len(known) == len(values) else None


def _mean(records: Sequence[Mapping[str, Any]], name: str) -> float | None:
    total = _total(records, name)
    return None if total is None else total / len(records)


def _known(values: Sequence[float | None]) -> Cell:
    known = tuple(value for value in values if value is not None)
    return Cell(known, undefined=len(values) - len(known))


@dataclass(frozen=True, eq=False)
class RunView:
    """A benchmark run.

    Attributes:
        manifest: What was run.
        source: The store, for records and specifications.
        scores: The long table of scores.
        growth: Task → scores of growing deep ensembles, where there are enough networks.
        missing: Predictions of the manifest that could not be read, and why.
        extra_scores: Scores that enter ``results.csv`` but no comparison.
        options: Names of sections that are shown only on request.
    """

    manifest: Manifest
    source: Source
    scores: ScoreTable
    growth: dict[str, GrowthCurve] = field(default_factory=dict)
    missing: list[Failure] = field(default_factory=list)
    extra_scores: list[Score] = field(default_factory=list)
    options: frozenset[str] = frozenset()

    @property
    def tasks(self) -> tuple[TaskView, ...]:
        """All tasks, in the benchmark's order."""
        return self.manifest.tasks

    @property
    def methods(self) -> tuple[MethodView, ...]:
        """All methods, in the benchmark's order."""
        return self.manifest.methods

    @property
    def failures(self) -> tuple[Failure, ...]:
        """Everything that was planned and is missing."""
        return (*self.manifest.failures, *self.missing)

    @cached_property
    def styles(self) -> dict[str, Style]:
        """Method → how it is drawn."""
        return styles_of(self.methods)

    @cached_property
    def titles(self) -> dict[str, str]:
        """Method → its title."""
        return {method.name: method.title for method in self.methods}

    def title(self, method: str) -> str:
        """Return the title of a method; its name where the run does not list it."""
        return self.titles.get(method, method)

    def methods_of(self, task: TaskView) -> tuple[MethodView, ...]:
        """Return the methods with at least one scored run on a task, in the benchmark's order."""
        return tuple(method for method in self.scores.methods_of(task) if method.name in self.titles)

    @cached_property
    def costs(self) -> dict[tuple[str, str], Cost]:
        """(task, method) → its cost."""
        return {
            (task.key, method.name): cost_of(self.source, runs, self._records)
            for task in self.tasks
            for method in self.methods
            if (runs := self.manifest.runs_of(task.key, method.name))
        }

    @cached_property
    def environment(self) -> Mapping[str, str]:
        """Names and versions of the software and device that the runs ran on."""
        return environment_of(self.records)

    @property
    def records(self) -> Mapping[str, Mapping[str, Any]]:
        """Id → record, of every fit and prediction."""
        assert self.costs is not None  # reading costs reads the records
        return self._records

    @cached_property
    def _records(self) -> dict[str, Mapping[str, Any]]:
        return {}

    def table(self, columns: Mapping[str, Column], rows: Mapping[str, Mapping[str, TableCell]], caption: str) -> Table:
        """Return a table of methods from column key → head and method → column key → cell."""
        filled = [
            FilledColumn(column, {method: cells[key] for method, cells in rows.items() if key in cells})
            for key, column in columns.items()
        ]
        methods = [method for method in self.methods if method.name in rows]
        return method_table(methods, filled, self.styles, caption=caption)
