"""How each uncertainty goes with being foreign (T Figs 8 and 23), signed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch, Rectangle

from dubio.core.types import FloatArray
from dubio.metrics.quantities import QUANTITIES
from dubio.reporting.canvas import blank, styled
from dubio.reporting.figures.drawn_from import Subject
from dubio.reporting.measures import DETECTED_BY, detection_name
from dubio.reporting.style import INK, INSIDE, MUTED, OUTSIDE

CAPTION = (
    "Point-biserial correlation of each quantity, as it is defined, with the flag in-domain / {place}; mean over runs. "
    "Uncertainties should be positive (orange) and confidence negative (blue); the deeper the colour, the stronger. A "
    "dash: the method has no such quantity."
)
ACROSS = (
    "Point-biserial correlation of each quantity, as it is defined, with the flag in-domain / foreign, averaged over "
    "the methods that have the quantity. Uncertainties should be positive (orange) and confidence negative (blue)."
)
DEEPEST = 0.62
"""Opacity of a perfect correlation: numbers stay legible on it, on light and on dark paper."""


@dataclass(frozen=True)
class Heat:
    """Rows × quantities with ``[rows, quantities]`` values, NaN where there is none."""

    rows: tuple[str, ...]
    quantities: tuple[str, ...]
    values: FloatArray


def correlations_of(subject: Subject, split: str) -> Heat | None:
    """Methods × quantities on one split; None where nothing was detected."""
    table = np.full((len(subject.methods), len(DETECTED_BY)), np.nan)
    for column, quantity in enumerate(DETECTED_BY):
        cells = subject.results.cells_of(subject.task, split, detection_name("ood_correlation", quantity))
        for row, method in enumerate(subject.methods):
            if method.name in cells and cells[method.name].n:
                table[row, column] = cells[method.name].mean
    return _trimmed(tuple(method.title for method in subject.methods), table)


def correlations_across(subjects: Sequence[Subject]) -> Heat | None:
    """Places × quantities, each the mean over methods."""
    rows, values = [], []
    for subject in subjects:
        for split in subject.task.farthest:
            heat = correlations_of(subject, split.name)
            if heat is not None:
                by_quantity = {name: _mean(column) for name, column in zip(heat.quantities, heat.values.T, strict=True)}
                rows.append(f"{subject.task.key} → {split.name}")
                values.append([by_quantity.get(name, np.nan) for name in DETECTED_BY])
    return _trimmed(tuple(rows), np.array(values)) if rows else None


def _trimmed(rows: tuple[str, ...], table: FloatArray) -> Heat | None:
    known = np.isfinite(table)
    if not known.any():
        return None
    kept, columns = np.flatnonzero(known.any(axis=1)), np.flatnonzero(known.any(axis=0))
    names = tuple(DETECTED_BY[column] for column in columns)
    return Heat(tuple(rows[row] for row in kept), names, table[np.ix_(kept, columns)])


@styled
def heat_figure(heat: Heat) -> Figure:
    """A table of coloured cells with their numbers.

    Args:
        heat: What to show.
    """
    longest = max(len(row) for row in heat.rows)
    figure = blank(0.075 * longest + 0.72 * len(heat.quantities) + 0.4, 0.235 * len(heat.rows) + 0.95)
    axis = figure.subplots()
    for (row, column), value in np.ndenumerate(heat.values):
        _cell(axis, row, column, float(value))
    axis.set(xlim=(-0.5, len(heat.quantities) - 0.5), ylim=(len(heat.rows) - 0.5, -0.5))
    axis.set_xticks(range(len(heat.quantities)), [name.replace("_", "\n") for name in heat.quantities])
    axis.set_yticks(range(len(heat.rows)), heat.rows)
    axis.tick_params(length=0, labelcolor=INK, top=True, labeltop=True, bottom=False, labelbottom=False)
    axis.grid(visible=False)
    for spine in axis.spines.values():
        spine.set_visible(False)
    handles = [Patch(color=OUTSIDE, alpha=DEEPEST, label="higher where foreign"),
               Patch(color=INSIDE, alpha=DEEPEST, label="lower where foreign")]  # fmt: skip
    figure.legend(handles=handles, loc="outside lower center", ncols=2, handlelength=1.2)
    return figure


def _cell(axis: Axes, row: int, column: int, value: float) -> None:
    if not np.isfinite(value):
        axis.text(column, row, "–", ha="center", va="center", fontsize=7.2, color=MUTED)
        return
    colour = OUTSIDE if value > 0 else INSIDE
    axis.add_patch(Rectangle((column - 0.47, row - 0.45), 0.94, 0.9, facecolor=colour, linewidth=0,
                             alpha=DEEPEST * min(1.0, abs(value))))  # fmt: skip
    axis.text(column, row, f"{value:+.2f}".replace("-", "−"), ha="center", va="center", fontsize=7.2, color=INK)


def correlations_reading(heat: Heat) -> str:
    """The quantity that goes most with being foreign, in the right direction, the least, and the strongest cell."""
    turned = heat.values * [1.0 if QUANTITIES[name].higher_is_more_uncertain else -1.0 for name in heat.quantities]
    means = [_mean(column) for column in turned.T]
    most, least = int(np.argmax(means)), int(np.argmin(means))
    place = np.unravel_index(int(np.nanargmax(turned)), turned.shape)
    strongest = float(heat.values[place])
    names = [name.replace("_", " ") for name in heat.quantities]
    return (
        f"Averaged over rows, {names[most]} goes most with being foreign ({_mean(heat.values[:, most]):+.2f}) and "
        f"{names[least]} least ({_mean(heat.values[:, least]):+.2f}); the strongest single one is {names[place[1]]} of "
        f"{heat.rows[place[0]]} ({strongest:+.2f})."
    ).replace("(-", "(−")


def _mean(values: FloatArray) -> float:
    known = values[np.isfinite(values)]
    return float(known.mean()) if known.size else float("nan")
