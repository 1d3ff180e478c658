"""Everything the report shows, computed once from the stored predictions and then only read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from dubio.reporting.aggregate import Cell, Key, Score
from dubio.reporting.build import Report
from dubio.reporting.manifest_view import Manifest, MethodView, TaskView
from dubio.statistics.verdicts import Verdict
from dubio.studies.retina.found import Gallery, Screening


@dataclass(frozen=True, eq=False)
class Results:
    """Everything that the parts that are not sections yet read.

    Attributes:
        report: The report.
        manifest: The benchmark run.
        screening: Task → referral on every split and calibration of subgroups, where it is two-sided or has any.
        galleries: Task → examples with their pictures, where some were stored.
    """

    report: Report
    manifest: Manifest
    screening: Mapping[str, Screening] = field(default_factory=dict)
    galleries: Mapping[str, Gallery] = field(default_factory=dict)

    @property
    def scores(self) -> tuple[Score, ...]:
        """The long table."""
        return tuple(self.report.run.scores.scores)

    @property
    def cells(self) -> Mapping[Key, Cell]:
        """Mean and spread of every (task, split, method, metric)."""
        return self.report.run.scores.cells

    def methods_of(self, task: TaskView) -> tuple[MethodView, ...]:
        """The methods that have at least one scored run on a task, in the benchmark's order."""
        return self.report.run.methods_of(task)

    def cells_of(self, task: TaskView, split: str, metric: str) -> dict[str, Cell]:
        """Method → its cell, for those that have one."""
        return self.report.run.scores.row(task, split, metric)

    def verdicts(self, task: TaskView, split: str, metric: str) -> dict[str, Verdict]:
        """Method → where it stands; empty for a metric that must not rank."""
        return self.report.run.scores.verdicts(task, split, metric)
