"""Where methods stand on one test set, and how two of them compare: the numbers that sentences are made of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import isfinite

from dubio.reporting.aggregate import Cell, average_over, cell_text, decimals
from dubio.reporting.manifest_view import TaskView
from dubio.reporting.results import Results
from dubio.reporting.wording import term, told_apart_in_digits
from dubio.statistics.verdicts import Losses, Verdict, against_best, pair_verdict


@dataclass(frozen=True, eq=False)
class Standing:
    """All methods on one test set under one metric.

    Attributes:
        where: What the test set is called in a sentence.
        metric: The metric.
        cells: Method → its cell, of those with a finite mean, best first.
        verdicts: Method → where it stands against the best.
        losses: Per-example losses, where the metric has them.
    """

    where: str
    metric: str
    cells: Mapping[str, Cell]
    verdicts: Mapping[str, Verdict]
    losses: Mapping[str, Losses] | None

    @property
    def order(self) -> tuple[str, ...]:
        """Methods, the best mean first."""
        return tuple(self.cells)

    @property
    def judged(self) -> bool:
        """Whether every difference can be judged."""
        return all(verdict.place != "unjudged" for verdict in self.verdicts.values())

    @property
    def among_the_best(self) -> frozenset[str]:
        """The best and all that cannot be told from it."""
        return frozenset(name for name, verdict in self.verdicts.items() if verdict.place in ("best", "tied"))

    def told(self, name: str) -> str:
        """A method's value with its spread."""
        return cell_text(self.cells[name], decimals(self.cells.values()))


def standing(
    results: Results, task: TaskView, splits: Sequence[str], metric: str, *, where: str, among: Sequence[str] = ()
) -> Standing | None:
    """Where methods stand on a split, or on several taken together; None where no method has a value.

    Args:
        results: What was scored.
        task: The task.
        splits: One split, or the severities of one corruption.
        metric: The metric; one that must not rank gives None.
        where: What to call the test set.
        among: The methods to look at, judged as strictly as among all; all of them by default.
    """
    if metric in results.not_ranked or metric not in results.better:
        return None
    better = results.better[metric]
    names = [m.name for m in results.methods_of(task)]
    averaged = {name: average_over(results.cells, task.key, splits, name, metric) for name in names}
    known = {name: cell for name, cell in averaged.items() if cell is not None and cell.n and isfinite(cell.mean)}
    shown = {name: cell for name, cell in known.items() if not among or name in among}
    if not shown:
        return None
    sign = 1.0 if better == "lower" else -1.0
    cells = dict(sorted(shown.items(), key=lambda item: sign * item[1].mean))
    losses = (results.losses_of(task, splits[0], metric) if len(splits) == 1 else {}) or None
    return Standing(where, metric, cells, against_best(known, better, losses, results.kin, among), losses)


def compared(results: Results, found: Standing, pair: tuple[str, str]) -> Verdict | None:
    """How the first of two methods stands against the second; None where one has no value."""
    if not all(name in found.cells for name in pair):
        return None
    return pair_verdict(found.cells, results.better[found.metric], pair, found.losses, results.kin)


def title_of(results: Results, name: str) -> str:
    """What a method is called."""
    return next((method.title for method in results.manifest.methods if method.name == name), name)


def metric_words(metric: str) -> str:
    """A metric within a sentence: ``calibrated NLL``, ``AUROC``."""
    base, _, told = metric.partition("(")
    title = term(base).title
    shown = title if title[:2].isupper() or title == "Brier" else title[:1].lower() + title[1:]
    quantity = told.removesuffix(")").removeprefix("quantity=").strip('"').replace("_", " ")
    return f"{shown} by {quantity}" if quantity else shown


def verdict_words(verdict: Verdict) -> str:
    """Whether two methods are told apart, with the numbers behind it."""
    if verdict.resolves is None:
        return f"not judged: {abs(verdict.difference):.2g} apart, and there is no spread over runs to judge by"
    apart, resolves = told_apart_in_digits(abs(verdict.difference), verdict.resolves)
    if verdict.place == "tied":
        return f"not distinguishable: {apart} apart, where {resolves} would be resolved"
    return f"distinguishable: {apart} apart, and {resolves} would have been enough"
