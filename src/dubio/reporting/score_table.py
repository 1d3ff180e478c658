"""The long table of scores, one value per run, split and metric; its means, spreads and verdicts over runs."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from math import isfinite

import numpy as np

from dubio.core.csv_files import CsvTable
from dubio.core.predictions import join_names
from dubio.core.types import Direction, FloatArray, StrArray
from dubio.reporting.detectors import DetectionVariances
from dubio.reporting.manifest_view import Manifest, MethodRun, MethodView, SplitView, TaskView
from dubio.reporting.measures import ACCURACY_CHANGE, DETECTED_BY, RANKED_BY, detectors, own_metrics
from dubio.statistics.bootstrap import Interval
from dubio.statistics.learning import Gain, Learning, judge_learning
from dubio.statistics.limits import intervals
from dubio.statistics.trainings import (
    ENOUGH,
    NO_CHANCE,
    Trainings,
    over_members,
    over_runs,
    own_terms,
    trainings_of_runs,
)
from dubio.statistics.trainings import Key as Fits
from dubio.statistics.verdicts import (
    Estimate,
    Pairs,
    Question,
    Replicates,
    Rows,
    Runs,
    Verdict,
    compare_methods,
    compare_systems,
)


@dataclass(frozen=True)
class Score:
    """One value of one run.

    ``member`` is None for a method that pools several fits; ``value`` is NaN where the metric is not defined (the area
    under a ROC curve of a single class, say).
    """

    task: str
    split: str
    kind: str
    method: str
    seed: int
    member: int | None
    metric: str
    value: float


RunKey = tuple[int, int | None]
"""Seed and member of a run."""


@dataclass(frozen=True)
class Cell(Runs):
    """The values of one method for one metric on one split, and the number of runs where it is undefined.

    A single-fit method has one for every (seed, member), an ensemble one for every seed; ``keys`` names them. A trained
    system has one value, and an ``interval`` in place of a spread over runs, undefined where none was computed.
    """

    undefined: int = 0
    keys: tuple[RunKey, ...] = field(default=(), compare=False, repr=False)
    interval: Interval | None = field(default=None, compare=False, repr=False)


Key = tuple[str, str, str, str]
"""(task, split, method, metric)."""


def aggregate(scores: Iterable[Score]) -> dict[Key, Cell]:
    """Group scores by (task, split, method, metric); undefined values are counted, never averaged."""
    values: dict[Key, list[tuple[RunKey, float]]] = {}
    for score in scores:
        run = (score.seed, score.member), score.value
        values.setdefault((score.task, score.split, score.method, score.metric), []).append(run)
    cells = {}
    for key, runs in values.items():
        defined = [(run, value) for run, value in runs if not math.isnan(value)]
        keys, numbers = zip(*defined, strict=True) if defined else ((), ())
        cells[key] = Cell(numbers, len(runs) - len(defined), keys)
    return cells


def average_over(cells: Sequence[Cell | None]) -> Cell | None:
    """Return the cell of several splits together: each run's mean over the splits.

    None where a split has no cell, a value is undefined, or the runs of the splits do not correspond.
    """
    complete = [cell for cell in cells if cell is not None and not cell.undefined]
    if not complete or len(complete) < len(cells) or len({(cell.n, cell.keys) for cell in complete}) > 1:
        return None
    mean = np.mean([cell.values for cell in complete], axis=0).tolist()
    interval = None if complete[0].interval is None else Interval(mean[0], math.nan, math.nan)
    return Cell(tuple(mean), keys=complete[0].keys, interval=interval)


def average_rows(splits: Sequence[FloatArray], groups: Sequence[StrArray | None]) -> tuple[FloatArray, StrArray | None]:
    """Return values per example whose mean is the mean of several splits' means, and the units they belong to.

    Splits of one size are taken to hold the same examples in the same order, as severities of a corruption do (were
    they others, the variance would be right all the same). Otherwise rows stand one after another, each moved to the
    common mean, so that a unit counts once however many splits it is in.
    """
    sizes, first = [len(rows) for rows in splits], groups[0]
    same = [g is first or (g is not None and first is not None and np.array_equal(g, first)) for g in groups]
    if len(set(sizes)) == 1 and all(same):
        return np.mean(splits, axis=0), first
    mean, share = np.mean([rows.mean() for rows in splits]), sum(sizes) / len(splits)
    moved = [mean + (rows - rows.mean()) * share / len(rows) for rows in splits]
    return np.concatenate(moved), join_names(groups, sizes)


def results_table(scores: Iterable[Score]) -> CsvTable:
    """Return the long table: one row per value; ``member`` is empty for ensembles, ``value`` where it is undefined."""
    rows = [tuple((vars(s) | ({"value": None} if math.isnan(s.value) else {})).values()) for s in scores]
    return CsvTable([field.name for field in fields(Score)], rows)


def decimals(cells: Iterable[Cell | None]) -> int:
    """Return the decimals that show these cells with their spread: at least a digit of the median, 3 to 5."""
    spreads = [cell.std for cell in cells if cell is not None and cell.std]
    if not spreads:
        return 3
    return int(np.clip(math.floor(-math.log10(float(np.median(spreads)))) + 1, 3, 5))


def cell_text(cell: Cell | None, places: int = 3) -> str:
    """Return a cell as text: never a bare mean where there is a spread, and one run says so."""
    if cell is None or (cell.n == 0 and not cell.undefined):
        return "–"
    if cell.n == 0:
        return "undefined"
    if math.isinf(cell.mean):
        return "∞" if cell.interval is not None else f"∞ ({sum(map(math.isinf, cell.values))} of {cell.n} runs)"
    if cell.interval is not None:
        low, high = cell.interval.low, cell.interval.high
        return f"{cell.mean:.{places}f}" + ("" if math.isnan(low) else f" [{low:.{places}f}, {high:.{places}f}]")
    if cell.std is None:
        return f"{cell.mean:.{places}f}\N{NO-BREAK SPACE}(1\N{NO-BREAK SPACE}run)"
    return f"{cell.mean:.{places}f}\N{NO-BREAK SPACE}±\N{NO-BREAK SPACE}{cell.std:.{places}f}"


OFTEN = 0.05
"""Share of a method's temperatures without an optimum above which its calibrated NLL is not compared."""


@dataclass
class TemperatureFits:
    """All temperatures behind a method's calibrated scores on a task.

    Attributes:
        values: One for each half of the test set, repetition and run.
        at_bound: The number of them at the lowest temperature allowed: that half has no best one, because every
            example in it is classified correctly, or nearly so. (The highest one, of predictions that say nothing about
            the labels, does no harm.)
    """

    values: list[float] = field(default_factory=list)
    at_bound: int = 0


class ScoreTable:
    """Scores of a benchmark run."""

    def __init__(
        self,
        manifest: Manifest,
        better: Mapping[str, Direction] | None = None,
        not_ranked: Mapping[str, str] | None = None,
    ) -> None:
        """Make an empty table.

        Args:
            manifest: The benchmark run.
            better: Metric → which direction is better.
            not_ranked: Metric → why it must not rank methods.
        """
        self.manifest = manifest
        self.better: dict[str, Direction] = dict(better or {})
        self.not_ranked = dict(not_ranked or {})
        self.temperatures: dict[tuple[str, str], TemperatureFits] = {}
        self.scores: list[Score] = []
        self.own_quantities: tuple[str, ...] = ()
        self.detection = DetectionVariances()
        self._fits = {(run.task, run.method, run.seed, run.member): run.fits for run in manifest.runs}
        self._left_out: dict[Key, dict[RunKey, dict[Fits, float]]] = {}
        self._rows: dict[Key, tuple[FloatArray, int]] = {}
        self._units: dict[tuple[str, str, str], tuple[StrArray | None, int | None]] = {}
        self._intervals: dict[Key, Interval] = {}
        self._draws: dict[tuple[str, str, str], tuple[dict[str, FloatArray], float]] = {}
        self._cells: dict[Key, Cell] | None = None
        self._scored: set[tuple[str, str, str]] = set()
        self._pairs: dict[tuple[str, tuple[str, ...], str], Pairs] = {}
        self._gains: dict[str, dict[str, list[Gain]]] = {}
        self._gain_groups: dict[str, StrArray | None] = {}
        self._learning: dict[str, dict[str, Learning]] = {}

    def add(self, task: TaskView, split: SplitView, run: MethodRun, values: Mapping[str, float]) -> None:
        """Add the values of one run on one split."""
        self.extend(
            Score(task.key, split.name, split.kind, run.method, run.seed, run.member, metric, float(value))
            for metric, value in values.items()
        )

    def extend(self, scores: Iterable[Score]) -> None:
        """Add scores."""
        self.scores.extend(scores)
        self._cells, self._pairs = None, {}

    def add_own_quantities(self, names: Sequence[str]) -> None:
        """Note uncertainties that systems give themselves, and which direction is better for the metrics by them."""
        new = [name for name in names if name not in self.own_quantities]
        self.own_quantities += tuple(new)
        self.better |= {metric.name: metric.better for metric in (*own_metrics(new), *detectors(new))}

    @property
    def quantities(self) -> tuple[str, ...]:
        """The uncertainties that may have scores: the systems' own last."""
        return *DETECTED_BY, *self.own_quantities

    def add_rows(
        self,
        task: TaskView,
        split: SplitView,
        run: MethodRun,
        values: Mapping[str, FloatArray],
        group: StrArray | None,
        units: int | None = None,
    ) -> None:
        """Add the values per example of one run, which paired tests use; runs of a method are averaged.

        Args:
            task: The task.
            split: The split.
            run: The run of a method.
            values: Metric → value of every example.
            group: As of :class:`~dubio.statistics.verdicts.Rows`.
            units: Likewise.
        """
        for metric, rows in values.items():
            self._units[task.key, split.name, metric] = group, units
            key = task.key, split.name, run.method, metric
            total, runs = self._rows.get(key, (np.zeros(len(rows)), 0))
            self._rows[key] = total + rows, runs + 1

    @property
    def question(self) -> Question:
        """Whether methods are compared, of which trainings are a sample, or trained systems as they are."""
        return self.manifest.question

    def add_intervals(
        self, task: TaskView, split: SplitView, run: MethodRun, intervals: Mapping[str, Interval]
    ) -> None:
        """Add the intervals of a trained system's scores, by metric."""
        self._intervals |= {(task.key, split.name, run.method, name): own for name, own in intervals.items()}

    def add_draws(
        self, task: TaskView, split: SplitView, run: MethodRun, draws: Mapping[str, FloatArray], units: float
    ) -> None:
        """Add a trained system's scores on bootstrap replicates, the same for all; for metrics without rows.

        Args:
            task: The task.
            split: The split.
            run: The system.
            draws: Metric → its value on every replicate.
            units: The number of examples or groups that determine the variance.
        """
        for metric, values in draws.items():
            self._draws.setdefault((task.key, split.name, metric), ({}, units))[0][run.method] = values

    def add_gain(self, task: TaskView, run: MethodRun, gain: Gain, group: StrArray | None) -> None:
        """Add the gain of one run over the class frequencies on the in-domain test set."""
        self._gains.setdefault(task.key, {}).setdefault(run.method, []).append(gain)
        self._gain_groups[task.key] = group

    def learning(self, task: TaskView) -> Mapping[str, Learning]:
        """Return method → what it gains over the class frequencies; nothing where no run could be compared with them.

        Called once all runs of the task are added.
        """
        if task.key not in self._learning:
            self._learning[task.key] = judge_learning(self._gains.get(task.key, {}), self._gain_groups.get(task.key))
        return self._learning[task.key]

    def add_left_out(
        self, task: TaskView, split: SplitView, run: MethodRun, fits: Fits, values: Mapping[str, float]
    ) -> None:
        """Add the values of one run of an ensemble without some of its fits, which the variance over fits needs."""
        for metric, value in values.items():
            runs = self._left_out.setdefault((task.key, split.name, run.method, metric), {})
            runs.setdefault((run.seed, run.member), {})[fits] = value

    @property
    def cells(self) -> Mapping[Key, Cell]:
        """(task, split, method, metric) → the values of its runs."""
        if self._cells is None:
            cells = aggregate(self.scores)
            if self.question == "systems":
                cells = {key: replace(cell, interval=self._interval(key, cell)) for key, cell in cells.items()}
            self._cells = cells
            self._scored = {key[:3] for key in self._cells}
        return self._cells

    def _interval(self, key: Key, cell: Cell) -> Interval:
        return self._intervals.get(key, Interval(cell.mean, math.nan, math.nan))

    def cell(self, task: TaskView, split: str, method: str, metric: str) -> Cell | None:
        """Return the values of a method's runs, or None where there are none."""
        return self.cells.get((task.key, split, method, metric))

    def average(self, task: TaskView, splits: Sequence[str], method: str, metric: str) -> Cell | None:
        """Return each run's mean over several splits; None where a split lacks a value."""
        return average_over([self.cell(task, split, method, metric) for split in splits])

    def methods_of(self, task: TaskView) -> tuple[MethodView, ...]:
        """Return the methods with at least one scored run on a task, in the benchmark's order."""
        scored = self._scored if self.cells else set()
        if self.question == "systems":  # without labels, all that can be scored may be detection on other splits
            splits = [split.name for split in task.splits]
            return tuple(m for m in self.manifest.methods if any((task.key, s, m.name) in scored for s in splits))
        return tuple(m for m in self.manifest.methods if (task.key, task.in_domain.name, m.name) in scored)

    def row(self, task: TaskView, splits: str | Sequence[str], metric: str) -> dict[str, Cell]:
        """Return method → cell on a split, or on several averaged, for the methods that have one."""
        names, single = ([splits], True) if isinstance(splits, str) else (splits, len(splits) == 1)
        cells = {
            m.name: self.cell(task, names[0], m.name, metric) if single else self.average(task, names, m.name, metric)
            for m in self.methods_of(task)
        }
        return {name: cell for name, cell in cells.items() if cell is not None}

    def ranked_row(self, task: TaskView, splits: str | Sequence[str], metric: str) -> dict[str, Cell]:
        """Return the same for the methods that may be ranked: not those that hardly differ from class frequencies."""
        unranked = {name for name, evidence in self.learning(task).items() if evidence.learned != "learned"}
        return {name: cell for name, cell in self.row(task, splits, metric).items() if name not in unranked}

    def ranks(self, metric: str, task: TaskView | None = None) -> bool:
        """Whether a metric may rank methods, and can on this task."""
        if task is not None and metric == RANKED_BY and self.without_temperature(task):
            return False
        return metric in self.better and metric not in self.not_ranked

    def without_temperature(self, task: TaskView) -> list[str]:
        """Return the ranked methods whose calibrated NLL measures the want of a best temperature, not the method.

        On a half without errors the likelihood grows with every sharper temperature, and a single error of the other
        half then costs hundreds of nats: recalibration makes the NLL worse. Without errors at all no half has one. A
        single such half among many widens the spread over runs, and no verdict comes of it.
        """
        split = task.in_domain.name
        cells = {name: cell for name, cell in self.ranked_row(task, split, RANKED_BY).items() if cell.n}
        plain = self.row(task, split, "nll")
        best = min(cells, key=lambda name: cells[name].mean, default=None)
        names = []
        for name, cell in cells.items():
            fits = self.temperatures.get((task.key, name), TemperatureFits())
            often = fits.at_bound > OFTEN * len(fits.values)
            worse = often and name in plain and cell.mean > plain[name].mean
            if worse or (name == best and 0 < len(fits.values) == fits.at_bound):
                names.append(name)
        return names

    def has_rows(self, task: TaskView, split: str, metric: str) -> bool:
        """Whether a metric has values per example on a split."""
        return (task.key, split, metric) in self._units

    def pairs(self, task: TaskView, splits: str | Sequence[str], metric: str) -> Pairs:
        """Return the tests of every pair of methods on a split, or on several averaged; they are computed once."""
        names = (splits,) if isinstance(splits, str) else tuple(splits)
        if (task.key, names, metric) not in self._pairs:
            self._pairs[task.key, names, metric] = self._compared(task, names, metric)
        return self._pairs[task.key, names, metric]

    def intervals(self, task: TaskView, splits: Sequence[str], metric: str) -> dict[str, Interval]:
        """Return method → the 95 % confidence interval of its mean, each on its own.

        It varies with the trainings and, for a metric with values per example, with the test examples; of a method that
        was trained once, with the latter alone. Where neither variance is known there is no interval. That of a trained
        system is its bootstrap interval where there is one; of detection, and of several splits together, there is not.
        """
        cells = self.row(task, splits, metric)
        own = {name: cell.interval for name, cell in cells.items() if cell.interval is not None}
        bootstrap = {name: interval for name, interval in own.items() if isfinite(interval.low)}
        estimates = self.estimates(task, splits, metric)
        return bootstrap | {
            name: interval
            for name, estimate in estimates.items()
            if name not in bootstrap
            for interval in intervals({name: estimate}).values()
        }

    def estimates(self, task: TaskView, splits: Sequence[str], metric: str) -> dict[str, Estimate]:
        """Return method → its mean with the terms of its variance, over trainings and test examples, where known."""
        cells = self.row(task, splits, metric)
        sample = self._sample(task, tuple(splits), metric, cells)
        systems = self.question == "systems"
        same = self.same(task, cells)
        trained = {} if systems else own_terms(self.trainings(task, splits, metric), self.variance_groups, same)
        results: dict[str, Estimate] = {}
        for name, cell in cells.items():
            over_examples = None if sample is None else sample.own_term(name)
            terms = [] if over_examples is None else [over_examples]
            terms += [(trained[name].variance, trained[name].freedom)] if name in trained else []
            if isfinite(cell.mean) and (sample is not None or any(variance for variance, _ in terms)):
                results[name] = cell.mean, terms
        return results

    def accuracy_change(
        self, task: TaskView, split: str, method: str, retained: Cell, everything: Cell
    ) -> Estimate | None:
        """Return what referral changes of a method's accuracy, with the terms of its variance.

        It varies with the test examples and, of a method with several runs, with the trainings.

        Args:
            task: The task.
            split: The test set.
            method: The method.
            retained: Its accuracy on the retained.
            everything: Its accuracy on all examples.

        Returns:
            None without values per example, or where they are of a single unit.
        """
        changes = tuple(one - other for one, other in zip(retained.values, everything.values, strict=True))
        sample = self._sample(task, (split,), ACCURACY_CHANGE, {method: retained})
        over_examples = None if sample is None else sample.own_term(method)
        if over_examples is None:
            return None
        trained = {} if self.question == "systems" else trainings_of_runs({method: changes})
        return float(np.mean(changes)), [over_examples, *((own.variance, own.freedom) for own in trained.values())]

    def _sample(self, task: TaskView, names: tuple[str, ...], metric: str, cells: Mapping[str, Cell]) -> Rows | None:
        """Return the values per example of some methods, as a sample of the test set; None where there are none."""
        units = [self._units.get((task.key, split, metric), (None, None)) for split in names]
        groups, counts = [group for group, _ in units], [count for _, count in units if count is not None]
        rows, group = {}, groups[0]
        for name in cells:
            sums = [self._rows.get((task.key, split, name, metric)) for split in names]
            means = [own[0] / own[1] for own in sums if own is not None]
            if len(means) == len(names):
                rows[name], group = average_rows(means, groups)
        return Rows(rows, group, min(counts, default=None)) if rows else None

    def _compared(self, task: TaskView, names: tuple[str, ...], metric: str) -> Pairs:
        """Test every pair that may be ranked; without values per example, methods on this test set as it is.

        Of trained systems the test set alone is a sample: without values per example, or on bootstrap replicates, there
        is none, and no pair is judged.
        """
        cells = self.manifest.simplest_first(self.ranked_row(task, names, metric))
        sample, same = self._sample(task, names, metric, cells), self.same(task, cells)
        if self.question == "systems":
            draws = self._draws.get((task.key, names[0], metric)) if len(names) == 1 else None
            replicates = None if draws is None or cells.keys() - draws[0].keys() else Replicates(*draws)
            return compare_systems(cells, self.better[metric], sample or replicates or Rows({}), same=same)
        trainings = self.trainings(task, names, metric)
        return compare_methods(cells, self.better[metric], sample, trainings, self.variance_groups, same=same)

    def same(self, task: TaskView, cells: Mapping[str, Cell]) -> dict[str, str]:
        """Return method → the first method that makes its predictions, as scores on features and their network do.

        Args:
            task: The task.
            cells: Their values under one metric; a score of a method's own is none of its predictions.
        """
        first: list[str] = []
        same = {}
        for name in cells:
            same[name] = next((other for other in first if self._make_the_same(task, cells, (other, name))), name)
            first += [name] if same[name] == name else []
        return same

    def _make_the_same(self, task: TaskView, cells: Mapping[str, Cell], pair: tuple[str, str]) -> bool:
        """Return whether the values per example of two methods are equal to the last bit: other fits have others."""
        one, two = (cells[name] for name in pair)
        if (one.keys, one.values) != (two.keys, two.values) or not one.n:
            return False
        split = task.in_domain.name
        if any(len({self._score_of_runs(task, name, own) for name in pair}) > 1 for own in (RANKED_BY, "nll")):
            return False
        rows = [self._rows.get((task.key, split, name, RANKED_BY)) for name in pair]
        return rows[0] is not None and rows[1] is not None and np.array_equal(rows[0][0], rows[1][0])

    def _score_of_runs(self, task: TaskView, method: str, metric: str) -> tuple[object, ...]:
        cell = self.cell(task, task.in_domain.name, method, metric)
        return () if cell is None else (cell.keys, cell.values)

    def trainings(self, task: TaskView, splits: Sequence[str], metric: str) -> dict[str, Trainings]:
        """Return method → the trainings behind its score; methods of which there is a single one are left out."""
        views, cells = {method.name: method for method in self.manifest.methods}, self.ranked_row(task, splits, metric)
        every = {name: self._trainings(task, splits, views[name], metric, cell) for name, cell in cells.items()}
        return {name: own for name, own in every.items() if own is not None}

    def _trainings(
        self, task: TaskView, splits: Sequence[str], method: MethodView, metric: str, cell: Cell
    ) -> Trainings | None:
        """Return the trainings behind a cell: its runs or, where those are few, the fits of its ensembles."""
        if not method.trainings_vary:
            return NO_CHANCE
        values: dict[Fits, list[float]] = {}
        for key, value in zip(cell.keys, cell.values, strict=True):
            fits = self._fits.get((task.key, method.name, *key)) or ((method.name, *key),)
            values.setdefault(fits, []).append(value)
        runs = over_runs({fits: float(np.mean(own)) for fits, own in values.items()})
        if runs is not None and runs.freedom >= ENOUGH:
            return runs
        parts = [[self._without(task, split, method, metric, key) for split in splits] for key in cell.keys]
        members = over_members([{f: float(np.mean([own[f] for own in run])) for f in run[0]} for run in parts])
        return runs if members is None else members

    def _without(self, task: TaskView, split: str, method: MethodView, metric: str, run: RunKey) -> dict[Fits, float]:
        return self._left_out.get((task.key, split, method.name, metric), {}).get(run, {})

    def verdicts(self, task: TaskView, splits: str | Sequence[str], metric: str) -> dict[str, Verdict]:
        """Return method → its verdict against the best; empty for a metric that must not, or cannot, rank.

        Of trained systems also where the metric has no sample to judge by: then no further training would help.
        """
        verdicts = self.pairs(task, splits, metric).against_best() if self.ranks(metric, task) else {}
        if self.question == "methods" or len(verdicts) < 2:
            return verdicts
        judged = {name: verdict for name, verdict in verdicts.items() if verdict.place != "unjudged"}
        return judged if len(judged) > 1 else {}

    @property
    def variance_groups(self) -> dict[str, int]:
        """Method → number of members: methods with the same number share their variance over runs."""
        return {method.name: method.members for method in self.manifest.methods}
