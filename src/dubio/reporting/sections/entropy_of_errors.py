"""Predictive entropy of correct and incorrect predictions, on every test set of tasks with a positive side."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from dubio.core.predictions import Predictions
from dubio.core.types import FloatArray
from dubio.metrics.decisions import REFERABLE, binary_problems, correct
from dubio.metrics.quantities import predictive_entropy
from dubio.reporting.canvas import label_panels, note_panel, small_multiples, styled
from dubio.reporting.manifest_view import TaskView
from dubio.reporting.run_view import RunView
from dubio.reporting.section import Block, Collected, Figure, Section, Visit, section
from dubio.reporting.style import INSIDE, MUTED, OUTSIDE, Style
from dubio.reporting.wording import file_name

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Drawing

BINS = 40
"""Bins of the probability of the positive side."""

LARGEST_DOT = 260.0
"""Area, in square points, of a dot for all examples."""

CAPTION = (
    "All runs together, in bins of the probability; the area of a dot is its share of examples. A useful uncertainty "
    "is high for incorrect predictions: those with low entropy are not referred. Below each name, the mean entropy of "
    "correct and of incorrect predictions."
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
            bins = self.bins.methods(run, task, split).items()
            draw = partial(entropy_figure, [(run.styles[name], np.sum(runs, axis=0)) for name, runs in bins],
                           positive=positive_side(task))  # fmt: skip
            yield Figure(f"certainty-{file_name(split)}", f"Predictive entropy on {split}", CAPTION, draw,
                         narrow=len(bins) < 3, folded=split != task.in_domain.name)  # fmt: skip


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


@styled
def entropy_figure(panels: Sequence[tuple[Style, FloatArray]], *, positive: str) -> Drawing:
    """Draw predictive entropy against the probability of the positive side, correct upwards, incorrect downwards.

    Args:
        panels: The style of a method and its bins, as :func:`binned_entropy` returns them, summed over runs.
        positive: The name of the positive side.
    """
    from matplotlib.lines import Line2D

    figure, axes = small_multiples(len(panels), panel_height=1.8, extra=0.35)
    top = 1.12 * max(_mean_entropy(side).max(initial=0.1) for _, sums in panels for side in sums)
    for axis, (style, sums) in zip(axes, panels, strict=True):
        for side, colour, sign in zip(sums, (INSIDE, OUTSIDE), (1.0, -1.0), strict=True):
            count, probability, _ = side
            filled = count > 0
            area = 2.0 + LARGEST_DOT * count[filled] / sums[:, 0].sum()
            axis.scatter(probability[filled] / count[filled], sign * _mean_entropy(side), s=area, color=colour,
                         alpha=0.75, linewidth=0)  # fmt: skip
        axis.axhline(0, color=MUTED, linewidth=0.7)
        note_panel(axis, style.title, _mean_note(sums))
        axis.set(xlim=(-0.04, 1.04), ylim=(-top, top))
        axis.set_xticks([0, 0.5, 1], ["0", "0.5", "1"])
        _mirror_ticks(axis, top)
    handles = [Line2D([], [], marker="o", linestyle="none", color=colour, label=label)
               for colour, label in ((INSIDE, "correct, above"), (OUTSIDE, "incorrect, below"))]  # fmt: skip
    figure.legend(handles=handles, loc="outside upper right", ncols=2)
    label_panels(figure, f"probability of “{positive}”", "predictive entropy")
    return figure


def _mean_entropy(side: FloatArray) -> FloatArray:
    """Return the mean entropy of the bins with examples."""
    filled = side[0] > 0
    return np.asarray(side[2, filled] / side[0, filled])


def _mean_note(sums: FloatArray) -> str:
    sides = zip(sums, ("correct", "incorrect"), strict=True)
    means = [f"{side[2].sum() / side[0].sum():.2f} {name}" for side, name in sides if side[0].sum()]
    return f"mean {', '.join(means)}"


def _mirror_ticks(axis: Axes, top: float) -> None:
    """Label ticks by their distance from zero in both directions."""
    step = 0.5 if top > 0.45 else 0.1
    ticks = np.arange(-np.floor(top / step), np.floor(top / step) + 1) * step
    axis.set_yticks(ticks, [f"{abs(tick):g}" for tick in ticks])
