"""Scores against the number of samples (P Figs 1 and 5), and how all figures of the study draw methods.

A method has one colour and marker, solid without test-time augmentation and dashed with it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from dubio.core.types import FloatArray
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

Styles = Mapping[str, Style]
"""Method → how it is drawn."""

CURVES_CAPTION = (
    "Scores of 1, 2, … samples of every method (snapshots: the latest), their probabilities averaged; lower is better. "
    "Bands: one standard deviation over runs; for deep ensembles over random orders of all networks, up to half of "
    "them. A method with one sample is a point. NLL, Brier score and AURC are at the cross-validated temperature."
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


def study_grid(
    curves: Sequence[SampleCurve], styles: Styles, height: float, shape: tuple[int, int] = (2, 2), **shared: bool | str
) -> tuple[Drawing, list[Axes]]:
    """Return a figure with panels and a legend of every method once and, where some are augmented, of the dashes.

    Args:
        curves: The curves that are drawn.
        styles: How methods are drawn.
        height: Inches of all panels.
        shape: Rows and columns of panels.
        shared: ``sharex`` and ``sharey``.
    """
    entries = [styles[name] for name in dict.fromkeys(curve.base for curve in curves) if name in styles]
    if any(curve.augmented for curve in curves):
        entries.append(Style("dashed, hollow: with test-time augmentation", MUTED, "o", False))
    figure = blank(WIDTH, height + legend_height(len(entries)))
    axes = list(figure.subplots(*shape, **shared).flat)  # type: ignore[call-overload]
    method_legend(figure, entries)
    return figure, axes


@styled
def curves_figure(curves: Sequence[SampleCurve], styles: Styles) -> Drawing:
    """Draw one panel per score, one line per method."""
    figure, axes = study_grid(curves, styles, 5.5, sharex=True)
    for axis, (measure, title) in zip(axes, SCORES.items(), strict=True):
        _panel(axis, curves, styles, measure, title)
    for axis in axes[2:]:
        axis.set_xlabel("samples")
    return figure


@styled
def likelihood_figure(curves: Sequence[SampleCurve], styles: Styles) -> Drawing:
    """Draw NLL at temperature 1 and at the optimal temperature on a common scale, and that temperature."""
    figure, axes = study_grid(curves, styles, 3.0, (1, 3))
    for axis, (measure, title) in zip(axes, LIKELIHOODS.items(), strict=True):
        _panel(axis, curves, styles, measure, title)
        axis.set_xlabel("samples")
    limits = finite_limits(float(v) for curve in curves for name in ("nll", "calibrated_nll") for v in curve.mean(name))
    for axis in axes[:2] if limits is not None else ():
        axis.set(ylim=limits)
    axes[2].axhline(1.0, color=CONTROL, linewidth=1.2, linestyle="dotted", zorder=1)
    return figure


def _panel(axis: Axes, curves: Sequence[SampleCurve], styles: Styles, measure: str, title: str) -> None:
    """Draw means over runs and, without augmentation, bands of one standard deviation.

    The band of a deep ensemble ends at half the networks: beyond, random orders share most of them.
    """
    for curve in curves:
        style, is_deep = styles[curve.name], curve.role == "deep_ensemble"
        values = np.where(np.isfinite(curve.of(measure)), curve.of(measure), np.nan)
        x, mean = np.array(curve.sizes, dtype=float), values.mean(axis=0)
        if len(values) > 1 and style.ensemble and len(x) > 1:
            spread, shown = values.std(axis=0, ddof=1), x <= curve.samples / (2 if is_deep else 1)
            band(axis, x[shown], (mean - spread)[shown], (mean + spread)[shown], style)
        axis.plot(x, mean, **{"zorder": 4 if is_deep else 3, **line_keywords(style, len(x))})
    samples_axis(axis, max(curve.samples for curve in curves))
    axis.set_title(title)


def band(axis: Axes, x: FloatArray, low: FloatArray, high: FloatArray, style: Style) -> None:
    """Shade the values between two bounds."""
    axis.fill_between(x, low, high, color=style.colour, alpha=0.13, linewidth=0)


def line_keywords(style: Style, points: int) -> dict[str, Any]:
    """Return how a line is drawn: heavier without augmentation; a single point is larger, above all lines."""
    keywords = {**style.line, "linewidth": 1.5 if style.ensemble else 1.1, "markersize": 3.9}
    return keywords if points > 1 else {**keywords, "markersize": 5.4, "zorder": 5}


def study_styles(methods: Sequence[MethodView], study: Study) -> dict[str, Style]:
    """Return how each curve is drawn: as its method without augmentation, dashed and hollow with it.

    Networks are black and grey, because everything else is measured in them.
    """
    plain, styles = styles_of(methods), {}
    networks = {"deep_ensemble": (INK, "s"), "network": (CONTROL, "o")}
    for curve in study.curves:
        own = plain[curve.base]
        colour, marker = networks.get(curve.role, (own.colour, own.marker))
        styles[curve.name] = Style(own.title, colour, marker, ensemble=not curve.augmented)
    return styles


def samples_axis(axis: Axes, most: int) -> None:
    """Show numbers of samples on a logarithmic axis, with ticks where methods are scored."""
    axis.set_xscale("log")
    number_ticks(axis.xaxis, [size for size in SIZES if size <= most])
    axis.set_xlim(0.88, most * 1.14)


def number_ticks(axis: Axis, numbers: Sequence[float]) -> None:
    """Put ticks at these numbers alone, written plainly."""
    from matplotlib.ticker import FixedLocator, NullLocator, StrMethodFormatter

    axis.set_major_locator(FixedLocator([float(number) for number in numbers]))
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(StrMethodFormatter("{x:g}"))
