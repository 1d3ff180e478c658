"""Keeping the sure and passing on the rest: accuracy–rejection and referral curves."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from dubio.reporting.canvas import WIDTH, blank, finite_limits, legend_height, method_legend, styled
from dubio.reporting.figures.series import Series
from dubio.reporting.style import CONTROL


@styled
def rejection_figure(accuracy: Sequence[Series]) -> Figure:
    """Accuracy of what is kept against the fraction rejected, least confident first.

    Args:
        accuracy: One series a method over the fraction rejected.
    """
    figure = blank(WIDTH, 2.9 + legend_height(len(accuracy)))
    axis = figure.subplots()
    _draw(axis, accuracy, every=10)
    axis.set(xlabel="fraction rejected, least confident first", ylabel="accuracy of the kept", xlim=(0, 0.95))
    _fit(axis, accuracy)
    method_legend(figure, [series.style for series in accuracy])
    return figure


@styled
def referral_figure(
    accuracy: Sequence[Series], area: Sequence[Series], *, random_accuracy: Series, random_area: Series | None
) -> Figure:
    """Accuracy, and for two classes the area under the ROC curve, against the fraction retained.

    Args:
        accuracy: One series a method over the fraction retained.
        area: The same for the area under the ROC curve; empty where the task is not binary.
        random_accuracy: What referral at random gives for the reference method.
        random_area: The same for the area under the ROC curve.
    """
    control = f"random referral ({random_accuracy.style.title})"
    figure = blank(WIDTH, 2.9 + legend_height(len(accuracy) + 1))
    axes = figure.subplots(1, 2, sharex=True) if area else [figure.subplots()]
    panels = [("accuracy of the retained", accuracy, random_accuracy), ("AUC of the retained", area, random_area)]
    for axis, (label, series, random) in zip(axes, panels, strict=False):
        _draw(axis, series, every=10)
        drawn = list(series)
        if random is not None:
            axis.plot(random.x, random.mean, color=CONTROL, linestyle="dotted", linewidth=1.4, zorder=1.5)
            drawn.append(random)
        axis.set(xlabel="fraction retained", ylabel=label, xlim=(1.0, 0.5))
        _fit(axis, drawn)
    method_legend(figure, [series.style for series in accuracy], control=control)
    return figure


def _draw(axis: Axes, series: Sequence[Series], *, every: int) -> None:
    """Means with a band of one standard deviation over the runs."""
    for index, one in enumerate(series):
        mean, std = one.mean, one.std
        axis.fill_between(one.x, mean - std, mean + std, color=one.style.colour, alpha=0.09, linewidth=0)
        offset = (index * every) // max(len(series), 1)
        axis.plot(one.x, mean, markevery=(offset, every), zorder=3 if one.style.ensemble else 2, **one.style.line)


def _fit(axis: Axes, series: Sequence[Series]) -> None:
    """Limits from the means: the band of a curve at its noisy end must not squeeze the rest."""
    low, high = axis.get_xlim()
    seen = [
        float(y)
        for one in series
        for x, y in zip(one.x, one.mean, strict=True)
        if min(low, high) <= x <= max(low, high)
    ]
    limits = finite_limits(seen)
    if limits is not None:
        axis.set_ylim(*limits)
