"""Referral: the accuracy of the retained examples when the most uncertain ones are referred to a person.

The control, random referral, needs no draw: its expected accuracy (and area under the ROC curve) at every fraction is
that of all examples.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from dubio.core.predictions import Predictions
from dubio.core.types import FloatArray
from dubio.metrics.referral_curve import FRACTIONS, referral_curve
from dubio.reporting.canvas import WIDTH, Series, blank, finite_limits, legend_height, method_legend, styled
from dubio.reporting.manifest_view import TaskView
from dubio.reporting.measures import (
    REFERRED_BY,
    REJECTED,
    RETAINED,
    referral_name,
    retained_accuracy,
    values_at_fractions,
)
from dubio.reporting.run_view import RunView
from dubio.reporting.section import Block, Figure, Section, Text, Visit, section
from dubio.reporting.style import CONTROL
from dubio.reporting.tables import Column, Table, method_table, score_column
from dubio.reporting.wording import RANDOM, term

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Drawing


@dataclass(frozen=True, eq=False)
class Curves:
    """The referral curves of one run on the in-domain test set.

    Attributes:
        rejection: Accuracy of the retained at the fractions :data:`REJECTED`, by confidence.
        accuracy: Accuracy of the retained at :data:`RETAINED`, by predictive entropy.
        auc: Area under the ROC curve there; None where the task has no positive side.
    """

    rejection: FloatArray
    accuracy: FloatArray
    auc: FloatArray | None


@section("referral", order=30)
class Referral(Section):
    """Referral of the most uncertain examples on the in-domain test set."""

    title = "Referral"

    def __init__(self) -> None:
        """Start without any run."""
        self.curves: dict[tuple[str, str], list[Curves]] = {}

    def visit(self, item: Visit) -> None:
        """Add the scores at the fractions of the tables, and store the curves of the in-domain test set."""
        if item.split.kind == "id":
            curves = curves_of(item.task, item.predictions)
            item.values |= values_at_fractions(curves.accuracy, curves.auc)
            if item.is_in_domain_test:
                self.curves.setdefault((item.task.key, item.run.method), []).append(curves)

    def finish(self, run: RunView, task: TaskView) -> None:
        """Add random referral of the reference method to the scores."""
        reference = run.manifest.reference(task)
        for metric in ("referral_accuracy", "referral_auc"):
            everything = referral_name(metric, 1.0)
            run.scores.extend(
                [
                    replace(score, method=RANDOM, metric=referral_name(metric, fraction))
                    for score in run.scores.scores
                    if score.task == task.key and score.method == reference and score.metric == everything
                    for fraction in FRACTIONS
                ]
            )

    def blocks(self, run: RunView, task: TaskView | None) -> Iterator[Block]:
        """Yield the table and the curves of one task."""
        if task is None:
            return
        yield Text(
            "Refer the most uncertain examples to a person and answer the others: how accurate are the retained ones? "
            "Random referral changes nothing; a useful uncertainty lies above it."
        )
        if not task.screened:
            yield referral_table(run, task, "referral_accuracy")
        yield self._referral(run, task)
        draw = partial(rejection_figure, self._series(run, task, "rejection", REJECTED))
        yield Figure("rejection", "Accuracy–rejection curves", REJECTION_CAPTION, draw)

    def _series(self, run: RunView, task: TaskView, name: str, x: FloatArray) -> list[Series]:
        return [
            Series(
                run.styles[m.name], x, np.array([getattr(c, name) for c in self.curves[task.key, m.name]], dtype=float)
            )
            for m in run.methods_of(task)
        ]

    def _referral(self, run: RunView, task: TaskView) -> Figure:
        accuracy = self._series(run, task, "accuracy", RETAINED)
        area = self._series(run, task, "auc", RETAINED) if task.screened else []
        draw = partial(referral_figure, accuracy, area, reference=reference_index(run, task))
        return Figure("referral", "Referral curves", REFERRAL_CAPTION, draw)


def reference_index(run: RunView, task: TaskView) -> int:
    """Return the place of the reference method among the methods of a task."""
    names = [method.name for method in run.methods_of(task)]
    reference = run.manifest.reference(task)
    return names.index(reference) if reference in names else 0


def curves_of(task: TaskView, predictions: Predictions) -> Curves:
    """Return the referral curves of one run."""
    known = predictions.labelled
    area = referral_curve(known, quantity=REFERRED_BY, fractions=tuple(RETAINED)).auc if task.screened else None
    return Curves(
        rejection=retained_accuracy(known, "confidence", 1.0 - REJECTED),
        accuracy=retained_accuracy(known, REFERRED_BY, RETAINED),
        auc=area,
    )


def referral_table(run: RunView, task: TaskView, metric: str) -> Table:
    """Return accuracy, or AUC, at each fraction retained, with random referral as the last row."""
    split, columns = task.in_domain.name, []
    for fraction in sorted(FRACTIONS, reverse=True):
        name = referral_name(metric, fraction)
        cells, verdicts = run.scores.row(task, split, name), run.scores.verdicts(task, split, name)
        control = run.scores.cell(task, split, RANDOM, name)
        if control is not None:
            cells = {**cells, RANDOM: control}
        columns.append(
            score_column(Column(f"{fraction:.0%}", "retained", "↑", term(metric).note), cells, verdicts, places=3)
        )
    reference = run.manifest.reference(task)
    return method_table(
        run.methods_of(task),
        columns,
        run.styles,
        caption=f"{term(metric).title} of the retained examples, referred by predictive entropy",
        controls={RANDOM: f"Random referral ({run.title(reference) if reference else ''})"},
    )


REFERRAL_CAPTION = (
    "Accuracy (and AUC) of the retained examples when the most uncertain, by predictive entropy, are referred. From "
    "left to right, more examples are referred. Bands are one standard deviation over runs. Dotted: random referral."
)
REJECTION_CAPTION = (
    "Accuracy of the retained examples against the fraction rejected, least confident first. Methods are compared at "
    "the same number of retained examples, not at the same threshold."
)


def random_referral(series: Series) -> Series:
    """Return random referral of a method: the value of all examples at every fraction."""
    return Series(series.style, series.x, np.repeat(series.runs[:, -1:], len(series.x), axis=1))


@styled
def referral_figure(accuracy: Sequence[Series], area: Sequence[Series], *, reference: int) -> Drawing:
    """Draw accuracy, and for two classes the AUC, against the fraction retained.

    Args:
        accuracy: One series per method over the fraction retained.
        area: The same for the AUC; empty where it is not defined.
        reference: The place of the method that random referral is shown for.
    """
    figure = blank(WIDTH, 2.9 + legend_height(len(accuracy) + 1))
    axes = figure.subplots(1, 2, sharex=True) if area else [figure.subplots()]
    panels = [("accuracy of the retained", accuracy), ("AUC of the retained", area)]
    for axis, (label, series) in zip(axes, panels, strict=False):
        draw_curves(axis, series)
        control = random_referral(series[reference])
        axis.plot(control.x, control.mean, color=CONTROL, linestyle="dotted", linewidth=1.4, zorder=1.5)
        axis.set(xlabel="fraction retained", ylabel=label, xlim=(1.0, 0.5))
        fit_limits(axis, [*series, control])
    label = f"random referral ({accuracy[reference].style.title})"
    method_legend(figure, [series.style for series in accuracy], control=label)
    return figure


@styled
def rejection_figure(accuracy: Sequence[Series]) -> Drawing:
    """Draw the accuracy of the retained against the fraction rejected, least confident first."""
    figure = blank(WIDTH, 2.9 + legend_height(len(accuracy)))
    axis = figure.subplots()
    draw_curves(axis, accuracy)
    axis.set(xlabel="fraction rejected, least confident first", ylabel="accuracy of the retained", xlim=(0, 0.95))
    fit_limits(axis, accuracy)
    method_legend(figure, [series.style for series in accuracy])
    return figure


def draw_curves(axis: Axes, series: Sequence[Series], *, every: int = 10) -> None:
    """Draw means with a band of one standard deviation over runs; markers of methods are staggered."""
    for index, one in enumerate(series):
        mean, std = one.mean, one.std
        axis.fill_between(one.x, mean - std, mean + std, color=one.style.colour, alpha=0.09, linewidth=0)
        offset = (index * every) // max(len(series), 1)
        axis.plot(one.x, mean, markevery=(offset, every), zorder=3 if one.style.ensemble else 2, **one.style.line)


def fit_limits(axis: Axes, series: Sequence[Series]) -> None:
    """Set limits by the means: the noisy end of a band must not squeeze the rest."""
    low, high = sorted(axis.get_xlim())
    values = [float(y) for one in series for x, y in zip(one.x, one.mean, strict=True) if low <= x <= high]
    limits = finite_limits(values)
    if limits is not None:
        axis.set_ylim(*limits)
