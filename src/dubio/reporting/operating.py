"""Referral with a promise: where a policy lies on its method's own curve."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from math import floor
from typing import TYPE_CHECKING

from dubio.core.types import FloatArray
from dubio.reporting.canvas import panel_title, small_multiples, styled
from dubio.reporting.manifest_view import TaskView
from dubio.reporting.promises import KEPT
from dubio.reporting.results import Results
from dubio.reporting.section import Figure
from dubio.reporting.style import CONTROL, MUTED, Style

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Drawing


@dataclass(frozen=True, eq=False)
class Operating:
    """One method's curve on the test set and the point at which its policy works.

    Attributes:
        style: How the method is drawn.
        kept: ``[X]`` fractions kept.
        error: ``[X]`` error among the kept.
        point: (share kept, error among the kept) of the policy; None where there is none, or nothing is kept.
        interval: The exact interval around that error.
        note: What is said of it in the panel.
    """

    style: Style
    kept: FloatArray
    error: FloatArray
    point: tuple[float, float] | None
    interval: tuple[float, float] | None
    note: str


CAPTION = (
    "Curve: the error among the kept on the in-domain test set when the most uncertain are referred, for "
    "the first run of each method. Dotted: the error that was promised. Marker: where the policy that was fitted on "
    "examples kept aside works on the test set, with the 95 % interval of its error. A promise of 90 % "
    "confidence may fail one time in ten."
)


def operating_of(results: Results, task: TaskView) -> list[Operating]:
    """The curve of each method's first run, and where its policy works on it."""
    found = []
    for method in results.methods_of(task):
        promise = results.promises.get(task.key, {}).get(method.name)
        if promise is None:
            continue
        home = promise.home
        point = (home.retained, home.error) if home is not None and home.error is not None else None
        note = f"keeps {home.retained:.0%}" if home is not None else "no guarantee"
        interval = home.interval if home is not None else None
        found.append(Operating(results.report.run.styles[method.name], KEPT, promise.curve, point, interval, note))
    return found


def operating_figures(results: Results, task: TaskView) -> Iterator[Figure]:
    """Where each policy works on its method's curve; none without a policy."""
    panels = operating_of(results, task)
    if any(panel.point for panel in panels):
        target = next(iter(results.promises[task.key].values())).target
        draw = partial(operating_figure, panels, target=target)
        yield Figure("operating", "Where each policy works", CAPTION, draw, narrow=len(panels) < 3)


@styled
def operating_figure(panels: Sequence[Operating], *, target: float) -> Drawing:
    """Error among the kept against the share kept, one panel a method, with the policy's operating point.

    Args:
        panels: One a method, in the benchmark's order.
        target: The error that was promised, the same for all.
    """
    from matplotlib.lines import Line2D

    figure, axes = small_multiples(len(panels), panel_height=1.65, extra=0.35)
    low = _least_kept(panels)
    shown = [float(panel.error[panel.kept >= low].max()) for panel in panels]
    top = 1.12 * max(2 * target, *shown, *(panel.interval[1] for panel in panels if panel.interval))
    for axis, panel in zip(axes, panels, strict=True):
        axis.axhline(target, color=CONTROL, linestyle="dotted", linewidth=1.4)
        axis.plot(panel.kept, panel.error, **{**panel.style.line, "marker": "none"})
        _point(axis, panel)
        axis.set_title(panel_title(panel.style.title), pad=14)
        axis.annotate(panel.note, (0, 1), (0, 3), "axes fraction", "offset points", fontsize=7.2, color=MUTED)
        axis.set(xlim=(1.0, low), ylim=(0.0, top))
        axis.set_xticks([1, (1 + low) / 2, low], [f"{100 * tick:.0f}%" for tick in (1, (1 + low) / 2, low)])
    handle = Line2D([], [], color=CONTROL, linestyle="dotted", linewidth=1.4, label=f"promised: below {target:g}")
    figure.legend(handles=[handle], loc="outside upper right", handlelength=3.0)
    figure.supxlabel("share kept", fontsize=8.5)
    figure.supylabel("error among the kept", fontsize=8.5)
    return figure


def _least_kept(panels: Sequence[Operating]) -> float:
    """Where the horizontal axis ends: a step of ten beyond the policy that keeps least; one half without any."""
    kept = [panel.point[0] for panel in panels if panel.point]
    return max(0.0, floor(10 * min(kept) - 1) / 10) if kept else 0.5


def _point(axis: Axes, panel: Operating) -> None:
    if panel.point is None:
        return
    kept, error = panel.point
    if panel.interval is not None:
        axis.vlines(kept, *panel.interval, color=panel.style.colour, linewidth=1.3, zorder=3)
    point = {**panel.style.point, "markersize": 6.5, "markerfacecolor": panel.style.colour}
    axis.plot([kept], [error], linestyle="none", zorder=4, clip_on=False, **point)
