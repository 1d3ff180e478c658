"""Calibration: reliability diagrams on the in-domain test set, and the NLL before and after temperature scaling."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from dubio.calibration.reliability import LEVEL, Reliability, binary_or_top_label, binned, corp, pooled
from dubio.metrics.calibration_error import stated_and_true
from dubio.reporting.charts import Rows, chart_of, method_colour, method_row, panels_of, row_notes, tooltips
from dubio.reporting.manifest_view import TaskView
from dubio.reporting.measures import RANKED_BY
from dubio.reporting.run_view import RunView
from dubio.reporting.section import Block, Collected, Figure, Section, Visit, section
from dubio.reporting.style import MUTED, PAPER, Style

if TYPE_CHECKING:
    import altair

BINS = 15
"""Bins of the reliability diagram, as of the expected calibration error."""


@section("calibration", order=12)
class Calibration(Section):
    """Reliability diagrams and temperatures."""

    title = "Calibration"

    def __init__(self) -> None:
        """Start without any run."""
        self.bins = Collected[Reliability]()
        self.corp = Collected[Reliability]()

    def visit(self, item: Visit) -> None:
        """Store the reliability diagrams of a run on the in-domain test set, with their consistency bands."""
        if item.is_in_domain_test and item.has_labels:
            self.bins.add(item, binned(*stated_and_true(item.predictions), bins=BINS))
            self.corp.add(item, corp(*binary_or_top_label(item.predictions)))

    def task_blocks(self, run: RunView, task: TaskView) -> Iterator[Block]:
        """Yield the figures of one task."""
        if self.bins.methods(run, task):
            yield from self.reliability(run, task)
        yield from temperature(run, task)

    def reliability(self, run: RunView, task: TaskView) -> Iterator[Figure]:
        """Yield the reliability of every method in bins, and as CORP on demand."""
        several = task.target == "multilabel"
        bins, curves = (
            {run.styles[name]: pooled(runs) for name, runs in diagrams.methods(run, task).items()}
            for diagrams in (self.bins, self.corp)
        )
        axes = FREQUENCY if several else TOP_LABEL
        caption = f"{BINS_CAPTION} {band_caption(axes)}"
        yield Figure("reliability", "Reliability in bins", caption, partial(bins_chart, bins, axes))
        axes = FREQUENCY if several or task.binary else TOP_LABEL
        of_class = f" Of the class “{task.classes[1]}”." if task.binary else ""
        caption, chart = f"{CORP_CAPTION}{of_class} {band_caption(axes)}", partial(corp_chart, curves, axes)
        yield Figure("reliability-corp", "Reliability by CORP", caption, chart, folded=True)


Axes = tuple[str, str]
"""Titles of the horizontal and the vertical axis of a reliability diagram."""

TOP_LABEL: Axes = ("confidence", "accuracy")
FREQUENCY: Axes = ("stated probability", "observed frequency")

BINS_CAPTION = f"{BINS} bins, all runs together; the area of a dot is its share of predictions."
CORP_CAPTION = (
    "The non-decreasing curve that fits best (isotonic regression; Dimitriadis, Gneiting and Jordan 2021), mean over "
    "runs: no bins had to be chosen."
)


def band_caption(axes: Axes) -> str:
    """Return how the consistency band of a reliability diagram is to be read."""
    low = "a method is overconfident" if axes == TOP_LABEL else "outcomes are rarer than stated"
    return (
        f"Grey: where a calibrated method would lie in {LEVEL:.0%} of cases, with one run of this size and independent "
        f"examples. Below it {low}. The diagram shows a method's calibration; it does not rank methods."
    ).replace("%", " %")


def reliability_rows(diagrams: Mapping[Style, Reliability]) -> Rows:
    """Return the rows of reliability diagrams; bins and points without predictions are left out."""
    rows: Rows = []
    for style, d in diagrams.items():
        values = np.array([d.stated, d.observed, d.low, d.high, d.count / d.count.sum()]).T[d.count > 0]
        rows += [{"method": style.title, **dict(zip(("x", "y", "low", "high", "share"), row, strict=True))}
                 for row in values.tolist()]  # fmt: skip
    return rows


def bins_chart(diagrams: Mapping[Style, Reliability], axes: Axes) -> altair.FacetChart:
    """Return observed frequency against stated probability per bin, one panel per method."""
    import altair

    x, y, values = _unit_axes(axes)
    chart, styles = chart_of(reliability_rows(diagrams)), list(diagrams)
    band = chart.mark_rule(strokeWidth=7, opacity=0.35, color=MUTED).encode(x, y("low:Q"), y2=altair.Y2("high:Q"))
    gaps = chart.mark_rule(opacity=0.5).encode(
        x, y("x:Q"), y2=altair.Y2("y:Q"), color=method_colour(styles).legend(None)
    )
    size = altair.Size("share:Q", scale=altair.Scale(domain=[0, 1], range=[12, 260]), legend=None)
    dots = chart.mark_point(filled=True, opacity=1).encode(
        x, y("y:Q"), size=size, color=method_colour(styles).legend(None),
        tooltip=tooltips({**values, "share of predictions": "share:Q"}),
    )  # fmt: skip
    layers = altair.LayerChart(layer=[band, _diagonal(chart), gaps, dots])
    return panels_of(layers, "method", [style.title for style in styles])


def corp_chart(diagrams: Mapping[Style, Reliability], axes: Axes) -> altair.FacetChart:
    """Return CORP's curve with its consistency band, one panel per method."""
    import altair

    x, y, values = _unit_axes(axes)
    chart, styles = chart_of(reliability_rows(diagrams)), list(diagrams)
    band = chart.mark_area(opacity=0.35, color=MUTED).encode(x, y("low:Q"), y2=altair.Y2("high:Q"))
    line = chart.mark_line(strokeWidth=1.8).encode(x, y("y:Q"), color=method_colour(styles).legend(None))
    hover = chart.mark_point(size=60, opacity=0, filled=True).encode(x, y("y:Q"), tooltip=tooltips(values))
    layers = altair.LayerChart(layer=[band, _diagonal(chart), line, hover])
    return panels_of(layers, "method", [style.title for style in styles])


def _unit_axes(axes: Axes) -> tuple[altair.X, Callable[[str], altair.Y], dict[str, str]]:
    """Return the horizontal axis, the vertical one of any field, and the values on hover."""
    import altair

    stated, observed = axes
    scale, ticks = altair.Scale(domain=[0, 1]), altair.Axis(values=[0, 0.5, 1])
    values = {"method": "method:N", stated: "x:Q", observed: "y:Q", "band from": "low:Q", "band to": "high:Q"}
    vertical = partial(altair.Y, title=observed, scale=scale, axis=ticks)
    return altair.X("x:Q", title=stated, scale=scale, axis=ticks), vertical, values


def _diagonal(chart: altair.Chart) -> altair.Chart:
    """Return the line of calibrated predictions, once per panel."""
    import altair

    start, end = altair.datum(0), altair.datum(1)
    panels = chart.transform_aggregate(rows="count()", groupby=["method"])
    line: altair.Chart = panels.mark_rule(strokeDash=[2, 2], strokeWidth=0.8).encode(x=start, y=start, x2=end, y2=end)
    return line


TEMPERATURE_CAPTION = (
    "Mean over runs: hollow at temperature 1, full at the cross-validated temperature. A long line means that much of "
    "a method's likelihood depends on the scale of its logits, which one number corrects; methods are ranked by the "
    "full dots. At the right, the median of the fitted temperatures: above 1 the method was overconfident, below 1 "
    "underconfident."
)


def temperature(run: RunView, task: TaskView) -> Iterator[Figure]:
    """Yield the NLL before and after temperature scaling, of every method for which both are finite."""
    plain, calibrated = (run.scores.row(task, task.in_domain.name, metric) for metric in ("nll", RANKED_BY))
    means = {name: (plain[name].mean, cell.mean) for name, cell in calibrated.items() if name in plain}
    finite = {name: both for name, both in means.items() if np.isfinite(both).all()}
    medians = {name: float(np.median(run.scores.temperatures[task.key, name].values)) for name in finite}
    rows: Rows = [
        {"method": run.title(name), "plain": before, "calibrated": after, "temperature": medians[name],
         "note": f"T = {medians[name]:.2f}"}
        for name, (before, after) in finite.items()
    ]  # fmt: skip
    if rows:
        chart = partial(temperature_chart, rows, [run.styles[name] for name in finite])
        yield Figure("temperature", "NLL before and after temperature scaling", TEMPERATURE_CAPTION, chart)


def temperature_chart(rows: Rows, styles: Sequence[Style]) -> altair.LayerChart:
    """Return one row per method: a hollow dot at temperature 1, a full one at the fitted temperature."""
    import altair

    chart, row, colour = chart_of(rows), method_row(styles), method_colour(styles).legend(None)
    values = tooltips({"method": "method:N", "NLL at temperature 1": "plain:Q", "calibrated NLL": "calibrated:Q",
                       "median temperature": "temperature:Q"})  # fmt: skip
    scale = altair.Scale(zero=False)
    before, after = (altair.X(f"{field}:Q", title="NLL", scale=scale) for field in ("plain", "calibrated"))
    lines = chart.mark_rule(strokeWidth=1.6).encode(before, row, x2=altair.X2("calibrated:Q"), color=colour)
    hollow = chart.mark_point(size=55, opacity=1, fill=PAPER).encode(before, row, color=colour, tooltip=values)
    full = chart.mark_point(size=55, opacity=1, filled=True).encode(after, row, color=colour, tooltip=values)
    layers = [lines, hollow, full, row_notes(chart, styles)]
    return altair.LayerChart(layer=layers).properties(width="container", height=altair.Step(20))
