"""In-domain: the scores of every method on the in-domain test set, its calibration, and the sources of its variance."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from dubio.core.predictions import Predictions
from dubio.core.types import FloatArray
from dubio.metrics.calibration_error import reliability
from dubio.metrics.decomposition import decompose
from dubio.reporting.canvas import WIDTH, blank, label_rows, panel_title, small_multiples, styled
from dubio.reporting.manifest_view import TaskView
from dubio.reporting.measures import GAP, IN_DOMAIN_COLUMNS, RANKED_BY, plugin_metrics
from dubio.reporting.run_view import RunView
from dubio.reporting.section import Block, Figure, Section, Text, Visit, section
from dubio.reporting.style import INK, INSIDE, MUTED, NOISE, OUTSIDE, PAPER, Style
from dubio.reporting.tables import ARROWS, Column, FilledColumn, Table, TableCell, method_table, score_column
from dubio.reporting.wording import named, term

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Drawing

BINS = 15
"""Bins of the reliability diagram, as of the expected calibration error."""

KEY = (
    "Shaded: the best mean (bold) and every method that is not significantly different from it. "
    "No shading: no significant differences between methods."
)


@section("in-domain", order=10)
class InDomainScores(Section):
    """Scores on the in-domain test set."""

    title = "In-domain"

    def __init__(self) -> None:
        """Start without any run."""
        self.bins: dict[tuple[str, str], list[FloatArray]] = {}
        self.variance: dict[tuple[str, str], list[FloatArray]] = {}

    def visit(self, item: Visit) -> None:
        """Store the reliability bins and the parts of the variance of a run on the in-domain test set."""
        if item.is_in_domain_test:
            key = item.task.key, item.run.method
            self.bins.setdefault(key, []).append(reliability_bins(item.predictions))
            self.variance.setdefault(key, []).append(variance_parts(item.predictions))

    def blocks(self, run: RunView, task: TaskView | None) -> Iterator[Block]:
        """Yield the table of scores and the figures of one task."""
        if task is None:
            return
        yield in_domain_table(run, task)
        yield Text((KEY, *not_ranked_reasons(run)), "small")
        if warning := temperature_warning(run, task):
            yield Text(warning, "warning")
        yield from ranking(run, task)
        yield self._reliability(run, task)
        yield from temperature(run, task)
        yield self._variance(run, task)

    def _reliability(self, run: RunView, task: TaskView) -> Figure:
        panels = [(run.styles[m.name], np.sum(self.bins[task.key, m.name], axis=0)) for m in run.methods_of(task)]
        draw, narrow = partial(reliability_figure, panels), len(panels) < 3
        return Figure("reliability", "Reliability", RELIABILITY_CAPTION, draw, narrow=narrow)

    def _variance(self, run: RunView, task: TaskView) -> Figure:
        rows = [(run.styles[m.name], np.mean(self.variance[task.key, m.name], axis=0)) for m in run.methods_of(task)]
        return Figure("variance", "Sources of the uncertainty", VARIANCE_CAPTION, partial(variance_figure, rows))


def in_domain_table(run: RunView, task: TaskView) -> Table:
    """Return methods × metrics on the in-domain test set."""
    split, scores = task.in_domain, run.scores
    columns = []
    for metric in (*IN_DOMAIN_COLUMNS, *(extra.name for extra in plugin_metrics() if extra.name in scores.better)):
        unranked = metric in scores.not_ranked
        arrow = "" if metric == "diversity" else ARROWS[scores.better[metric]]
        head = Column(term(metric).title, "not ranked" if unranked else "", arrow, term(metric).note, unranked)
        cells, verdicts = scores.row(task, split.name, metric), scores.verdicts(task, split.name, metric)
        columns.append(score_column(head, cells, verdicts))
    runs = scores.row(task, split.name, "accuracy")
    counts = {name: TableCell(str(cell.n), sort=str(cell.n), place="unranked") for name, cell in runs.items()}
    note = "one per seed and member for single fits, one per seed for ensembles"
    columns.append(FilledColumn(Column("Runs", note=note, unranked=True), counts))
    caption = f"{split.examples:,} examples of the split “{split.name}”; mean ± standard deviation over runs"
    return method_table(run.methods_of(task), columns, run.styles, caption=caption, terminal=task.key)


def not_ranked_reasons(run: RunView) -> list[str]:
    """Return why each metric that does not rank does not."""
    reasons = run.scores.not_ranked.items()
    return [f"{term(name).title} does not rank. {named(reason)}" for name, reason in reasons if name != GAP]


def temperature_warning(run: RunView, task: TaskView) -> str:
    """Return a warning where temperatures have no optimum, so that the calibrated score depends on few examples."""
    fits = [fits for (key, _), fits in run.scores.temperatures.items() if key == task.key]
    at_bound, total = sum(each.at_bound for each in fits), sum(len(each.values) for each in fits)
    if not at_bound:
        return ""
    return (
        f"{at_bound} of {total} temperatures behind the calibrated NLL of this task have no optimum: on that half of "
        "the test set almost every example is classified correctly, so that sharper predictions always fit better. "
        "The calibrated NLL then depends on a few examples of the other half; read the Brier score beside it, or use a "
        "larger test set."
    )


RANKING_CAPTION = (
    "Lower is better. Ticks are runs, the marker is their mean, the bar one standard deviation. Bold: the best mean. "
    "Dark: not significantly different from the best. Grey: significantly worse."
)


@dataclass(frozen=True, eq=False)
class Ranked:
    """The values of one method over its runs, and its place."""

    style: Style
    values: FloatArray
    tied: bool
    best: bool


def ranking(run: RunView, task: TaskView) -> Iterator[Figure]:
    """Yield the ranking metric of every method with its spread; infinite values are in the table alone."""
    cells = run.scores.row(task, task.in_domain.name, RANKED_BY)
    verdicts = run.scores.verdicts(task, task.in_domain.name, RANKED_BY)
    rows = [
        Ranked(
            style=run.styles[m.name],
            values=np.array(cells[m.name].values),
            tied=verdicts[m.name].place != "behind",
            best=verdicts[m.name].place == "best",
        )
        for m in run.methods_of(task)
        if m.name in verdicts and np.isfinite(cells[m.name].mean)
    ]
    if rows:
        title = term(RANKED_BY).title
        draw = partial(ranking_figure, rows, label=f"{title} (lower is better)")
        yield Figure("ranking", f"{title} of each method", RANKING_CAPTION, draw)


@styled
def ranking_figure(rows: Sequence[Ranked], *, label: str) -> Drawing:
    """Draw one row per method: its runs as ticks, their mean as a marker, one standard deviation as a bar."""
    figure = blank(WIDTH, 0.27 * len(rows) + 0.75)
    axis = figure.subplots()
    for place, row in enumerate(rows):
        mean = float(np.mean(row.values))
        axis.plot(
            row.values, np.full(row.values.shape, place), linestyle="none", marker="|", markersize=7,
            color=row.style.colour, alpha=0.45, markeredgewidth=1.0,
        )  # fmt: skip
        if row.values.size > 1:
            std = float(np.std(row.values, ddof=1))
            axis.hlines(place, mean - std, mean + std, color=row.style.colour, linewidth=1.6)
        axis.plot([mean], [place], linestyle="none", zorder=4, **row.style.point)
    label_rows(axis, [row.style for row in rows])
    for tick, row in zip(axis.get_yticklabels(), rows, strict=True):
        tick.set_color(INK if row.best or row.tied else MUTED)
        tick.set_fontweight("bold" if row.best else "normal")
    axis.set_xlabel(label)
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
        axis.set_xticks(np.linspace(0, 1, 3), ["0", "0.5", "1"])
        axis.set_yticks(np.linspace(0, 1, 3), ["0", "0.5", "1"])
    figure.supxlabel("confidence", fontsize=8.5)
    figure.supylabel("accuracy", fontsize=8.5)
    return figure


TEMPERATURE_CAPTION = (
    "Mean over runs. A long line means that much of a method's likelihood depends on the scale of its logits, which "
    "one number corrects; methods are ranked by the full dots. At the right, the median of the fitted temperatures: "
    "above 1 the method was overconfident, below 1 underconfident."
)


@dataclass(frozen=True, eq=False)
class Tempered:
    """The NLL of one method at temperature 1 and at its cross-validated temperature, with the median of those."""

    style: Style
    plain: float
    calibrated: float
    temperature: float


def temperature(run: RunView, task: TaskView) -> Iterator[Figure]:
    """Yield the NLL before and after temperature scaling, of every method for which both are finite."""
    plain = run.scores.row(task, task.in_domain.name, "nll")
    calibrated = run.scores.row(task, task.in_domain.name, RANKED_BY)
    rows = [
        Tempered(
            run.styles[m.name],
            plain[m.name].mean,
            calibrated[m.name].mean,
            float(np.median(run.scores.temperatures[task.key, m.name].values)),
        )
        for m in run.methods_of(task)
        if m.name in plain and m.name in calibrated
        and np.isfinite(plain[m.name].mean) and np.isfinite(calibrated[m.name].mean)
    ]  # fmt: skip
    if rows:
        title, draw = "NLL before and after temperature scaling", partial(temperature_figure, rows)
        yield Figure("temperature", title, TEMPERATURE_CAPTION, draw)


@styled
def temperature_figure(rows: Sequence[Tempered]) -> Drawing:
    """Draw one row per method: a hollow dot at temperature 1, a full one at the fitted temperature."""
    figure = blank(WIDTH, 0.27 * len(rows) + 0.95)
    axis = figure.subplots()
    for place, row in enumerate(rows):
        low, high = sorted((row.plain, row.calibrated))
        axis.hlines(place, low, high, color=row.style.colour, linewidth=1.4, zorder=2)
        for value, face in ((row.plain, PAPER), (row.calibrated, row.style.colour)):
            axis.plot([value], [place], marker="o", markersize=5.4, linestyle="none", zorder=3,
                      markeredgecolor=row.style.colour, markerfacecolor=face)  # fmt: skip
        axis.text(1.02, place, f"T = {row.temperature:.2f}", transform=axis.get_yaxis_transform(), va="center",
                  fontsize=7.8, color=INK)  # fmt: skip
    label_rows(axis, [row.style for row in rows])
    axis.set_xlabel("NLL: hollow at temperature 1, full at the cross-validated temperature")
    return figure


VARIANCE_CAPTION = (
    "Mean over runs of the total variance of the predictive distribution, mean p(1 − p) over classes. Grey: within "
    "each sample. Blue: between the samples of one training. Orange: between independent trainings. It describes "
    "methods and does not rank them."
)

VARIANCE_PARTS = {
    "within every sample": NOISE,
    "between samples of a member": INSIDE,
    "between members": OUTSIDE,
}


def variance_parts(predictions: Predictions) -> FloatArray:
    """Return the means over examples of the parts of the total variance (T eq. 3), as in :data:`VARIANCE_PARTS`."""
    parts = decompose(predictions)
    return np.array([parts.expected_variance.mean(), parts.within_members.mean(), parts.between_members.mean()])


@styled
def variance_figure(rows: Sequence[tuple[Style, FloatArray]]) -> Drawing:
    """Draw one bar per method: the total variance as the sum of its parts."""
    from matplotlib.patches import Patch

    figure = blank(WIDTH, 0.27 * len(rows) + 1.15)
    axis = figure.subplots()
    colours = tuple(VARIANCE_PARTS.values())
    for place, (_, parts) in enumerate(rows):
        starts = np.concatenate([[0.0], np.cumsum(parts)[:-1]])
        axis.barh([place] * len(parts), parts, left=starts, height=0.62, color=colours, linewidth=0, zorder=2)
    label_rows(axis, [style for style, _ in rows])
    axis.set_xlabel("total variance, mean over examples and classes")
    handles = [Patch(color=colour, label=part) for part, colour in VARIANCE_PARTS.items()]
    figure.legend(handles=handles, loc="outside lower center", ncols=3)
    return figure
