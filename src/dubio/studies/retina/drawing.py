"""The figures of screening: ROC curves with the NHS point, entropy against the probability of illness, subgroups."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Rectangle

from dubio.core.types import FloatArray
from dubio.metrics.referral_curve import NHS_POINT
from dubio.reporting.canvas import (
    WIDTH,
    Series,
    blank,
    legend_height,
    method_legend,
    panel_title,
    small_multiples,
    styled,
)
from dubio.reporting.style import CONTROL, INK, INSIDE, MUTED, OUTSIDE, RULE, Style
from dubio.studies.retina.found import Subgroup

MOST_INK = 260.0
"""Area, in square points, of a dot that would stand for all examples."""


@dataclass(frozen=True, eq=False)
class Cloud:
    """One method's entropy against the probability of being positive: ``[2, 3, bins]`` as in ``Retained.cloud``."""

    style: Style
    sums: FloatArray


@styled
def roc_figure(panels: Mapping[float, Sequence[Series]]) -> Figure:
    """Mean ROC curves of the retained, a panel a fraction, with the NHS point.

    Args:
        panels: Fraction retained → one series a method over the false-positive rate.
    """
    shown = next(iter(panels.values()))
    figure = blank(WIDTH, 3.3 + legend_height(len(shown) + 1))
    axes = figure.subplots(1, len(panels), sharey=True, squeeze=False)[0]
    sensitivity, specificity = NHS_POINT
    for axis, (fraction, curves) in zip(axes, panels.items(), strict=True):
        corner = Rectangle((0, sensitivity), 1 - specificity, 1 - sensitivity, facecolor=RULE, alpha=0.45, linewidth=0)
        axis.add_patch(corner)
        axis.plot([0, 1], [0, 1], color=CONTROL, linewidth=0.8, linestyle="dotted")
        for index, curve in enumerate(curves):
            offset = (index * 20) // max(len(curves), 1)
            line = {**curve.style.line, "drawstyle": "steps-post", "markevery": (offset, 20)}
            axis.plot(curve.x, curve.mean, zorder=3 if curve.style.ensemble else 2, **line)
        axis.plot([1 - specificity], [sensitivity], marker="*", markersize=11, color=INK, linestyle="none", zorder=5)
        axis.set_title(f"{fraction:.0%} retained")
        axis.set(xlabel="1 − specificity", xlim=(-0.01, 1.0), ylim=(0.0, 1.02))
    axes[0].set_ylabel("sensitivity")
    method_legend(figure, [curve.style for curve in shown])
    handle = Line2D([], [], marker="*", markersize=9, color=INK, linestyle="none",
                    label=f"NHS: sensitivity {sensitivity:.0%}, specificity {specificity:.0%}")  # fmt: skip
    figure.legend(handles=[handle], loc="outside upper right")
    return figure


@styled
def certainty_figure(panels: Sequence[Cloud], *, positive: str) -> Figure:
    """Predictive entropy against the probability of being positive, the right upwards and the wrong downwards.

    Args:
        panels: One a method.
        positive: What the positive side is called.
    """
    figure, axes = small_multiples(len(panels), panel_height=1.8, extra=0.35)
    top = 1.12 * max(_entropy(panel.sums[side]).max(initial=0.1) for panel in panels for side in (0, 1))
    for axis, panel in zip(axes, panels, strict=True):
        whole = panel.sums[:, 0].sum()
        for side, colour, sign in ((0, INSIDE, 1.0), (1, OUTSIDE, -1.0)):
            count, chance, _ = panel.sums[side]
            kept = count > 0
            area = 2.0 + MOST_INK * count[kept] / whole
            axis.scatter(chance[kept] / count[kept], sign * _entropy(panel.sums[side]), s=area, color=colour,
                         alpha=0.75, linewidth=0)  # fmt: skip
        axis.axhline(0, color=MUTED, linewidth=0.7)
        axis.set_title(panel_title(panel.style.title), pad=14)
        note = _means(panel.sums)
        axis.annotate(note, (0, 1), (0, 3), "axes fraction", "offset points", fontsize=7.0, color=MUTED)
        axis.set(xlim=(-0.04, 1.04), ylim=(-top, top))
        axis.set_xticks([0, 0.5, 1], ["0", "0.5", "1"])
        _mirrored(axis, top)
    handles = [Line2D([], [], marker="o", linestyle="none", color=colour, label=label)
               for colour, label in ((INSIDE, "right, above"), (OUTSIDE, "wrong, below"))]  # fmt: skip
    figure.legend(handles=handles, loc="outside upper right", ncols=2)
    figure.supxlabel(f"probability of “{positive}”", fontsize=8.5)
    figure.supylabel("predictive entropy", fontsize=8.5)
    return figure


def _entropy(side: FloatArray) -> FloatArray:
    """Mean entropy of the bins that hold examples."""
    kept = side[0] > 0
    return np.asarray(side[2, kept] / side[0, kept])


def _means(sums: FloatArray) -> str:
    said = [f"{sums[side, 2].sum() / sums[side, 0].sum():.2f} {word}"
            for side, word in ((0, "right"), (1, "wrong")) if sums[side, 0].sum()]  # fmt: skip
    return f"mean {', '.join(said)}"


def _mirrored(axis: Axes, top: float) -> None:
    """Ticks that say how far from zero, whichever way."""
    step = 0.5 if top > 0.45 else 0.1
    ticks = np.arange(-np.floor(top / step), np.floor(top / step) + 1) * step
    axis.set_yticks(ticks, [f"{abs(tick):g}" for tick in ticks])


@styled
def excess_figure(parts: Mapping[str, Mapping[str, Subgroup]], styles: Mapping[str, Style]) -> Figure:
    """Mean confidence minus accuracy of each subgroup with its interval, methods below each other.

    Args:
        parts: What a subgroup is called → method → its calibration.
        styles: How the methods are drawn.
    """
    step = 0.11
    tall = sum(step * len(found) + 0.16 for found in parts.values())
    figure = blank(WIDTH, 0.75 + tall + legend_height(len(styles)))
    axis = figure.subplots()
    axis.axvline(0, color=MUTED, linewidth=0.9)
    middle, place = [], 0.0
    for found in parts.values():
        start = place
        for method, part in found.items():
            _excess(axis, part, place, styles[method])
            place += step
        middle.append((start + place - step) / 2)
        axis.axhline(place + 0.08 - step / 2, color=RULE, linewidth=0.5)
        place += 0.16
    axis.set_yticks(middle, list(parts))
    axis.grid(axis="y", visible=False)
    axis.tick_params(axis="y", length=0)
    axis.set_ylim(place - 0.08, -0.1)
    axis.set_xlabel("mean confidence − accuracy (right of 0: surer than right)")
    method_legend(figure, list(styles.values()))
    return figure


def _excess(axis: Axes, part: Subgroup, place: float, style: Style) -> None:
    if np.isfinite([part.excess.low, part.excess.high]).all():
        axis.hlines(place, part.excess.low, part.excess.high, color=style.colour, linewidth=1.1)
    axis.plot([part.excess.value], [place], linestyle="none", **style.point)
