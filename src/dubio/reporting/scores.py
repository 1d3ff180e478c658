"""From stored predictions to scores: each prediction read once, measured, and let go.

What stays in memory is the long table, a few curves a run and, for paired comparisons, one loss per test example and
method. The control, referral at random, needs no draw: its expected accuracy (and area under the ROC curve) is that of
all examples, whatever fraction is retained. Where a task keeps examples aside for guarantees, one run a method is read
once more for its referral policy: what is asked of it depends on the scores of all.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from dubio.calibration.cross_validation import REPEATS, cross_validate
from dubio.core.errors import DubioError
from dubio.core.predictions import Predictions
from dubio.core.types import FloatArray, Metric, StrArray
from dubio.metrics.referral_curve import FRACTIONS
from dubio.reporting.aggregate import Score
from dubio.reporting.capacities import Capacity
from dubio.reporting.comparison import Losses
from dubio.reporting.cost import Cost, cost_of, environment_of
from dubio.reporting.ensembles.gathering import studies_of
from dubio.reporting.ensembles.shifted import graded_values
from dubio.reporting.fits import FitFacts, fit_facts
from dubio.reporting.manifest import Failure, Manifest, RunView, Source, SplitView, TaskView, read_manifest
from dubio.reporting.measures import (
    GAP,
    HEADLINE,
    RANKED_BY,
    SHIFTED,
    Measured,
    at_thresholds,
    curves_of,
    detection,
    detection_name,
    directions,
    entropy_parts,
    in_domain_metrics,
    measure,
    metrics_for,
    referral_name,
    referral_values,
    uncertainties,
)
from dubio.reporting.placements import placements
from dubio.reporting.policies import policies_of
from dubio.reporting.promises import Promise
from dubio.reporting.results import Results, RunCurves
from dubio.reporting.screening.gathering import ScreeningGathering
from dubio.reporting.sizes import Grown, Growth, grow_at_home, grow_away
from dubio.reporting.sketches import Sketches, at_home, away
from dubio.reporting.words import RANDOM
from dubio.reporting.worth import growth_of, networks_of
from dubio.statistics.ensemble_equivalent import GrowthCurve


@dataclass
class _Gathering:
    """What has been gathered so far."""

    scores: list[Score] = field(default_factory=list)
    curves: dict[tuple[str, str], list[RunCurves]] = field(default_factory=dict)
    losses: dict[tuple[str, str, str], list[FloatArray]] = field(default_factory=dict)
    groups: dict[str, StrArray | None] = field(default_factory=dict)
    unsettled: dict[tuple[str, str], tuple[int, int]] = field(default_factory=dict)
    temperatures: dict[tuple[str, str], list[float]] = field(default_factory=dict)
    entropies: dict[tuple[str, str, str], list[FloatArray]] = field(default_factory=dict)
    wanted: frozenset[str] = frozenset()
    networks: list[Predictions] = field(default_factory=list)
    promises: dict[str, Mapping[str, Promise]] = field(default_factory=dict)
    capacities: dict[str, Mapping[str, Capacity]] = field(default_factory=dict)
    growth: dict[str, GrowthCurve] = field(default_factory=dict)
    missing: list[Failure] = field(default_factory=list)
    sketches: dict[tuple[str, str, str, str], list[FloatArray]] = field(default_factory=dict)
    sizes: dict[tuple[str, str], list[Growth]] = field(default_factory=dict)
    away_losses: dict[tuple[str, str, str, str], list[FloatArray]] = field(default_factory=dict)
    screening: ScreeningGathering = field(default_factory=ScreeningGathering)

    def add(self, task: TaskView, split: SplitView, run: RunView, values: Mapping[str, float]) -> None:
        """File the values of one run on one split."""
        for metric, value in values.items():
            self.scores.append(
                Score(task.key, split.name, split.kind, run.method, run.seed, run.member, metric, float(value))
            )

    def add_losses(self, task: TaskView, run: RunView, measured: Measured) -> None:
        """Add a run's losses to its method's running sum (kept as [sum, number of runs])."""
        for metric, loss in measured.losses.items():
            known = self.losses.setdefault((task.key, metric, run.method), [np.zeros_like(loss), np.zeros(1)])
            known[0] += loss
            known[1] += 1

    def add_away_loss(self, task: TaskView, split: SplitView, run: RunView, metric: str, loss: FloatArray) -> None:
        """The same for a metric on a split away from home."""
        key = task.key, split.name, metric, run.method
        known = self.away_losses.setdefault(key, [np.zeros_like(loss), np.zeros(1)])
        known[0] += loss
        known[1] += 1

    def add_sketches(self, task: TaskView, run: RunView, sketches: Sketches) -> None:
        """File the quantiles of a run's uncertainties."""
        for (group, quantity), values in sketches.items():
            self.sketches.setdefault((task.key, group, run.method, quantity), []).append(values)


def score_run(store: Source, manifest: Mapping[str, Any]) -> Results:
    """Score every run of a manifest from its stored predictions.

    Args:
        store: Where the predictions and records are.
        manifest: The benchmark run.

    Raises:
        BadFile: When the manifest is of another schema or lacks a field.
    """
    view = read_manifest(manifest)
    metrics, shifted = in_domain_metrics(), metrics_for(SHIFTED)
    found = _Gathering()
    for task in view.tasks:
        found.wanted, found.networks = networks_of(view, task), []
        for run in view.runs_of(task.key):
            _score_one(store, task, run, found, metrics, shifted)
        _add_control(view, task, found)
        _add_policies(store, view, task, found)
        curve = growth_of(found.networks)
        if curve is not None:
            found.growth[task.key] = curve
    costs, environment, fits = _costs(store, view)
    return Results(
        manifest=view,
        scores=tuple(found.scores),
        curves={key: tuple(curves) for key, curves in found.curves.items()},
        losses={key: Losses(total / count[0], found.groups[key[0]]) for key, (total, count) in found.losses.items()},
        costs=costs,
        better=directions(metrics),
        not_ranked={m.name: m.why_not for m in (*metrics, *metrics_for((GAP,))) if not m.comparable},
        environment=environment,
        unsettled=found.unsettled,
        temperatures={key: tuple(values) for key, values in found.temperatures.items()},
        entropies={key: np.mean(parts, axis=0) for key, parts in found.entropies.items()},
        promises=found.promises,
        capacities=found.capacities,
        growth=found.growth,
        missing=tuple(found.missing),
        sketches={key: np.array(runs) for key, runs in found.sketches.items()},
        sizes={key: tuple(runs) for key, runs in found.sizes.items()},
        fits=fits,
        away_losses={key: Losses(total / count[0]) for key, (total, count) in found.away_losses.items()},
        screening=found.screening.screening(view),
        galleries=found.screening.galleries(store, view),
        studies=studies_of(store, view, found.growth),
    )


def _score_one(
    store: Source,
    task: TaskView,
    run: RunView,
    found: _Gathering,
    metrics: tuple[Metric, ...],
    shifted: tuple[Metric, ...],
) -> None:
    """Score one run on every test split of its task; predictions that cannot be read are reported, not skipped over."""
    home, seen = task.of_kind("id")[0], _Seen()
    for split in (*task.of_kind("id"), *task.of_kind("shift", "ood")):
        try:
            predictions = store.read_predictions(run.id, split.name, split.fingerprint)
            tuned = at_thresholds(store, task, run, predictions) if split.kind == "id" else {}
        except DubioError as fault:
            found.missing.append(Failure(f"predictions on {split.name}", task.key, run.method, str(fault), run.id))
            continue
        if split.kind == "id":
            values = {**_score_inside(task, split, run, predictions, found, metrics), **tuned}
            if split == home:
                fitted = found.temperatures.get((task.key, run.method), [])[-2 * REPEATS :]
                warmth = float(np.median(fitted)) if fitted else None
                seen = _Seen(uncertainties(predictions), values.get("accuracy"), grow_at_home(predictions), warmth)
                found.add_sketches(task, run, at_home(predictions, seen.uncertainties))
        else:
            measured = measure(shifted, predictions)
            values = {**measured.values, **graded_values(task, split, predictions, seen.temperature)}
            if predictions.group is None and "accuracy" in measured.losses:
                found.add_away_loss(task, split, run, "accuracy", measured.losses["accuracy"])
            seen = _score_away(task, split, run, predictions, found, values, seen)
        curves = found.curves[task.key, run.method][-1] if split == home else None
        values |= found.screening.look(task, split, run, predictions, curves)
        found.add(task, split, run, values)
        key = task.key, split.name, run.method
        if split.kind == "id" or split in task.farthest:
            found.entropies.setdefault(key, []).append(entropy_parts(predictions))
    if seen.grown is not None:
        found.sizes.setdefault((task.key, run.method), []).append(seen.grown.growth)


@dataclass(frozen=True, eq=False)
class _Seen:
    """What is remembered of a run on its in-domain test set while its other splits are read."""

    uncertainties: Mapping[str, FloatArray] = field(default_factory=dict)
    accuracy: float | None = None
    grown: Grown | None = None
    temperature: float | None = None


def _score_away(
    task: TaskView, split: SplitView, run: RunView, predictions: Predictions, found: _Gathering,
    values: dict[str, float], seen: _Seen,
) -> _Seen:  # fmt: skip
    """Add detection, and the accuracy lost under shift, to the values of a split away from home."""
    outside = uncertainties(predictions)
    values |= detection(seen.uncertainties, outside)
    if HEADLINE in seen.uncertainties and predictions.group is None and found.groups.get(task.key) is None:
        placed = placements(seen.uncertainties[HEADLINE], outside[HEADLINE])
        found.add_away_loss(task, split, run, detection_name("ood_auroc", HEADLINE), placed)
    if split.kind == "shift" and seen.accuracy is not None and "accuracy" in values:
        values[GAP] = seen.accuracy - values["accuracy"]
    if split not in task.farthest:
        return seen
    found.add_sketches(task, run, away(split.name, outside))
    return seen if seen.grown is None else replace(seen, grown=grow_away(seen.grown, split.name, predictions))


def _score_inside(
    task: TaskView,
    split: SplitView,
    run: RunView,
    predictions: Predictions,
    found: _Gathering,
    metrics: tuple[Metric, ...],
) -> dict[str, float]:
    """Scores of one in-domain split; curves and losses are kept for the first such split alone."""
    measured = measure(metrics, predictions)
    curves = curves_of(task, run, predictions)
    if split == task.of_kind("id")[0]:
        found.curves.setdefault((task.key, run.method), []).append(curves)
        found.groups[task.key] = predictions.labelled.group
        found.add_losses(task, run, measured)
        if run.id in found.wanted:
            found.networks.append(predictions)
        if RANKED_BY in measured.losses:
            fitted = cross_validate(predictions)
            hits, fits = found.unsettled.get((task.key, run.method), (0, 0))
            found.unsettled[task.key, run.method] = hits + fitted.bound_hits, fits + len(fitted.temperatures)
            found.temperatures.setdefault((task.key, run.method), []).extend(fitted.temperatures)
    return {**measured.values, **referral_values(curves)}


def reference_method(view: Manifest, task: TaskView) -> str | None:
    """The method whose examples the control refers at random: the first single one with a run on the task."""
    present = {run.method for run in view.runs_of(task.key)}
    names = [method.name for method in sorted(view.methods, key=lambda method: method.ensemble)]
    return next((name for name in names if name in present), None)


def _add_control(view: Manifest, task: TaskView, found: _Gathering) -> None:
    """Random referral of the reference method: the value at full retention, at every fraction."""
    reference = reference_method(view, task)
    for metric in ("referral_accuracy", "referral_auc"):
        whole = referral_name(metric, 1.0)
        found.scores += [
            replace(score, method=RANDOM, metric=referral_name(metric, fraction))
            for score in tuple(found.scores)
            if score.task == task.key and score.method == reference and score.metric == whole
            for fraction in FRACTIONS
        ]


def _add_policies(store: Source, view: Manifest, task: TaskView, found: _Gathering) -> None:
    """Referral policies of the first scored run of each method: half of the reference's error, and a capacity."""
    home, reference = task.of_kind("id")[0].name, reference_method(view, task)
    right = [
        score.value
        for score in found.scores
        if (score.task, score.split, score.method, score.metric) == (task.key, home, reference, "accuracy")
    ]
    first = {
        method.name: found.curves[task.key, method.name][0].run
        for method in view.methods
        if (task.key, method.name) in found.curves
    }
    error = 1.0 - float(np.mean(right)) if right else 0.0
    found.promises[task.key], found.capacities[task.key] = policies_of(store, task, first, error)


def _costs(store: Source, view: Manifest) -> tuple[dict[tuple[str, str], Cost], dict[str, str], dict[str, FitFacts]]:
    records: dict[str, Mapping[str, Any]] = {}
    costs = {}
    for task in view.tasks:
        for method in view.methods:
            runs = view.runs_of(task.key, method.name)
            if runs:
                costs[task.key, method.name] = cost_of(store, runs, records)
    return costs, environment_of(records), fit_facts(store, view, records)
