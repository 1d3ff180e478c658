"""Methods as points in a plane.

Accuracy against diversity (T Fig. 12), detection against accuracy under shift (T Fig. 7), and NLL before and after
temperature scaling (T Fig. 22).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.stats import rankdata, spearmanr

from dubio.reporting.charts import Rows, chart_of, method_points, tooltips
from dubio.reporting.manifest_view import TaskView
from dubio.reporting.measures import RANKED_BY, detection_name
from dubio.reporting.run_view import RunView
from dubio.reporting.score_table import Cell
from dubio.reporting.section import Block, Figure, Section, section
from dubio.reporting.style import CONTROL, Style
from dubio.reporting.wording import signed

if TYPE_CHECKING:
    import altair

    from dubio.reporting.charts import Chart

LOG_FROM = 20.0
"""A positive axis whose largest value is at least this multiple of its smallest is logarithmic."""

THIRD = 240
"""Pixels of a panel, three of which stand side by side."""


@section("text-scatter", order=58)
class Scatter(Section):
    """Methods as points: diversity, shift and likelihood."""

    title = "Trade-offs"

    def blocks(self, run: RunView, task: TaskView | None) -> Iterator[Block]:
        """Yield diversity and detection of a task; likelihoods and detection of all tasks."""
        if task is not None:
            diversity, shifts = diversity_of(run, task), transfer_of(run, task)
            if diversity is not None:
                x = "diversity (mean KL from the pooled prediction, nats)"
                chart, reading = partial(scatter_chart, [diversity], x=x, y="accuracy"), diversity_reading(diversity)
                yield Figure("diversity", "Accuracy and diversity", DIVERSITY_CAPTION, chart, reading=reading)
            if shifts:
                yield _transfer(shifts, "Detection and accuracy under shift")
            return
        scored = [task for task in run.tasks if run.methods_of(task)]
        likelihoods = [panel for task in scored if (panel := likelihoods_of(run, task)).points]
        if len(likelihoods) > 1:
            chart = partial(scatter_chart, likelihoods, x="NLL", y="calibrated NLL", diagonal=True)
            reading = likelihoods_reading(likelihoods)
            yield Figure("likelihood", "NLL and calibrated NLL", LIKELIHOOD_CAPTION, chart, reading=reading)
        shifts = [panel for task in scored for panel in transfer_of(run, task)]
        if len({panel.title.partition(" → ")[0] for panel in shifts}) > 1:
            yield _transfer(shifts, "Detection and accuracy over all shifts")


@dataclass(frozen=True)
class Point:
    """One method: its values over runs on either axis."""

    style: Style
    x: Cell
    y: Cell


@dataclass(frozen=True)
class Panel:
    """One panel: its title and one point per method."""

    title: str
    points: tuple[Point, ...]

    def means(self, side: str) -> list[float]:
        """Return the means over runs on one axis, ``x`` or ``y``."""
        return [getattr(point, side).mean for point in self.points]


def panel_of(run: RunView, task: TaskView, split: str, metrics: tuple[str, str], title: str) -> Panel:
    """Return two scores on one split, of the methods for which both are finite."""
    sides = [run.scores.row(task, split, metric) for metric in metrics]
    names = [m.name for m in run.methods_of(task) if all(m.name in s and np.isfinite(s[m.name].mean) for s in sides)]
    return Panel(title, tuple(Point(run.styles[name], sides[0][name], sides[1][name]) for name in names))


def scatter_chart(panels: Sequence[Panel], *, x: str, y: str, common: bool = False, diagonal: bool = False) -> Chart:
    """Return points with one standard deviation over runs in both directions.

    Args:
        panels: One per test set.
        x: The title of the horizontal axis.
        y: The title of the vertical axis.
        common: Whether all panels have the same scales.
        diagonal: Whether to draw the line of equal values.
    """
    import altair

    points = [point for panel in panels for point in panel.points]
    styles = list({point.style.title: point.style for point in points}.values())
    charts = []
    for panel in panels:
        titles = {"x": x, "y": y}
        scales = {side: _scale(points if common else panel.points, side) for side in titles}
        layers = _layers(panel, styles, titles, scales)
        if diagonal:
            layers.insert(0, _diagonal(panel, titles))
        charts.append(altair.LayerChart(layer=layers))
    if len(panels) == 1:
        return charts[0].properties(width="container", height=300)
    sized = [
        chart.properties(width=THIRD, height=0.85 * THIRD, title=altair.Title(panel.title, frame="group", limit=THIRD))
        for panel, chart in zip(panels, charts, strict=True)
    ]
    return altair.concat(*sized, columns=3)


def _layers(panel: Panel, styles: Sequence[Style], titles: Mapping[str, str], scales: Mapping[str, Any]) -> list[Any]:
    """Return bars of one standard deviation in both directions, and markers."""
    import altair

    chart, colour = chart_of(point_rows(panel, scales)), method_points(altair.Chart(), styles).encoding.stroke
    x = altair.X("x:Q", title=titles["x"], scale=scales["x"], axis=altair.Axis(tickCount=5, format="~g"))
    y = altair.Y("y:Q", title=titles["y"], scale=scales["y"], axis=altair.Axis(tickCount=5, format="~g"))
    shown = tooltips({"method": "method:N", titles["x"]: "x_text:N", titles["y"]: "y_text:N"})
    rule, low = chart.mark_rule(strokeWidth=1), {"scale": scales["x"], "title": titles["x"]}
    across = rule.encode(altair.X("x_low:Q", **low), y, x2=altair.X2("x_high:Q"), stroke=colour)
    upwards = rule.encode(
        x, altair.Y("y_low:Q", scale=scales["y"], title=titles["y"]), y2=altair.Y2("y_high:Q"), stroke=colour
    )
    return [across, upwards, method_points(chart, styles, size=60, x=x, y=y, tooltip=shown)]


def point_rows(panel: Panel, scales: Mapping[str, Any]) -> Rows:
    """Return mean and one standard deviation of every method on both axes; no bar is longer than its axis."""
    rows: Rows = []
    for point in panel.points:
        row: dict[str, Any] = {"method": point.style.title}
        for side, cell in (("x", point.x), ("y", point.y)):
            std = cell.std or 0.0
            least = scales[side]["domain"][0]
            row |= {side: cell.mean, f"{side}_low": max(cell.mean - std, least), f"{side}_high": cell.mean + std}
            row[f"{side}_text"] = f"{cell.mean:.4g}" + (f" ± {std:.2g}" if std else "")
        rows.append(row)
    return rows


def _scale(points: Sequence[Point], side: str) -> altair.Scale:
    """Return a scale that holds all points with their spread, logarithmic where the means span more than a magnitude.

    A logarithmic axis begins at the smallest mean: a bar may reach below zero.
    """
    import altair

    cells = [getattr(point, side) for point in points]
    means = [cell.mean for cell in cells]
    ends = [cell.mean + sign * (cell.std or 0.0) for cell in cells for sign in (-1, 1)]
    if min(means) > 0 and max(means) / min(means) >= LOG_FROM:
        return altair.Scale(type="log", domain=[min(means), max(ends)], padding=12, nice=False)
    return altair.Scale(zero=False, domain=[min(ends), max(ends)], padding=8, nice=False)


def _diagonal(panel: Panel, titles: Mapping[str, str]) -> altair.Chart:
    """Return the line of equal values between the smallest and the largest mean, where it runs through the panel."""
    import altair

    low, high = (edge(other(panel.means(side)) for side in ("x", "y")) for edge, other in ((max, min), (min, max)))
    line = chart_of([{"x": value, "y": value} for value in (low, high) if low < high])
    diagonal: altair.Chart = line.mark_line(color=CONTROL, strokeWidth=1.2, strokeDash=[1.5, 2.5]).encode(
        altair.X("x:Q", title=titles["x"]), altair.Y("y:Q", title=titles["y"])
    )
    return diagonal


DIVERSITY_CAPTION = (
    "One point per method that pools several predictions, with one standard deviation over runs. Diversity: mean KL "
    "divergence of the members (or samples) from the pooled prediction. It helps where points to the right lie higher."
)


def diversity_of(run: RunView, task: TaskView) -> Panel | None:
    """Return diversity and accuracy of every method that has both; None for fewer than two."""
    panel = panel_of(run, task, task.in_domain.name, ("diversity", "accuracy"), task.key)
    return panel if len(panel.points) > 1 else None


def diversity_reading(panel: Panel) -> str:
    """Return the most diverse and the most accurate method, and the rank correlation of the two scores."""
    diverse = max(panel.points, key=lambda point: point.x.mean)
    accurate = max(panel.points, key=lambda point: point.y.mean)
    first = (
        f"{diverse.style.title} is the most diverse ({diverse.x.mean:.3g}; accuracy {diverse.y.mean:.3f}), "
        f"{accurate.style.title} the most accurate ({accurate.y.mean:.3f}; diversity {accurate.x.mean:.3g})"
    )
    rho = float(spearmanr(panel.means("x"), panel.means("y")).statistic) if len(panel.points) >= 4 else np.nan
    if not np.isfinite(rho):
        return f"{first}."
    return f"{first}; over the {len(panel.points)} methods the rank correlation of the two is {signed(rho, 2)}."


TRANSFER_CAPTION = (
    "One point per method, with one standard deviation over runs: accuracy on the shifted test set, and AUROC of "
    "detecting the shift by confidence (0.5 is chance). Upper right is better; where all points are low, no method "
    "notices the shift."
)


def transfer_of(run: RunView, task: TaskView) -> list[Panel]:
    """Return accuracy and AUROC on every shifted test set with labels; of a corruption, at its worst severity."""
    graded = {splits[-1].name: f"{base}, worst severity" for base, splits in task.severities.items()}
    metrics = "accuracy", detection_name("ood_auroc", "confidence")
    panels = [
        panel_of(run, task, split.name, metrics, f"{task.key} → {graded.get(split.name, split.name)}")
        for split in task.farthest
        if split.kind == "shift"
    ]
    return [panel for panel in panels if panel.points]


def _transfer(panels: Sequence[Panel], title: str) -> Figure:
    """Return the figure of these panels, on common scales."""
    x = "accuracy on the shifted test set"
    chart = partial(scatter_chart, panels, x=x, y="AUROC", common=True)
    return Figure("transfer", title, TRANSFER_CAPTION, chart, reading=transfer_reading(panels))


def transfer_reading(panels: Sequence[Panel]) -> str:
    """Return where detection is weakest and strongest, averaged over methods, with the accuracy there."""
    means = [(float(np.mean(panel.means("y"))), float(np.mean(panel.means("x"))), panel) for panel in panels]
    if len(panels) == 1:
        best = max(panels[0].points, key=lambda point: point.y.mean)
        return (
            f"AUROC lies between {min(panels[0].means('y')):.3f} and {best.y.mean:.3f} ({best.style.title}), at a mean "
            f"accuracy of {means[0][1]:.3f}."
        )
    texts = [
        f"{panel.title} (AUROC {area:.3f}, accuracy {accuracy:.3f})"
        for area, accuracy, panel in sorted(means, key=lambda entry: entry[0])
    ]
    return f"Averaged over methods, detection is weakest for {texts[0]} and strongest for {texts[-1]}."


LIKELIHOOD_CAPTION = (
    "One point per method, with one standard deviation over runs: NLL at temperature 1 and at the cross-validated "
    "temperature. On the dotted line scaling changes nothing. Where the two orders differ, a comparison of NLL at "
    "temperature 1 would mislead."
)


def likelihoods_of(run: RunView, task: TaskView) -> Panel:
    """Return NLL before and after temperature scaling, of the methods for which both are finite."""
    return panel_of(run, task, task.in_domain.name, ("nll", RANKED_BY), task.key)


def likelihoods_reading(panels: Sequence[Panel]) -> str:
    """Return on how many tasks the best method changes, and which method's rank changes most."""
    changed, moves = 0, []
    for panel in panels:
        ranks = [rankdata(panel.means(side)) for side in ("x", "y")]
        changed += int(np.argmin(panel.means("x")) != np.argmin(panel.means("y")))
        most = int(np.abs(ranks[0] - ranks[1]).argmax())
        moves.append((ranks[0][most], ranks[1][most], panel.points[most].style.title, panel.title))
    before, after, method, task = max(moves, key=lambda move: abs(move[0] - move[1]))
    first = f"On {changed} of {len(panels)} tasks another method has the lowest NLL after temperature scaling"
    if before == after:
        return f"{first}, and no method changes its rank."
    return f"{first}; the largest change is that of {method} on {task}, from rank {before:g} to {after:g}."
