"""Referral: the accuracy of the retained examples when the most uncertain ones are referred to a person."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

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
    draw_curves,
    draw_referral,
    fit_limits,
    retention_columns,
    retention_table,
    series_of,
)
from dubio.reporting.run_view import RunView
from dubio.reporting.section import Block, Collected, Figure, Section, Text, Visit, section
from dubio.reporting.tables import Table
from dubio.reporting.wording import RANDOM, term

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Drawing


@section("referral", order=30)
class Referral(Section):
    """Referral of the most uncertain examples on the in-domain test set.

    Tasks with a positive side have a section of their own for the retained: with AUC, and on every test set.
    """

    title = "Referral"

    def __init__(self) -> None:
        """Start without any run."""
        self.rejection = Collected[FloatArray]()
        self.accuracy = Collected[FloatArray]()

    def visit(self, item: Visit) -> None:
        """Add the scores at the fractions of the tables, and store the curves of the in-domain test set."""
        if item.split.kind == "id":
            labelled = item.predictions.labelled
            accuracy = retained_accuracy(labelled, REFERRED_BY, RETAINED)
            if not item.task.has_positive_side:
                item.values |= values_at_fractions(accuracy, None)
            if item.is_in_domain_test:
                self.accuracy.add(item, accuracy)
                self.rejection.add(item, retained_accuracy(labelled, "confidence", 1.0 - REJECTED))

    def finish(self, run: RunView, task: TaskView) -> None:
        """Add random referral of the reference method to the scores."""
        reference = run.manifest.reference(task)
        for metric in ("referral_accuracy", "referral_auc"):
            key = task.key, reference, referral_name(metric, 1.0)
            everything = [score for score in run.scores.scores if (score.task, score.method, score.metric) == key]
            names = [referral_name(metric, fraction) for fraction in FRACTIONS]
            run.scores.extend([replace(score, method=RANDOM, metric=name) for score in everything for name in names])

    def task_blocks(self, run: RunView, task: TaskView) -> Iterator[Block]:
        """Yield the table and the curves of one task."""
        yield Text(
            "Refer the most uncertain examples to a person and answer the others: how accurate are the retained ones? "
            "Random referral changes nothing; a useful uncertainty lies above it."
        )
        if not task.has_positive_side:
            yield referral_table(run, task)
            draw = partial(draw_referral, run, task, self.accuracy.methods(run, task), {})
            yield Figure("referral", "Referral curves", REFERRAL_CAPTION, draw)
        draw = partial(rejection_figure, series_of(run, REJECTED, self.rejection.methods(run, task)))
        yield Figure("rejection", "Accuracy–rejection curves", REJECTION_CAPTION, draw)


def referral_table(run: RunView, task: TaskView) -> Table:
    """Return the accuracy at each fraction retained, with random referral as the last row."""
    metric = "referral_accuracy"
    columns = retention_columns(run, task, task.in_domain.name, metric)
    caption = f"{term(metric).title} of the retained examples, referred by predictive entropy"
    return retention_table(run, task, [m.name for m in run.methods_of(task)], columns.values(), caption)


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
