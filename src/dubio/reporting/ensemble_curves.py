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
from dubio.reporting.charts import WIDTH, Json, Rows, chart_of, curves, method_colour, method_dash, write_figure
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
    from dubio.reporting.charts import Chart

EquivalentMetric = Literal["nll", "brier", "error", "aurc"]
ENSEMBLE = "the deep ensemble"
ITSELF = "a deep ensemble itself"
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
        """How to read the table, and what the bounds are not.

        Simulated with methods that are ensembles of other networks of the same kind, 2 to 7 of them against 5 and 10,
        the bounds held the true number in 30 to 50 % of cases (``tests/statistics/test_ensemble_equivalent.py``).
        """
        size = len(self.ensemble)
        return (
            "DEE: the smallest number of independently trained networks whose ensemble scores as well as the method "
            f"(1: a single one does); bounds from ± one standard deviation over {self.ensemble.orders} random orders. "
            f'"> {size}": not even the ensemble of all {size} does. The bounds are no confidence interval: other '
            "networks, another training of the method and other examples would vary more, and orders of more than half "
            "of the networks share most of them."
        )

    def figure(self, metric: EquivalentMetric, path: str | Path) -> Path:
        """Draw the equivalents to an .svg, .png or .pdf file, and return its path."""
        return write_figure(equivalents_chart(self, metric), Path(path), "--figure")


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


LOG_FROM = 20
"""From this many samples on, the horizontal axis is logarithmic."""


def equivalents_chart(of_task: EnsembleCurves, metric: EquivalentMetric) -> Chart:
    """Return the deep-ensemble equivalent of each method, with bounds; beyond the longest ensemble, triangles."""
    import altair

    equivalents, longest = of_task.equivalents(metric), len(of_task.ensemble)
    rows = [row for name, ranges in equivalents.items() for row in equivalent_rows(name, ranges, longest)]
    levels = list(dict.fromkeys(row["method"] for row in rows if row["y"] is None))
    most, step = max(map(len, equivalents.values())), 0.05 * max(longest, 4)
    styles = [Style(name, *mark, False) for name, mark in zip(equivalents, itertools.cycle(PALETTE), strict=False)]
    styles.append(Style(ITSELF, CONTROL, "o", False, augmented=True))
    ends: Json = {"domain": [1, max(2, most)], "nice": False}
    x_scale = altair.Scale(type="log", **ends) if most >= LOG_FROM else altair.Scale(**ends)
    y_scale = altair.Scale(domain=[min(0.8, 1 - 0.03 * longest), longest + step * (len(levels) + 1)], nice=False)
    across, up = "samples of the method", f"deep-ensemble equivalent, {TITLES[metric]}"
    x, y = altair.X("x:Q", title=across, scale=x_scale), altair.Y("y:Q", title=up, scale=y_scale)
    marked = [row for row in rows if row["marked"]]
    points = chart_of(row for row in marked if row["y"] is not None).mark_point(size=35, filled=True, opacity=1)
    beyond = chart_of(
        {**row, "y": longest + step * (1 + levels.index(row["method"]))} for row in marked if row["y"] is None
    )
    itself = chart_of({"control": ITSELF, "x": n, "y": n} for n in range(1, max(2, min(longest, most)) + 1))
    line, colour = chart_of([{"y": longest, "text": "longest ensemble"}]), method_colour(styles)
    layers = [
        curves(rows, styles, x=across, y=up, x_scale=x_scale, y_scale=y_scale),
        points.encode(x, y, color=colour),
        beyond.mark_point(shape="triangle-up", size=35, filled=True, opacity=1).encode(x, y, color=colour),
        itself.mark_line(strokeWidth=1.6, clip=True).encode(
            x, y, color=method_colour(styles, "control"), strokeDash=method_dash(styles, "control")
        ),
        line.mark_rule(color=MUTED, strokeDash=[2, 2]).encode(y),
        line.mark_text(align="left", dx=5, color=MUTED).encode(y, x=altair.XValue(WIDTH), text=altair.Text("text:N")),
    ]
    sizes = list(range(1, longest + 1, max(1, longest // 8)))
    chart = altair.LayerChart(layer=layers).properties(width=WIDTH, height=300)
    sized: Chart = chart.configure_axisX(tickMinStep=1, format="~g", labelOverlap=True).configure_axisY(values=sizes)
    return sized


def equivalent_rows(name: str, ranges: Sequence[EquivalentRange], longest: int) -> Rows:
    """Return the equivalents with 1, 2, … samples, about twelve of them marked.

    There is none beyond the longest ensemble, where the band ends too.
    """
    rows: Rows = []
    for samples, bounds in enumerate(ranges, start=1):
        low, size, high = (getattr(bounds, bound) for bound in BOUNDS)
        rows.append({
            "method": name, "x": samples, "y": None if size.beyond else size.size, "low": min(low.size, longest),
            "high": min(high.size, longest), "marked": (samples - 1) % max(1, len(ranges) // 12) == 0,
        })  # fmt: skip
    return rows
