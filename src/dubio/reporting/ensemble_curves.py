"""Compute and draw deep-ensemble equivalents of methods with 1, 2, … samples, from predictions or a stored run."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from dubio.core.errors import UserError, one_of
from dubio.core.predictions import Predictions, pool_members
from dubio.formats.text_tables import number_text, text_table
from dubio.reporting.canvas import WIDTH, blank, legend_height, method_legend, styled, write_figure
from dubio.reporting.manifest_view import Manifest, MethodRun, TaskView, read_manifest
from dubio.reporting.stored_run import Run
from dubio.reporting.style import CONTROL, MUTED, PALETTE, Style
from dubio.statistics.ensemble_equivalent import (
    Equivalent,
    EquivalentRange,
    GrowthCurve,
    Unit,
    equivalent_curve,
    growth_curve,
)
from dubio.statistics.paired import align
from dubio.store import Store

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


EquivalentMetric = Literal["nll", "brier", "error", "aurc"]
ENSEMBLE = "the deep ensemble"
TITLES: Mapping[str, str] = {
    "nll": "calibrated nll", "brier": "calibrated Brier", "error": "error", "aurc": "calibrated aurc",
}  # fmt: skip


@dataclass(frozen=True, eq=False)
class EnsembleCurves:
    """Scores of a growing deep ensemble, and of methods with growing numbers of samples, on one task.

    Attributes:
        task: Name of the task, or empty for predictions from files.
        ensemble: The curve of the deep ensemble.
        methods: Method → its curve.
        notes: How the ensemble was read, where its file leaves it open.
    """

    task: str
    ensemble: GrowthCurve
    methods: Mapping[str, GrowthCurve]
    notes: tuple[str, ...] = ()

    def equivalents(self, metric: EquivalentMetric) -> dict[str, tuple[EquivalentRange, ...]]:
        """Return method → its deep-ensemble equivalents with 1, 2, … samples."""
        return {name: equivalent_curve(self.ensemble, curve, metric) for name, curve in self.methods.items()}

    def to_json(self, metric: EquivalentMetric) -> dict[str, Any]:
        """Return curves and equivalents as plain values."""
        equivalents = self.equivalents(metric)
        methods = {
            name: {
                "mean": curve.mean[metric],
                "std": curve.std[metric],
                "dee": [
                    {"samples": samples, **{bound: _plain(getattr(bounds, bound)) for bound in BOUNDS}}
                    for samples, bounds in enumerate(equivalents[name], start=1)
                ],
            }
            for name, curve in self.methods.items()
        }
        ensemble = {"mean": self.ensemble.mean[metric], "std": self.ensemble.std[metric]}
        sizes = {"orders": self.ensemble.orders, "longest": len(self.ensemble)}
        return {"metric": TITLES[metric], **sizes, "ensemble": ensemble, "methods": methods}

    def table(self, metric: EquivalentMetric) -> list[str]:
        """Return the equivalents with 1, 2, 5, 10, … samples and the scores of the ensemble as lines of text."""
        size, scores = len(self.ensemble), self.ensemble.mean[metric]
        title = f"Deep-ensemble equivalent by {TITLES[metric]}; the ensemble has {size} members"
        rows = [["method", "samples", TITLES[metric], "DEE", "lower", "upper"]]
        for name, ranges in self.equivalents(metric).items():
            for count in _listed_counts(len(ranges)):
                bounds = (str(getattr(ranges[count - 1], bound)) for bound in ("central", "lower", "upper"))
                rows.append([name, str(count), number_text(self.methods[name].mean[metric][count - 1]), *bounds])
        listed = ", ".join(map(number_text, scores[:LISTED])) + (" …" if size > LISTED else "")
        task = [f"{self.task}: the first run of every method"] if self.task else []
        return [*task, title, "", *text_table(rows), f"The ensemble with 1, 2, … members: {listed}", ""]

    @property
    def reading(self) -> str:
        """How to read the table, in one sentence."""
        size = len(self.ensemble)
        return (
            "DEE: the least number of independently trained networks whose ensemble reaches the method (1: a single "
            f"one does); bounds from ± one standard deviation over {self.ensemble.orders} random orders. "
            f'"> {size}": not even the ensemble of all {size} reaches it.'
        )

    def figure(self, metric: EquivalentMetric, path: str | Path) -> Path:
        """Draw the equivalents to an .svg, .png or .pdf file, and return its path."""
        return write_figure(equivalents_figure(self, metric), Path(path), "--figure")


BOUNDS = ("lower", "central", "upper")
LISTED = 12
"""Number of scores of the ensemble that a table lists."""


def _listed_counts(most: int) -> list[int]:
    """Return 1, 2, 5, 10, 20, 50, … and the last number of samples."""
    steps = [factor * 10**power for power in range(6) for factor in (1, 2, 5)]
    return [*(step for step in steps if step < most), most]


def _plain(equivalent: Equivalent) -> float | str:
    return str(equivalent) if equivalent.beyond else equivalent.size


def curves_of_systems(
    ensemble: Predictions, systems: Mapping[str, Predictions], *, orders: int = 5, seed: int = 0
) -> EnsembleCurves:
    """Return the curves of systems and of a deep ensemble on the same examples.

    Args:
        ensemble: The deep ensemble. If it names no members, each of its samples is one, and a note says so.
        systems: Name → sampled predictions.
        orders: Random orders of members and samples to average over.
        seed: Seed of the orders and of the halves of cross-validation.

    Raises:
        UserError: If the ensemble has less than two members, or the examples differ.
    """
    ensemble, *others = align({ENSEMBLE: ensemble, **systems}).values()
    notes: tuple[str, ...] = ()
    if len(np.unique(ensemble.member)) < 2:
        if ensemble.samples == 1:
            raise UserError("a deep ensemble has at least two members, and this file has one sample.")
        ensemble = replace(ensemble, member=np.arange(ensemble.samples, dtype=np.int64))
        notes = (f"no member is named; each of the {ensemble.samples} samples counts as one.",)
    curves = [growth_curve(system, unit="sample", orders=orders, seed=seed) for system in others]
    grown = growth_curve(ensemble, unit="member", orders=orders, seed=seed)
    return EnsembleCurves("", grown, dict(zip(systems, curves, strict=True)), notes)


def curves_of_run(
    run: Run, tasks: Sequence[str] = (), methods: Sequence[str] = (), *, orders: int = 5, seed: int = 0
) -> tuple[EnsembleCurves, ...]:
    """Return the curves of a stored run for each task; the ensemble has the networks of all its deep ensembles.

    A method is represented by its first run: an ensemble grows by members, any other method by samples.

    Args:
        run: The run.
        tasks: Only these tasks; all with at least two networks if empty.
        methods: Only these methods; all but single networks if empty.
        orders: Random orders to average over.
        seed: Seed of the orders and halves.

    Raises:
        UserError: If no task has two networks of a deep ensemble.
        UnknownName: For a task or method that is not in the run.
    """
    view = read_manifest(run.manifest)
    for name in tasks:
        one_of("task of the run", name, [task.key for task in view.tasks])
    for name in methods:
        one_of("method of the run", name, [method.name for method in view.methods])
    selected = [task for task in view.tasks if not tasks or task.key in tasks]
    with Store.open(run.store, create=False) as store:
        curves = tuple(item for task in selected for item in _curves(store, view, task, methods, orders, seed))
    if not curves:
        raise UserError(f"run {view.name!r}: no task has a deep ensemble of two or more networks to compare with.")
    return curves


def _curves(
    store: Store, view: Manifest, task: TaskView, methods: Sequence[str], orders: int, seed: int
) -> Iterator[EnsembleCurves]:
    def read(run: MethodRun) -> Predictions:
        return task.read(store, run, task.in_domain)

    networks = view.single_networks(task)
    if len(networks) < 2:
        return
    ensemble = growth_curve(pool_members([read(run) for run in networks]), orders=orders, seed=seed)
    curves = {}
    for method in view.methods:
        runs = view.runs_of(task.key, method.name)
        if runs and (method.name in methods if methods else runs[0] not in networks):
            unit: Unit = "member" if method.ensemble else "sample"
            curves[method.name] = growth_curve(read(runs[0]), unit=unit, orders=orders, seed=seed)
    yield EnsembleCurves(task.key, ensemble, curves)


SHADE = 0.16
LOG_FROM = 20
"""From this many samples on, the horizontal axis is logarithmic."""


@styled
def equivalents_figure(curves: EnsembleCurves, metric: EquivalentMetric) -> Figure:
    """Draw the deep-ensemble equivalent of each method, with bounds; values beyond the longest ensemble are arrows."""
    from matplotlib.ticker import LogLocator, MaxNLocator, NullFormatter, StrMethodFormatter

    equivalents, longest = curves.equivalents(metric), len(curves.ensemble)
    styles = [Style(name, *mark, False) for name, mark in zip(equivalents, itertools.cycle(PALETTE), strict=False)]
    figure = blank(WIDTH * 0.72, 3.1 + legend_height(len(styles) + 1, 3))
    axes = figure.subplots()
    top = longest + max(0.35, 0.06 * longest)
    axes.axhline(longest, color=MUTED, linewidth=0.8, linestyle=(0, (2, 2)))
    axes.text(1.01, longest, "longest\nensemble", transform=axes.get_yaxis_transform(), fontsize=7.2, color=MUTED,
              va="center", ha="left")  # fmt: skip
    most = max(len(ranges) for ranges in equivalents.values())
    sizes = np.arange(1, max(2, min(longest, most)) + 1)
    axes.plot(sizes, sizes, color=CONTROL, linewidth=1.4, linestyle="dotted")
    for style, ranges in zip(styles, equivalents.values(), strict=True):
        _draw(axes, style, ranges, longest, top)
    if most >= LOG_FROM:
        axes.set_xscale("log")
        axes.xaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
        axes.xaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
        axes.xaxis.set_minor_formatter(NullFormatter())
    else:
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.yaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set_ylim(min(0.8, 1 - 0.03 * longest), top + 0.1)
    axes.set(xlabel="samples of the method", ylabel=f"deep-ensemble equivalent, {TITLES[metric]}")
    method_legend(figure, styles, control="a deep ensemble itself", columns=3)
    return figure


def _draw(axes: Axes, style: Style, ranges: Sequence[EquivalentRange], longest: int, top: float) -> None:
    """Draw the curve with its band; beyond the longest ensemble, upward arrows on its line."""
    x = np.arange(1, len(ranges) + 1)
    lower, centre, upper = (np.array([getattr(bounds, bound).size for bounds in ranges]) for bound in BOUNDS)
    line = {**style.line, "markersize": 3.6, "markevery": max(1, len(x) // 12)}
    band = np.minimum(lower, longest), np.minimum(upper, longest)
    axes.fill_between(x, *band, color=style.colour, alpha=SHADE, linewidth=0)
    axes.plot(x, np.where(np.isfinite(centre), centre, np.nan), **line)
    beyond = x[~np.isfinite(centre)]
    if len(beyond):
        axes.plot(beyond, np.full(len(beyond), (longest + top) / 2), linestyle="none", marker=6, markersize=5,
                  color=style.colour, markevery=max(1, len(beyond) // 12))  # fmt: skip
