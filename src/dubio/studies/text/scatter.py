"""Methods as points in a plane.

Accuracy against diversity (T Fig. 12), detection against accuracy under shift (T Fig. 7), and NLL before and after
temperature scaling (T Fig. 22).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
from scipy.stats import rankdata, spearmanr

from dubio.reporting.canvas import finite_limits, legend_height, method_legend, panel_grid, panel_title, styled
from dubio.reporting.manifest_view import TaskView
from dubio.reporting.measures import RANKED_BY, detection_name
from dubio.reporting.run_view import RunView
from dubio.reporting.score_table import Cell
from dubio.reporting.section import Block, Figure, Section, section
from dubio.reporting.style import CONTROL, Style
from dubio.reporting.wording import signed

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Drawing

LOG_FROM = 20.0
"""A positive axis whose largest value is at least this multiple of its smallest is logarithmic."""

Limits = tuple[float, float] | None


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
                draw, reading = partial(scatter_figure, [diversity], x=x, y="accuracy"), diversity_reading(diversity)
                yield Figure("diversity", "Accuracy and diversity", DIVERSITY_CAPTION, draw, reading=reading)
            if shifts:
                yield _transfer(shifts, "Detection and accuracy under shift")
            return
        scored = [task for task in run.tasks if run.methods_of(task)]
        likelihoods = [panel for task in scored if (panel := likelihoods_of(run, task)).points]
        if len(likelihoods) > 1:
            draw = partial(scatter_figure, likelihoods, x="NLL", y="calibrated NLL", diagonal="no change")
            reading = likelihoods_reading(likelihoods)
            yield Figure("likelihood", "NLL and calibrated NLL", LIKELIHOOD_CAPTION, draw, reading=reading)
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
    points = [point for panel in panels for point in panel.points]
    styles = list({(point.style.title, point.style.ensemble): point.style for point in points}.values())
    height, extra = 3.1 if len(panels) == 1 else 2.35, legend_height(len(styles))
    figure, axes = panel_grid(len(panels), panel_height=height, extra=extra, xlabel=x)
    for axis, panel in zip(axes, panels, strict=True):
        for point in panel.points:
            axis.errorbar([point.x.mean], [point.y.mean], xerr=[point.x.std or 0.0], yerr=[point.y.std or 0.0],
                          color=point.style.colour, elinewidth=0.9, capsize=0, linestyle="none",
                          **{**point.style.point, "markersize": 6.2})  # fmt: skip
        axis.set_title(panel_title(panel.title))
        if frame is not None:
            axis.set(xlim=frame[0], ylim=frame[1])
        else:
            _own_scale(axis, panel)
        if diagonal:
            _diagonal(axis)
    figure.supylabel(y, fontsize=8.5)
    method_legend(figure, styles, control=diagonal or None)
    return figure


def _own_scale(axis: Axes, panel: Panel) -> None:
    """Set few ticks; a logarithmic axis where values span more than an order of magnitude."""
    from matplotlib.ticker import LogLocator, MaxNLocator, NullFormatter, StrMethodFormatter

    for line, scale, side in ((axis.xaxis, axis.set_xscale, "x"), (axis.yaxis, axis.set_yscale, "y")):
        means = panel.means(side)
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
    """Return the figure of these panels, in one frame that holds all points with their spread."""
    every = [[getattr(point, side) for panel in panels for point in panel.points] for side in ("x", "y")]
    limits = [finite_limits(c.mean + sign * (c.std or 0.0) for c in cells for sign in (-1, 1)) for cells in every]
    x = "accuracy on the shifted test set"
    draw = partial(scatter_figure, panels, frame=(limits[0], limits[1]), x=x, y="AUROC")
    return Figure("transfer", title, TRANSFER_CAPTION, draw, reading=transfer_reading(panels))


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
