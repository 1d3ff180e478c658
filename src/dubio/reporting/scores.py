"""Policies and screening, gathered as one section without blocks until each is a section."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any
from weakref import WeakKeyDictionary

from dubio.reporting.build import Report, build_report
from dubio.reporting.manifest_view import Source, TaskView
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
        self.screening = ScreeningGathering()

    def visit(self, item: Visit) -> None:
        """Gather from one set of predictions."""
        values = self.screening.look(item.task, item.split, item.run, item.predictions, None)
        item.values |= {metric: value for metric, value in values.items() if metric not in item.values}

    def finish(self, run: RunView, task: TaskView) -> None:
        """Make this collector known to the adapter."""
        _COLLECTORS[run] = self


def results_of(report: Report) -> Results:
    """Everything the parts that are not sections yet read."""
    run = report.run
    if run not in _RESULTS:
        found = _COLLECTORS[run]
        _RESULTS[run] = Results(
            report=report,
            manifest=run.manifest,
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
