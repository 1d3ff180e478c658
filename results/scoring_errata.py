"""What mistakes in scoring did: published and correct definitions on the same stored predictions.

A mistake changes the value of every method, and their order. Both get intervals from resampled test rows: each
replicate draws as many in-domain rows and as many OOD rows as there are, and keeps them in the order of the test set,
on which the mistaken detection scores depend: rows may come class by class. Where rows come in groups (patients), whole
groups are drawn.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from dubio.core.predictions import Predictions
from dubio.core.types import FloatArray, IntArray
from dubio.metrics.metric import metric_named
from dubio.reporting.manifest_view import SplitView
from dubio.statistics.bootstrap import percentile_interval
from dubio.statistics.ranks import kendall_tau
from results.stored import Runs, Stored

REPLICATES = 500
"""Resampled test sets of an interval."""

SPLITS = 20
"""Unseeded calibration splits of every method."""

DOMAINS = ("amazon-books", "amazon-dvd", "amazon-electronics", "amazon-kitchen")
"""Tasks whose in-domain test set is told from each of their shifted ones."""


@dataclass(frozen=True)
class Mistake:
    """A published definition and the correct one, and the tasks on which they are compared.

    Attributes:
        title: What the page calls it.
        published: The mistaken metric.
        correct: The correct one.
        tasks: Tasks as corrected, whose stored predictions are scored by both.
        detection: Whether rows of two test sets are told apart.
    """

    title: str
    published: str
    correct: str
    tasks: tuple[str, ...]
    detection: bool = False


NOVEL = ("clinc", "reuters-novelty", "20news-novelty")

INDEX = Mistake(
    "AUROC with the in-domain rows taken by `~index` (T)", "ood_auroc_as_published", "ood_auroc", NOVEL, detection=True
)

MISTAKES = (
    INDEX,
    Mistake("AUPR as 1 − AP, with an equal number of in-domain rows by `~index` (T)",
            "ood_aupr_as_published", "ood_aupr", NOVEL, detection=True),
    Mistake("likelihood of renormalised rows, several labels (T)", "nll_as_published", "nll", ("reuters-novelty",)),
    Mistake("AURC with a wrong step (P)", "aurc_as_published", "aurc", ("clinc", "cifar10")),
    Mistake("accuracy of the 80 % retained, averaged over fractions (R)",
            "referral_accuracy_as_published(retained=0.8)", "referral_accuracy(retained=0.8)",
            ("clinc", "retina", "cifar10")),
    Mistake("AUC of the 80 % retained, of the rows of several fractions (R)",
            "referral_auc_as_published(retained=0.8)", "referral_auc(retained=0.8)", ("retina",)),
)  # fmt: skip

SCORED = ("clinc", "reuters-novelty", "20news-novelty", "retina", "cifar10")


@dataclass(frozen=True, eq=False)
class Effect:
    """What a mistake did on one task.

    Attributes:
        mistake: The mistake.
        task: The task.
        methods: Names.
        published: Values ``[1 + replicates, methods]`` under the published definition; the first row is of the test
            set itself.
        correct: Under the correct one.
    """

    mistake: Mistake
    task: str
    methods: tuple[str, ...]
    published: FloatArray
    correct: FloatArray

    @property
    def change(self) -> tuple[float, float, float]:
        """Mean change over methods, published less correct, and its 95 % interval."""
        changes = (self.published - self.correct).mean(axis=1)
        return _with_interval(float(changes[0]), changes[1:])

    @property
    def means(self) -> tuple[float, float]:
        """The mean over methods under the published and under the correct definition."""
        return float(self.published[0].mean()), float(self.correct[0].mean())

    @property
    def agreement(self) -> tuple[float, float, float] | None:
        """Kendall's τ_b of the two orders and its 95 % interval; None where all methods are tied."""
        published = self._losses(self.mistake.published, self.published)
        correct = self._losses(self.mistake.correct, self.correct)
        taus = [kendall_tau(*pair) for pair in zip(published, correct, strict=True)]
        if len(self.methods) < 2 or taus[0] is None:
            return None
        return _with_interval(taus[0], np.array(taus[1:], dtype=np.float64))  # None becomes NaN

    @property
    def leaders(self) -> tuple[str, str]:
        """The best method under the published and under the correct definition."""
        sides = (self.mistake.published, self.published), (self.mistake.correct, self.correct)
        first, second = (self.methods[int(self._losses(name, values)[0].argmin())] for name, values in sides)
        return first, second

    def _losses(self, metric: str, values: FloatArray) -> FloatArray:
        return values if metric_named(metric).better == "lower" else -values


def scoring_effect(runs: Runs, task: str, mistake: Mistake) -> Effect | None:
    """Return the effect of a mistake on a task, on the first training of every method; None if nothing was run."""
    read = Stored.with_ood if mistake.detection else Stored.in_domain
    return _effect(mistake, task, first_trainings(runs, task), read)


def domain_effects(runs: Runs, task: str) -> list[Effect]:
    """Return the effect of :data:`INDEX` on detecting each shifted test set of a task."""
    first = first_trainings(runs, task)
    splits = next(iter(first.values())).task.of_kind("shift") if first else ()
    effects = (
        _effect(INDEX, f"{task.partition('-')[2]} → {split.name}", first, partial(_beside, split), [split.name])
        for split in splits
    )
    return [effect for effect in effects if effect is not None]


def _beside(split: SplitView, stored: Stored) -> Predictions:
    return stored.beside(split)


def _effect(
    mistake: Mistake,
    title: str,
    first: Mapping[str, Stored],
    read: Callable[[Stored], Predictions | None],
    purpose: Sequence[str] = (),
) -> Effect | None:
    """Return the effect of a mistake on the predictions that are read of each method."""
    columns: dict[str, tuple[FloatArray, FloatArray]] = {}
    kept_order = ["in order"] if mistake.detection else []  # of scores that depend on it
    for method, stored in first.items():
        metrics = [[name, metric_named(name).version] for name in (mistake.published, mistake.correct)]
        values = stored.cached([metrics, REPLICATES, *kept_order, *purpose], partial(_values, stored, mistake, read))
        if len(values):
            columns[method] = values[0], values[1]
    if not columns:
        return None
    published, correct = (np.stack([pair[side] for pair in columns.values()], axis=1) for side in (0, 1))
    return Effect(mistake, title, tuple(columns), published, correct)


def first_trainings(runs: Runs, task: str) -> dict[str, Stored]:
    """Return the first run of every method on a task."""
    every = {method: own for (name, method), own in runs.items() if name == task}
    return {method: own[min(own, key=lambda key: (key[0], key[1] or 0))] for method, own in every.items()}


def _values(
    stored: Stored, mistake: Mistake, read: Callable[[Stored], Predictions | None]
) -> Sequence[FloatArray]:
    """Return both rows of values, none where there is nothing to tell apart."""
    predictions = read(stored)
    return () if predictions is None else resampled_values(predictions, mistake, replicates=REPLICATES)


def resampled_values(
    predictions: Predictions, mistake: Mistake, *, replicates: int
) -> tuple[FloatArray, FloatArray]:
    """Return the values of both definitions on the test set and on its replicates, ``[1 + replicates]`` each."""
    generator = np.random.default_rng(0)
    metrics = metric_named(mistake.published), metric_named(mistake.correct)
    values: tuple[list[float], list[float]] = ([], [])
    for rows in (np.arange(len(predictions)), *(resampled_rows(predictions, generator) for _ in range(replicates))):
        replicate = predictions.take(rows)
        for side, metric in zip(values, metrics, strict=True):
            side.append(metric.compute(replicate))
    return np.array(values[0]), np.array(values[1])


def resampled_rows(predictions: Predictions, generator: np.random.Generator) -> IntArray:
    """Return rows drawn with replacement, of either side in their order, or as whole groups."""
    if predictions.group is not None:
        names, index = np.unique(predictions.group, return_inverse=True)
        members = [np.flatnonzero(index == unit) for unit in range(len(names))]
        return np.concatenate([members[unit] for unit in generator.integers(0, len(names), len(names))])
    rows = np.empty(len(predictions), dtype=np.int64)
    for side in (predictions.ood, ~predictions.ood):
        own = np.flatnonzero(side)
        rows[own] = np.sort(generator.choice(own, len(own))) if len(own) else own
    return rows


@dataclass(frozen=True, eq=False)
class SplitEffect:
    """The effect of unseeded calibration splits: values ``[methods, splits]`` beside those of one shared split."""

    task: str
    methods: tuple[str, ...]
    unseeded: FloatArray
    seeded: FloatArray

    @property
    def spread(self) -> tuple[float, float]:
        """Median and largest standard deviation of a method's calibrated NLL over splits."""
        deviations = self.unseeded.std(axis=1, ddof=1)
        return float(np.median(deviations)), float(deviations.max())

    @property
    def agreement(self) -> tuple[float, float, float]:
        """Mean of Kendall's τ with the order on the seeded split, and the range that holds 95 % of the splits."""
        taus = np.array([kendall_tau(column, self.seeded) for column in self.unseeded.T], dtype=np.float64)
        return _with_interval(float(taus.mean()), taus)

    @property
    def other_leader(self) -> float:
        """Share of splits on which another method leads."""
        return float(np.mean(self.unseeded.argmin(axis=0) != self.seeded.argmin()))


def split_effect(runs: Runs, task: str) -> SplitEffect | None:
    """Return the effect of splitting for every method anew; None for fewer than two methods."""
    first = first_trainings(runs, task)
    if len(first) < 2:
        return None
    generator, version = np.random.default_rng(0), metric_named("calibrated_nll").version
    scored, unseeded, seeded = [], [], []
    for method, stored in first.items():
        seeds = generator.integers(1, 2**31 - 1, SPLITS).tolist()
        values = stored.cached([["calibrated_nll", version], seeds], partial(_calibrated, stored, [0, *seeds]))
        if len(values):
            scored.append(method)
            seeded.append(values[0])
            unseeded.append(values[1:])
    return SplitEffect(task, tuple(scored), np.array(unseeded), np.array(seeded)) if len(scored) > 1 else None


def _calibrated(stored: Stored, seeds: Sequence[int]) -> list[float]:
    predictions = stored.in_domain()
    return [metric_named(f"calibrated_nll(seed={seed})").compute(predictions) for seed in seeds]


def _with_interval(value: float, draws: FloatArray) -> tuple[float, float, float]:
    """Return a value with the percentiles of its draws; where all are equal these are known, though no interval is."""
    if len(draws) and np.ptp(draws) == 0.0:
        return value, float(draws[0]), float(draws[0])
    interval = percentile_interval(value, draws)
    return value, interval.low, interval.high
