"""Policies and screening, gathered as one section without blocks until each is a section."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any
from weakref import WeakKeyDictionary

from dubio.reporting.build import Report, build_report
from dubio.reporting.capacities import Capacity
from dubio.reporting.manifest_view import MethodRun, Source, TaskView
from dubio.reporting.policies import policies_of
from dubio.reporting.promises import Promise
from dubio.reporting.results import Results
from dubio.reporting.run_view import RunView
from dubio.reporting.section import Section, Visit, section
from dubio.studies.retina.gathering import ScreeningGathering

_RESULTS: WeakKeyDictionary[RunView, Results] = WeakKeyDictionary()
_COLLECTORS: WeakKeyDictionary[RunView, Collector] = WeakKeyDictionary()


@section("collect", part="task", order=31)
class Collector(Section):
    """Gathers referral on two-sided tasks and policies."""

    def __init__(self) -> None:
        """Start empty."""
        self.first: dict[tuple[str, str], MethodRun] = {}
        self.promises: dict[str, Mapping[str, Promise]] = {}
        self.capacities: dict[str, Mapping[str, Capacity]] = {}
        self.screening = ScreeningGathering()

    def visit(self, item: Visit) -> None:
        """Gather from one set of predictions."""
        if item.is_in_domain_test:
            self.first.setdefault((item.task.key, item.run.method), item.run)
        values = self.screening.look(item.task, item.split, item.run, item.predictions, None)
        item.values |= {metric: value for metric, value in values.items() if metric not in item.values}

    def finish(self, run: RunView, task: TaskView) -> None:
        """Add the policies of a task."""
        _COLLECTORS[run] = self
        reference = run.manifest.reference(task)
        right = None if reference is None else run.scores.cell(task, task.in_domain.name, reference, "accuracy")
        error = 1.0 - right.mean if right is not None and right.n else 0.0
        first = {m.name: self.first[task.key, m.name] for m in run.methods if (task.key, m.name) in self.first}
        self.promises[task.key], self.capacities[task.key] = policies_of(run.source, task, first, error)


def results_of(report: Report) -> Results:
    """Everything the parts that are not sections yet read."""
    run = report.run
    if run not in _RESULTS:
        found = _COLLECTORS[run]
        _RESULTS[run] = Results(
            report=report,
            manifest=run.manifest,
            promises=found.promises,
            capacities=found.capacities,
            screening=found.screening.screening(run.manifest),
            galleries=found.screening.galleries(run.source, run.manifest),
        )
    return _RESULTS[run]


def results_of_run(run: RunView) -> Results:
    """The same for a run that was built."""
    return results_of(Report(run, ()))


def score_run(store: Source, manifest: Mapping[str, Any]) -> Results:
    """Score every run of a manifest from its stored predictions."""
    return results_of(build_report(store, manifest))


def report_of(results: Results) -> Report:
    """The report of results, with the tasks and parts that were left in them."""
    run = replace(results.report.run, manifest=results.manifest)
    _RESULTS[run] = results
    return Report(run, results.report.sections)
