"""Referral: the accuracy of the retained examples when the most uncertain ones are referred to a person."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from dubio.core.predictions import Predictions
from dubio.core.types import FloatArray
from dubio.metrics.referral_curve import FRACTIONS
from dubio.reporting.canvas import WIDTH, Series, blank, legend_height, method_legend, styled
from dubio.reporting.manifest_view import TaskView
from dubio.reporting.measures import (
    REFERRED_BY,
    REJECTED,
    RETAINED,
    referral_name,
    retained_accuracy,
    values_at_fractions,
)
from dubio.reporting.retention import (
    REFERRAL_CAPTION,
    control_title,
    draw_curves,
    fit_limits,
    reference_index,
    referral_figure,
    retention_columns,
)
from dubio.reporting.run_view import RunView
from dubio.reporting.section import Block, Figure, Section, Text, Visit, section
from dubio.reporting.tables import Table, method_table
from dubio.reporting.wording import RANDOM, term

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Drawing


@dataclass(frozen=True, eq=False)
class Curves:
    """The referral curves of one run on the in-domain test set.

    Attributes:
        rejection: Accuracy of the retained at the fractions :data:`REJECTED`, by confidence.
        accuracy: Accuracy of the retained at :data:`RETAINED`, by predictive entropy.
    """

    rejection: FloatArray
    accuracy: FloatArray


@section("referral", order=30)
class Referral(Section):
    """Referral of the most uncertain examples on the in-domain test set.

    Tasks with a positive side have a section of their own for the retained: with AUC, and on every test set.
    """

    title = "Referral"

    def __init__(self) -> None:
        """Start without any run."""
        self.curves: dict[tuple[str, str], list[Curves]] = {}

    def visit(self, item: Visit) -> None:
        """Add the scores at the fractions of the tables, and store the curves of the in-domain test set."""
        if item.split.kind == "id":
            curves = curves_of(item.predictions)
            if not item.task.has_positive_side:
                item.values |= values_at_fractions(curves.accuracy, None)
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
        if not task.has_positive_side:
            yield referral_table(run, task)
            yield self._referral(run, task)
        draw = partial(rejection_figure, self._series(run, task, "rejection", REJECTED))
        yield Figure("rejection", "Accuracy–rejection curves", REJECTION_CAPTION, draw)

    def _series(self, run: RunView, task: TaskView, name: str, x: FloatArray) -> list[Series]:
        return [
            Series(run.styles[m.name], x, np.array([getattr(c, name) for c in self.curves[task.key, m.name]]))
            for m in run.methods_of(task)
        ]

    def _referral(self, run: RunView, task: TaskView) -> Figure:
        accuracy = self._series(run, task, "accuracy", RETAINED)
        draw = partial(referral_figure, accuracy, [], reference=reference_index(run, task, run.methods_of(task)))
        return Figure("referral", "Referral curves", REFERRAL_CAPTION, draw)


def curves_of(predictions: Predictions) -> Curves:
    """Return the referral curves of one run."""
    labelled = predictions.labelled
    return Curves(
        rejection=retained_accuracy(labelled, "confidence", 1.0 - REJECTED),
        accuracy=retained_accuracy(labelled, REFERRED_BY, RETAINED),
    )


def referral_table(run: RunView, task: TaskView) -> Table:
    """Return the accuracy at each fraction retained, with random referral as the last row."""
    metric = "referral_accuracy"
    return method_table(
        run.methods_of(task),
        retention_columns(run, task, task.in_domain.name, metric).values(),
        run.styles,
        caption=f"{term(metric).title} of the retained examples, referred by predictive entropy",
        controls=control_title(run, task),
    )


REJECTION_CAPTION = (
    "Accuracy of the retained examples against the fraction rejected, least confident first. Methods are compared at "
    "the same number of retained examples, not at the same threshold."
)


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
