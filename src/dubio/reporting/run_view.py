"""A benchmark run as sections see it: its manifest, its scores, its costs, and the store behind them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from dubio.reporting.aggregate import Score
from dubio.reporting.cost import Cost, cost_of, environment_of
from dubio.reporting.manifest_view import Failure, Manifest, MethodView, Source, TaskView
from dubio.reporting.score_table import ScoreTable
from dubio.reporting.style import Style, styles_of
from dubio.statistics.ensemble_equivalent import GrowthCurve


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
