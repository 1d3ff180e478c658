"""Shifted and OOD test sets: accuracy, detection by every uncertainty, and accuracy against corruption severity."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from dubio.reporting.charts import Series, curve_panels, curves, panels_of, whole_numbers
from dubio.reporting.detectors import detection_on
from dubio.reporting.manifest_view import SplitView, TaskView, TestSet
from dubio.reporting.measures import AT_IN_DOMAIN_TEMPERATURE, GAP, HEADLINE, RANKED_BY, detection_name
from dubio.reporting.run_view import RunView
from dubio.reporting.section import Block, Figure, Section, Text, section
from dubio.reporting.tables import ARROWS, Column, FilledColumn, Table, folded, method_table, score_column
from dubio.reporting.wording import quantity_words, term

if TYPE_CHECKING:
    import altair

DETECTION = ("ood_auroc", "ood_aupr", "id_aupr", "ood_fpr95")
POSITIVE = {"ood_aupr": "OOD or shifted positive", "id_aupr": "in-domain positive"}
"""Which examples an average precision counts as positive."""


@section("shift", order=50)
class Shift(Section):
    """Accuracy and detection on shifted and OOD test sets."""

    title = "Under distribution shift"

    def task_blocks(self, run: RunView, task: TaskView) -> Iterator[Block]:
        """Yield the tables of a task, its severity curves, and further tables on demand."""
        sets = task.test_sets
        if not sets:
            return
        yield Text(
            "Test examples that differ from the training data: novel classes, other sources, corrupted inputs. A "
            "classifier should be less certain on them. Significance of accuracy and of AUROC by confidence includes "
            "the spread over runs and over examples; for other metrics, the spread over runs alone."
        )
        yield summary_table(run, task) if len(sets) > 1 else detection_table(run, task, sets[0])
        sentences = [(s.title, detection_on(run, task, s.splits).sentences(run, run.scores.quantities)) for s in sets]
        if cautions := tuple(f"“{title}”: {text}" for title, texts in sentences for text in texts):
            yield Text(cautions, "warning")
        if task.many_corruptions:
            yield from many_corruptions(run, task)
        elif task.severities:
            yield severity(run, task)
        for shifted in sets:
            title = shifted.title
            if len(sets) > 1:
                yield folded(detection_table(run, task, shifted), f"Detection of {title}")
            yield folded(correlation_table(run, task, shifted), f"Correlation of every uncertainty with {title}")
            yield folded(every_quantity_table(run, task, shifted), f"AUPR and FPR95 of {title} by every uncertainty")

    def document(self, run: RunView) -> dict[str, Any]:
        """Return the AUROC of every method and quantity on every test set, with its interval and outcome."""
        return {
            "detection": [
                {"task": task.key, "test_set": shifted.title, "method": one.method, "quantity": one.quantity,
                 "auroc": one.auroc, "low": one.interval and one.interval.low,
                 "high": one.interval and one.interval.high, "outcome": one.outcome,
                 "question": every.question}
                for task in run.tasks
                for shifted in task.test_sets
                for every in [detection_on(run, task, shifted.splits)]
                for one in every.detectors
            ]
        }  # fmt: skip


def summary_table(run: RunView, task: TaskView) -> Table:
    """Return one detection column per test set, and accuracy where there are labels."""
    shifts = [shifted for shifted in task.test_sets if shifted.kind == "shift"]
    columns = [_detected(run, task, shifted, "ood_auroc", HEADLINE, shifted.title) for shifted in task.test_sets]
    columns += [_column(run, task, shifted, "accuracy", shifted.title) for shifted in shifts]
    columns += [_column(run, task, shifted, GAP, shifted.title, unranked=True) for shifted in shifts]
    graded = "; mean over the severities of a corruption" if task.severities else ""
    caption = f"AUROC of detection by {HEADLINE} (0.5 is chance), accuracy under shift and the accuracy lost{graded}"
    terminal = f"{task.key}, under distribution shift"
    return method_table(run.methods_of(task), columns, run.styles, caption=caption, terminal=terminal)


def detection_table(run: RunView, task: TaskView, shifted: TestSet) -> Table:
    """Return accuracy and detection by confidence on one test set."""
    columns = []
    if shifted.kind == "shift":
        columns.append(_column(run, task, shifted, "accuracy"))
        columns += [_column(run, task, shifted, metric, "not ranked", unranked=True) for metric in (GAP, "nll")]
    columns += [_detected(run, task, shifted, metric, HEADLINE) for metric in DETECTION]
    others = [name for name in run.scores.quantities if name != HEADLINE]
    columns += [_detected(run, task, shifted, "ood_auroc", name) for name in others]
    table = method_table(run.methods_of(task), columns, run.styles, caption=_caption(task, shifted))
    return replace(table, split=shifted.title)


def correlation_table(run: RunView, task: TaskView, shifted: TestSet) -> Table:
    """Return the signed point-biserial correlation of every quantity with being OOD or shifted."""
    quantities = run.scores.quantities
    columns = [_detected(run, task, shifted, "ood_correlation", name, "", quantity_words(name)) for name in quantities]
    caption = f"Correlation of each quantity with being in “{shifted.title}”: confidence should fall, all others rise"
    table = method_table(run.methods_of(task), columns, run.styles, caption=caption)
    return replace(table, split=shifted.title)


def every_quantity_table(run: RunView, task: TaskView, shifted: TestSet) -> Table:
    """Return both average precisions and FPR95 by every quantity."""
    quantities = run.scores.quantities
    columns = [_detected(run, task, shifted, metric, name) for metric in DETECTION[1:] for name in quantities]
    table = method_table(run.methods_of(task), columns, run.styles, caption=_caption(task, shifted))
    return replace(table, split=shifted.title)


def _detected(
    run: RunView, task: TaskView, shifted: TestSet, metric: str, quantity: str, sub: str | None = None, title: str = ""
) -> FilledColumn:
    """Return a detection metric by a quantity; below its title stands the quantity, or another text."""
    positive = f", {POSITIVE[metric]}" if metric in POSITIVE else ""
    name, sub = detection_name(metric, quantity), f"{quantity_words(quantity)}{positive}" if sub is None else sub
    return _column(run, task, shifted, name, sub, title or ("AUPR" if positive else term(metric).title))


def _column(
    run: RunView, task: TaskView, shifted: TestSet, metric: str, sub: str = "", title: str = "", unranked: bool = False
) -> FilledColumn:
    """Return a metric on a test set, the mean over severities of a corruption."""
    arrow, note = ARROWS[run.scores.better[metric]], term(metric).note
    head = Column(title or term(metric).title, sub, arrow, note, unranked, metric=metric, split=shifted.title)
    verdicts = run.scores.verdicts(task, shifted.splits, metric) or None
    return score_column(head, run.scores.row(task, shifted.splits, metric), verdicts, places=3)


def _caption(task: TaskView, shifted: TestSet) -> str:
    inside, severities = task.in_domain.examples, len(shifted.splits)
    outside = next(split.examples for split in task.splits if split.name == shifted.splits[0])
    name = f"{shifted.title}: mean over {severities} severities, each" if severities > 1 else f"{shifted.title}:"
    share = outside / (inside + outside)
    return (
        f"{name} {outside:,} examples against {inside:,} in-domain ones; AUPR by chance: {share:.2f} with OOD or "
        f"shifted examples positive, {1 - share:.2f} with in-domain ones"
    )


def severity_series(
    run: RunView, task: TaskView, families: Sequence[Sequence[SplitView]], metric: str, in_domain_metric: str = ""
) -> list[Series]:
    """Return one series per method over severities, each run's mean over corruption families.

    Args:
        run: The benchmark run.
        task: The task.
        families: The splits of each family, mildest first; severity 0 is the in-domain test set.
        metric: The metric under corruption.
        in_domain_metric: The metric at severity 0, where it is another one.
    """
    levels = [([task.in_domain.name], in_domain_metric or metric)]
    levels += [([split.name for split in splits], metric) for splits in zip(*families, strict=False)]
    series = []
    for method in run.methods_of(task):
        cells = [run.scores.average(task, splits, method.name, name) for splits, name in levels]
        table = np.full((max(cell.n if cell else 0 for cell in cells), len(levels)), np.nan)
        for column, cell in enumerate(cells):
            if cell is not None:
                table[: cell.n, column] = cell.values
        series.append(Series(run.styles[method.name], np.arange(float(len(levels))), table))
    return series


SEVERITY_CAPTION = (
    "Severity 0 is the in-domain test set. Bands are one standard deviation over runs. NLL is at temperature 1, "
    "because a deployed model is not recalibrated when its inputs get worse."
)


def severity(run: RunView, task: TaskView) -> Figure:
    """Return accuracy and NLL against severity, one column per corruption."""
    panels = {
        label: {base: severity_series(run, task, [splits], metric) for base, splits in task.severities.items()}
        for label, metric in (("accuracy", "accuracy"), ("NLL", "nll"))
    }
    title = "Accuracy and NLL against corruption severity"
    return Figure("severity", title, SEVERITY_CAPTION, partial(severity_chart, panels))


def severity_chart(panels: Mapping[str, Mapping[str, Sequence[Series]]]) -> altair.VConcatChart:
    """Return one row per metric against severity, one column per corruption: label of a row → corruption → series."""
    import altair

    rows = [families_chart(families, label) for label, families in panels.items()]
    return altair.VConcatChart(vconcat=rows)


def families_chart(families: Mapping[str, Sequence[Series]], label: str) -> altair.FacetChart:
    """Return a metric against severity, one panel per corruption family."""
    styles = [series.style for series in next(iter(families.values()))]
    rows = [row for family, lines in families.items() for series in lines for row in series.rows(panel=family)]
    levels = whole_numbers(row["x"] for row in rows)
    return panels_of(curves(rows, styles, x="severity", y=label, x_axis=levels), "panel", list(families))


AVERAGED: Mapping[str, tuple[str, str]] = {
    "Accuracy": ("accuracy", "accuracy"),
    "NLL at in-domain temperature": (AT_IN_DOMAIN_TEMPERATURE, RANKED_BY),
    "ECE (does not rank)": ("ece", "ece"),
}
"""Title → the metric under corruption, and the one at severity 0."""

AVERAGED_CAPTION = (
    "Mean over {families} corruption families; severity 0 is the in-domain test set. Bands are one standard deviation "
    "over runs. NLL is at the temperature fitted in-domain, because a deployed model is not recalibrated when its "
    "inputs get worse. dubio computes the corruptions itself; they are not those of published benchmarks."
)
FAMILIES_CAPTION = (
    "Accuracy against severity, one panel per corruption; severity 0 is the in-domain test set. Bands are one standard "
    "deviation over runs."
)


def many_corruptions(run: RunView, task: TaskView) -> Iterator[Figure]:
    """Yield the mean over corruption families, then every family on demand."""
    families, panels = task.severities, {}
    for title, metrics in AVERAGED.items():
        series = severity_series(run, task, list(families.values()), *metrics)
        panels[title] = [one for one in series if np.isfinite(one.runs[:, 1:]).any()]
    if not panels["Accuracy"]:
        return
    caption, reading = AVERAGED_CAPTION.format(families=len(families)), worst_severity(panels["Accuracy"])
    averaged = partial(curve_panels, panels, x="severity")
    yield Figure("severity", "Scores against corruption severity", caption, averaged, reading=reading)
    by_family = {base: severity_series(run, task, [splits], "accuracy") for base, splits in families.items()}
    chart = partial(families_chart, by_family, "accuracy")
    yield Figure("severity-each", "Accuracy under every corruption", FAMILIES_CAPTION, chart, folded=True)


def worst_severity(series: Sequence[Series]) -> str:
    """Return the highest and the lowest mean accuracy at the worst severity."""
    worst = {one.style.title: float(one.mean[-1]) for one in series if np.isfinite(one.mean[-1])}
    if len(worst) < 2:
        return ""
    best, least = max(worst, key=worst.__getitem__), min(worst, key=worst.__getitem__)
    level = len(series[0].x) - 1
    return f"At severity {level}, mean accuracy ranges from {worst[least]:.3f} ({least}) to {worst[best]:.3f} ({best})."
