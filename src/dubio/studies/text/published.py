"""Our numbers beside those of T, for the tasks, networks and methods that match, and its conclusions.

The numbers are in ``published.csv``. Only numbers with a known definition are compared: the calibration error and the
likelihood of several labels were published under definitions of their own, and are compared with ours under the same
definitions (``--as-published``); the Brier score of several labels is left out.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from dubio.core.types import Direction
from dubio.reporting.claims import claim_blocks
from dubio.reporting.manifest_view import TaskView
from dubio.reporting.measures import HEADLINE, detection_name
from dubio.reporting.run_view import RunView
from dubio.reporting.score_table import aggregate
from dubio.reporting.section import Block, Headline, Section, Text, section
from dubio.reporting.tables import ARROWS, Column, FilledColumn, Table, method_table, score_column
from dubio.reporting.wording import counted, listed, term
from dubio.studies.published_numbers import Agreement, PublishedNumber, published_numbers
from dubio.studies.text.claims import claims

CLOSE = 0.02
"""Differences up to this count as agreement."""

SOURCE = (
    "J. Van Landeghem, M. Blaschko, B. Anckaert and M.-F. Moens (2022), Benchmarking Scalable Predictive Uncertainty "
    "in Text Classification, IEEE Access 10"
)

METRICS = ("accuracy", "ood_auroc", "nll", "brier", "ece")


@section("paper", part="closing", order=20)
class Paper(Section):
    """Agreement with T: its numbers beside ours, and its conclusions tested."""

    title = "Agreement with the paper"

    def blocks(self, run: RunView, task: TaskView | None) -> Iterator[Block]:
        """Yield numbers and claims; nothing without a text task."""
        tasks = tuple(each for each in run.tasks if each.inputs == "text" and run.methods_of(each))
        if not tasks:
            return
        yield Text(f"{SOURCE}.", "small")
        for each in tasks:
            table = agreement_table(run, each)
            if table is not None:
                yield Headline(f"{each.key}: ours and published")
                yield table
                yield Text(agreement_sentence(run, each), "small")
        texts = replace(run, manifest=replace(run.manifest, tasks=tasks))
        yield from claim_blocks(claims(texts), "Its conclusions, tested here")


def agreements(run: RunView, task: TaskView) -> tuple[Agreement, ...]:
    """Return the published numbers of a task that can be compared, each with ours."""
    cells = {**run.scores.cells, **aggregate(run.extra_scores)}
    found = []
    for number in published_numbers("text"):
        key = number.task, number.network, number.classes
        if key != (task.name, task.network, len(task.classes)):
            continue
        for split, metric in _ours(task, number):
            cell = cells.get((task.key, split, number.method, metric))
            if cell is not None and cell.n:
                better: Direction = "higher" if number.metric in ("accuracy", "ood_auroc") else "lower"
                found.append(Agreement(number, cell, CLOSE, better))
    return tuple(found)


def _ours(task: TaskView, number: PublishedNumber) -> list[tuple[str, str]]:
    """Return (split, metric) of ours that a published number is compared with."""
    if number.setting == "novelty":
        return [(split.name, detection_name("ood_auroc", HEADLINE)) for split in task.of_kind("ood")]
    inside, several = task.in_domain.name, task.target == "multilabel"
    if number.metric == "brier" and several:
        return []
    renamed = number.metric == "ece" or (number.metric == "nll" and several)
    return [(inside, f"{number.metric}_as_published" if renamed else number.metric)]


def agreement_table(run: RunView, task: TaskView) -> Table | None:
    """Return ours, the published value and the difference, metric by metric; None where nothing matches."""
    found = agreements(run, task)
    if not found:
        return None
    columns = []
    for metric in METRICS:
        some = {each.published.method: each for each in found if each.published.metric == metric}
        if some:
            columns += _columns(metric, some)
    methods = [m for m in run.methods_of(task) if any(each.published.method == m.name for each in found)]
    caption = f"Difference: ours minus published; shaded: at most {CLOSE} apart"
    return method_table(methods, columns, run.styles, caption=caption)


def _columns(metric: str, found: dict[str, Agreement]) -> list[FilledColumn]:
    # T counts in 100 bins, the other tables here in 15: the same name must not stand for both
    title = "ECE, 100 bins" if metric == "ece" else term(metric).title
    arrow = ARROWS[next(iter(found.values())).better]
    beside = {name: each.cells(3) for name, each in found.items()}
    return [
        score_column(
            Column(title, "ours", arrow, unranked=True), {name: each.ours for name, each in found.items()}, places=3
        ),
        FilledColumn(
            Column(title, "published", arrow, unranked=True), {name: pair[0] for name, pair in beside.items()}
        ),
        FilledColumn(Column(title, "difference"), {name: pair[1] for name, pair in beside.items()}),
    ]


def agreement_sentence(run: RunView, task: TaskView) -> str:
    """Return how many numbers agree, one sentence per metric."""
    sentences = []
    found = agreements(run, task)
    for metric in METRICS:
        some = [each for each in found if each.published.metric == metric]
        if not some:
            continue
        near = sum(each.outcome == "within" for each in some)
        text = f"{term(metric).title}: {near} of {counted(len(some), 'method')} within {CLOSE}"
        for outcome in ("better", "worse"):
            names = [run.title(each.published.method) for each in some if each.outcome == outcome]
            text += f", {outcome} with {listed(names)}" if names else ""
        sentences.append(f"{text}.")
    return " ".join(sentences)
