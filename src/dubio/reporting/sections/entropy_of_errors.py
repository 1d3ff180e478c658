"""Predictive entropy of correct and incorrect predictions, on every test set of tasks with a positive side."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from dubio.core.predictions import Predictions
from dubio.core.types import FloatArray
from dubio.metrics.decisions import REFERABLE, binary_problems, correct
from dubio.metrics.quantities import predictive_entropy
from dubio.reporting.charts import PANEL, Rows, chart_of, panels_of, tooltips
from dubio.reporting.manifest_view import TaskView
from dubio.reporting.run_view import RunView
from dubio.reporting.section import Block, Collected, Figure, Section, Visit, section
from dubio.reporting.style import INSIDE, MUTED, OUTSIDE, Style
from dubio.reporting.wording import file_name

if TYPE_CHECKING:
    from dubio.reporting.charts import Chart

BINS = 40
"""Bins of the probability of the positive side."""

SIDES = ("correct", "incorrect")

CAPTION = (
    "All runs together, in bins of the probability; correct predictions upwards, incorrect ones downwards; the area of "
    "a dot is its share of examples. A useful uncertainty is high for incorrect predictions: those with low entropy "
    "are not referred. Below each name, the mean entropy of correct and of incorrect predictions."
)


@section("entropy-of-errors", order=34)
class EntropyOfErrors(Section):
    """Predictive entropy against the probability of the positive side."""

    title = "Predictive entropy of correct and incorrect predictions"

    def __init__(self) -> None:
        """Start without any run."""
        self.bins = Collected[FloatArray]()

    def visit(self, item: Visit) -> None:
        """Store the binned entropy of a run; of a corruption, at the worst severity alone."""
        if item.is_shown and item.task.has_positive_side and item.has_labels:
            self.bins.add(item, binned_entropy(item.predictions.labelled))

    def task_blocks(self, run: RunView, task: TaskView) -> Iterator[Block]:
        """Yield one figure per test set; those of shifted test sets on demand."""
        for split in self.bins.splits(task):
            panels = {
                run.styles[name]: np.sum(runs, axis=0) for name, runs in self.bins.methods(run, task, split).items()
            }
            chart, inside = partial(entropy_chart, panels, positive=positive_side(task)), split == task.in_domain.name
            yield Figure(f"certainty-{file_name(split)}", f"Predictive entropy on {split}", CAPTION, chart,
                         folded=not inside, split="" if inside else split)  # fmt: skip


def positive_side(task: TaskView) -> str:
    """Return the name of a task's positive side."""
    return f"grade {REFERABLE} or more" if task.target == "ordinal" and len(task.classes) > 2 else task.classes[1]


def binned_entropy(labelled: Predictions) -> FloatArray:
    """Return predictive entropy per bin of the probability of the positive side.

    Returns:
        ``[2, 3, BINS]``: for correct and for incorrect predictions, the number of examples, the sum of that probability
        and the sum of predictive entropy.
    """
    ((_, log_odds, _),) = binary_problems(labelled)
    probability = np.asarray(1.0 / (1.0 + np.exp(-np.clip(log_odds, -700, 700))))
    right, summed = correct(labelled), (np.ones(len(labelled)), probability, predictive_entropy(labelled))
    bins = np.minimum((probability * BINS).astype(np.int64), BINS - 1)
    return np.array([[np.bincount(bins[rows], values[rows], BINS) for values in summed] for rows in (right, ~right)])


def entropy_rows(style: Style, sums: FloatArray) -> Rows:
    """Return one row per bin with examples, correct above zero and incorrect below, then the means of both."""
    rows: Rows = []
    means = []
    for side, sign, (count, probability, entropy) in zip(SIDES, (1.0, -1.0), sums, strict=True):
        for k in np.flatnonzero(count):
            mean = entropy[k] / count[k]
            rows.append({
                "method": style.title, "side": side, "probability": probability[k] / count[k], "entropy": mean,
                "signed": sign * mean, "share": count[k] / sums[:, 0].sum(),
            })  # fmt: skip
        means += [f"{entropy.sum() / count.sum():.2f} {side}"] if count.any() else []
    return [*rows, {"method": style.title, "note": f"mean {', '.join(means)}"}]


def entropy_chart(panels: Mapping[Style, FloatArray], *, positive: str) -> Chart:
    """Return predictive entropy against the probability of the positive side, correct upwards, incorrect downwards.

    Args:
        panels: The style of a method → its bins, as :func:`binned_entropy` returns them, summed over runs.
        positive: The name of the positive side.
    """
    import altair

    rows = [row for style, sums in panels.items() for row in entropy_rows(style, sums)]
    top = 1.3 * max(0.1, *(row.get("entropy", 0.0) for row in rows))
    mirrored = altair.Axis(labelExpr="format(abs(datum.value), '~g')", tickCount=5)
    chart, sides = chart_of(rows), altair.Scale(domain=list(SIDES), range=[INSIDE, OUTSIDE])
    values = {"method": "method:N", "prediction": "side:N", "probability": "probability:Q", "entropy": "entropy:Q",
              "share of examples": "share:Q"}  # fmt: skip
    dots = chart.transform_filter("isValid(datum.share)").mark_point(filled=True, opacity=0.75).encode(
        altair.X("probability:Q", title=f"probability of “{positive}”", scale=altair.Scale(domain=[0.0, 1.0]),
                 axis=altair.Axis(values=[0, 0.5, 1])),
        altair.Y("signed:Q", title="predictive entropy", axis=mirrored,
                 scale=altair.Scale(domain=[-top, top], nice=False)),
        altair.Size("share:Q", scale=altair.Scale(domain=[0.0, 1.0], range=[5, 700]), legend=None),
        altair.Color("side:N", sort=None, scale=sides, legend=altair.Legend(symbolSize=70)),
        tooltip=tooltips(values),
    )  # fmt: skip
    notes = chart.transform_filter("isValid(datum.note)")
    zero = notes.mark_rule(color=MUTED, strokeWidth=0.7).encode(y=altair.YDatum(0))
    note = notes.mark_text(fontSize=10.5).encode(
        x=altair.XValue(PANEL / 2), y=altair.YValue(8), text=altair.Text("note:N")
    )
    return panels_of(altair.LayerChart(layer=[zero, dots, note]), "method", [style.title for style in panels])
