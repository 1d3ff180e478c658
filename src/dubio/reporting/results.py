"""Everything the report shows, computed once from the stored predictions and then only read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from dubio.core.types import Direction
from dubio.core.types import FloatArray as Values
from dubio.reporting.aggregate import Cell, Key, Score, aggregate
from dubio.reporting.capacities import Capacity
from dubio.reporting.cost import Cost
from dubio.reporting.fits import FitFacts
from dubio.reporting.manifest_view import Failure, Manifest, MethodRun, MethodView, TaskView
from dubio.reporting.promises import Promise
from dubio.reporting.sizes import Growth
from dubio.statistics.ensemble_equivalent import GrowthCurve
from dubio.statistics.verdicts import Losses, Verdict, against_best
from dubio.studies.ensembles.study import Study
from dubio.studies.retina.found import Gallery, Screening

BINS = 15
"""Bins of the reliability diagram, as of the expected calibration error."""

REJECTED = np.arange(96) / 100
"""Fractions at which the accuracy–rejection curve is kept."""

RETAINED = np.arange(50, 101) / 100
"""Fractions at which referral curves are kept."""

DENSITY_EDGES = np.linspace(0.0, 1.0, 26)
"""Bins of an uncertainty that is divided by its largest possible value."""


@dataclass(frozen=True, eq=False)
class RunCurves:
    """What figures need of one run on its in-domain test set.

    Attributes:
        run: Which run.
        count: ``[BINS]`` predictions per bin of confidence.
        confidence: ``[BINS]`` sums of their confidence.
        correct: ``[BINS]`` sums of their being right.
        rejection: Accuracy of the kept at :data:`REJECTED`.
        referral_accuracy: Accuracy of the retained at :data:`RETAINED`.
        referral_auc: Area under the ROC curve there; None where the task is not binary.
        variance: ``[3]`` parts of the total variance: within every sample, between the samples of a member, between
            members.
    """

    run: MethodRun
    count: Values
    confidence: Values
    correct: Values
    rejection: Values
    referral_accuracy: Values
    referral_auc: Values | None
    variance: Values


@dataclass(frozen=True, eq=False)
class Results:
    """Scores, curves and costs of a benchmark run.

    Attributes:
        manifest: What was run.
        scores: The long table.
        curves: (task, method) → curves of its runs.
        losses: (task, metric, method) → per-example losses, averaged over runs.
        costs: (task, method) → what it costs.
        better: Metric → which way is better.
        not_ranked: Metric → why it must not rank methods.
        environment: Names and versions of what the runs ran on.
        unsettled: (task, method) → temperatures of the calibrated score that hit the end of their range, and all of
            them: such a half of the test set has no best temperature, mostly because every example in it is right.
        temperatures: (task, method) → all temperatures of the calibrated score, of every run.
        entropies: (task, split, method) → mean expected entropy and mean mutual information, over runs; of the
            in-domain test set and of one split a place away from home.
        promises: Task → method → its referral policy and what became of it.
        growth: Task → the curve of growing deep ensembles, where there are any.
        missing: Runs of the manifest whose predictions could not be read, and why.
        sketches: (task, group, method, quantity) → ``[runs, levels]`` quantiles of an uncertainty; groups are the
            correct and the incorrect examples of the in-domain test set, and the splits away from it.
        sizes: (task, method) → how its ensembles grow, one a run.
        fits: Fit id → when it converged, which rates it learned.
        as_published: Scores under published definitions that are mistaken, each beside the right one; never ranked.
        away_losses: (task, split, metric, method) → per-example losses away from home, averaged over runs: of accuracy,
            and of AUROC by confidence. None where rows come in groups.
        screening: Task → referral on every split and calibration of subgroups, where it is two-sided or has any.
        galleries: Task → examples with their pictures, where some were kept.
        studies: Task → its ensembling study, where it has one.
        capacities: Task → method → its policy for a share to refer, and what became of it.
    """

    manifest: Manifest
    scores: tuple[Score, ...]
    curves: Mapping[tuple[str, str], tuple[RunCurves, ...]]
    losses: Mapping[tuple[str, str, str], Losses]
    costs: Mapping[tuple[str, str], Cost]
    better: Mapping[str, Direction]
    not_ranked: Mapping[str, str]
    environment: Mapping[str, str]
    unsettled: Mapping[tuple[str, str], tuple[int, int]]
    temperatures: Mapping[tuple[str, str], tuple[float, ...]]
    entropies: Mapping[tuple[str, str, str], Values]
    promises: Mapping[str, Mapping[str, Promise]]
    growth: Mapping[str, GrowthCurve]
    missing: tuple[Failure, ...]
    sketches: Mapping[tuple[str, str, str, str], Values] = field(default_factory=dict)
    sizes: Mapping[tuple[str, str], tuple[Growth, ...]] = field(default_factory=dict)
    fits: Mapping[str, FitFacts] = field(default_factory=dict)
    as_published: tuple[Score, ...] = ()
    away_losses: Mapping[tuple[str, str, str, str], Losses] = field(default_factory=dict)
    screening: Mapping[str, Screening] = field(default_factory=dict)
    galleries: Mapping[str, Gallery] = field(default_factory=dict)
    studies: Mapping[str, Study] = field(default_factory=dict)
    capacities: Mapping[str, Mapping[str, Capacity]] = field(default_factory=dict)
    report: Any = None

    @cached_property
    def cells(self) -> dict[Key, Cell]:
        """Mean and spread of every (task, split, method, metric)."""
        return aggregate(self.scores)

    @cached_property
    def kin(self) -> dict[str, int]:
        """Method → members: methods with as many are taken to vary alike over runs."""
        return {method.name: method.members for method in self.manifest.methods}

    def methods_of(self, task: TaskView) -> tuple[MethodView, ...]:
        """The methods that have at least one whole run on a task, in the benchmark's order."""
        return tuple(method for method in self.manifest.methods if self.curves.get((task.key, method.name)))

    def cells_of(self, task: TaskView, split: str, metric: str) -> dict[str, Cell]:
        """Method → its cell, for those that have one."""
        found = {m.name: self.cells.get((task.key, split, m.name, metric)) for m in self.methods_of(task)}
        return {name: cell for name, cell in found.items() if cell is not None}

    def verdicts(self, task: TaskView, split: str, metric: str) -> dict[str, Verdict]:
        """Method → where it stands; empty for a metric that must not rank."""
        if metric in self.not_ranked or metric not in self.better:
            return {}
        losses = self.losses_of(task, split, metric)
        return against_best(self.cells_of(task, split, metric), self.better[metric], losses or None, self.kin)

    def losses_of(self, task: TaskView, split: str, metric: str) -> dict[str, Losses]:
        """Method → its losses on a split, for those that have any."""
        if task.of_kind("id")[0].name == split:
            found = {m.name: self.losses.get((task.key, metric, m.name)) for m in self.methods_of(task)}
        else:
            found = {m.name: self.away_losses.get((task.key, split, metric, m.name)) for m in self.methods_of(task)}
        return {name: losses for name, losses in found.items() if losses is not None}

    @property
    def failures(self) -> tuple[Failure, ...]:
        """All that was asked for and is not there."""
        return (*self.manifest.failures, *self.missing)
