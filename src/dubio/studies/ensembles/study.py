"""The ensembling study on one task: the sample curve of every method, and how deep ensembles of its networks grow.

A task has a study when at least three methods of one training draw at least five samples and at least eight
independently trained networks are there to measure them in: with fewer, a deep-ensemble equivalent is a number between
one and a few, which another figure of the report shows already.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

import numpy as np

from dubio.calibration.temperature import apply_temperature, fit_temperature
from dubio.core.errors import DubioError
from dubio.core.predictions import Predictions, pool_members
from dubio.core.types import FloatArray, IntArray
from dubio.metrics.calibration_error import tace
from dubio.metrics.requirements import labelled
from dubio.reporting.build import ORDERS
from dubio.reporting.manifest_view import Manifest, MethodView, TaskView, tta_pairs
from dubio.reporting.measures import RANKED_BY
from dubio.reporting.run_view import RunView
from dubio.reporting.score_table import Cell
from dubio.reporting.section import Section, Visit
from dubio.statistics.ensemble_equivalent import EquivalentRange, GrowthCurve, Score, equivalent_range, random_orders
from dubio.statistics.sample_curves import MEASURES, SIZES, latest_first, sample_scores, sizes_up_to
from dubio.statistics.verdicts import compare_methods

Role = Literal["network", "deep_ensemble", "method", "ensemble"]
"""One network; a deep ensemble of independent networks; a method of one training; an ensemble of such methods."""

RunKey = tuple[int, int | None]
"""Seed and member of a run."""

SCORED: Mapping[Score, str] = {
    "nll": "calibrated_nll", "brier": "calibrated_brier", "error": "error", "aurc": "calibrated_aurc",
}  # fmt: skip
"""Score of a deep-ensemble equivalent → the measure it is read from."""

FEWEST_METHODS = 3
"""Methods of one training that draw samples."""
FEWEST_SAMPLES = 5
"""Samples that each of them draws."""
FEWEST_NETWORKS = 8
"""Independently trained networks."""
MOST = 0.75
"""The number of samples for a comparison is one that at least this share of the methods reaches."""

THRESHOLDS = (1e-4, 3e-4, 1e-3, 3e-3, 1e-2, 3e-2, 1e-1)
"""Thresholds of TACE, at 15 bins."""
BINS = (5, 10, 15, 20, 30, 50, 100)
"""Numbers of bins of TACE, at the threshold 1e-3."""
TACE_SETTINGS = (*((threshold, 15) for threshold in THRESHOLDS), *((1e-3, bins) for bins in BINS))
"""Thresholds and numbers of bins under which TACE is computed (P Fig. 2)."""


@dataclass(frozen=True, eq=False)
class SampleCurve:
    """The scores of one method against its number of samples.

    Attributes:
        method: The method.
        base: The method that is the same without test-time augmentation; its own name where it predicts no views.
        role: What it is in the study.
        sizes: ``[X]`` numbers of samples.
        values: ``[R, X, measures]`` over runs, or over random orders of a deep ensemble; measures as in
            :data:`dubio.statistics.sample_curves.MEASURES`.
        tace: ``[R, settings]`` with all samples, at the optimal temperature.
        runs: Seed and member of every run; none of a deep ensemble, whose values are over orders.
    """

    method: MethodView
    base: str
    role: Role
    sizes: tuple[int, ...]
    values: FloatArray
    tace: FloatArray
    runs: tuple[RunKey, ...] = ()

    @property
    def name(self) -> str:
        """The method's name."""
        return self.method.name

    @property
    def title(self) -> str:
        """The method's title, which says so where a method of one training has one sample."""
        alone = self.role == "method" and self.samples == 1
        return f"{self.method.title} (1 sample)" if alone else self.method.title

    @property
    def augmented(self) -> bool:
        """Whether it predicts random views."""
        return self.method.views > 0

    @property
    def samples(self) -> int:
        """The largest number of samples."""
        return self.sizes[-1]

    def of(self, measure: str) -> FloatArray:
        """Return one measure, ``[R, X]``."""
        return np.asarray(self.values[:, :, MEASURES.index(measure)])

    def mean(self, measure: str) -> FloatArray:
        """Return its mean over runs, ``[X]``."""
        return np.asarray(self.of(measure).mean(axis=0))

    def at(self, measure: str, size: int) -> Cell | None:
        """Return its values with a number of samples; a method of one sample has one value for any number, as in P."""
        index = 0 if self.samples == 1 else self.sizes.index(size) if size in self.sizes else None
        return None if index is None else Cell(tuple(float(value) for value in self.of(measure)[:, index]))


@dataclass(frozen=True, eq=False)
class Study:
    """The study on one task.

    Attributes:
        task: The task, with its network.
        curves: One per method, in the benchmark's order.
        growth: Scores of deep ensembles of 1, 2, … of the networks, over random orders.
    """

    task: TaskView
    curves: tuple[SampleCurve, ...]
    growth: GrowthCurve

    @cached_property
    def by_name(self) -> dict[str, SampleCurve]:
        """Method → its curve."""
        return {curve.name: curve for curve in self.curves}

    def select(self, *roles: Role, augmented: bool | None = None) -> tuple[SampleCurve, ...]:
        """Return the curves of these roles, with or without augmentation or both."""
        return tuple(curve for curve in self.curves if curve.role in roles and augmented in (None, curve.augmented))

    def with_augmentation(self, curve: SampleCurve) -> SampleCurve | None:
        """Return the curve of the same method with test-time augmentation."""
        return next((other for other in self.curves if other.augmented and other.base == curve.name), None)

    @cached_property
    def compared_samples(self) -> int:
        """The number of samples at which methods are compared: most of them reach it, and at most half the networks.

        All orders of the networks end in the same ensemble: near its size the spread over orders, and with it the
        bounds of an equivalent, shrink to nothing, however little is known.
        """
        curves = [curve for curve in self.select("method", augmented=False) if curve.samples > 1]
        reached = [size for size in SIZES if sum(size in curve.sizes for curve in curves) >= MOST * len(curves)]
        return max((size for size in reached if 2 * size <= len(self.growth)), default=1)

    def equivalents(self, curve: SampleCurve, score: Score = "nll") -> tuple[EquivalentRange, ...]:
        """Return the deep-ensemble equivalent of a method with each number of its samples (P eqs 4–5)."""
        return tuple(equivalent_range(self.growth, score, float(value)) for value in curve.mean(SCORED[score]))

    def cells(self, curves: Iterable[SampleCurve], measure: str = RANKED_BY) -> dict[str, Cell]:
        """Return method → its values with :attr:`compared_samples`; methods without a finite mean are left out."""
        cells = {curve.name: curve.at(measure, self.compared_samples) for curve in curves}
        return {name: cell for name, cell in cells.items() if cell is not None and math.isfinite(cell.mean)}

    @property
    def variance_groups(self) -> dict[str, int]:
        """Method → number of members: methods with the same number share their variance over runs."""
        return {curve.name: curve.method.members for curve in self.curves}

    def differ(self, cells: Mapping[str, Cell], pair: tuple[str, str]) -> bool:
        """Return whether two methods differ significantly; False for a method that is not among the cells."""
        if not set(pair) <= cells.keys():
            return False
        pairs = compare_methods(cells, "lower", variance_groups=self.variance_groups)
        return pairs.verdict(*pair).place in ("best", "behind")


def has_study(manifest: Manifest, task: TaskView) -> bool:
    """Return whether a task has enough methods, samples and networks for a study."""
    present = {run.method for run in manifest.runs_of(task.key)}
    single = [method for method in manifest.methods if method.name in present and not (method.ensemble or method.views)]
    sampled = sum(method.samples >= FEWEST_SAMPLES for method in single)
    return sampled >= FEWEST_METHODS and len(manifest.single_networks(task)) >= FEWEST_NETWORKS


def role_of(manifest: Manifest, method: MethodView) -> tuple[str, Role]:
    """Return the name of the same method without augmentation, and a method's role, which is that of the former."""
    base = tta_pairs(manifest.methods).get(method.name, method.name)
    plain = next(other for other in manifest.methods if other.name == base)
    if plain.family in manifest.network_methods:
        return base, "deep_ensemble" if plain.ensemble else "network"
    return base, "ensemble" if method.ensemble else "method"


class StudyCollector(Section):
    """The half of a section that collects the sample curves of tasks with a study, one set of predictions at a time.

    A method has its curve from its own runs. A deep ensemble has random orders of all networks of all seeds, each with
    one sample: of the single networks or, with augmentation, of its own members.
    """

    def __init__(self) -> None:
        """Start without any run."""
        self.studies: dict[str, Study] = {}
        self._studied: dict[str, bool] = {}
        self._runs: dict[str, list[SampleCurve]] = {}
        self._networks: dict[str, list[Predictions]] = {}

    def visit(self, item: Visit) -> None:
        """Score a run on the in-domain test set with each number of its samples."""
        manifest, task, run = item.report.manifest, item.task, item.run
        if task.key not in self._studied:
            self._studied[task.key] = has_study(manifest, task)
        if not self._studied[task.key] or not item.is_in_domain_test:
            return
        method = next(method for method in manifest.methods if method.name == run.method)
        if method.baseline:
            return  # no way to an ensemble
        _, role = role_of(manifest, method)
        if run in manifest.single_networks(task):
            self._networks.setdefault("", []).append(_first_samples([item.predictions]))
        if role == "deep_ensemble":
            if method.views:
                self._networks.setdefault(method.name, []).append(_first_samples([item.predictions]))
            return
        with suppress(DubioError):  # without enough labels there is no curve
            orders = [latest_first(item.predictions)]
            curve = _curve(manifest, method, item.predictions, orders, (run.seed, run.member))
            self._runs.setdefault(method.name, []).append(curve)

    def finish(self, run: RunView, task: TaskView) -> None:
        """Complete the study of a task, where it has one, once all its runs were visited."""
        growth = run.growth.get(task.key)
        curves = () if growth is None else tuple(self._curves(run.manifest))
        self._runs, self._networks = {}, {}
        if curves and growth is not None:
            self.studies[task.key] = Study(task, curves, growth)

    def _curves(self, manifest: Manifest) -> Iterator[SampleCurve]:
        for method in manifest.methods:
            _, role = role_of(manifest, method)
            networks = self._networks.get(method.name if method.views else "", [])
            if role == "deep_ensemble" and networks:
                pool = _first_samples(networks)
                orders = random_orders(pool.samples, orders=ORDERS)
                with suppress(DubioError):
                    if pool.samples > 1:
                        yield _curve(manifest, method, pool, orders)
            elif method.name in self._runs:
                yield _joined(self._runs[method.name])


def _curve(
    manifest: Manifest, method: MethodView, predictions: Predictions, orders: Sequence[IntArray], *runs: RunKey
) -> SampleCurve:
    """Return the curve of one set of predictions, its samples added in these orders."""
    sizes = sizes_up_to(predictions.samples)
    values, errors = sample_scores(predictions, orders, sizes), tace_by_setting(predictions)
    return SampleCurve(method, *role_of(manifest, method), sizes, values, errors[None], runs)


def _joined(runs: Sequence[SampleCurve]) -> SampleCurve:
    """Return the curve of several runs; where they differ in their number of samples, it is cut to the shortest."""
    common = sizes_up_to(min(run.samples for run in runs))
    sizes = tuple(size for size in common if all(size in run.sizes for run in runs))
    return replace(
        runs[0],
        sizes=sizes,
        values=np.concatenate([run.values[:, [run.sizes.index(size) for size in sizes]] for run in runs]),
        tace=np.concatenate([run.tace for run in runs]),
        runs=tuple(key for run in runs for key in run.runs),
    )


def _first_samples(several: Sequence[Predictions]) -> Predictions:
    """Return all members of these predictions, each with its first sample."""
    singles = []
    for predictions in several:
        member, first = np.unique(predictions.member, return_index=True)
        logits = predictions.logits[first]
        single = predictions.with_checked(logits=logits, member=member, data_variance=None, model_variance=None)
        singles.append(single)
    pooled = pool_members(singles)
    return pooled.with_checked(member=np.arange(pooled.samples))


def tace_by_setting(predictions: Predictions) -> FloatArray:
    """Return TACE of all samples at the optimal temperature, for every threshold and number of bins (P Fig. 2)."""
    rows = labelled(predictions, "TACE")
    calibrated = apply_temperature(rows, fit_temperature(rows).temperature)
    return np.array([float(tace(calibrated, bins=bins, threshold=low)) for low, bins in TACE_SETTINGS])
