"""Ours beside what was published: the shipped figures of T for the tasks, networks and methods that match.

The numbers are in ``published.csv``. Only figures of a known definition are compared: the calibration error and
the likelihood of several labels were published under definitions of their own, which are compared with ours recomputed
under the same ones (``--as-published``), and the Brier score of several labels is left out.
"""

from __future__ import annotations

import csv
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from dubio.reporting.aggregate import Cell, aggregate
from dubio.reporting.manifest_view import TaskView
from dubio.reporting.measures import HEADLINE, detection_name
from dubio.reporting.results import Results
from dubio.reporting.standing import title_of
from dubio.reporting.style import styles_of
from dubio.reporting.tables import ARROWS, Column, FilledColumn, Table, TableCell, method_table, score_column
from dubio.reporting.wording import counted, listed, term

CLOSE = 0.02
"""Differences up to this count as agreement."""

SOURCE = (
    "J. Van Landeghem, M. Blaschko, B. Anckaert and M.-F. Moens (2022), Benchmarking Scalable Predictive Uncertainty "
    "in Text Classification, IEEE Access 10"
)

METRICS = ("accuracy", "ood_auroc", "nll", "brier", "ece")


@dataclass(frozen=True)
class Figure:
    """One published number; ``runs`` is 0 where it is not told over how many."""

    task: str
    network: str
    classes: int
    setting: str
    method: str
    metric: str
    value: float
    std: float | None
    runs: int


@dataclass(frozen=True)
class Agreement:
    """A published number beside ours."""

    published: Figure
    ours: Cell
    better: str

    @property
    def difference(self) -> float:
        """Ours minus theirs."""
        return self.ours.mean - self.published.value

    @property
    def outcome(self) -> str:
        """Within :data:`CLOSE`, or better or worse than that."""
        if abs(self.difference) <= CLOSE:
            return "within"
        return "better" if (self.difference > 0) == (self.better == "higher") else "worse"


@cache
def published_figures() -> tuple[Figure, ...]:
    """Every shipped number."""
    text = (files("dubio.studies.text") / "published.csv").read_text(encoding="utf-8")
    rows = csv.DictReader(line for line in text.splitlines() if not line.startswith("#"))
    return tuple(
        Figure(
            row["task"],
            row["network"],
            int(row["classes"]),
            row["setting"],
            row["method"],
            row["metric"],
            float(row["value"]),
            float(row["std"]) if row["std"] else None,
            int(row["runs"] or 0),
        )
        for row in rows
    )


def agreements(results: Results, task: TaskView) -> tuple[Agreement, ...]:
    """The published numbers of a task that can be compared, each with ours."""
    as_published = aggregate(results.as_published)
    found = []
    for figure in published_figures():
        key = figure.task, figure.network, figure.classes
        if key != (task.name, task.network, len(task.classes)):
            continue
        for split, metric in _ours(task, figure):
            cell = (results.cells | as_published).get((task.key, split, figure.method, metric))
            if cell is not None and cell.n:
                found.append(
                    Agreement(figure, cell, "higher" if figure.metric in ("accuracy", "ood_auroc") else "lower")
                )
    return tuple(found)


def _ours(task: TaskView, figure: Figure) -> list[tuple[str, str]]:
    """(split, metric) of ours that a published number is to be compared with."""
    if figure.setting == "novelty":
        return [(split.name, detection_name("ood_auroc", HEADLINE)) for split in task.of_kind("ood")]
    home, several = task.of_kind("id")[0].name, task.target == "multilabel"
    if figure.metric == "brier" and several:
        return []
    renamed = figure.metric == "ece" or (figure.metric == "nll" and several)
    return [(home, f"{figure.metric}_as_published" if renamed else figure.metric)]


def agreement_grid(results: Results, task: TaskView) -> Table | None:
    """Ours, theirs and the difference, metric by metric; None where nothing matches."""
    found = agreements(results, task)
    if not found:
        return None
    columns = []
    for metric in METRICS:
        some = {each.published.method: each for each in found if each.published.metric == metric}
        if some:
            columns += _columns(metric, some)
    methods = [m for m in results.methods_of(task) if any(each.published.method == m.name for each in found)]
    caption = f"Difference: ours minus published; shaded: at most {CLOSE} apart"
    return method_table(methods, columns, styles_of(results.manifest.methods), caption=caption)


def _columns(metric: str, found: dict[str, Agreement]) -> list[FilledColumn]:
    # T counts in 100 bins, the other tables here in 15: the same name must not stand for both
    title = "ECE, 100 bins" if metric == "ece" else term(metric).title
    arrow = ARROWS[next(iter(found.values())).better]
    theirs = {
        name: TableCell(
            f"{each.published.value:.3f}",
            f"± {each.published.std:.3f}" if each.published.std is not None else "",
            f"{each.published.value}",
            "unranked",
        )
        for name, each in found.items()
    }
    apart = {
        name: TableCell(
            f"{each.difference:+.3f}".replace("-", "−"),
            each.outcome,
            f"{each.difference:.9g}",
            "tied" if each.outcome == "within" else "",
        )
        for name, each in found.items()
    }
    return [
        score_column(
            Column(title, "ours", arrow, unranked=True), {name: each.ours for name, each in found.items()}, places=3
        ),
        FilledColumn(Column(title, "published", arrow, unranked=True), theirs),
        FilledColumn(Column(title, "difference"), apart),
    ]


def agreement_words(results: Results, task: TaskView) -> str:
    """How many numbers agree, in a sentence a metric."""
    told = []
    found = agreements(results, task)
    for metric in METRICS:
        some = [each for each in found if each.published.metric == metric]
        if not some:
            continue
        near = sum(each.outcome == "within" for each in some)
        text = f"{term(metric).title}: {near} of {counted(len(some), 'method')} within {CLOSE}"
        for outcome in ("better", "worse"):
            names = [title_of(results, each.published.method) for each in some if each.outcome == outcome]
            text += f", {outcome} with {listed(names)}" if names else ""
        told.append(f"{text}.")
    return " ".join(told)
