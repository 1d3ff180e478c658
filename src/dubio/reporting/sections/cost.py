"""Cost: trainings, seconds, parameters and speed of every method, and its quality against its cost."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from dubio.core.types import FloatArray
from dubio.reporting.canvas import WIDTH, blank, legend_height, method_legend, styled
from dubio.reporting.manifest_view import TaskView
from dubio.reporting.measures import RANKED_BY
from dubio.reporting.run_view import RunView
from dubio.reporting.score_table import Cell
from dubio.reporting.section import Block, Figure, Section, section
from dubio.reporting.style import Style
from dubio.reporting.tables import Column, FilledColumn, Table, TableCell, method_table
from dubio.reporting.wording import term

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Drawing

CAPTION = (
    "Seconds of training that one run of the method needs, on a logarithmic axis; bars are one standard deviation over "
    "runs. Lower left is better."
)


@section("cost", order=70)
class CostSection(Section):
    """Training and prediction cost."""

    title = "Cost"

    def blocks(self, run: RunView, task: TaskView | None) -> Iterator[Block]:
        """Yield the table of costs, and quality against cost."""
        if task is None:
            return
        yield cost_table(run, task)
        points = cost_points(run, task)
        if points:
            yield Figure("cost", "Quality against cost", CAPTION, partial(cost_figure, points))

    def document(self, run: RunView) -> dict[str, Any]:
        """Return the cost of every method on every task."""
        return {
            "costs": [
                {"task": task, "method": method}
                | {name: {"mean": cell.mean, "std": cell.std, "runs": cell.n} for name, cell in vars(cost).items()}
                for (task, method), cost in run.costs.items()
            ]
        }


def cost_table(run: RunView, task: TaskView) -> Table:
    """Return the cost of each method on its own; members that methods share count in full for each."""
    methods = run.methods_of(task)
    costs = {m.name: run.costs[task.key, m.name] for m in methods if (task.key, m.name) in run.costs}
    device = run.environment.get("device")
    speed = f"examples per second, {device}" if device else "examples per second"
    rows = (
        (Column("Trainings"), "trainings", 1.0, 0),
        (Column("Training", "seconds, all fits"), "training_seconds", 1.0, 1),
        (Column("Epoch", "seconds, one fit"), "seconds_per_epoch", 1.0, 2),
        (Column("Converged", "epoch, mean of fits"), "best_epoch", 1.0, 1),
        (Column("Inference", speed), "examples_per_second", 1.0, 0),
        (Column("Parameters", "thousands"), "parameters", 1e3, 1),
        (Column("Stored", "kB of weights"), "stored_bytes", 1e3, 0),
    )
    columns = [
        _column(head, {name: getattr(cost, field) for name, cost in costs.items()}, unit, places)
        for head, field, unit, places in rows
    ]
    return method_table(methods, columns, run.styles, caption="One run; mean ± standard deviation over runs")


def _column(head: Column, cells: Mapping[str, Cell], unit: float, places: int) -> FilledColumn:
    """Return values in a unit; a spread of zero is not shown."""
    shown = {}
    for name, cell in cells.items():
        if cell.n:
            spread = f"± {cell.std / unit:,.{places}f}" if cell.std else ""
            shown[name] = TableCell(f"{cell.mean / unit:,.{places}f}", spread, f"{cell.mean:.9g}")
    return FilledColumn(head, shown)


@dataclass(frozen=True, eq=False)
class CostPoint:
    """The training seconds of one method, and its quality over runs."""

    style: Style
    seconds: float
    quality: FloatArray


def cost_points(run: RunView, task: TaskView) -> list[CostPoint]:
    """Return training seconds and the ranking metric of every method for which both are known."""
    quality, points = run.scores.row(task, task.in_domain.name, RANKED_BY), []
    for method in run.methods_of(task):
        cost, cell = run.costs.get((task.key, method.name)), quality.get(method.name)
        if cost is None or cell is None or not cost.training_seconds.n or not np.isfinite(cell.mean):
            continue
        if cost.training_seconds.mean > 0:
            points.append(CostPoint(run.styles[method.name], cost.training_seconds.mean, np.array(cell.values)))
    return points


@styled
def cost_figure(points: Sequence[CostPoint]) -> Drawing:
    """Draw quality against cost on a logarithmic axis."""
    from matplotlib.ticker import LogLocator, NullFormatter, ScalarFormatter

    figure = blank(WIDTH, 2.7 + legend_height(len(points)))
    axis = figure.subplots()
    for one in points:
        std = float(np.std(one.quality, ddof=1)) if one.quality.size > 1 else 0.0
        axis.errorbar(
            [one.seconds], [float(np.mean(one.quality))], yerr=[std], color=one.style.colour, elinewidth=1.0, capsize=0,
            linestyle="none", **{**one.style.point, "markersize": 7.0},
        )  # fmt: skip
    axis.set_xscale("log")
    axis.xaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axis.xaxis.set_major_formatter(ScalarFormatter())
    axis.xaxis.set_minor_formatter(NullFormatter())
    axis.set(xlabel="training, seconds", ylabel=f"{term(RANKED_BY).title} (lower is better)")
    method_legend(figure, [one.style for one in points])
    return figure
