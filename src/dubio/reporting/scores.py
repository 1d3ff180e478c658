"""The parts of the report that are not sections yet: gather what they need, as one section without blocks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from dubio.core.types import FloatArray
from dubio.metrics.referral_curve import FRACTIONS
from dubio.reporting.build import Placed, Report, build_report
from dubio.reporting.capacities import Capacity
from dubio.reporting.manifest_view import MethodRun, Source, TaskView
from dubio.reporting.measures import curves_of, entropy_parts, referral_name, referral_values
from dubio.reporting.policies import policies_of
from dubio.reporting.promises import Promise
from dubio.reporting.results import Results, RunCurves
from dubio.reporting.run_view import RunView
from dubio.reporting.section import Section, Visit, section
from dubio.reporting.sizes import Grown, Growth, grow_at_home, grow_away
from dubio.reporting.sketches import Sketches, at_home, away
from dubio.reporting.wording import RANDOM
from dubio.studies.ensembles.gathering import studies_of
from dubio.studies.retina.gathering import ScreeningGathering

_RESULTS: WeakKeyDictionary[RunView, Results] = WeakKeyDictionary()
_COLLECTORS: WeakKeyDictionary[RunView, Collector] = WeakKeyDictionary()


@section("collect", part="task", order=0)
class Collector(Section):
    """Gathers curves, sketches, growing ensembles and policies."""

    def __init__(self) -> None:
        """Start empty."""
        self.curves: dict[tuple[str, str], list[RunCurves]] = {}
        self.entropies: dict[tuple[str, str, str], list[FloatArray]] = {}
        self.promises: dict[str, Mapping[str, Promise]] = {}
        self.capacities: dict[str, Mapping[str, Capacity]] = {}
        self.sketches: dict[tuple[str, str, str, str], list[FloatArray]] = {}
        self.sizes: dict[tuple[str, str], list[Growth]] = {}
        self.screening = ScreeningGathering()
        self._grown: tuple[MethodRun, Grown] | None = None

    def visit(self, item: Visit) -> None:
        """Gather from one set of predictions."""
        task, split, run = item.task, item.split, item.run
        curves = None
        if split.kind == "id":
            made = curves_of(task, run, item.predictions)
            item.values |= referral_values(made)
            if item.is_in_domain_test:
                curves = made
                self.curves.setdefault((task.key, run.method), []).append(made)
                self._sketch(task, run, at_home(item.predictions, item.uncertainties))
                self._close()
                grown = grow_at_home(item.predictions)
                self._grown = None if grown is None else (run, grown)
        elif split in task.farthest:
            self._sketch(task, run, away(split.name, item.uncertainties))
            if self._grown is not None and self._grown[0] == run:
                self._grown = run, grow_away(self._grown[1], split.name, item.predictions)
        item.values |= self.screening.look(task, split, run, item.predictions, curves)
        if split.kind == "id" or split in task.farthest:
            parts = entropy_parts(item.predictions)
            self.entropies.setdefault((task.key, split.name, run.method), []).append(parts)

    def _sketch(self, task: TaskView, run: MethodRun, sketches: Sketches) -> None:
        for (group, quantity), values in sketches.items():
            self.sketches.setdefault((task.key, group, run.method, quantity), []).append(values)

    def _close(self) -> None:
        """File the growing ensemble of the run that was read before."""
        if self._grown is not None:
            run, grown = self._grown
            self.sizes.setdefault((run.task, run.method), []).append(grown.growth)
            self._grown = None

    def finish(self, run: RunView, task: TaskView) -> None:
        """Add the control and the policies of a task."""
        _COLLECTORS[run] = self
        self._close()
        _add_control(run, task)
        self.promises[task.key], self.capacities[task.key] = _policies(run, task, self.curves)


def results_of(report: Report) -> Results:
    """Everything the parts that are not sections yet read."""
    run = report.run
    if run in _RESULTS:
        return _RESULTS[run]
    found = next(placed.section for placed in report.sections if isinstance(placed.section, Collector))
    assert isinstance(found, Collector)
    table = run.scores
    results = Results(
        manifest=run.manifest,
        scores=tuple(table.scores),
        curves={key: tuple(curves) for key, curves in found.curves.items()},
        losses={
            (task.key, metric, method): losses
            for task in run.tasks
            for metric in table.better
            for method, losses in table.losses(task, task.in_domain.name, metric).items()
        },
        costs=run.costs,
        better=table.better,
        not_ranked=table.not_ranked,
        environment=run.environment,
        unsettled={key: (fits.at_bound, len(fits.values)) for key, fits in table.temperatures.items()},
        temperatures={key: tuple(fits.values) for key, fits in table.temperatures.items()},
        entropies={key: np.mean(parts, axis=0) for key, parts in found.entropies.items()},
        promises=found.promises,
        capacities=found.capacities,
        growth=run.growth,
        missing=tuple(run.missing),
        sketches={key: np.array(runs) for key, runs in found.sketches.items()},
        sizes={key: tuple(runs) for key, runs in found.sizes.items()},
        fits=run.fits,
        away_losses={
            (task.key, split.name, metric, method): losses
            for task in run.tasks
            for split in task.of_kind("shift", "ood")
            for metric in table.better
            for method, losses in table.losses(task, split.name, metric).items()
        },
        screening=found.screening.screening(run.manifest),
        galleries=found.screening.galleries(run.source, run.manifest),
        studies=studies_of(run.source, run.manifest, run.growth),
        report=report,
    )
    if "as-published" in run.options:
        from dubio.studies.text.as_published import score_as_published

        results = replace(results, as_published=score_as_published(run.source, run.manifest))
    _RESULTS[run] = results
    return results


def results_of_run(run: RunView) -> Results:
    """The same for a run that was built."""
    return _RESULTS[run] if run in _RESULTS else results_of(Report(run, (Placed("collect", "task", _COLLECTORS[run]),)))


def score_run(store: Source, manifest: Mapping[str, Any]) -> Results:
    """Score every run of a manifest from its stored predictions."""
    return results_of(build_report(store, manifest))


def with_as_published(store: Source, results: Results) -> Results:
    """The same results with the published definitions that are mistaken."""
    from dubio.studies.text.as_published import score_as_published

    return replace(results, as_published=score_as_published(store, results.manifest))


def report_of(results: Results) -> Report:
    """The report of results, with the tasks and parts that were left in them."""
    report: Report = results.report
    run = replace(report.run, manifest=results.manifest, growth=dict(results.growth))
    _RESULTS[run] = results
    return Report(run, report.sections)


def _add_control(run: RunView, task: TaskView) -> None:
    """Random referral of the reference method: the value at full retention, at every fraction."""
    reference = run.manifest.reference(task)
    for metric in ("referral_accuracy", "referral_auc"):
        whole = referral_name(metric, 1.0)
        run.scores.extend(
            [
                replace(score, method=RANDOM, metric=referral_name(metric, fraction))
                for score in run.scores.scores
                if score.task == task.key and score.method == reference and score.metric == whole
                for fraction in FRACTIONS
            ]
        )


def _policies(
    run: RunView, task: TaskView, curves: Mapping[tuple[str, str], list[RunCurves]]
) -> tuple[dict[str, Promise], dict[str, Capacity]]:
    """Referral policies of the first scored run of each method: half of the reference's error, and a capacity."""
    reference = run.manifest.reference(task)
    right = None if reference is None else run.scores.cell(task, task.in_domain.name, reference, "accuracy")
    first = {
        method.name: curves[task.key, method.name][0].run for method in run.methods if (task.key, method.name) in curves
    }
    error = 1.0 - right.mean if right is not None and right.n else 0.0
    return policies_of(run.source, task, first, error)
