"""Cost: trainings, seconds, parameters and speed of every method, and its quality against its cost."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from dubio.reporting.canvas import WIDTH, blank, legend_height, method_legend, styled
from dubio.reporting.manifest_view import TaskView
from dubio.reporting.measures import RANKED_BY
from dubio.reporting.run_view import PREDICTED, Cost, RunView
from dubio.reporting.score_table import Cell
from dubio.reporting.section import Block, Figure, Section, section
from dubio.reporting.style import Style
from dubio.reporting.tables import Column, Table, TableCell
from dubio.reporting.wording import term

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Drawing

CAPTION = (
    f"Seconds of training of one run and of predicting {PREDICTED:,} examples, logarithmic; bars: one standard "
    "deviation over runs. Lower left is better."
)


@section("cost", order=70)
class CostSection(Section):
    """Training and prediction cost."""

    title = "Cost"

    def task_blocks(self, run: RunView, task: TaskView) -> Iterator[Block]:
        """Yield the table of costs, and quality against cost."""
        yield cost_table(run, task)
        if points := cost_points(run, task):
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
    device = run.environment.get("device")
    columns = {
        "trainings": Column("Trainings"),
        "training_seconds": Column("Training", "seconds, all fits"),
        "seconds_per_epoch": Column("Epoch", "seconds, one fit"),
        "best_epoch": Column("Converged", "epoch, mean of fits"),
        "examples_per_second": Column(
            "Inference", f"examples per second, {device}" if device else "examples per second"
        ),
        "parameters": Column("Parameters", "thousands"),
        "stored_bytes": Column("Stored", "kB of weights"),
    }
    names = [method.name for method in run.methods_of(task)]
    rows = {name: cost_cells(run.costs[task.key, name]) for name in names if (task.key, name) in run.costs}
    return run.table(columns, rows, "One run; mean ± standard deviation over runs")


def cost_cells(cost: Cost) -> dict[str, TableCell]:
    """Return the known costs of a method; a spread of zero is not shown."""
    units, places = {"parameters": 1e3, "stored_bytes": 1e3}, {"training_seconds": 1, "seconds_per_epoch": 2}
    places |= {"best_epoch": 1, "parameters": 1}
    cells = {}
    for name, cell in vars(cost).items():
        if cell.n:
            unit, form = units.get(name, 1.0), f",.{places.get(name, 0)}f"
            spread = f"± {cell.std / unit:{form}}" if cell.std else ""
            cells[name] = TableCell(f"{cell.mean / unit:{form}}", spread, f"{cell.mean:.9g}")
    return cells


def cost_points(run: RunView, task: TaskView) -> list[tuple[Style, float, Cell]]:
    """Return seconds of training and prediction and the ranking metric of every method for which they are known."""
    points = []
    for name, cell in run.scores.row(task, task.in_domain.name, RANKED_BY).items():
        cost = run.costs.get((task.key, name))
        if cost is not None and np.isfinite([cell.mean, *cost.seconds]).all():
            points.append((run.styles[name], sum(cost.seconds), cell))
    return points


@styled
def cost_figure(points: Sequence[tuple[Style, float, Cell]]) -> Drawing:
    """Draw quality against cost on a logarithmic axis."""
    from matplotlib.ticker import LogLocator, NullFormatter, ScalarFormatter

    figure = blank(WIDTH, 2.7 + legend_height(len(points)))
    axis = figure.subplots()
    for style, seconds, cell in points:
        axis.errorbar(
            [seconds], [cell.mean], yerr=[cell.std or 0.0], color=style.colour, elinewidth=1.0, capsize=0,
            linestyle="none", **{**style.point, "markersize": 7.0},
        )  # fmt: skip
    axis.set_xscale("log")
    axis.xaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axis.xaxis.set_major_formatter(ScalarFormatter())
    axis.xaxis.set_minor_formatter(NullFormatter())
    axis.set(
        xlabel=f"training and {PREDICTED:,} predictions, seconds", ylabel=f"{term(RANKED_BY).title} (lower is better)"
    )
    method_legend(figure, [style for style, *_ in points])
    return figure
