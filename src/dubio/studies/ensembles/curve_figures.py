"""Scores against the number of samples (P Figs 1 and 5), and how all figures of the study draw methods.

A method has one colour and marker, solid without test-time augmentation and dashed with it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from dubio.reporting.canvas import WIDTH, blank, finite_limits, legend_height, method_legend, styled
from dubio.reporting.manifest_view import MethodView
from dubio.reporting.section import Figure
from dubio.reporting.style import CONTROL, INK, MUTED, Style, styles_of
from dubio.reporting.wording import counted, signed
from dubio.statistics.sample_curves import SIZES
from dubio.studies.ensembles.study import SampleCurve, Study

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure as Drawing

SHADE = 0.13
AUGMENTED = "dashed, hollow: with test-time augmentation"

Styles = Mapping[str, Style]
"""Method → how it is drawn."""

CURVES_CAPTION = (
    "Scores of 1, 2, … samples of every method (snapshots: the latest), their probabilities averaged; lower is better. "
    "Bands: one standard deviation over runs; for deep ensembles over random orders of all networks, and only up to "
    "half of them, because larger ensembles share most of their networks. A method with one sample is a point. NLL, "
    "Brier score and AURC are at the cross-validated temperature."
)
LIKELIHOOD_CAPTION = (
    "Left and middle, on one scale: the NLL at temperature 1 and at the optimal temperature. Right: that temperature, "
    "the median of the cross-validated ones; above the dotted line a method is overconfident."
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
    title, draw = "Scores against the number of samples", partial(curves_figure, curves, styles)
    yield Figure("curves", title, CURVES_CAPTION, draw, reading=curves_reading(study, plain))
    title, draw = "NLL before and after temperature scaling", partial(likelihood_figure, curves, styles)
    yield Figure("likelihood", title, LIKELIHOOD_CAPTION, draw, reading=temperature_reading(study, plain))


def curves_reading(study: Study, curves: Sequence[SampleCurve]) -> str:
    """Return by how much calibrated NLL changes from one sample to the compared number, the largest fall first."""
    size, changes = study.compared_samples, {}
    for curve in curves:
        if size in curve.sizes and curve.samples > 1:
            mean = curve.mean("calibrated_nll")
            changes[curve.method.title] = float(mean[curve.sizes.index(size)] - mean[0])
    if not changes:
        return ""
    ordered = sorted(changes.items(), key=lambda item: item[1])
    shown = ", ".join(f"{title} {signed(change)}" for title, change in ordered)
    return f"Change of calibrated NLL from one sample to {size}: {shown}."


def temperature_reading(study: Study, curves: Sequence[SampleCurve]) -> str:
    """Return the range of the optimal temperatures, with one sample and with the compared number."""
    ranges = []
    for size in dict.fromkeys((1, study.compared_samples)):
        means = [(cell.mean, c.method.title) for c in curves if (cell := c.at("temperature", size)) is not None]
        if means:
            (low, first), (high, last) = min(means), max(means)
            ranges.append(f"with {counted(size, 'sample')} from {low:.2f} ({first}) to {high:.2f} ({last})")
    return f"Optimal temperature: {' and '.join(ranges)}." if ranges else ""


@styled
def curves_figure(curves: Sequence[SampleCurve], styles: Styles) -> Drawing:
    """Draw one panel per score, one line per method."""
    figure = blank(WIDTH, 5.5 + legend_height(legend_entries(curves)))
    axes = list(figure.subplots(2, 2, sharex=True).flat)
    for axis, (measure, title) in zip(axes, SCORES.items(), strict=True):
        _panel(axis, curves, styles, measure, title)
    for axis in axes[2:]:
        axis.set_xlabel("samples")
    study_legend(figure, curves, styles)
    return figure


@styled
def likelihood_figure(curves: Sequence[SampleCurve], styles: Styles) -> Drawing:
    """Draw NLL at temperature 1 and at the optimal temperature on a common scale, and that temperature."""
    figure = blank(WIDTH, 3.0 + legend_height(legend_entries(curves)))
    axes = list(figure.subplots(1, 3).flat)
    for axis, (measure, title) in zip(axes, LIKELIHOODS.items(), strict=True):
        _panel(axis, curves, styles, measure, title)
        axis.set_xlabel("samples")
    limits = finite_limits(float(v) for curve in curves for name in ("nll", "calibrated_nll") for v in curve.mean(name))
    if limits is not None:
        for axis in axes[:2]:
            axis.set_ylim(*limits)
    axes[2].axhline(1.0, color=CONTROL, linewidth=1.2, linestyle="dotted", zorder=1)
    study_legend(figure, curves, styles)
    return figure


def _panel(axis: Axes, curves: Sequence[SampleCurve], styles: Styles, measure: str, title: str) -> None:
    for curve in curves:
        _line(axis, curve, styles[curve.name], measure)
    samples_axis(axis, max(curve.samples for curve in curves))
    axis.set_title(title)


def _line(axis: Axes, curve: SampleCurve, style: Style, measure: str) -> None:
    """Draw the mean over runs and, without augmentation, a band of one standard deviation.

    The band of a deep ensemble ends at half the networks: beyond, random orders share most of them.
    """
    values = np.where(np.isfinite(curve.of(measure)), curve.of(measure), np.nan)
    x, mean = np.array(curve.sizes, dtype=float), values.mean(axis=0)
    if len(values) > 1 and style.ensemble and len(x) > 1:
        spread = values.std(axis=0, ddof=1)
        shown = x <= (curve.samples / 2 if curve.role == "deep_ensemble" else curve.samples)
        low, high = (mean - spread)[shown], (mean + spread)[shown]
        axis.fill_between(x[shown], low, high, color=style.colour, alpha=SHADE, linewidth=0)
    axis.plot(x, mean, **{"zorder": 4 if curve.role == "deep_ensemble" else 3, **line_keywords(style, len(x))})


def line_keywords(style: Style, points: int) -> dict[str, Any]:
    """Return how a line is drawn: heavier without augmentation; a single point is larger, above all lines."""
    keywords = {**style.line, "linewidth": 1.5 if style.ensemble else 1.1, "markersize": 3.9}
    return keywords if points > 1 else {**keywords, "markersize": 5.4, "zorder": 5}


def study_styles(methods: Sequence[MethodView], study: Study) -> dict[str, Style]:
    """Return how each curve is drawn: as its method without augmentation, dashed and hollow with it.

    Networks are black and grey, because everything else is measured in them.
    """
    plain, styles = styles_of(methods), {}
    networks: dict[str, dict[str, Any]] = {
        "deep_ensemble": {"colour": INK, "marker": "s"}, "network": {"colour": CONTROL, "marker": "o"},
    }  # fmt: skip
    for curve in study.curves:
        own = replace(plain[curve.base], **networks.get(curve.role, {}))
        styles[curve.name] = replace(own, ensemble=not curve.augmented, augmented=False)
    return styles


def samples_axis(axis: Axes, most: int) -> None:
    """Show numbers of samples on a logarithmic axis, with ticks where methods are scored."""
    axis.set_xscale("log")
    number_ticks(axis.xaxis, [size for size in SIZES if size <= most] or [1])
    axis.set_xlim(0.88, most * 1.14)


def number_ticks(axis: Axis, numbers: Sequence[float]) -> None:
    """Put ticks at these numbers alone, written plainly."""
    from matplotlib.ticker import FixedLocator, NullLocator, StrMethodFormatter

    axis.set_major_locator(FixedLocator([float(number) for number in numbers]))
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(StrMethodFormatter("{x:g}"))


def study_legend(figure: Drawing, curves: Sequence[SampleCurve], styles: Styles) -> None:
    """Add a legend with every method once and, where some curves are augmented, what dashes mean."""
    entries = [styles[name] for name in dict.fromkeys(curve.base for curve in curves) if name in styles]
    if any(curve.augmented for curve in curves):
        entries.append(Style(AUGMENTED, MUTED, "o", False))
    method_legend(figure, entries)


def legend_entries(curves: Sequence[SampleCurve]) -> int:
    """Return the number of entries of the legend."""
    return len({curve.base for curve in curves}) + any(curve.augmented for curve in curves)
