"""Our numbers beside those of T, for the tasks, networks and methods that match, and its conclusions.

The numbers are in ``published.csv``. Only numbers with a known definition are compared: the calibration error and the
likelihood of several labels were published under definitions of their own, and are compared with ours under the same
definitions (``--as-published``); the Brier score of several labels is left out.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from dubio.metrics.metric import PUBLISHED, metric_named
from dubio.reporting.claims import claim_blocks
from dubio.reporting.manifest_view import TaskView
from dubio.reporting.measures import HEADLINE, detection_name
from dubio.reporting.run_view import RunView
from dubio.reporting.score_table import aggregate
from dubio.reporting.section import Block, Headline, Section, Text, section
from dubio.reporting.tables import ARROWS, Column, FilledColumn, Table, method_table, score_column
from dubio.reporting.wording import counted, listed, term
from dubio.studies.published_numbers import Agreement, PublishedNumber, paper_of, published_numbers
from dubio.studies.text.claims import claims

CLOSE = 0.02
"""Differences up to this, or to the published standard deviation where it is larger, count as agreement."""

METRICS = ("accuracy", "ood_auroc", "nll", "brier", "ece")
SIDES = ("ours", "published")


@section("paper", part="closing", order=20)
class Paper(Section):
    """Agreement with T: its numbers beside ours, and its conclusions tested."""

    title = "Agreement with the paper"

    def blocks(self, run: RunView, task: TaskView | None) -> Iterator[Block]:
        """Yield numbers and claims; nothing without a text task, and nothing about a user's own texts."""
        texts = (task for task in run.tasks if task.inputs == "text" and not task.is_own)
        tasks = tuple(task for task in texts if run.methods_of(task))
        if not tasks:
            return
        yield Text(f"{paper_of('text')['source']}.", "small")
        for text_task in tasks:
            table = agreement_table(run, text_task)
            if table is not None:
                yield Headline(f"{text_task.key}: ours and published")
                yield table
                yield Text(agreement_sentence(run, text_task), "small")
        shown = replace(run, manifest=replace(run.manifest, tasks=tasks))
        yield from claim_blocks(claims(shown), "Its conclusions, tested here")


def agreements(run: RunView, task: TaskView) -> tuple[Agreement, ...]:
    """Return the published numbers of a task that can be compared, each with ours."""
    cells = {**run.scores.cells, **aggregate(run.extra_scores)}
    return tuple(
        Agreement(number, cell, max(CLOSE, number.std or 0.0), metric_named(number.metric).better)
        for number in published_numbers("text")
        if (number.task, number.network, number.classes) == (task.name, task.network, len(task.classes))
        for split, metric in _ours(task, number)
        if (cell := cells.get((task.key, split, number.method, metric))) is not None and cell.n
    )


def _ours(task: TaskView, number: PublishedNumber) -> list[tuple[str, str]]:
    """Return (split, metric) of ours that a published number is compared with."""
    if number.setting == "novelty":
        return [(split.name, detection_name("ood_auroc", HEADLINE)) for split in task.of_kind("ood")]
    several = task.target == "multilabel"
    if number.metric == "brier" and several:
        return []
    renamed = number.metric == "ece" or (number.metric == "nll" and several)
    return [(task.in_domain.name, f"{number.metric}{PUBLISHED}" if renamed else number.metric)]


def _by_metric(run: RunView, task: TaskView) -> dict[str, dict[str, Agreement]]:
    """Return metric → method → agreement, for the metrics that have any."""
    every = agreements(run, task)
    grouped = {metric: {a.published.method: a for a in every if a.published.metric == metric} for metric in METRICS}
    return {metric: compared for metric, compared in grouped.items() if compared}


def agreement_table(run: RunView, task: TaskView) -> Table | None:
    """Return ours, the published value and the difference, metric by metric; None where nothing matches."""
    by_metric = _by_metric(run, task)
    columns = [column for metric, compared in by_metric.items() for column in _columns(metric, compared)]
    methods = [m for m in run.methods_of(task) if any(m.name in compared for compared in by_metric.values())]
    apart = f"at most {CLOSE}, or the published standard deviation, apart"
    caption = f"Difference: ours minus published; within: {apart}, before rounding"
    return method_table(methods, columns, run.styles, caption=caption) if columns else None


def _columns(metric: str, compared: dict[str, Agreement]) -> list[FilledColumn]:
    # T counts in 100 bins, the other tables here in 15: the same name must not stand for both
    title = "ECE, 100 bins" if metric == "ece" else term(metric).title
    ours, published = (Column(title, sub, ARROWS[metric_named(metric).better], unranked=True) for sub in SIDES)
    beside = {name: agreement.cells(3) for name, agreement in compared.items()}
    return [
        score_column(ours, {name: agreement.ours for name, agreement in compared.items()}, places=3),
        FilledColumn(published, {name: pair[0] for name, pair in beside.items()}),
        FilledColumn(Column(title, "difference"), {name: pair[1] for name, pair in beside.items()}),
    ]


def agreement_sentence(run: RunView, task: TaskView) -> str:
    """Return how many numbers agree, one sentence per metric."""
    sentences = []
    for metric, compared in _by_metric(run, task).items():
        near = sum(agreement.outcome == "within" for agreement in compared.values())
        text = f"{term(metric).title}: {near} of {counted(len(compared), 'method')} within"
        for outcome in ("better", "worse"):
            names = [run.title(name) for name, agreement in compared.items() if agreement.outcome == outcome]
            text += f", {outcome} with {listed(names)}" if names else ""
        sentences.append(f"{text}.")
    return " ".join(sentences)
