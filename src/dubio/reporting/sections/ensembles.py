"""Ensembles: the deep-ensemble equivalent of every method (P eqs 4–5), and scores against the number of members.

Ensembles of m members are those of m neighbours when the members stand in a circle, one per member: M² pools instead of
M! orders, and every member is in the same number of them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dubio.calibration.cross_validation import calibrated_nll
from dubio.core.errors import UserError
from dubio.core.predictions import Predictions
from dubio.core.types import FloatArray
from dubio.metrics.areas import auroc
from dubio.metrics.decisions import correct
from dubio.metrics.quantities import uncertainty
from dubio.reporting.charts import (
    Rows,
    Series,
    chart_of,
    curve_panels,
    method_colour,
    method_fill,
    method_row,
    method_shape,
    row_notes,
    tooltips,
    whole_numbers,
)
from dubio.reporting.manifest_view import MethodRun, TaskView
from dubio.reporting.measures import RANKED_BY
from dubio.reporting.run_view import RunView
from dubio.reporting.section import Block, Collected, Figure, Section, Visit, section
from dubio.reporting.style import Style
from dubio.reporting.wording import number
from dubio.statistics.ensemble_equivalent import EquivalentRange, equivalent_range

if TYPE_CHECKING:
    import altair

Growth = dict[str, FloatArray]
"""Title → scores of one run's ensembles by size, ``[orders, M]``: column m − 1 holds those of m members."""

ACCURACY, NLL = "Accuracy", "Calibrated NLL"


@section("ensemble-size", order=20)
class Ensembles(Section):
    """Deep-ensemble equivalents, and scores against ensemble size."""

    title = "Ensembles"

    def __init__(self) -> None:
        """Start without any run."""
        self.growth = Collected[Growth]()
        self._current: tuple[MethodRun, Growth, list[FloatArray]] | None = None

    def visit(self, item: Visit) -> None:
        """Score the ensembles of 1, 2, … members of a run."""
        merged = one_sample_per_member(item.predictions) if item.is_shown else None
        if item.is_in_domain_test:
            growth = None if merged is None or not item.has_labels else in_domain_growth(merged)
            self._current = None
            if merged is not None and growth is not None:
                self._current = item.run, growth, pool_uncertainties(merged)
                self.growth.add(item, growth)
        elif merged is not None and self._current is not None and self._current[0] == item.run:
            _, growth, inside = self._current
            outside = pool_uncertainties(merged)
            if len(inside) == len(outside):
                growth[f"AUROC, {item.split.name}"] = _by_size(list(map(detection_auroc, inside, outside)))

    def finish(self, run: RunView, task: TaskView) -> None:
        """Forget the uncertainties of the last run."""
        self._current = None

    def task_blocks(self, run: RunView, task: TaskView) -> Iterator[Block]:
        """Yield deep-ensemble equivalents and ensemble sizes of a task."""
        if rows := equivalents_of(run, task):
            longest = len(run.growth[task.key])
            chart = partial(equivalent_chart, {run.styles[name]: row for name, row in rows.items()}, longest)
            yield Figure("equivalents", "Deep-ensemble equivalent", EQUIVALENT_CAPTION.format(longest=longest), chart)
        if panels := self.panels(run, task):
            panels_chart = partial(curve_panels, panels, x="members")
            yield Figure("size", "Ensemble size", SIZE_CAPTION, panels_chart, reading=size_reading(panels))

    def document(self, run: RunView) -> dict[str, Any]:
        """Return the deep-ensemble equivalent of every method on every task."""
        rows = []
        for task in run.tasks:
            for method, equivalent in equivalents_of(run, task).items():
                bounds = {name: getattr(equivalent, name) for name in ("lower", "central", "upper")}
                sizes = {name: str(bound) if bound.beyond else bound.size for name, bound in bounds.items()}
                rows.append({"task": task.key, "method": method, "longest": len(run.growth[task.key]), **sizes})
        return {"deep_ensemble_equivalents": rows}

    def panels(self, run: RunView, task: TaskView) -> dict[str, list[Series]]:
        """Return accuracy, calibrated NLL and detection against the number of members; empty without an ensemble."""
        growths = self.growth.methods(run, task)
        growths = {name: runs for name, runs in growths.items() if len({growth[NLL].shape for growth in runs}) == 1}
        scored = [growth for runs in growths.values() for growth in runs]
        titles = [title for title in (scored[0] if scored else ()) if all(title in growth for growth in scored)]
        return {
            title: [by_members(run.styles[name], [growth[title] for growth in runs]) for name, runs in growths.items()]
            for title in titles
        }


def by_members(style: Style, runs: Sequence[FloatArray]) -> Series:
    """Return the scores of a method's ensembles against the number of members, all orders of all runs."""
    return Series(style, np.arange(1.0, runs[0].shape[1] + 1), np.concatenate(runs))


EQUIVALENT_CAPTION = (
    "The number of independently trained networks whose ensemble has the calibrated NLL of the method. Bars: the same "
    "against the curve of growing ensembles plus and minus its standard deviation over random orders. {longest} "
    "networks were trained; an arrow means better than all of them together, and nothing is extrapolated. A method "
    "that is worse than one network counts as 1."
)


def equivalents_of(run: RunView, task: TaskView) -> dict[str, EquivalentRange]:
    """Return method → its equivalent (P eqs 4–5), by its mean calibrated NLL; empty without a deep ensemble."""
    curve = run.growth.get(task.key)
    if curve is None:
        return {}
    means = {name: cell.mean for name, cell in run.scores.row(task, task.in_domain.name, RANKED_BY).items() if cell.n}
    return {name: equivalent_range(curve, "nll", mean) for name, mean in means.items() if np.isfinite(mean)}


def equivalent_chart(equivalents: Mapping[Style, EquivalentRange], longest: int) -> altair.LayerChart:
    """Return one row per method: the equivalent as a marker, its bounds as a bar, and an arrow beyond the longest.

    Args:
        equivalents: The methods with their equivalents.
        longest: The number of networks.
    """
    import altair

    styles, edge = list(equivalents), 1.03 * longest
    rows: Rows = [
        {"method": style.title, **{name: min(getattr(row, name).size, edge) for name in ("lower", "central", "upper")},
         "beyond": row.central.beyond, "note": str(row.central), "bounds": f"{row.lower} to {row.upper}"}
        for style, row in equivalents.items()
    ]  # fmt: skip
    chart, row, colour = chart_of(rows), method_row(styles), method_colour(styles).legend(None)
    title, scale = "deep-ensemble equivalent, independent networks", altair.Scale(domain=[1, edge], nice=False)
    axis = whole_numbers(range(1, longest + 1))
    lower, central = (altair.X(f"{side}:Q", title=title, scale=scale, axis=axis) for side in ("lower", "central"))
    values = tooltips({"method": "method:N", "equivalent": "note:N", "bounds": "bounds:N"})
    end = (
        chart_of([{"longest": longest}])
        .mark_rule(strokeDash=[3, 3], opacity=0.6)
        .encode(altair.X("longest:Q", title=title, scale=scale))
    )
    bars = chart.mark_rule(strokeWidth=2).encode(lower, row, x2=altair.X2("upper:Q"), color=colour)
    points = chart.transform_filter("!datum.beyond").mark_point(size=60, opacity=1)
    arrows = chart.transform_filter("datum.beyond").mark_point(filled=True, size=90, opacity=1, shape="triangle-right")
    shape, fill = method_shape(styles).legend(None), method_fill(styles).legend(None)
    layers = [
        end, bars, points.encode(central, row, color=colour, fill=fill, shape=shape, tooltip=values),
        arrows.encode(central, row, color=colour, tooltip=values), row_notes(chart, styles),
    ]  # fmt: skip
    return altair.LayerChart(layer=layers).properties(width="container", height=altair.Step(20))


SIZE_CAPTION = (
    "Ensembles of 1, 2, … members that are neighbours in a circle. Lines are means and bands one standard deviation "
    "over these ensembles and over runs; all end in the same full ensemble. AUROC is that of confidence."
)


def pools_of(members: int) -> tuple[tuple[int, ...], ...]:
    """Return every ensemble that is scored, by its members, smallest first; that of all members once."""
    circle = [
        tuple((first + step) % members for step in range(size))
        for size in range(1, members)
        for first in range(members)
    ]
    return (*circle, tuple(range(members)))


def in_domain_growth(merged: Predictions) -> Growth | None:
    """Score growing ensembles on the in-domain test set, one sample per member; None where there are too few labels."""
    accuracy, nll, calibrated = [], [], calibrated_nll.metric().compute
    for pool in pools_of(merged.samples):
        pooled = with_logits(merged.labelled, merged.labelled.logits[list(pool)])
        try:
            nll.append(calibrated(pooled))
        except UserError:
            return None
        accuracy.append(float(correct(pooled).mean()))
    return {ACCURACY: _by_size(accuracy), NLL: _by_size(nll)}


def pool_uncertainties(merged: Predictions) -> list[FloatArray]:
    """Return 1 − confidence of every ensemble of :func:`pools_of`."""
    pools = (with_logits(merged, merged.logits[list(pool)]) for pool in pools_of(merged.samples))
    return [uncertainty(pool, "confidence") for pool in pools]


def detection_auroc(inside: FloatArray, outside: FloatArray) -> float:
    """Return the AUROC of detecting OOD or shifted examples by their uncertainty."""
    flag = np.repeat([False, True], [len(inside), len(outside)])
    return auroc(np.concatenate([inside, outside]), flag)


def one_sample_per_member(predictions: Predictions) -> Predictions | None:
    """Return each member's samples pooled to one; None with fewer than two members."""
    members = np.unique(predictions.member)
    if len(members) < 2:
        return None
    own = (with_logits(predictions, predictions.logits[predictions.member == member]) for member in members)
    several = predictions.target == "multilabel"
    pooled = [(one.log_probs - one.log_complements if several else one.log_probs).astype(np.float32) for one in own]
    return with_logits(predictions, np.array(pooled))


def with_logits(predictions: Predictions, logits: NDArray[Any]) -> Predictions:
    """Return the predictions with other logits ``[S, N, C]``, each sample a member of its own."""
    members = np.arange(len(logits))
    return predictions.with_checked(logits=logits, member=members, data_variance=None, model_variance=None)


def _by_size(values: list[float]) -> FloatArray:
    """Return values in the order of :func:`pools_of` as ``[orders, M]``; the full ensemble is every order's last."""
    members = round((1 + np.sqrt(4 * len(values) - 3)) / 2)
    grid = np.array(values[:-1]).reshape(members - 1, members)
    return np.vstack([grid, np.full(members, values[-1])]).T


def size_reading(panels: Mapping[str, Sequence[Series]]) -> str:
    """Return how much accuracy and calibrated NLL change from one member to all, and how early."""
    accuracy, nll = ([float(series.mean[-1] - series.mean[0]) for series in panels[title]] for title in (ACCURACY, NLL))
    longest = max(len(series.x) for series in panels[NLL])
    half, soon = max(2, math.ceil(longest / 2)), ""
    if longest > 2 and sum(nll) < 0:
        early = sum(float(series.mean[half - 1] - series.mean[0]) for series in panels[NLL] if len(series.x) >= half)
        soon = f"; {number(half)} members reach {early / sum(nll):.0%} of the mean reduction"
    return (
        f"From one member to {number(longest)}, accuracy changes by {_span(accuracy)} and calibrated NLL by "
        f"{_span(nll)}{soon}."
    )


def _span(values: Sequence[float]) -> str:
    low, high = (f"{value:+.3f}".replace("-", "−") for value in (min(values), max(values)))
    return low if low == high else f"{low} to {high}"
