"""Scores against the number of samples (P Figs 1 and 5), and how all figures of the study draw methods.

A method has one colour and marker, solid and filled without test-time augmentation, dotted and
hollow with it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from dubio.reporting.charts import (
    Rows,
    Series,
    chart_of,
    method_colour,
    method_dash,
    method_points,
    panels_of,
    tooltips,
)
from dubio.reporting.manifest_view import MethodView
from dubio.reporting.section import Figure
from dubio.reporting.style import CONTROL, INK, Style, styles_of
from dubio.reporting.wording import counted, signed
from dubio.statistics.sample_curves import SIZES
from dubio.studies.ensembles.study import SampleCurve, Study

if TYPE_CHECKING:
    import altair

    from dubio.reporting.charts import Chart

Styles = Mapping[str, Style]
"""Method → how it is drawn."""

HALF, THIRD, TALL = 380, 235, 210
"""Pixels: the widths of panels of which two and three stand side by side, and their height."""

CURVES_CAPTION = (
    "Scores of 1, 2, … samples of every method (snapshots: the latest), their probabilities averaged; lower is better. "
    "Bands: one standard deviation over runs; for deep ensembles over random orders of all networks, up to half of "
    "them. A method with one sample is a point. NLL, Brier score and AURC are at the cross-validated temperature."
)
LIKELIHOOD_CAPTION = (
    "Left and middle, on one scale: the NLL at temperature 1 and at the optimal temperature. Right: that temperature, "
    "the median of the cross-validated ones; above the horizontal dotted line a method is overconfident."
)

SCORES: Mapping[str, str] = {
    "calibrated_nll": "Calibrated NLL", "error": "Error", "calibrated_brier": "Calibrated Brier",
    "calibrated_aurc": "Calibrated AURC",
}  # fmt: skip
LIKELIHOODS: Mapping[str, str] = {
    "nll": "NLL", "calibrated_nll": "Calibrated NLL", "temperature": "Optimal temperature",
}  # fmt: skip


def curve_figures(study: Study, styles: Styles) -> Iterator[Figure]:
    """Yield the scores, and the likelihood with its temperature, against the number of samples."""
    curves = study.select("network", "deep_ensemble", "method")
    plain = [curve for curve in curves if not curve.augmented]
    title, chart = "Scores against the number of samples", partial(curves_chart, curves, styles)
    yield Figure("curves", title, CURVES_CAPTION, chart, reading=curves_reading(study, plain))
    title, chart = "NLL before and after temperature scaling", partial(likelihood_chart, curves, styles)
    yield Figure("likelihood", title, LIKELIHOOD_CAPTION, chart, reading=temperature_reading(study, plain))


def curves_reading(study: Study, curves: Sequence[SampleCurve]) -> str:
    """Return by how much calibrated NLL changes from one sample to the compared number, the largest fall first."""
    size, changes = study.compared_samples, []
    for curve in curves:
        if size in curve.sizes and curve.samples > 1:
            mean = curve.mean("calibrated_nll")
            changes.append((float(mean[curve.sizes.index(size)] - mean[0]), curve.method.title))
    shown = ", ".join(f"{title} {signed(change)}" for change, title in sorted(changes))
    return f"Change of calibrated NLL from one sample to {size}: {shown}." if shown else ""


def temperature_reading(study: Study, curves: Sequence[SampleCurve]) -> str:
    """Return the range of the optimal temperatures, with one sample and with the compared number."""
    ranges = []
    for size in dict.fromkeys((1, study.compared_samples)):
        means = [(cell.mean, c.method.title) for c in curves if (cell := c.at("temperature", size)) is not None]
        if means:
            (low, first), (high, last) = min(means), max(means)
            ranges.append(f"with {counted(size, 'sample')} from {low:.2f} ({first}) to {high:.2f} ({last})")
    return f"Optimal temperature: {' and '.join(ranges)}." if ranges else ""


def curves_chart(curves: Sequence[SampleCurve], styles: Styles) -> Chart:
    """Return one panel per score, one line per method."""
    import altair

    rows = [row for measure, title in SCORES.items() for row in curve_rows(curves, styles, measure, title)]
    lines = sample_lines(rows, curves, styles, altair.Y("y:Q", title=None, scale=altair.Scale(zero=False)))
    panels = panels_of(lines, "panel", list(SCORES.values()), columns=2, width=HALF, height=TALL)
    apart: altair.FacetChart = panels.resolve_scale(y="independent")
    return apart


def likelihood_chart(curves: Sequence[SampleCurve], styles: Styles) -> Chart:
    """Return NLL at temperature 1 and at the optimal temperature on a common scale, and that temperature."""
    import altair

    panels = []
    for measure, title in LIKELIHOODS.items():
        y = altair.Y("y:Q", title=title, scale=altair.Scale(zero=False))
        panel = sample_lines(curve_rows(curves, styles, measure, title), curves, styles, y)
        panels.append(panel.properties(width=THIRD, height=TALL))
    one = chart_of([{"y": 1.0}]).mark_rule(color=CONTROL, strokeWidth=1.2, strokeDash=[1.5, 2.5])
    panels[2] += one.encode(altair.Y("y:Q", title=title))
    return altair.hconcat(altair.hconcat(*panels[:2]).resolve_scale(y="shared"), panels[2])


def curve_rows(curves: Sequence[SampleCurve], styles: Styles, measure: str, panel: str) -> Rows:
    """Return means over runs and, without augmentation, bands of one standard deviation.

    The band of a deep ensemble ends at half the networks: beyond, random orders share most of them. Where a run is
    infinite there is no mean.
    """
    rows = []
    for curve in curves:
        runs = np.where(np.isfinite(curve.mean(measure)), curve.of(measure), np.nan)
        series = Series(styles[curve.name], np.array(curve.sizes, dtype=float), runs)
        widest = 0.0 if curve.augmented or len(curve.values) < 2 else curve.samples
        for row in series.rows(panel=panel):
            row["value"] = f"{row['y']:.4g}"
            if row["x"] > (widest / 2 if curve.role == "deep_ensemble" else widest):
                row |= {"low": None, "high": None}
            else:
                row["value"] += f" ± {row['high'] - row['y']:.2g}"
            rows.append(row)
    return rows


def sample_lines(rows: Rows, curves: Sequence[SampleCurve], styles: Styles, y: altair.Y) -> altair.LayerChart:
    """Return lines, bands and markers against the number of samples on a logarithmic axis.

    Args:
        rows: With method, x, y, low, high, and the value as text.
        curves: The methods.
        styles: How they are drawn.
        y: The vertical axis, of the field y.
    """
    import altair

    most, own, chart = max(curve.samples for curve in curves), [styles[curve.name] for curve in curves], chart_of(rows)
    axis = altair.Axis(values=[size for size in SIZES if size <= most], format="~g", grid=False)
    scale = altair.Scale(type="log", domain=[0.88, most * 1.2], nice=False)
    x = altair.X("x:Q", title="samples", scale=scale, axis=axis)
    low = altair.Y("low:Q", title=y["title"], scale=y["scale"])
    # Vega-Lite joins the legends of scales with the same domain: in another order, the bands are no part of the legend.
    colour = method_colour(own[::-1]).legend(None)
    band = chart.mark_area(opacity=0.12).encode(x, low, y2=altair.Y2("high:Q"), color=colour)
    points = method_points(chart, own, size=24, x=x, y=y)
    line = chart.mark_line(strokeWidth=1.5).encode(x, y, stroke=points.encoding.stroke, strokeDash=method_dash(own))
    shown = tooltips({"method": "method:N", "samples": "x:Q", "value": "value:N"})
    return altair.LayerChart(layer=[band, line, points.encode(tooltip=shown)])


def study_styles(methods: Sequence[MethodView], study: Study) -> dict[str, Style]:
    """Return how each curve is drawn: as its method without augmentation, dotted and hollow with it.

    Networks are black and grey, because everything else is measured in them.
    """
    plain, styles = styles_of(methods), {}
    networks = {"deep_ensemble": (INK, "s"), "network": (CONTROL, "o")}
    for curve in study.curves:
        own = plain[curve.base]
        colour, marker = networks.get(curve.role, (own.colour, own.marker))
        styles[curve.name] = Style(curve.method.title, colour, marker, not curve.augmented, curve.augmented)
    return styles
