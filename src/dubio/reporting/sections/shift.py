"""Shifted and OOD test sets: accuracy, detection by every uncertainty, and accuracy against corruption severity."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from dubio.reporting.canvas import WIDTH, Series, blank, legend_height, method_legend, small_multiples, styled
from dubio.reporting.manifest_view import TaskView, TestSet
from dubio.reporting.measures import AT_IN_DOMAIN_TEMPERATURE, DETECTED_BY, GAP, HEADLINE, RANKED_BY, detection_name
from dubio.reporting.run_view import RunView
from dubio.reporting.score_table import Cell
from dubio.reporting.section import Block, Figure, Section, Text, section
from dubio.reporting.tables import ARROWS, Column, FilledColumn, Table, folded, method_table, score_column
from dubio.reporting.wording import term

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Drawing

DETECTION = ("ood_auroc", "ood_aupr", "id_aupr", "ood_fpr95")
POSITIVE = {"ood_aupr": "OOD or shifted positive", "id_aupr": "in-domain positive"}
"""Which examples an average precision counts as positive."""


@section("shift", order=50)
class Shift(Section):
    """Accuracy and detection on shifted and OOD test sets."""

    title = "Under distribution shift"

    def blocks(self, run: RunView, task: TaskView | None) -> Iterator[Block]:
        """Yield the tables of a task, its severity curves, and further tables on demand."""
        if task is None or not task.test_sets:
            return
        yield Text(
            "Test examples that differ from the training data: novel classes, other sources, corrupted inputs. A "
            "classifier should be less certain on them. Significance of accuracy and of AUROC by confidence includes "
            "the spread over runs and over examples; for other metrics, the spread over runs alone."
        )
        sets = task.test_sets
        yield summary_table(run, task) if len(sets) > 1 else detection_table(run, task, sets[0])
        if task.many_corruptions:
            yield from many_corruptions(run, task)
        elif task.severities:
            yield severity(run, task)
        for shifted in sets:
            if len(sets) > 1:
                yield folded(detection_table(run, task, shifted), f"Detection of {shifted.title}")
            title = f"Correlation of every uncertainty with {shifted.title}"
            yield folded(correlation_table(run, task, shifted), title)
            title = f"AUPR and FPR95 of {shifted.title} by every uncertainty"
            yield folded(every_quantity_table(run, task, shifted), title)


def summary_table(run: RunView, task: TaskView) -> Table:
    """Return one detection column per test set, and accuracy where there are labels."""
    name = detection_name("ood_auroc", HEADLINE)
    columns = [
        _column(run, task, shifted, name, Column("AUROC", shifted.title, "↑", term("ood_auroc").note))
        for shifted in task.test_sets
    ]
    for metric, title, arrow in (("accuracy", "Accuracy", "↑"), (GAP, "Gap", "↓")):
        columns += [
            _column(run, task, shifted, metric, Column(title, shifted.title, arrow, term(metric).note, metric == GAP))
            for shifted in task.test_sets
            if shifted.kind == "shift"
        ]
    graded = "; mean over the severities of a corruption" if task.severities else ""
    caption = f"AUROC of detection by {HEADLINE} (0.5 is chance), accuracy under shift and the accuracy lost{graded}"
    return method_table(
        run.methods_of(task), columns, run.styles, caption=caption, terminal=f"{task.key}, under distribution shift"
    )


def detection_table(run: RunView, task: TaskView, shifted: TestSet) -> Table:
    """Return accuracy and detection by confidence on one test set."""
    columns = []
    if shifted.kind == "shift":
        columns.append(_column(run, task, shifted, "accuracy", Column("Accuracy", "", "↑")))
        columns.append(_column(run, task, shifted, GAP, Column("Gap", "not ranked", "↓", term(GAP).note, True)))
        columns.append(_column(run, task, shifted, "nll", Column("NLL", "not ranked", "↓", unranked=True)))
    columns += [_detected(run, task, shifted, metric, HEADLINE) for metric in DETECTION]
    columns += [_detected(run, task, shifted, "ood_auroc", other) for other in DETECTED_BY if other != HEADLINE]
    return method_table(run.methods_of(task), columns, run.styles, caption=_caption(task, shifted))


def correlation_table(run: RunView, task: TaskView, shifted: TestSet) -> Table:
    """Return the signed point-biserial correlation of every quantity with being OOD or shifted."""
    columns = []
    for quantity in DETECTED_BY:
        name = detection_name("ood_correlation", quantity)
        head = Column(_phrase(quantity), "", ARROWS[run.scores.better[name]], term("ood_correlation").note)
        columns.append(_column(run, task, shifted, name, head))
    caption = (
        f"Signed correlation of each quantity with being in “{shifted.title}”: confidence should fall, every other "
        "quantity rise"
    )
    return method_table(run.methods_of(task), columns, run.styles, caption=caption)


def every_quantity_table(run: RunView, task: TaskView, shifted: TestSet) -> Table:
    """Return both average precisions and FPR95 by every quantity."""
    columns = [_detected(run, task, shifted, metric, name) for metric in DETECTION[1:] for name in DETECTED_BY]
    return method_table(run.methods_of(task), columns, run.styles, caption=_caption(task, shifted))


def _detected(run: RunView, task: TaskView, shifted: TestSet, metric: str, quantity: str) -> FilledColumn:
    name = detection_name(metric, quantity)
    title = "AUPR" if metric in POSITIVE else term(metric).title
    sub = f"{_phrase(quantity)}, {POSITIVE[metric]}" if metric in POSITIVE else _phrase(quantity)
    head = Column(title, sub, ARROWS[run.scores.better[name]], term(metric).note)
    return _column(run, task, shifted, name, head)


def _phrase(quantity: str) -> str:
    return quantity.replace("_", " ")


def _caption(task: TaskView, shifted: TestSet) -> str:
    inside = task.in_domain.examples
    outside = next(split.examples for split in task.splits if split.name == shifted.splits[0])
    several = len(shifted.splits) > 1
    name = f"{shifted.title}: mean over {len(shifted.splits)} severities, each" if several else shifted.title
    share = outside / (inside + outside)
    return (
        f"{name} {outside:,} examples against {inside:,} in-domain ones; AUPR by chance: {share:.2f} with OOD or "
        f"shifted examples positive, {1 - share:.2f} with in-domain ones"
    )


def _column(run: RunView, task: TaskView, shifted: TestSet, metric: str, head: Column) -> FilledColumn:
    cells: dict[str, Cell] = run.scores.row(task, shifted.splits, metric)
    return score_column(head, cells, run.scores.verdicts(task, shifted.splits, metric) or None, places=3)


def severity_series(
    run: RunView, task: TaskView, levels: Sequence[Sequence[str]], metrics: Sequence[str]
) -> list[Series]:
    """Return one series per method over severities, each run's mean over the splits of a level.

    Args:
        run: The benchmark run.
        task: The task.
        levels: The splits of every level; level 0 is the in-domain test set.
        metrics: The metric of every level.
    """
    series = []
    for method in run.methods_of(task):
        cells = [run.scores.average(task, splits, method.name, m) for splits, m in zip(levels, metrics, strict=True)]
        table = np.full((max(cell.n if cell else 0 for cell in cells), len(levels)), np.nan)
        for column, cell in enumerate(cells):
            if cell is not None:
                table[: cell.n, column] = cell.values
        series.append(Series(run.styles[method.name], np.arange(float(len(levels))), table))
    return series


def graded_series(run: RunView, task: TaskView, base: str, metric: str) -> list[Series]:
    """Return a metric of every method against the severity of one corruption; 0 is the in-domain test set."""
    levels = [[task.in_domain.name], *([split.name] for split in task.severities[base])]
    return severity_series(run, task, levels, [metric] * len(levels))


SEVERITY_CAPTION = (
    "Severity 0 is the in-domain test set. Bars are one standard deviation over runs. NLL is at temperature 1, because "
    "a deployed model is not recalibrated when its inputs get worse."
)


def severity(run: RunView, task: TaskView) -> Figure:
    """Return accuracy and NLL against severity, one column per corruption."""
    accuracy, nll = (
        {base: graded_series(run, task, base, metric) for base in task.severities} for metric in ("accuracy", "nll")
    )
    title, narrow = "Accuracy and NLL against corruption severity", len(task.severities) == 1
    return Figure("severity", title, SEVERITY_CAPTION, partial(severity_figure, accuracy, nll), narrow=narrow)


@styled
def severity_figure(accuracy: Mapping[str, Sequence[Series]], nll: Mapping[str, Sequence[Series]]) -> Drawing:
    """Draw accuracy (top) and NLL (bottom) against severity, one column per corruption."""
    columns = len(accuracy)
    drawn = next(iter(accuracy.values()))
    width = max(3.4, min(WIDTH, 2.6 * columns))
    legend_columns = 4 if width == WIDTH else 2
    figure = blank(width, 4.0 + legend_height(len(drawn), legend_columns))
    axes = figure.subplots(2, columns, sharex=True, sharey="row", squeeze=False)
    for row, (label, panels) in enumerate((("accuracy", accuracy), ("NLL", nll))):
        for axis, (base, series) in zip(axes[row], panels.items(), strict=True):
            for one in series:
                axis.errorbar(one.x, one.mean, yerr=one.std, elinewidth=0.7, capsize=0, alpha=0.95, **one.style.line)
                axis.set_xticks(one.x)
            if row == 0:
                axis.set_title(base)
        axes[row][0].set_ylabel(label)
    for axis in axes[1]:
        axis.set_xlabel("severity (0: in-domain)")
    method_legend(figure, [series.style for series in drawn], columns=legend_columns)
    return figure


AVERAGED: Mapping[str, tuple[str, str]] = {
    "Accuracy": ("accuracy", "accuracy"),
    "NLL at in-domain temperature": (AT_IN_DOMAIN_TEMPERATURE, RANKED_BY),
    "ECE (does not rank)": ("ece", "ece"),
}
"""Title → the metric under corruption, and the one at severity 0."""

AVERAGED_CAPTION = (
    "Mean over {families} corruption families; severity 0 is the in-domain test set. Bars are one standard deviation "
    "over runs. NLL is at the temperature fitted in-domain, because a deployed model is not recalibrated when its "
    "inputs get worse. dubio computes the corruptions itself; they are not those of published benchmarks."
)
FAMILIES_CAPTION = "Accuracy against severity, one panel per corruption; severity 0 is the in-domain test set."


def averaged_series(run: RunView, task: TaskView, metric: str, in_domain_metric: str) -> list[Series]:
    """Return a metric of every method against severity, each run's mean over all corruption families."""
    families = list(task.severities.values())
    count = min(len(splits) for splits in families)
    levels = [[task.in_domain.name], *([splits[level].name for splits in families] for level in range(count))]
    series = severity_series(run, task, levels, [in_domain_metric, *([metric] * count)])
    return [one for one in series if np.isfinite(one.runs[:, 1:]).any()]


def many_corruptions(run: RunView, task: TaskView) -> Iterator[Figure]:
    """Yield the mean over corruption families, then every family on demand."""
    panels = {title: averaged_series(run, task, *metrics) for title, metrics in AVERAGED.items()}
    if not panels["Accuracy"]:
        return
    families = task.severities
    yield Figure(
        "severity",
        "Scores against corruption severity",
        AVERAGED_CAPTION.format(families=len(families)),
        partial(averaged_figure, panels),
        reading=worst_severity(panels["Accuracy"]),
    )
    series = {base: graded_series(run, task, base, "accuracy") for base in families}
    draw = partial(families_figure, series)
    yield Figure("severity-each", "Accuracy under every corruption", FAMILIES_CAPTION, draw, folded=True)


@styled
def averaged_figure(panels: Mapping[str, Sequence[Series]]) -> Drawing:
    """Draw one panel per metric, one line per method."""
    drawn = next(iter(panels.values()))
    figure = blank(WIDTH, 2.9 + legend_height(len(drawn), 3))
    for axis, (title, series) in zip(figure.subplots(1, len(panels)).flat, panels.items(), strict=True):
        for one in series:
            keywords = {**one.style.line, "linewidth": 1.3, "markersize": 3.8}
            axis.errorbar(one.x, one.mean, yerr=one.std, elinewidth=0.6, capsize=0, **keywords)
            axis.set_xticks(one.x)
        axis.set_title(title)
        axis.set_xlabel("severity")
    method_legend(figure, [series.style for series in drawn], columns=3)
    return figure


@styled
def families_figure(families: Mapping[str, Sequence[Series]]) -> Drawing:
    """Draw accuracy against severity, one small panel per corruption family."""
    drawn = next(iter(families.values()))
    figure, axes = small_multiples(len(families), columns=5, panel_height=1.6, extra=legend_height(len(drawn), 3))
    for axis, (base, series) in zip(axes, families.items(), strict=True):
        for one in series:
            axis.plot(one.x, one.mean, **{**one.style.line, "linewidth": 1.0, "markersize": 2.6})
        axis.set_xticks(series[0].x)
        axis.set_title(base, fontsize=7.6)
    method_legend(figure, [series.style for series in drawn], columns=3)
    return figure


def worst_severity(series: Sequence[Series]) -> str:
    """Return the highest and the lowest mean accuracy at the worst severity."""
    worst = {one.style.title: float(one.mean[-1]) for one in series if np.isfinite(one.mean[-1])}
    if len(worst) < 2:
        return ""
    best, least = max(worst, key=lambda name: worst[name]), min(worst, key=lambda name: worst[name])
    level = len(series[0].x) - 1
    return f"At severity {level}, mean accuracy ranges from {worst[least]:.3f} ({least}) to {worst[best]:.3f} ({best})."
