"""Methods as points in a plane.

Accuracy against diversity (T Fig. 12), detection against accuracy under shift (T Fig. 7), and NLL before and after
temperature scaling (T Fig. 22).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
from scipy.stats import rankdata, spearmanr

from dubio.core.types import FloatArray
from dubio.reporting.canvas import (
    WIDTH,
    blank,
    finite_limits,
    label_below,
    legend_height,
    method_legend,
    panel_title,
    styled,
)
from dubio.reporting.manifest_view import TaskView
from dubio.reporting.measures import RANKED_BY, detection_name
from dubio.reporting.run_view import RunView
from dubio.reporting.section import Block, Figure, Section, section
from dubio.reporting.style import CONTROL, Style

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Drawing

LOG_FROM = 20.0
"""A positive axis whose largest value is this many times its smallest is logarithmic."""

Limits = tuple[float, float]


@section("text-scatter", order=58)
class Scatter(Section):
    """Methods as points: diversity, shift and likelihood."""

    title = "Trade-offs"

    def blocks(self, run: RunView, task: TaskView | None) -> Iterator[Block]:
        """Yield diversity and detection of a task; likelihoods and detection of all tasks."""
        if task is not None:
            yield from self._of_task(run, task)
            return
        scored = [each for each in run.tasks if run.methods_of(each)]
        likelihoods = [panel for each in scored if (panel := likelihoods_of(run, each)) is not None]
        if len(likelihoods) > 1:
            draw = partial(scatter_figure, likelihoods, x="NLL", y="calibrated NLL", diagonal="no change")
            reading = likelihoods_reading(likelihoods)
            yield Figure("likelihood", "NLL and calibrated NLL", LIKELIHOOD_CAPTION, draw, reading=reading)
        shifts = [panel for each in scored for panel in transfer_of(run, each)]
        if len({panel.title.partition(" → ")[0] for panel in shifts}) > 1:
            yield _transfer(shifts, "Detection and accuracy over all shifts")

    def _of_task(self, run: RunView, task: TaskView) -> Iterator[Figure]:
        diversity = diversity_of(run, task)
        if diversity is not None:
            x = "diversity (mean KL from the pooled prediction, nats)"
            draw, reading = partial(scatter_figure, [diversity], x=x, y="accuracy"), diversity_reading(diversity)
            yield Figure("diversity", "Accuracy and diversity", DIVERSITY_CAPTION, draw, reading=reading)
        panels = transfer_of(run, task)
        if panels:
            yield _transfer(panels, "Detection and accuracy under shift")


def _transfer(panels: Sequence[Panel], title: str) -> Figure:
    x = "accuracy on the shifted test set"
    draw = partial(scatter_figure, panels, frame=common_frame(panels), x=x, y="AUROC")
    return Figure("transfer", title, TRANSFER_CAPTION, draw, reading=transfer_reading(panels))


@dataclass(frozen=True, eq=False)
class Point:
    """One method: its values over runs on either axis."""

    style: Style
    x: FloatArray
    y: FloatArray


@dataclass(frozen=True)
class Panel:
    """One panel: its title and one point per method."""

    title: str
    points: tuple[Point, ...]


@styled
def scatter_figure(
    panels: Sequence[Panel], *, x: str, y: str, frame: tuple[Limits, Limits] | None = None, diagonal: str = ""
) -> Drawing:
    """Draw points with one standard deviation over runs in both directions.

    Args:
        panels: One per test set.
        x: The label of the horizontal axis.
        y: The label of the vertical axis.
        frame: Limits of both axes for all panels; by default each panel has its own.
        diagonal: The label of the line of equal values, where it is drawn.
    """
    columns = min(len(panels), 3)
    rows = math.ceil(len(panels) / columns)
    drawn = _methods(panels)
    height = 3.1 if columns == 1 else 2.35
    figure = blank(WIDTH, height * rows + legend_height(len(drawn)))
    axes = list(figure.subplots(rows, columns, squeeze=False).flat)
    for unused in axes[len(panels) :]:
        unused.remove()
    for axis, panel in zip(axes[: len(panels)], panels, strict=True):
        _draw(axis, panel)
        if frame is not None:
            axis.set(xlim=frame[0], ylim=frame[1])
        else:
            _own_scale(axis, panel)
        if diagonal:
            _diagonal(axis)
    label_below(axes[: len(panels)], columns, x)
    figure.supylabel(y, fontsize=8.5)
    method_legend(figure, drawn, control=diagonal or None)
    return figure


def common_frame(panels: Sequence[Panel]) -> tuple[Limits, Limits] | None:
    """Return limits that hold all panels, spread included."""
    sides = [_extent(panels, side) for side in ("x", "y")]
    return None if sides[0] is None or sides[1] is None else (sides[0], sides[1])


def mean_of(values: FloatArray) -> float:
    """Return the mean over runs."""
    return float(np.mean(values))


def _extent(panels: Sequence[Panel], side: str) -> Limits | None:
    every = [getattr(point, side) for panel in panels for point in panel.points]
    return finite_limits(mean_of(v) + sign * _std(v) for v in every for sign in (-1, 1))


def _methods(panels: Sequence[Panel]) -> list[Style]:
    return list({(point.style.title, point.style.ensemble): point.style for p in panels for point in p.points}.values())


def _draw(axis: Axes, panel: Panel) -> None:
    for point in panel.points:
        axis.errorbar(
            [mean_of(point.x)], [mean_of(point.y)], xerr=[_std(point.x)], yerr=[_std(point.y)],
            color=point.style.colour, elinewidth=0.9, capsize=0, linestyle="none",
            **{**point.style.point, "markersize": 6.2},
        )  # fmt: skip
    axis.set_title(panel_title(panel.title))


def _own_scale(axis: Axes, panel: Panel) -> None:
    """Set few ticks; a logarithmic axis where values span more than an order of magnitude."""
    from matplotlib.ticker import LogLocator, MaxNLocator, NullFormatter, StrMethodFormatter

    for line, scale, side in ((axis.xaxis, axis.set_xscale, "x"), (axis.yaxis, axis.set_yscale, "y")):
        means = [mean_of(getattr(point, side)) for point in panel.points]
        if min(means) > 0 and max(means) / min(means) >= LOG_FROM:
            scale("log")
            line.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0), numticks=8))
            line.set_major_formatter(StrMethodFormatter("{x:g}"))
            line.set_minor_formatter(NullFormatter())
        else:
            line.set_major_locator(MaxNLocator(5))


def _diagonal(axis: Axes) -> None:
    """Draw the line of equal values, where it runs through the panel."""
    limits = axis.get_xlim(), axis.get_ylim()
    low, high = max(limits[0][0], limits[1][0]), min(limits[0][1], limits[1][1])
    if low < high:
        axis.plot([low, high], [low, high], color=CONTROL, linewidth=1.2, linestyle="dotted", zorder=1)
    axis.set(xlim=limits[0], ylim=limits[1])


def _std(values: FloatArray) -> float:
    return float(np.std(values, ddof=1)) if values.size > 1 else 0.0


DIVERSITY_CAPTION = (
    "One point per method that pools several predictions, with one standard deviation over runs. Diversity is the mean "
    "KL divergence of the members (or of the samples of one member) from the pooled prediction. Diversity helps where "
    "points to the right lie higher."
)


def diversity_of(run: RunView, task: TaskView) -> Panel | None:
    """Return diversity and accuracy of every method that has both; None for fewer than two."""
    diversity = run.scores.row(task, task.in_domain.name, "diversity")
    accuracy = run.scores.row(task, task.in_domain.name, "accuracy")
    points = tuple(
        Point(run.styles[m.name], np.array(diversity[m.name].values), np.array(accuracy[m.name].values))
        for m in run.methods_of(task)
        if m.name in accuracy and m.name in diversity and accuracy[m.name].n and diversity[m.name].n
        and np.isfinite(diversity[m.name].mean)
    )  # fmt: skip
    return Panel(task.key, points) if len(points) > 1 else None


def diversity_reading(panel: Panel) -> str:
    """Return the most diverse and the most accurate method, and the rank correlation of the two scores."""
    diverse = max(panel.points, key=lambda point: mean_of(point.x))
    accurate = max(panel.points, key=lambda point: mean_of(point.y))
    if diverse is accurate:
        first = (
            f"{diverse.style.title} is both the most diverse ({mean_of(diverse.x):.3g}) and the most accurate "
            f"({mean_of(diverse.y):.3f})"
        )
    else:
        first = (
            f"{diverse.style.title} is the most diverse ({mean_of(diverse.x):.3g}) with an accuracy of "
            f"{mean_of(diverse.y):.3f}; the most accurate, {accurate.style.title} ({mean_of(accurate.y):.3f}), has a "
            f"diversity of {mean_of(accurate.x):.3g}"
        )
    return f"{first}{_together(panel.points)}."


def _together(points: Sequence[Point]) -> str:
    if len(points) < 4:
        return ""
    found = float(spearmanr([mean_of(p.x) for p in points], [mean_of(p.y) for p in points]).statistic)
    if not np.isfinite(found):
        return ""
    return f"; over the {len(points)} methods the rank correlation of the two is {found:+.2f}".replace("-", "−")


TRANSFER_CAPTION = (
    "One point per method, with one standard deviation over runs: its accuracy on the shifted test set, and the AUROC "
    "of detecting the shift by confidence (0.5 is chance). Upper right is better. Where all points are low, no method "
    "notices the shift."
)


def transfer_of(run: RunView, task: TaskView) -> list[Panel]:
    """Return accuracy and AUROC on every shifted test set with labels; of a corruption, at its worst severity."""
    graded = {splits[-1].name: base for base, splits in task.severities.items()}
    found = []
    for split in task.farthest:
        accuracy = run.scores.row(task, split.name, "accuracy")
        area = run.scores.row(task, split.name, detection_name("ood_auroc", "confidence"))
        points = tuple(
            Point(run.styles[m.name], np.array(accuracy[m.name].values), np.array(area[m.name].values))
            for m in run.methods_of(task)
            if split.kind == "shift" and m.name in accuracy and m.name in area
            and accuracy[m.name].n and area[m.name].n
        )  # fmt: skip
        if points:
            name = f"{graded[split.name]}, worst severity" if split.name in graded else split.name
            found.append(Panel(f"{task.key} → {name}", points))
    return found


def transfer_reading(panels: Sequence[Panel]) -> str:
    """Return where detection is weakest and strongest, averaged over methods, with the accuracy there."""
    means = [(float(np.mean([mean_of(p.y) for p in panel.points])), panel) for panel in panels]
    low, high = min(means, key=lambda entry: entry[0]), max(means, key=lambda entry: entry[0])
    right = [float(np.mean([mean_of(p.x) for p in panel.points])) for _, panel in (low, high)]
    if len(panels) == 1:
        values = [mean_of(point.y) for point in panels[0].points]
        best = max(panels[0].points, key=lambda point: mean_of(point.y))
        return (
            f"AUROC lies between {min(values):.3f} and {max(values):.3f} ({best.style.title}), at a mean accuracy of "
            f"{right[0]:.3f}."
        )
    return (
        f"Averaged over methods, detection is weakest for {low[1].title} (AUROC {low[0]:.3f}, accuracy {right[0]:.3f}) "
        f"and strongest for {high[1].title} (AUROC {high[0]:.3f}, accuracy {right[1]:.3f})."
    )


LIKELIHOOD_CAPTION = (
    "One point per method, with one standard deviation over runs. Horizontal: NLL at temperature 1. Vertical: NLL at "
    "the cross-validated temperature. On the dotted line temperature scaling changes nothing. Where the horizontal "
    "order differs from the vertical one, a comparison of NLL at temperature 1 would mislead."
)


def likelihoods_of(run: RunView, task: TaskView) -> Panel | None:
    """Return NLL before and after temperature scaling, of the methods for which both are finite; None without any."""
    plain = run.scores.row(task, task.in_domain.name, "nll")
    calibrated = run.scores.row(task, task.in_domain.name, RANKED_BY)
    points = tuple(
        Point(run.styles[m.name], np.array(plain[m.name].values), np.array(calibrated[m.name].values))
        for m in run.methods_of(task)
        if m.name in plain and m.name in calibrated
        and np.isfinite(plain[m.name].mean) and np.isfinite(calibrated[m.name].mean)
    )  # fmt: skip
    return Panel(task.key, points) if points else None


def likelihoods_reading(panels: Sequence[Panel]) -> str:
    """Return on how many tasks the best method changes, and which method's rank changes most."""
    changed = [p for p in panels if min(p.points, key=_plain) is not min(p.points, key=_calibrated)]
    moves = []
    for panel in panels:
        ranks = [rankdata([side(point) for point in panel.points]) for side in (_plain, _calibrated)]
        shift = np.abs(ranks[0] - ranks[1])
        place = int(shift.argmax())
        moves.append((float(shift[place]), panel, panel.points[place], ranks[0][place], ranks[1][place]))
    _, panel, point, before, after = max(moves, key=lambda entry: entry[0])
    first = f"On {len(changed)} of {len(panels)} tasks another method has the lowest NLL after temperature scaling"
    if before == after:
        return f"{first}, and no method changes its rank."
    change = f"from rank {before:g} to {after:g}"
    return f"{first}; the largest change is that of {point.style.title} on {panel.title}, {change}."


def _plain(point: Point) -> float:
    return mean_of(point.x)


def _calibrated(point: Point) -> float:
    return mean_of(point.y)
