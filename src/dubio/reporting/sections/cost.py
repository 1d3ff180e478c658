"""Cost: trainings, seconds, parameters and speed of every method, and its quality against its cost."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from dubio.reporting.charts import Rows, chart_of, method_colour, method_fill, method_shape, tooltips
from dubio.reporting.manifest_view import TaskView
from dubio.reporting.measures import RANKED_BY
from dubio.reporting.run_view import PREDICTED, Cost, RunView
from dubio.reporting.section import Block, Figure, Section, section
from dubio.reporting.style import Style
from dubio.reporting.tables import Column, Table, TableCell
from dubio.reporting.wording import term

if TYPE_CHECKING:
    import altair

CAPTION = (
    f"Seconds of training of one run and of predicting {PREDICTED:,} examples, logarithmic; bars: one standard "
    "deviation over runs. Lower left is better."
)


@section("cost", order=70)
class CostSection(Section):
    """Training and prediction cost."""

    title = "Cost"

    def task_blocks(self, run: RunView, task: TaskView) -> Iterator[Block]:
        """Yield the table of costs, and quality against cost; nothing of systems, whose cost is not known."""
        if run.question == "systems":
            return
        yield cost_table(run, task)
        if points := cost_points(run, task):
            titles = {point["method"] for point in points}
            styles = [style for style in run.styles.values() if style.title in titles]
            yield Figure("cost", "Quality against cost", CAPTION, partial(cost_chart, points, styles))

    def document(self, run: RunView) -> dict[str, Any]:
        """Return the cost of every method on every task."""
        return {
            "costs": [
                {"task": task, "method": method}
                | {name: {"mean": cell.mean, "std": cell.std, "runs": cell.n} for name, cell in vars(cost).items()}
                for (task, method), cost in run.costs.items()
                if run.question == "methods"
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
    costs = {name: run.costs[task.key, name] for name in names if (task.key, name) in run.costs}
    several = any(cell.n > 1 for cost in costs.values() for cell in vars(cost).values())
    caption = "One run; mean ± standard deviation over runs" if several else "One run"
    return run.table(columns, {name: cost_cells(cost) for name, cost in costs.items()}, caption)


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


def cost_points(run: RunView, task: TaskView) -> Rows:
    """Return seconds of training and prediction and the ranking metric of every method for which they are known."""
    points: Rows = []
    for name, cell in run.scores.row(task, task.in_domain.name, RANKED_BY).items():
        cost = run.costs.get((task.key, name))
        if cost is not None and np.isfinite([cell.mean, *cost.seconds]).all() and sum(cost.seconds) > 0:
            spread = cell.std or 0.0
            bounds = {"mean": cell.mean, "low": cell.mean - spread, "high": cell.mean + spread}
            points.append({"method": run.title(name), "seconds": sum(cost.seconds), **bounds})
    return points


def round_numbers(low: float, high: float) -> list[float]:
    """Return 1, 2 and 5 times powers of ten, from the last one at most ``low`` to the first at least ``high``."""
    numbers = [float(f"{digit}e{power}") for power in range(-9, 12) for digit in (1, 2, 5)]
    return numbers[max(bisect_right(numbers, low) - 1, 0) : bisect_left(numbers, high) + 1]


def cost_chart(points: Rows, styles: Sequence[Style]) -> altair.LayerChart:
    """Return quality against cost on a logarithmic axis."""
    import altair

    cost, metric = f"training and {PREDICTED:,} predictions, seconds", term(RANKED_BY).title
    seconds = [point["seconds"] for point in points]
    ticks = round_numbers(min(seconds), max(seconds))
    logarithmic = altair.Scale(type="log", domain=[ticks[0], ticks[-1]], nice=False)
    x = altair.X("seconds:Q", title=cost, scale=logarithmic, axis=altair.Axis(values=ticks, format="~g"))
    y = partial(altair.Y, title=f"{metric} (lower is better)", scale=altair.Scale(zero=False))
    chart, colour = chart_of(points), method_colour(styles)
    values = {"method": "method:N", "seconds": "seconds:Q", metric: "mean:Q", "minus one standard deviation": "low:Q",
              "plus one standard deviation": "high:Q"}  # fmt: skip
    bars = chart.mark_rule(opacity=0.7).encode(x, y("low:Q"), y2=altair.Y2("high:Q"), color=colour)
    markers = chart.mark_point(size=80, opacity=1).encode(
        x, y("mean:Q"), color=colour, fill=method_fill(styles), shape=method_shape(styles), tooltip=tooltips(values)
    )
    return altair.LayerChart(layer=[bars, markers]).properties(width="container", height=280)
