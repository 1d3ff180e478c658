"""In-domain: the scores of every method on the in-domain test set, its calibration, and the sources of its variance."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from dubio.calibration.cross_validation import BY_POSITION, by_position
from dubio.core.predictions import Predictions
from dubio.core.types import FloatArray
from dubio.metrics.calibration_error import reliability
from dubio.metrics.decomposition import decompose
from dubio.reporting.canvas import (
    draw_stacks,
    label_panels,
    method_rows,
    note_row,
    panel_title,
    patch_legend,
    small_multiples,
    styled,
)
from dubio.reporting.leaderboard import not_ranked_sentences
from dubio.reporting.manifest_view import TaskView
from dubio.reporting.measures import GAP, IN_DOMAIN_COLUMNS, RANKED_BY, plugin_metrics
from dubio.reporting.run_view import RunView
from dubio.reporting.score_table import Cell
from dubio.reporting.section import Block, Collected, Figure, Section, Text, Visit, section
from dubio.reporting.style import INK, INSIDE, MUTED, NOISE, OUTSIDE, PAPER, Style
from dubio.reporting.tables import ARROWS, Column, FilledColumn, Table, method_table, score_column, value_cell
from dubio.reporting.wording import listed, named, term
from dubio.statistics.verdicts import Place

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Drawing

BINS = 15
"""Bins of the reliability diagram, as of the expected calibration error."""

KEY = (
    "The question is whether methods differ, not only these trained systems: trainings vary as well as test examples, "
    "the training set and the split are as they are. Shaded: the best mean (bold) and every method that is not "
    "significantly different from it. No shading: no method that was judged is significantly worse than the best mean."
)


@section("in-domain", order=10)
class InDomainScores(Section):
    """Scores on the in-domain test set."""

    title = "In-domain"

    def __init__(self) -> None:
        """Start without any run."""
        self.bins = Collected[FloatArray]()
        self.variance = Collected[FloatArray]()
        self.by_position: set[str] = set()

    def visit(self, item: Visit) -> None:
        """Store the reliability bins and the parts of the variance of a run on the in-domain test set."""
        if item.is_in_domain_test:
            self.bins.add(item, reliability_bins(item.predictions))
            self.variance.add(item, variance_parts(item.predictions))
            if by_position(item.predictions):
                self.by_position.add(item.task.key)

    def document(self, run: RunView) -> dict[str, Any]:
        """Return what every method gains over the class frequencies."""
        learning = {task.key: run.scores.learning(task) for task in run.tasks}
        rows = [
            {"task": key, "method": name, **vars(own)} for key, every in learning.items() for name, own in every.items()
        ]
        return {"learning": rows}

    def task_blocks(self, run: RunView, task: TaskView) -> Iterator[Block]:
        """Yield the table of scores and the figures of one task."""
        yield in_domain_table(run, task)
        remark = (BY_POSITION,) if task.key in self.by_position else ()
        notes = (*as_it_is(run, task), *not_ranked_reasons(run), *remark, *filter(None, [run.budget_note(task)]))
        yield Text((KEY, *notes), "small")
        if sentences := not_ranked_sentences(run, task):
            yield Text(tuple(sentences), "warning")
        if warning := temperature_warning(run, task):
            yield Text(warning, "warning")
        yield from ranking(run, task)
        panels = [(run.styles[name], np.sum(bins, axis=0)) for name, bins in self.bins.methods(run, task).items()]
        draw, narrow = partial(reliability_figure, panels), len(panels) < 3
        yield Figure("reliability", "Reliability", RELIABILITY_CAPTION, draw, narrow=narrow)
        yield from temperature(run, task)
        parts = {name: np.mean(runs, axis=0) for name, runs in self.variance.methods(run, task).items()}
        draw = partial(variance_figure, [run.styles[name] for name in parts], np.array(list(parts.values())))
        yield Figure("variance", "Sources of the uncertainty", VARIANCE_CAPTION, draw)


def in_domain_table(run: RunView, task: TaskView) -> Table:
    """Return methods × metrics on the in-domain test set."""
    split, scores = task.in_domain, run.scores
    columns = []
    for metric in (*IN_DOMAIN_COLUMNS, *(extra.name for extra in plugin_metrics() if extra.name in scores.better)):
        unranked = metric in scores.not_ranked
        arrow = "" if metric == "diversity" else ARROWS[scores.better[metric]]
        head = Column(term(metric).title, "not ranked" if unranked else "", arrow, term(metric).note, unranked)
        cells, verdicts = scores.row(task, split.name, metric), scores.verdicts(task, split.name, metric)
        columns.append(unmarked(run, task, score_column(head, cells, verdicts)))
    columns.append(gain_column(run, task))
    runs = scores.row(task, split.name, "accuracy")
    counts = {name: value_cell(cell.n, "d", place="unranked") for name, cell in runs.items()}
    note = "one per seed and member for single fits, one per seed for ensembles"
    columns.append(FilledColumn(Column("Runs", note=note, unranked=True), counts))
    caption = f"{split.examples:,} examples of the split “{split.name}”; mean ± standard deviation over runs"
    return method_table(run.methods_of(task), columns, run.styles, caption=caption, terminal=task.key)


GAIN = Column(
    "Gain",
    "over class frequencies",
    "↑",
    "mean gain in log-likelihood over the class frequencies, both recalibrated with an intercept per class on the "
    "other half of the test set; in brackets its upper limit",
    unranked=True,
)


def gain_column(run: RunView, task: TaskView) -> FilledColumn:
    """Return what every method gains over the class frequencies; nothing for class frequencies themselves."""
    rows = {name: row for name, row in run.scores.learning(task).items() if row.learned != "constant"}
    return FilledColumn(
        GAIN, {name: value_cell(row.gain, ".3f", f"(≤ {row.high:.3f})", "unranked") for name, row in rows.items()}
    )


def unmarked(run: RunView, task: TaskView, column: FilledColumn) -> FilledColumn:
    """Return the column with the cells of methods that are not ranked set apart."""
    learning = run.scores.learning(task)
    flagged = {name for name, evidence in learning.items() if evidence.learned != "learned"} & column.cells.keys()
    apart = {name: replace(column.cells[name], place="unranked", hint="this method is not ranked") for name in flagged}
    return FilledColumn(column.column, {**column.cells, **apart})


def as_it_is(run: RunView, task: TaskView) -> list[str]:
    """Return which metrics compare methods on this test set alone, because they have no values per example."""
    scores, split = run.scores, task.in_domain.name
    ranking = [metric for metric in IN_DOMAIN_COLUMNS if scores.ranks(metric) and scores.row(task, split, metric)]
    titles = [term(metric).title for metric in ranking if not scores.has_rows(task, split, metric)]
    verb = "has" if len(titles) == 1 else "have"
    reason = f"{verb} no values per example: trainings vary in these comparisons, and the test set is as it is."
    return [f"{listed(titles)} {reason}"] if titles else []


def not_ranked_reasons(run: RunView) -> list[str]:
    """Return why each metric that does not rank does not."""
    reasons = run.scores.not_ranked.items()
    return [f"{term(name).title} does not rank. {named(reason)}" for name, reason in reasons if name != GAP]


def temperature_warning(run: RunView, task: TaskView) -> str:
    """Return a warning where temperatures have no optimum, so that the calibrated score depends on few examples."""
    methods = {name: fits for (key, name), fits in run.scores.temperatures.items() if key == task.key}
    at_bound = sum(fits.at_bound for fits in methods.values())
    total = sum(len(fits.values) for fits in methods.values())
    names = [run.title(name) for name, fits in methods.items() if fits.at_bound]
    if not names:
        return ""
    return (
        f"{at_bound} of {total} temperatures behind the calibrated NLL of this task have no optimum, because almost "
        f"every example of that half of the test set is classified correctly: {listed(names)}. The calibrated NLL "
        "then depends on a few examples; read the Brier score beside it, or use a larger test set."
    )


RANKING_CAPTION = (
    "Lower is better. Ticks are runs, the marker is their mean, the bar one standard deviation. Bold: the best mean. "
    "Dark: not significantly different from the best. Grey: significantly worse. Italic: not judged."
)


def ranking(run: RunView, task: TaskView) -> Iterator[Figure]:
    """Yield the ranking metric of every method with its spread; infinite values are in the table alone."""
    cells = run.scores.row(task, task.in_domain.name, RANKED_BY)
    verdicts = run.scores.verdicts(task, task.in_domain.name, RANKED_BY)
    rows = [
        (run.styles[name], cell, verdicts[name].place)
        for name, cell in cells.items()
        if name in verdicts and np.isfinite(cell.mean)
    ]
    if rows:
        title, draw = f"{term(RANKED_BY).title} of each method", partial(ranking_figure, rows)
        yield Figure("ranking", title, RANKING_CAPTION, draw)


@styled
def ranking_figure(rows: Sequence[tuple[Style, Cell, Place]]) -> Drawing:
    """Draw one row per method: its runs as ticks, their mean as a marker, one standard deviation as a bar."""
    label = f"{term(RANKED_BY).title} (lower is better)"
    figure, axis = method_rows([style for style, *_ in rows], label)
    for row, (style, cell, verdict) in enumerate(rows):
        axis.plot(
            cell.values, [row] * cell.n, linestyle="none", marker="|", markersize=7, color=style.colour, alpha=0.45,
            markeredgewidth=1.0,
        )  # fmt: skip
        if cell.std is not None:
            axis.hlines(row, cell.mean - cell.std, cell.mean + cell.std, color=style.colour, linewidth=1.6)
        axis.plot([cell.mean], [row], linestyle="none", zorder=4, **style.point)
        axis.get_yticklabels()[row].set_color(MUTED if verdict == "behind" else INK)
        axis.get_yticklabels()[row].set_fontweight("bold" if verdict == "best" else "normal")
        axis.get_yticklabels()[row].set_fontstyle("italic" if verdict == "unjudged" else "normal")
    return figure


RELIABILITY_CAPTION = (
    f"Accuracy against confidence in {BINS} bins, all runs together; the area of a dot is its share of predictions. "
    "Below the diagonal a method is overconfident. The diagram shows a method's calibration; it does not rank methods."
)


def reliability_bins(predictions: Predictions) -> FloatArray:
    """Return ``[3, BINS]``: number of predictions, sum of confidence and number of correct ones per bin."""
    bins = reliability(predictions.labelled, bins=BINS)
    confidence, accuracy = np.nan_to_num(bins.confidence), np.nan_to_num(bins.accuracy)
    return np.array([bins.count, confidence * bins.count, accuracy * bins.count], dtype=float)


@styled
def reliability_figure(panels: Sequence[tuple[Style, FloatArray]]) -> Drawing:
    """Draw accuracy against mean confidence per bin, one panel per method.

    Args:
        panels: The style of a method and its bins, as :func:`reliability_bins` returns them, summed over runs.
    """
    figure, axes = small_multiples(len(panels), panel_height=1.85)
    for axis, (style, (count, confidence, correct)) in zip(axes, panels, strict=True):
        filled = count > 0
        share = count[filled] / count.sum()
        mean, accuracy = confidence[filled] / count[filled], correct[filled] / count[filled]
        axis.plot([0, 1], [0, 1], color=MUTED, linewidth=0.8, linestyle="dotted", zorder=1)
        axis.vlines(mean, mean, accuracy, color=style.colour, linewidth=1.3, alpha=0.45, zorder=2)
        axis.scatter(mean, accuracy, s=7 + 110 * share, color=style.colour, linewidth=0, alpha=0.9, zorder=3)
        axis.set_title(panel_title(style.title))
        axis.set(xlim=(-0.03, 1.05), ylim=(-0.03, 1.05))
        for set_ticks in (axis.set_xticks, axis.set_yticks):
            set_ticks([0, 0.5, 1], ["0", "0.5", "1"])
    label_panels(figure, "confidence", "accuracy")
    return figure


TEMPERATURE_CAPTION = (
    "Mean over runs. A long line means that much of a method's likelihood depends on the scale of its logits, which "
    "one number corrects; methods are ranked by the full dots. At the right, the median of the fitted temperatures: "
    "above 1 the method was overconfident, below 1 underconfident."
)


def temperature(run: RunView, task: TaskView) -> Iterator[Figure]:
    """Yield the NLL before and after temperature scaling, of every method for which both are finite."""
    plain, calibrated = (run.scores.row(task, task.in_domain.name, metric) for metric in ("nll", RANKED_BY))
    means = {name: (plain[name].mean, cell.mean) for name, cell in calibrated.items() if name in plain}
    rows = [
        (run.styles[name], *both, float(np.median(run.scores.temperatures[task.key, name].values)))
        for name, both in means.items()
        if np.isfinite(both).all()
    ]
    if rows:
        title, draw = "NLL before and after temperature scaling", partial(temperature_figure, rows)
        yield Figure("temperature", title, TEMPERATURE_CAPTION, draw)


@styled
def temperature_figure(rows: Sequence[tuple[Style, float, float, float]]) -> Drawing:
    """Draw one row per method: a hollow dot at temperature 1, a full one at the fitted temperature.

    Args:
        rows: The style of a method, its NLL at temperature 1 and at the fitted one, and the median of those.
    """
    label = "NLL: hollow at temperature 1, full at the cross-validated temperature"
    figure, axis = method_rows([row[0] for row in rows], label, 0.95)
    for index, (style, plain, calibrated, median) in enumerate(rows):
        low, high = sorted((plain, calibrated))
        axis.hlines(index, low, high, color=style.colour, linewidth=1.4, zorder=2)
        for value, face in ((plain, PAPER), (calibrated, style.colour)):
            axis.plot([value], [index], marker="o", markersize=5.4, linestyle="none", zorder=3,
                      markeredgecolor=style.colour, markerfacecolor=face)  # fmt: skip
        note_row(axis, index, f"T = {median:.2f}")
    return figure


VARIANCE_CAPTION = (
    "Mean over runs of the total variance of the predictive distribution, mean p(1 − p) over classes. Grey: within "
    "each sample. Blue: between the samples of one training. Orange: between independent trainings. It describes "
    "methods and does not rank them."
)

VARIANCE_PARTS = {"within every sample": NOISE, "between samples of a member": INSIDE, "between members": OUTSIDE}


def variance_parts(predictions: Predictions) -> FloatArray:
    """Return the means over examples of the parts of the total variance (T eq. 3), as in :data:`VARIANCE_PARTS`."""
    parts = decompose(predictions)
    return np.array([parts.expected_variance.mean(), parts.within_members.mean(), parts.between_members.mean()])


@styled
def variance_figure(styles: Sequence[Style], parts: FloatArray) -> Drawing:
    """Draw one bar per method: the total variance as the sum of its parts, ``[methods, parts]``."""
    figure, axis = method_rows(styles, "total variance, mean over examples and classes", 1.15)
    draw_stacks(axis, parts, list(VARIANCE_PARTS.values()))
    patch_legend(figure, VARIANCE_PARTS, "outside lower center")
    return figure
