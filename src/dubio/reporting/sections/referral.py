"""Referral: the accuracy of the retained examples when the most uncertain ones are referred to a person."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from dubio.core.types import FloatArray
from dubio.metrics.referral_curve import FRACTIONS
from dubio.reporting.charts import Series, curves
from dubio.reporting.manifest_view import TaskView
from dubio.reporting.measures import (
    REFERRED_BY,
    REJECTED,
    RETAINED,
    own_metrics,
    referral_name,
    retained_accuracy,
    values_at_fractions,
)
from dubio.reporting.retention import (
    HEIGHT,
    REFERRAL_CAPTION,
    referral_of,
    retention_columns,
    retention_table,
    rows_of,
    scale_of_means,
    series_of,
)
from dubio.reporting.run_view import RunView
from dubio.reporting.section import Block, Collected, Figure, Section, Text, Visit, section
from dubio.reporting.tables import Column, Table, method_table, score_column
from dubio.reporting.wording import RANDOM, quantity_words, term

if TYPE_CHECKING:
    from dubio.reporting.charts import Chart


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
        if item.split.kind == "id" and item.has_labels:
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
        """Yield the table and the curves of one task; nothing without labels."""
        if not self.rejection.methods(run, task):
            return
        yield Text(
            "Refer the most uncertain examples to a person and answer the others: how accurate are the retained ones? "
            "Random referral changes nothing; a useful uncertainty lies above it."
        )
        if not task.has_positive_side:
            yield referral_table(run, task)
            chart = partial(referral_of, run, task, self.accuracy.methods(run, task), {})
            yield Figure("referral", "Referral curves", REFERRAL_CAPTION, chart)
        if run.scores.own_quantities:
            yield own_table(run, task)
        chart = partial(rejection_chart, series_of(run, REJECTED, self.rejection.methods(run, task)))
        yield Figure("rejection", "Accuracy–rejection curves", REJECTION_CAPTION, chart)


def referral_table(run: RunView, task: TaskView) -> Table:
    """Return the accuracy at each fraction retained, with random referral as the last row."""
    metric = "referral_accuracy"
    columns = retention_columns(run, task, task.in_domain.name, metric)
    caption = f"{term(metric).title} of the retained examples, referred by predictive entropy"
    return retention_table(run, task, [m.name for m in run.methods_of(task)], columns.values(), caption)


def own_table(run: RunView, task: TaskView) -> Table:
    """Return AURC by confidence, and by the uncertainties that systems give themselves."""
    own, split, scores = run.scores.own_quantities, task.in_domain.name, run.scores
    metrics = {"confidence": "aurc"} | {n: m.name for n, m in zip(own, own_metrics(own), strict=True)}
    columns = []
    for quantity, name in metrics.items():
        head = Column(term(name).title, f"by {quantity_words(quantity)}", "↓", term(name).note, metric=name)
        columns.append(score_column(head, scores.row(task, split, name), scores.verdicts(task, split, name)))
    caption = "AURC by confidence, and by the systems' own uncertainties; in brackets 95 % intervals"
    return method_table(run.methods_of(task), columns, run.styles, caption=caption)


REJECTION_CAPTION = (
    "Accuracy of the retained examples against the fraction rejected, least confident first. Methods are compared at "
    "the same number of retained examples, not at the same threshold. Bands are one standard deviation over runs. A "
    "baseline far from all methods is outside the plot."
)


def rejection_chart(accuracy: Sequence[Series]) -> Chart:
    """Return the accuracy of the retained against the fraction rejected, least confident first."""
    import altair

    styles, x = [series.style for series in accuracy], "fraction rejected, least confident first"
    x_scale, y_scale = altair.Scale(domain=[0.0, 0.95]), scale_of_means(accuracy)
    chart = curves(rows_of(accuracy), styles, x=x, y="accuracy of the retained", x_scale=x_scale, y_scale=y_scale)
    wide: Chart = chart.properties(width="container", height=HEIGHT).configure_axisX(tickCount=10)
    return wide
