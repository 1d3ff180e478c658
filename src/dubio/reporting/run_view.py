"""A benchmark run as sections see it: its manifest, its scores, the cost of its methods, and the store."""

from __future__ import annotations

import contextlib
import itertools
import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from math import inf, isfinite
from typing import Any

from dubio.core.errors import DubioError, UserError
from dubio.reporting.manifest_view import Failure, Manifest, MethodRun, MethodView, Source, TaskView
from dubio.reporting.score_table import Cell, Score, ScoreTable
from dubio.reporting.style import Style, styles_of
from dubio.reporting.tables import Column, FilledColumn, Table, TableCell, method_table
from dubio.reporting.wording import budget_note
from dubio.statistics.ensemble_equivalent import GrowthCurve
from dubio.statistics.verdicts import Question

Record = Mapping[str, Any]
"""Timings, environment and bytes of a fit or a prediction."""


PREDICTED = 100_000
"""The number of examples whose prediction counts as a part of a method's cost."""

MARGIN = 0.01
"""How much worse than the best a cheaper method may be and still be advised, in nats of NLL, or of any other metric."""

EXAMPLES = 60
"""Largest number of examples of a test set on the page, unless another one is given."""


def lineage_in(source: Source, fit: str) -> tuple[str, ...]:
    """Return a fit and the fits that it continues, the first training last; itself where that cannot be read."""
    fits: list[str] = []
    start: Any = fit
    while isinstance(start, str) and start not in fits:
        fits.append(start)
        try:
            start = source.spec("fits", start).get("start")
        except DubioError:
            break
    return tuple(fits)


@dataclass(frozen=True)
class Cost:
    """The cost of one method on one task, for one run of it; cells hold a value for every run.

    A member that several methods share counts in full for each of them: it is what that method needs on its own. So
    does a training that a fit continues, such as that of the network which a Gaussian is fitted around.

    Attributes:
        trainings: Fits a run draws from, and those that these continue, without fits of no epoch.
        training_seconds: The seconds of all of them, summed.
        seconds_per_epoch: Seconds an epoch of one of its fits takes, their mean.
        best_epoch: The epoch of convergence, whose weights are used, the mean over its fits.
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

    @property
    def seconds(self) -> tuple[float, float]:
        """Seconds of training, and to predict :data:`PREDICTED` examples; infinite where they were not measured."""
        training, rate = self.training_seconds, self.examples_per_second
        return training.mean if training.n else inf, PREDICTED / rate.mean if rate.n else inf


def check_margin(margin: float) -> None:
    """Refuse a margin that is no finite number of at least 0."""
    if not (isfinite(margin) and margin >= 0):
        raise UserError(f"margin must be a finite number of at least 0; given {margin}.")


def check_examples(count: int) -> None:
    """Refuse a negative number of examples."""
    if count < 0:
        raise UserError(f"examples must be a number of at least 0; given {count}.")


def cost_of(
    records: Mapping[str, Record], runs: Sequence[MethodRun], lineage: Callable[[str], Iterable[str]]
) -> Cost:
    """Return the cost of one method from the records of its runs; what no record states is left out, not guessed.

    Args:
        records: Id → record, of every fit and prediction.
        runs: The method's runs.
        lineage: Returns a fit and the fits that it continues.
    """
    fits = [[records[fit] for fit in run.fits] for run in runs]
    needed = [dict.fromkeys(itertools.chain.from_iterable(map(lineage, run.fits))) for run in runs]
    trainings = [[records[fit] for fit in every] for every in needed]
    predictions = [[records[run.id]] for run in runs]
    examples, seconds = ([_total(record, name) for record in predictions] for name in ("examples", "seconds"))
    return Cost(
        trainings=Cell(tuple(float(sum(record.get("epochs") != 0 for record in group)) for group in trainings)),
        training_seconds=_cell(_total(group, "seconds") for group in trainings),
        seconds_per_epoch=_cell(_mean(group, "seconds_per_epoch") for group in fits),
        best_epoch=_cell(_mean(group, "best_epoch") for group in fits),
        examples_per_second=_cell(n / s if n and s else None for n, s in zip(examples, seconds, strict=True)),
        parameters=_cell(_total(group, "parameters") for group in fits),
        stored_bytes=_cell(_total(group, "bytes") for group in fits),
    )


def _total(records: Sequence[Record], name: str) -> float | None:
    """Return the sum over records, or None where one of them does not state the number."""
    values: list[Any] = [record.get(name) for record in records]
    return float(sum(values)) if values and all(isinstance(value, int | float) for value in values) else None


def _mean(records: Sequence[Record], name: str) -> float | None:
    total = _total(records, name)
    return None if total is None else total / len(records)


def _cell(values: Iterable[float | None]) -> Cell:
    every = list(values)
    stated = tuple(value for value in every if value is not None)
    return Cell(stated, undefined=len(every) - len(stated))


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
        margin: How much worse than the best a cheaper method may be and still be advised.
        examples: Largest number of examples of a test set that are shown.
        store: The folder of the store as commands name it; empty where they need not.
    """

    manifest: Manifest
    source: Source
    scores: ScoreTable
    growth: dict[str, GrowthCurve] = field(default_factory=dict)
    missing: list[Failure] = field(default_factory=list)
    extra_scores: list[Score] = field(default_factory=list)
    options: frozenset[str] = frozenset()
    margin: float = MARGIN
    examples: int = EXAMPLES
    store: str = ""

    def __post_init__(self) -> None:
        """Check the margin and the number of examples."""
        check_margin(self.margin)
        check_examples(self.examples)

    @property
    def question(self) -> Question:
        """Whether methods are compared, or trained systems as they are: prediction files say nothing of trainings."""
        return self.manifest.question

    @property
    def store_option(self) -> str:
        """The option that names the store in a command, after a space; empty for the usual one."""
        return f" --store {shlex.quote(self.store)}" if self.store else ""

    def opened(self, *names: str) -> str:
        """Return the Python expression that opens runs of the store by their names."""
        folder = [f"store={self.store!r}"] if self.store else []
        return f"dubio.open_run({', '.join((*map(repr, names), *folder))})"

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

    def budget_note(self, task: TaskView) -> str:
        """Return which methods of a task had another budget than the others, in one sentence; empty if none had."""
        present = {method.name for method in self.methods_of(task)}
        return budget_note({name: b for name, b in task.budgets.items() if name in present}, self.titles)

    @cached_property
    def records(self) -> dict[str, Record]:
        """Id → record, of every fit and prediction; empty where it cannot be read: costs must not hide scores."""
        records: dict[str, Record] = {}
        for run in itertools.chain.from_iterable(self._runs.values()):
            for identifier in (*itertools.chain.from_iterable(map(self.lineage, run.fits)), run.id):
                if identifier not in records:
                    records[identifier] = {}
                    with contextlib.suppress(DubioError):
                        records[identifier] = self.source.record(identifier)
        return records

    def lineage(self, fit: str) -> tuple[str, ...]:
        """Return a fit and the fits that it continues, the first training last; itself where that cannot be read."""
        return lineage_in(self.source, fit)

    @property
    def _runs(self) -> dict[tuple[str, str], tuple[MethodRun, ...]]:
        every = {(t.key, m.name): self.manifest.runs_of(t.key, m.name) for t in self.tasks for m in self.methods}
        return {key: runs for key, runs in every.items() if runs}

    @cached_property
    def costs(self) -> dict[tuple[str, str], Cost]:
        """(task, method) → its cost."""
        return {key: cost_of(self.records, runs, self.lineage) for key, runs in self._runs.items()}

    @cached_property
    def environment(self) -> Mapping[str, str]:
        """Names and versions of the software and device that the runs ran on, joined where runs differ."""
        values: dict[str, dict[str, None]] = {}
        for record in self.records.values():
            for name, value in (record.get("environment") or {}).items():
                values.setdefault(str(name), {})[str(value)] = None
        return {name: " / ".join(values[name]) for name in sorted(values)}

    def table(self, columns: Mapping[str, Column], rows: Mapping[str, Mapping[str, TableCell]], caption: str) -> Table:
        """Return a table of methods from column key → head and method → column key → cell."""
        filled = [
            FilledColumn(column, {method: cells[key] for method, cells in rows.items() if key in cells})
            for key, column in columns.items()
        ]
        methods = [method for method in self.methods if method.name in rows]
        return method_table(methods, filled, self.styles, caption=caption)
