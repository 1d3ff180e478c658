"""The dropout rates that layers learned (T Fig. 16), a point a training."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from dubio.core.types import FloatArray
from dubio.reporting.canvas import legend_height, method_legend, panel_title, small_multiples, styled
from dubio.reporting.figures.drawn_from import Subject
from dubio.reporting.style import Style
from dubio.reporting.wording import listed, number
from dubio.studies.text.trainings import trainings_of

CAPTION = (
    "The drop rate each layer had learned when its weights were kept: one faint point a training, the marker their "
    "mean. K1, K2, … are the inputs of the convolutions, μ and σ those of the heads that predict the logits and their "
    "noise. Methods that share their trainings are drawn once."
)
SPELT = {"mu": "μ", "sigma": "σ"}

WIDE, NARROW = 48, 16
"""Characters of names that find room side by side below a panel: alone in its figure, or one of several."""

LAST = ("head", "mu", "sigma")
"""Sites of the heads, which every network ends with."""


@dataclass(frozen=True)
class Rates:
    """One task: its sites and, a method, ``[trainings, sites]`` rates, NaN where a method has no such site."""

    title: str
    sites: tuple[str, ...]
    methods: tuple[tuple[Style, FloatArray], ...]


def rates_of(subject: Subject) -> Rates | None:
    """The learned rates of one task; None where none were learned."""
    found = {
        method: rates
        for method, fits in trainings_of(subject).items()
        if (rates := [fit.rates for fit in fits if fit.rates])
    }
    sites = tuple(sorted({site for rates in found.values() for each in rates for site in each}, key=natural))
    if not sites:
        return None
    return Rates(
        subject.task.key,
        tuple(SPELT.get(site, site) for site in sites),
        tuple(
            (subject.styles[m.name], np.array([[each.get(site, np.nan) for site in sites] for each in rates]))
            for m, rates in found.items()
        ),
    )


def natural(site: str) -> tuple[bool, tuple[tuple[str, int], ...]]:
    """Order of sites: numbers as numbers, heads last. Records are kept by name, without the network's own order."""
    pieces = re.findall(r"(\D*)(\d*)", site)
    return site in LAST, tuple((word, int(digits or 0)) for word, digits in pieces)


@styled
def rates_figure(panels: Sequence[Rates]) -> Figure:
    """Rates against layers, one panel a task.

    Args:
        panels: One a task.
    """
    styles = {style.title: style for panel in panels for style, _ in panel.methods}
    legend = legend_height(len(styles), 2)
    wide = len(panels) == 1
    figure, axes = small_multiples(len(panels), columns=3, panel_height=2.4 if wide else 2.0, extra=legend)
    if wide:
        figure.set_size_inches(5.2, 2.6 + legend)
    top = max(float(np.nanmax(rates)) for panel in panels for _, rates in panel.methods)
    for axis, panel in zip(axes, panels, strict=True):
        _draw(axis, panel)
        _name(axis, panel, room=WIDE if wide else NARROW)
        axis.set(title=panel_title(panel.title), ylim=(0.0, 1.08 * top))
    figure.supylabel("learned drop rate", fontsize=8.5)
    method_legend(figure, list(styles.values()), columns=2)
    return figure


def _draw(axis: Axes, panel: Rates) -> None:
    places = np.arange(len(panel.sites), dtype=float)
    width = 0.5 / max(1, len(panel.methods))
    for order, (style, rates) in enumerate(panel.methods):
        shift = (order - (len(panel.methods) - 1) / 2) * width
        axis.plot(np.tile(places + shift, len(rates)), rates.ravel(), linestyle="none", marker="_", markersize=6,
                  color=style.colour, alpha=0.45, markeredgewidth=1.0)  # fmt: skip
        known = np.isfinite(rates).any(axis=0)
        mean = np.array([np.nanmean(column) for column in rates[:, known].T])
        axis.plot(places[known] + shift, mean, zorder=3, **style.line)
    axis.set_xlim(-0.5, len(places) - 0.5)


def _name(axis: Axes, panel: Rates, *, room: int) -> None:
    """Names below their places; slanted where side by side they would run into each other."""
    axis.set_xticks(range(len(panel.sites)), panel.sites)
    if sum(map(len, panel.sites)) > room:
        axis.tick_params(axis="x", rotation=45)
        for label in axis.get_xticklabels():
            label.set(horizontalalignment="right", rotation_mode="anchor")


def rates_reading(panels: Sequence[Rates]) -> str:
    """Of one task the layers that drop most and least; of several their mean rates."""
    means = [np.nanmean(np.concatenate([rates for _, rates in panel.methods])) for panel in panels]
    if len(panels) > 1:
        parts = [f"{mean:.3f} on {panel.title}" for mean, panel in zip(means, panels, strict=True)]
        return f"The mean learned rate is {listed(parts)}."
    every = np.concatenate([rates for _, rates in panels[0].methods])
    layers = np.array([np.nanmean(column) for column in every.T])
    most, least, sites = int(layers.argmax()), int(layers.argmin()), panels[0].sites
    if len(sites) == 1:
        return f"The mean learned rate is {means[0]:.3f}."
    among = "In one training" if len(every) == 1 else f"Over {number(len(every))} trainings"
    return (
        f"{among} the learned rates lie between {np.nanmin(every):.3f} and {np.nanmax(every):.3f}: "
        f"highest on average at {sites[most]} ({layers[most]:.3f}), lowest at {sites[least]} ({layers[least]:.3f})."
    )
