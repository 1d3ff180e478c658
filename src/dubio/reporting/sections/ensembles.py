"""Ensembles: the deep-ensemble equivalent of every method (P eqs 4–5), and scores against the number of members.

Ensembles of m members are those of m neighbours when the members stand in a circle, one per member: M² pools instead of
M! orders, and every member is in the same number of them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from dubio.calibration.cross_validation import calibrated_nll
from dubio.core.errors import UserError
from dubio.core.passes import pool_sigmoid, pool_softmax, row_blocks
from dubio.core.predictions import Predictions
from dubio.core.types import FloatArray
from dubio.metrics.areas import auroc
from dubio.metrics.decisions import correct
from dubio.metrics.quantities import uncertainty
from dubio.reporting.canvas import (
    WIDTH,
    Series,
    blank,
    label_rows,
    legend_height,
    method_legend,
    panel_grid,
    styled,
)
from dubio.reporting.manifest_view import MethodRun, TaskView
from dubio.reporting.measures import RANKED_BY
from dubio.reporting.run_view import RunView
from dubio.reporting.score_table import Cell
from dubio.reporting.section import Block, Figure, Section, Visit, section
from dubio.reporting.style import INK, MUTED, Style
from dubio.reporting.wording import number, signed
from dubio.statistics.ensemble_equivalent import EquivalentRange, GrowthCurve, equivalent_range

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Drawing


@dataclass(frozen=True, eq=False)
class Growth:
    """Scores of one run's ensembles by size; each ``[orders, M]``, column m − 1 holding those of m members.

    Attributes:
        accuracy: Accuracy on the in-domain test set.
        nll: Calibrated NLL there.
        area: Split → AUROC of detecting its examples by confidence.
        uncertainties: 1 − confidence of every pool on the in-domain test set.
    """

    accuracy: FloatArray
    nll: FloatArray
    area: Mapping[str, FloatArray]
    uncertainties: tuple[FloatArray, ...] = ()


@section("ensemble-size", order=20)
class Ensembles(Section):
    """Deep-ensemble equivalents, and scores against ensemble size."""

    title = "Ensembles"

    def __init__(self) -> None:
        """Start without any run."""
        self.growth: dict[tuple[str, str], list[Growth]] = {}
        self._current: tuple[MethodRun, Growth] | None = None

    def visit(self, item: Visit) -> None:
        """Score the ensembles of 1, 2, … members of a run."""
        key = item.task.key, item.run.method
        if item.is_in_domain_test:
            growth = in_domain_growth(item.predictions)
            self._current = None if growth is None else (item.run, growth)
            if growth is not None:
                self.growth.setdefault(key, []).append(replace(growth, uncertainties=()))
        elif self._current is not None and self._current[0] == item.run and item.split in item.task.farthest:
            area = detection_growth(self._current[1], item.predictions)
            if area is not None:
                last = self.growth[key][-1]
                self.growth[key][-1] = replace(last, area={**last.area, item.split.name: area})

    def finish(self, run: RunView, task: TaskView) -> None:
        """Forget the uncertainties of the last run."""
        self._current = None

    def blocks(self, run: RunView, task: TaskView | None) -> Iterator[Block]:
        """Yield deep-ensemble equivalents and ensemble sizes of a task."""
        if task is None:
            return
        rows = equivalent_rows(run, task)
        if rows:
            longest = rows[0][1].central.longest
            caption = EQUIVALENT_CAPTION.format(longest=longest)
            draw = partial(equivalent_figure, rows, longest=longest)
            yield Figure("worth", "Deep-ensemble equivalent", caption, draw)
        panels = self.panels(run, task)
        if panels:
            draw = partial(size_figure, panels)
            yield Figure("size", "Ensemble size", SIZE_CAPTION, draw, reading=size_reading(panels))

    def document(self, run: RunView) -> dict[str, Any]:
        """Return the deep-ensemble equivalent of every method on every task."""
        found = []
        for task in run.tasks:
            curve = run.growth.get(task.key)
            if curve is None:
                continue
            cells = run.scores.row(task, task.in_domain.name, RANKED_BY)
            for method, equivalent in equivalents(curve, cells).items():
                bounds = {part: getattr(equivalent, part) for part in ("lower", "central", "upper")}
                sizes = {part: str(bound) if bound.beyond else bound.size for part, bound in bounds.items()}
                found.append({"task": task.key, "method": method, "longest": len(curve), **sizes})
        return {"deep_ensemble_equivalents": found}

    def panels(self, run: RunView, task: TaskView) -> dict[str, list[Series]]:
        """Return accuracy, calibrated NLL and detection against the number of members; empty without an ensemble."""
        runs = {m.name: self.growth.get((task.key, m.name), []) for m in run.methods_of(task)}
        runs = {name: each for name, each in runs.items() if each and len({one.nll.shape for one in each}) == 1}
        if not runs:
            return {}
        values: dict[str, list[list[FloatArray]]] = {
            ACCURACY: [[one.accuracy for one in each] for each in runs.values()],
            NLL: [[one.nll for one in each] for each in runs.values()],
        }
        for split in task.farthest:
            if all(split.name in one.area for each in runs.values() for one in each):
                values[f"AUROC, {split.name}"] = [[one.area[split.name] for one in each] for each in runs.values()]
        return {
            title: [
                Series(run.styles[name], np.arange(1, parts[0].shape[1] + 1.0), np.concatenate(parts))
                for name, parts in zip(runs, columns, strict=True)
            ]
            for title, columns in values.items()
        }


EQUIVALENT_CAPTION = (
    "The number of independently trained networks whose ensemble has the calibrated NLL of the method. Bars: the same "
    "against the curve of growing ensembles plus and minus its standard deviation over random orders. {longest} "
    "networks were trained; an arrow means better than all of them together, and nothing is extrapolated. A method "
    "that is worse than one network counts as 1."
)


def equivalents(curve: GrowthCurve, cells: Mapping[str, Cell]) -> dict[str, EquivalentRange]:
    """Return method → its deep-ensemble equivalent (P eqs 4–5), from its mean calibrated log-likelihood over runs."""
    means = {name: cell.mean for name, cell in cells.items() if cell.n and np.isfinite(cell.mean)}
    return {name: equivalent_range(curve, "nll", mean) for name, mean in means.items()}


def equivalent_rows(run: RunView, task: TaskView) -> list[tuple[Style, EquivalentRange]]:
    """Return the deep-ensemble equivalent of every method; empty without a deep ensemble."""
    curve = run.growth.get(task.key)
    if curve is None:
        return []
    found = equivalents(curve, run.scores.row(task, task.in_domain.name, RANKED_BY))
    return [(run.styles[m.name], found[m.name]) for m in run.methods_of(task) if m.name in found]


@styled
def equivalent_figure(rows: Sequence[tuple[Style, EquivalentRange]], *, longest: int) -> Drawing:
    """Draw one row per method: the equivalent as a marker, its bounds as a bar, and an arrow beyond the longest.

    Args:
        rows: The style and the equivalent of each method.
        longest: The number of networks.
    """
    from matplotlib.ticker import MaxNLocator

    figure = blank(WIDTH, 0.27 * len(rows) + 0.75)
    axis = figure.subplots()
    edge = longest + 0.03 * longest
    axis.axvline(longest, color=MUTED, linewidth=0.8, linestyle=(0, (2, 2)), zorder=1)
    for place, (style, equivalent) in enumerate(rows):
        low, high = (min(part.size, edge) for part in (equivalent.lower, equivalent.upper))
        axis.hlines(place, low, high, color=style.colour, linewidth=1.6, zorder=2)
        beyond = {"marker": ">", "markerfacecolor": style.colour} if equivalent.central.beyond else {}
        point = {**style.point, **beyond}
        axis.plot([min(equivalent.central.size, edge)], [place], linestyle="none", zorder=4, clip_on=False, **point)
        axis.text(1.02, place, str(equivalent.central), transform=axis.get_yaxis_transform(), va="center",
                  fontsize=7.8, color=INK)  # fmt: skip
    label_rows(axis, [style for style, _ in rows])
    axis.set(xlabel="deep-ensemble equivalent, independent networks", xlim=(1 - 0.02 * longest, edge))
    axis.xaxis.set_major_locator(MaxNLocator(integer=True))
    return figure


SIZE_CAPTION = (
    "Ensembles of 1, 2, … members that are neighbours in a circle. Lines are means and bands one standard deviation "
    "over these ensembles and over runs; all end in the same full ensemble. AUROC is that of confidence."
)
ACCURACY, NLL = "Accuracy", "Calibrated NLL"


def pools_of(members: int) -> tuple[tuple[int, ...], ...]:
    """Return every ensemble that is scored, by its members, smallest first; that of all members once."""
    circle = [
        tuple((first + step) % members for step in range(size))
        for size in range(1, members)
        for first in range(members)
    ]
    return (*circle, tuple(range(members)))


def in_domain_growth(predictions: Predictions) -> Growth | None:
    """Score growing ensembles on the in-domain test set; None with fewer than two members, or too few labels."""
    merged = one_sample_per_member(predictions)
    if merged is None:
        return None
    accuracy, nll, calibrated = [], [], calibrated_nll.metric().compute
    for pool in pools_of(merged.samples):
        pooled = _pooled(merged.labelled, pool)
        try:
            nll.append(calibrated(pooled))
        except UserError:
            return None
        accuracy.append(float(correct(pooled).mean()))
    uncertainties = tuple(uncertainty(_pooled(merged, pool), "confidence") for pool in pools_of(merged.samples))
    return Growth(_by_size(accuracy), _by_size(nll), {}, uncertainties)


def detection_growth(growth: Growth, predictions: Predictions) -> FloatArray | None:
    """Return the AUROC of growing ensembles on a shifted or OOD split; None where it has other members."""
    merged = one_sample_per_member(predictions)
    if merged is None or len(pools_of(merged.samples)) != len(growth.uncertainties):
        return None
    areas = []
    for pool, inside in zip(pools_of(merged.samples), growth.uncertainties, strict=True):
        outside = uncertainty(_pooled(merged, pool), "confidence")
        flag = np.repeat([False, True], [len(inside), len(outside)])
        areas.append(auroc(np.concatenate([inside, outside]), flag))
    return _by_size(areas)


def one_sample_per_member(predictions: Predictions) -> Predictions | None:
    """Return each member's samples pooled to one; None with fewer than two members."""
    members = np.unique(predictions.member)
    if len(members) < 2:
        return None
    logits = np.empty((len(members), len(predictions), predictions.class_count), dtype=np.float32)
    for place, member in enumerate(members):
        own = predictions.logits[predictions.member == member]
        for rows in row_blocks(len(own), len(predictions), predictions.class_count):
            if predictions.target == "multilabel":
                yes, no = pool_sigmoid(own[:, rows], 1.0)
                logits[place, rows] = yes - no
            else:
                logits[place, rows] = pool_softmax(own[:, rows], 1.0)
    return predictions.with_checked(
        logits=logits, member=np.arange(len(members)), data_variance=None, model_variance=None
    )


def _pooled(merged: Predictions, members: tuple[int, ...]) -> Predictions:
    chosen = list(members)
    return merged.with_checked(logits=merged.logits[chosen], member=np.arange(len(chosen)))


def _by_size(values: list[float]) -> FloatArray:
    """Return values in the order of :func:`pools_of` as ``[orders, M]``; the full ensemble is every order's last."""
    members = round((1 + np.sqrt(4 * len(values) - 3)) / 2)
    grid = np.array(values[:-1]).reshape(members - 1, members)
    return np.vstack([grid, np.full(members, values[-1])]).T


@styled
def size_figure(panels: Mapping[str, Sequence[Series]]) -> Drawing:
    """Draw one panel per score, one line per ensemble, against the number of members."""
    from matplotlib.ticker import MaxNLocator

    styles = [series.style for series in next(iter(panels.values()))]
    extra = legend_height(len(styles), 3) + 0.15
    figure, axes = panel_grid(len(panels), panel_height=2.3, extra=extra, xlabel="members")
    for axis, (title, lines) in zip(axes, panels.items(), strict=True):
        for series in lines:
            axis.fill_between(series.x, series.mean - series.std, series.mean + series.std, color=series.style.colour,
                              alpha=0.10, linewidth=0)  # fmt: skip
            axis.plot(series.x, series.mean, **{**series.style.line, "linewidth": 1.4, "markersize": 4.2})
        axis.set_title(title)
        axis.xaxis.set_major_locator(MaxNLocator(integer=True))
    method_legend(figure, styles, columns=3)
    return figure


def size_reading(panels: Mapping[str, Sequence[Series]]) -> str:
    """Return how much accuracy and calibrated NLL change from one member to all, and how early."""
    accuracy, nll = ([float(series.mean[-1] - series.mean[0]) for series in panels[title]] for title in (ACCURACY, NLL))
    longest = max(len(series.x) for series in panels[NLL])
    half = max(2, math.ceil(longest / 2))
    early = [float(series.mean[half - 1] - series.mean[0]) for series in panels[NLL] if len(series.x) >= half]
    soon = ""
    if longest > 2 and sum(nll) < 0:
        soon = f"; {number(half)} members reach {sum(early) / sum(nll):.0%} of the mean reduction"
    return (
        f"From one member to {number(longest)}, accuracy changes by {_span(accuracy)} and calibrated NLL by "
        f"{_span(nll)}{soon}."
    )


def _span(values: Sequence[float]) -> str:
    low, high = map(signed, (min(values), max(values)))
    return low if low == high else f"{low} to {high}"
