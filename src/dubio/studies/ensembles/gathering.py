"""The ensembling study from stored predictions: which runs have one, and every method's curve over its samples.

A task has a study when at least three methods of one training draw at least five samples and at least eight
independently trained networks are there to measure them in: with fewer, a deep-ensemble equivalent is a number between
one and a few, and the page says it in one figure already.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from dubio.calibration.temperature import fit_evidence
from dubio.core.errors import DubioError
from dubio.core.predictions import Predictions, pool_members
from dubio.core.types import FloatArray, IntArray
from dubio.metrics.requirements import labelled
from dubio.reporting.manifest_view import Manifest, MethodView, Source, TaskView, twins_of
from dubio.reporting.worth import NETWORK, ORDERS, networks_of
from dubio.statistics.ensemble_equivalent import GrowthCurve
from dubio.studies.ensembles.prefixes import fixed_order, prefix_evidence, prefix_scores, sizes_of
from dubio.studies.ensembles.study import Line, Role, Study
from dubio.studies.ensembles.thresholded import thresholded_errors

FEWEST_METHODS = 3
"""Methods of one training that draw samples."""
FEWEST_SAMPLES = 5
"""Samples that each of them draws."""
FEWEST_NETWORKS = 8
"""Independently trained networks."""


def has_study(view: Manifest, task: TaskView) -> bool:
    """Whether a task has methods enough, samples enough and networks enough for a study; nothing is read for it."""
    present = {run.method for run in view.runs_of(task.key)}
    drawn = [
        method
        for method in view.methods
        if method.name in present and not method.ensemble and not method.views and method.samples >= FEWEST_SAMPLES
    ]
    return len(drawn) >= FEWEST_METHODS and len(networks_of(view, task)) >= FEWEST_NETWORKS


def studies_of(store: Source, view: Manifest, growth: Mapping[str, GrowthCurve]) -> dict[str, Study]:
    """Task → its study, for the tasks that have one."""
    found = {
        task.key: study_of(store, view, task, growth[task.key])
        for task in view.tasks
        if task.key in growth and has_study(view, task)
    }
    return {key: study for key, study in found.items() if study.lines}


def study_of(store: Source, view: Manifest, task: TaskView, growth: GrowthCurve) -> Study:
    """The study on one task.

    Predictions that cannot be read are left out: the scoring of the run has reported them.

    Args:
        store: Where the predictions are.
        view: The run.
        task: One of its tasks.
        growth: How deep ensembles of its networks grow.
    """
    base = twins_of(view.methods)
    lines = []
    for method in view.methods:
        made = _line(store, view, task, method, base.get(method.name, method.name))
        if made is not None:
            lines.append(made)
    return Study(task, tuple(lines), growth)


def role_of(view: Manifest, method: MethodView, base: str) -> Role:
    """What a method is in the study; a twin is what its base is."""
    plain = next(each for each in view.methods if each.name == base)
    if plain.family == NETWORK:
        return "pool" if plain.ensemble else "network"
    return "ensemble" if method.ensemble else "method"


def _line(store: Source, view: Manifest, task: TaskView, method: MethodView, base: str) -> Line | None:
    role = role_of(view, method, base)
    try:
        if role == "pool":
            return _pool_line(store, view, task, method, base)
        runs = [_scored(predictions) for predictions in _read(store, view, task, method.name)]
    except DubioError:
        return None
    if not runs:
        return None
    # runs that differ in their number of samples are compared as far as the shortest goes
    common = sizes_of(min(run.sizes[-1] for run in runs))
    sizes = tuple(size for size in common if all(size in run.sizes for run in runs))
    values = np.array([[run.values[run.sizes.index(size)] for size in sizes] for run in runs])
    made = tuple((run.seed, run.member) for run in view.runs_of(task.key, method.name))
    return Line(method, base, role, sizes, values, np.array([run.tace for run in runs]), made)


@dataclass(frozen=True, eq=False)
class _Scored:
    """One run: its sizes, ``[X, measures]``, and its calibration errors."""

    sizes: tuple[int, ...]
    values: FloatArray
    tace: FloatArray


def _scored(predictions: Predictions) -> _Scored:
    order, sizes = fixed_order(predictions), sizes_of(predictions.samples)
    return _Scored(sizes, prefix_scores(predictions, [order], sizes)[0], tempered_errors(predictions, order))


def _pool_line(store: Source, view: Manifest, task: TaskView, method: MethodView, base: str) -> Line | None:
    """A deep ensemble: random orders of all networks of all seeds, each network with one sample."""
    networks = _first_samples(_networks(store, view, task, method))
    if networks.samples < 2:
        return None
    orders = random_orders(networks.samples)
    sizes = sizes_of(networks.samples)
    errors = tempered_errors(networks, orders[0])
    return Line(method, base, "pool", sizes, prefix_scores(networks, orders, sizes), errors[None])


def random_orders(count: int) -> list[IntArray]:
    """The orders in which networks are added, those of :func:`dubio.reporting.worth.growth_of`."""
    generator = np.random.default_rng(0)
    return [generator.permutation(count) for _ in range(ORDERS)]


def _networks(store: Source, view: Manifest, task: TaskView, method: MethodView) -> list[Predictions]:
    """The networks a deep ensemble is drawn from: the single ones, or, with augmentation, its members of all seeds."""
    wanted = networks_of(view, task)
    if not method.views and wanted:
        home = task.of_kind("id")[0]
        ids = [run.id for run in view.runs_of(task.key) if run.id in wanted]
        return [store.read_predictions(each, home.name, home.fingerprint) for each in ids]
    return list(_read(store, view, task, method.name))


def _first_samples(parts: Sequence[Predictions]) -> Predictions:
    """All members of these predictions, each with its first sample."""
    pooled = pool_members(
        [
            each.with_checked(
                logits=each.logits[firsts], member=each.member[firsts], data_variance=None, model_variance=None
            )
            for each in parts
            for firsts in [np.unique(each.member, return_index=True)[1]]
        ]
    )
    return pooled.with_checked(member=np.arange(pooled.samples))


def _read(store: Source, view: Manifest, task: TaskView, method: str) -> Iterator[Predictions]:
    home = task.of_kind("id")[0]
    for run in view.runs_of(task.key, method):
        yield store.read_predictions(run.id, home.name, home.fingerprint)


def tempered_errors(predictions: Predictions, order: IntArray) -> FloatArray:
    """TACE of all samples at the optimal temperature, for every threshold and number of bins (P Fig. 2)."""
    known = labelled(predictions, "TACE")
    (evidence,) = prefix_evidence(known, order, [len(order)])
    scaled = evidence.margins / fit_evidence(evidence).temperature
    if evidence.multilabel:
        probs = np.exp(-np.logaddexp(0.0, -scaled))
    else:
        probs = np.exp(scaled)
        probs /= probs.sum(axis=1, keepdims=True)
    return thresholded_errors(probs, known.labels)
