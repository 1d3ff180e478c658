"""Build a report: read every stored prediction once, score it, and show it to every section.

The table stores one value per test example, method and metric for paired tests; nothing else of a prediction stays in
memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import comb, isnan, nan
from typing import Any, get_args

import numpy as np

from dubio.calibration.cross_validation import cross_validate
from dubio.calibration.temperature import HIGHEST
from dubio.core.csv_files import CsvTable
from dubio.core.errors import DubioError, UserError
from dubio.core.predictions import Predictions, join_names, pool_members
from dubio.core.types import FloatArray, Metric
from dubio.evaluation import REPLICATES, evaluate_predictions
from dubio.metrics.detection import placements
from dubio.metrics.referral_curve import accuracy_changes
from dubio.reporting.manifest_view import Failure, Manifest, MethodRun, Source, TaskView, read_manifest
from dubio.reporting.measures import (
    ACCURACY_CHANGE,
    GAP,
    HEADLINE,
    RANKED_BY,
    REFERRED_BY,
    RETAINED_SHARE,
    SHIFTED,
    at_thresholds,
    corrupted_values,
    detection,
    detection_name,
    directions,
    in_domain_metrics,
    measure,
    metrics_for,
    own_metrics,
    own_quantities,
    referral_values,
    uncertainties,
    values_per_example,
)
from dubio.reporting.run_view import RunView
from dubio.reporting.score_table import Score, ScoreTable, TemperatureFits
from dubio.reporting.section import SECTIONS, Block, Figure, InDomain, Part, Section, Visit
from dubio.reporting.system_wording import worded_for_systems
from dubio.reporting.wording import counted
from dubio.statistics.bootstrap import (
    Interval,
    basis,
    guarded,
    metric_statistic,
    replicate,
    units_of,
    units_of_smaller_side,
)
from dubio.statistics.ensemble_equivalent import GrowthCurve, growth_curve
from dubio.statistics.learning import enough_exchanges, gain_of
from dubio.statistics.paired import enough_replicates, tested_units
from dubio.statistics.trainings import ENOUGH
from dubio.statistics.trainings import Key as Fits
from dubio.statistics.verdicts import ALPHA

ORDERS = 10
"""Random orders in which the networks of a deep ensemble are added."""

MOST_PARTS = 10
"""An ensemble of more fits is cut into this number of parts, of which one is left out at a time."""


@dataclass(frozen=True, eq=False)
class Placed:
    """A section in its place on the page."""

    name: str
    part: Part
    section: Section
    order: int


@dataclass(frozen=True, eq=False)
class Report:
    """A benchmark run with all its sections, ready to be shown."""

    run: RunView
    sections: tuple[Placed, ...]

    def of_part(self, part: Part) -> tuple[Placed, ...]:
        """Return the sections of a part, in their order."""
        return tuple(placed for placed in self.sections if placed.part == part)

    @cached_property
    def _blocks(self) -> dict[tuple[str, str | None], tuple[Block, ...]]:
        return {}

    def blocks(self, placed: Placed, task: TaskView | None = None) -> tuple[Block, ...]:
        """Return what a section shows of a task, or of the whole run; computed once."""
        key = placed.name, None if task is None else task.key
        if key not in self._blocks:
            blocks = tuple(placed.section.blocks(self.run, task))
            self._blocks[key] = blocks if self.run.question == "methods" else worded_for_systems(self.run)(blocks)
        return self._blocks[key]

    @property
    def tasks(self) -> tuple[TaskView, ...]:
        """The tasks with at least one scored run."""
        return tuple(task for task in self.run.tasks if self.run.methods_of(task))

    def figures(self) -> Iterator[tuple[str, Figure]]:
        """Yield the name of every figure's file with the figure: after its task, ``across`` tasks, or its own name."""
        shown = [(f"{task.key}-", self.blocks(placed, task)) for task in self.tasks for placed in self.of_part("task")]
        shown += [("across-" if placed.part == "task" else "", self.blocks(placed)) for placed in self.sections]
        for prefix, blocks in shown:
            yield from ((prefix + block.name, block) for block in blocks if isinstance(block, Figure))

    def document(self) -> dict[str, Any]:
        """Return everything as one JSON document."""
        run, cells = self.run, self.run.scores.cells.items()
        document: dict[str, Any] = {
            "run": run.manifest.name,
            "parts": [vars(part) for part in run.manifest.parts],
            "scores": [
                dict(zip(("task", "split", "method", "metric"), key, strict=True))
                | {"mean": cell.mean, "std": cell.std, "runs": cell.n, "undefined": cell.undefined}
                for key, cell in cells
            ],
        }
        for placed in self.sections:
            document |= placed.section.document(run)
        return {
            **document,
            "not_ranked": dict(run.scores.not_ranked),
            "failures": [vars(failure) for failure in run.failures],
            "skipped": [vars(skipped) for skipped in run.manifest.skipped],
        }

    @property
    def scores(self) -> list[Score]:
        """All scores once: those of the table, and further ones that sections have added."""
        scores = self.run.scores.scores
        listed = {(score.task, score.split, score.metric) for score in scores}
        return [*scores, *(s for s in self.run.extra_scores if (s.task, s.split, s.metric) not in listed)]

    def files(self) -> dict[str, str | CsvTable]:
        """Return the texts and tables that sections write beside the page."""
        return {name: text for placed in self.sections for name, text in placed.section.files(self.run).items()}


def build_report(
    source: Source,
    manifest: Mapping[str, Any],
    *,
    options: Iterable[str] = (),
    progress: Callable[[str], None] = lambda text: None,
    store: str = "",
) -> Report:
    """Score every run of a manifest from its stored predictions and gather all sections.

    Args:
        source: The store with predictions and records.
        manifest: The benchmark run.
        options: Sections that are made only on request, such as ``as-published``.
        progress: Called with a sentence before each task is scored.
        store: The folder of the store as commands name it; empty where they need not.

    Raises:
        BadFile: When the manifest lacks a field or one has another type.
    """
    view = read_manifest(manifest)
    run = RunView(view, source, empty_table(view), options=frozenset(options), store=store)
    report, scorer = Report(run, registered_sections()), Scorer()
    for task in view.tasks:
        networks: list[Predictions] = []
        progress(f"scoring {counted(len(view.runs_of(task.key)), 'prediction')} of {task.key}")
        for method_run in view.runs_of(task.key):
            _visit_run(report, task, method_run, scorer, networks)
        if (curve := growth_of(networks)) is not None:
            run.growth[task.key] = curve
        for placed in report.sections:
            placed.section.finish(run, task)
    return report


def registered_sections() -> tuple[Placed, ...]:
    """Make every registered section, in the order of the page."""
    parts = get_args(Part)
    entries = sorted(SECTIONS.entries(), key=lambda entry: (parts.index(entry.facts["part"]), entry.facts["order"]))
    return tuple(Placed(entry.name, entry.facts["part"], entry.factory(), entry.facts["order"]) for entry in entries)


def _visit_run(
    report: Report, task: TaskView, method_run: MethodRun, scorer: Scorer, networks: list[Predictions]
) -> None:
    """Show one run on every test split; predictions that cannot be read are reported as failures."""
    run, in_domain = report.run, None
    single = {network.id for network in run.manifest.single_networks(task)}
    for split in (*task.of_kind("id"), *task.of_kind("shift", "ood")):
        try:
            predictions = task.read(run.source, method_run, split)
            item = Visit(run, task, split, method_run, predictions, in_domain)
            scorer.score(item)
        except DubioError as fault:
            if isinstance(fault.__cause__, OSError):
                raise  # the disk cannot be read now: an older report is better than one that lacks these rows
            what = f"predictions on {split.name}"
            run.missing.append(Failure(what, task.key, method_run.method, str(fault), method_run.id))
            continue
        for placed in report.sections:
            placed.section.visit(item)
        run.scores.add(task, split, method_run, item.values)
        if item.is_in_domain_test:
            in_domain = InDomain(item.uncertainties, dict(item.values), item.temperature, predictions.group)
            if method_run.id in single:
                networks.append(predictions)


def parts_left_out(predictions: Predictions, fits: Fits) -> Iterator[tuple[Fits, Predictions]]:
    """Yield the fits left out, one or a part of them at a time, and an ensemble's predictions without them.

    Nothing where the samples are not of several fits: snapshots, draws and heads of one training do not say how
    trainings vary.
    """
    members = np.unique(predictions.member)
    if len(members) < 2 or not len(members) == len(fits) == len(set(fits)):
        return
    for indices in np.array_split(np.arange(len(members)), min(len(members), MOST_PARTS)):
        others = ~np.isin(predictions.member, members[indices])
        yield tuple(fits[index] for index in indices), predictions.take_samples(others)


def growth_of(networks: Sequence[Predictions]) -> GrowthCurve | None:
    """Return the curve of deep ensembles of 1, 2, … of these networks, over all seeds; None of fewer than two."""
    if len(networks) < 2:
        return None
    try:
        return growth_curve(pool_members(list(networks)), orders=ORDERS)
    except UserError:
        return None


def empty_table(manifest: Manifest) -> ScoreTable:
    """Return a table that knows the direction of every metric, and which ones must not rank."""
    metrics = in_domain_metrics()
    not_ranked = {m.name: m.why_not for m in (*metrics, *metrics_for((GAP,))) if not m.comparable}
    return ScoreTable(manifest, directions(metrics), not_ranked)


class Scorer:
    """Scores every visit; one of them serves a whole report."""

    def __init__(self) -> None:
        """Make the metrics once."""
        self.metrics, self.shifted = in_domain_metrics(), metrics_for(SHIFTED)
        self._inside: dict[tuple[str, Fits], dict[str, FloatArray]] = {}

    def score(self, item: Visit) -> None:
        """Add the scores of a visit to its values, and its values per example to the table."""
        own = own_quantities(item.predictions)
        item.report.scores.add_own_quantities(own)
        metrics = (*self.metrics, *own_metrics(own)) if item.split.kind == "id" else self.shifted
        item.values |= measure(metrics, item.predictions)
        if item.split.kind != "id" or item.is_in_domain_test:
            rows = values_per_example(metrics, item.predictions, item.values)
            group = item.predictions.labelled.group if rows else None
            item.report.scores.add_rows(item.task, item.split, item.run, rows, group)
            if item.report.question == "systems":
                self._resample(item, metrics, rows)
            if item.is_in_domain_test and RANKED_BY in rows:
                exchanges = enough_exchanges(len(item.report.methods))
                gain = gain_of(item.predictions, rows[RANKED_BY], exchanges=exchanges)
                item.report.scores.add_gain(item.task, item.run, gain, group)
        if item.split.kind == "id":
            self._score_in_domain(item)
        else:
            self._score_shifted(item)
        self._score_parts(item)

    def _resample(self, item: Visit, metrics: tuple[Metric, ...], rows: Mapping[str, FloatArray]) -> None:
        """Add the intervals of a trained system's scores, and draws of those that rank and have no values per example.

        They are those of ``dubio evaluate``: the same replicates, of the same seed.
        """
        table, facts = item.report.scores, (item.task, item.split, item.run)
        scores = evaluate_predictions(item.predictions, metrics=metrics).scores.items()
        table.add_intervals(*facts, {name: Interval(score.value, score.low, score.high) for name, score in scores})
        count = enough_replicates(REPLICATES, comb(len(item.report.methods), 2), 1 - ALPHA)
        for labels in (True, False):
            others = [m for m in metrics if m.comparable and m.name not in rows and ("labels" in m.needs) == labels]
            own = [guarded(metric) for metric in others if not isnan(item.values.get(metric.name, nan))]
            if own:
                basis_rows = basis(own[0], item.predictions)
                units = units_of(basis_rows)
                forms = {metric.name: metric_statistic(metric, basis_rows) for metric in own}
                draws = replicate(forms, units, replicates=count, seed=0)
                for metric in own:
                    table.add_draws(*facts, {metric.name: draws[metric.name]}, tested_units(metric, basis_rows))

    def _score_parts(self, item: Visit) -> None:
        """Add the scores of an ensemble without some of its fits, where its runs alone do not say how trainings vary.

        They are computed for the metrics that rank; detection compares both sides without the same fits.
        """
        repeats = len(item.report.manifest.runs_of(item.task.key, item.run.method)) - 1
        if repeats >= ENOUGH or not (item.split.kind != "id" or item.is_in_domain_test):
            return
        if item.is_in_domain_test:  # the first split of a run: those of the run before are no longer needed
            self._inside = {}
        metrics = tuple(m for m in (self.metrics if item.is_in_domain_test else self.shifted) if m.comparable)
        for fits, predictions in parts_left_out(item.predictions, item.run.fits):
            values = measure(metrics, predictions)
            if item.is_in_domain_test:
                self._inside[item.run.id, fits] = uncertainties(predictions)
            else:
                values |= detection(self._inside.get((item.run.id, fits), {}), uncertainties(predictions))
            if item.is_in_domain_test or (item.task.has_positive_side and item.is_shown and item.has_labels):
                values |= referral_values(item.task, predictions)
            item.report.scores.add_left_out(item.task, item.split, item.run, fits, values)

    def _score_in_domain(self, item: Visit) -> None:
        item.values |= at_thresholds(item.report.source, item.task, item.run, item.predictions)
        if item.is_in_domain_test and item.has_labels:
            _add_accuracy_changes(item)
        if item.is_in_domain_test and not np.isnan(item.values.get(RANKED_BY, np.nan)):
            fitted = cross_validate(item.predictions)
            fits = item.report.scores.temperatures.setdefault((item.task.key, item.run.method), TemperatureFits())
            fits.values.extend(fitted.temperatures)
            fits.at_bound += sum(value <= 1 / HIGHEST for value in fitted.temperatures)
            item.temperature = float(np.median(fitted.temperatures))

    def _score_shifted(self, item: Visit) -> None:
        before, group = item.in_domain or InDomain(), item.predictions.group
        if item.split.kind == "shift" and item.task.has_positive_side and item.is_shown and item.has_labels:
            _add_accuracy_changes(item)
        item.values |= corrupted_values(item.task, item.split, item.predictions, before.temperature)
        item.values |= detection(before.uncertainties, item.uncertainties)
        item.report.scores.detection.add(item.key, before.uncertainties, item.uncertainties, (before.group, group))
        systems = item.report.question == "systems"  # of methods, other quantities are compared over trainings alone
        shared = [name for name in before.uncertainties if name in item.uncertainties]
        for quantity in (name for name in shared if systems or name == HEADLINE):
            sides = before.uncertainties[quantity], item.uncertainties[quantity]
            sizes = [len(side) for side in sides]
            ood = np.repeat([False, True], sizes)
            rows = placements(np.concatenate(sides), ood)
            groups = join_names([before.group, group], sizes)
            name = detection_name("ood_auroc", quantity)
            units = units_of_smaller_side(ood, groups)
            item.report.scores.add_rows(item.task, item.split, item.run, {name: rows}, groups, units)
        if item.split.kind == "shift" and "accuracy" in before.values and "accuracy" in item.values:
            item.values[GAP] = before.values["accuracy"] - item.values["accuracy"]


def _add_accuracy_changes(item: Visit) -> None:
    """Add what referral changes of the accuracy on every example of a split."""
    labelled = item.predictions.labelled
    changes = accuracy_changes(labelled, quantity=REFERRED_BY, retained=RETAINED_SHARE)
    item.report.scores.add_rows(item.task, item.split, item.run, {ACCURACY_CHANGE: changes}, labelled.group)
