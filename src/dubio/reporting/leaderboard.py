"""Leaderboards: all methods on one test set under one metric, best first, and sentences about their differences."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import isfinite

from dubio.reporting.manifest_view import TaskView
from dubio.reporting.measures import RANKED_BY
from dubio.reporting.run_view import RunView
from dubio.reporting.score_table import Cell, cell_text, decimals
from dubio.reporting.wording import enough_digits, term
from dubio.statistics.verdicts import Losses, Verdict, against_best, pair_verdict


@dataclass(frozen=True, eq=False)
class Leaderboard:
    """All methods on one test set under one metric.

    Attributes:
        test_set: What the test set is called in a sentence.
        metric: The metric.
        cells: Method → its cell, of those with a finite mean, best first.
        verdicts: Method → its verdict against the best.
        losses: Per-example losses, where the metric has them.
    """

    test_set: str
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
        """The best method and all that are not significantly different from it."""
        return frozenset(name for name, verdict in self.verdicts.items() if verdict.place in ("best", "tied"))

    def value(self, name: str) -> str:
        """Return a method's value with its spread."""
        return cell_text(self.cells[name], decimals(self.cells.values()))


def leaderboard(
    run: RunView, task: TaskView, splits: Sequence[str], metric: str, *, test_set: str, among: Sequence[str] = ()
) -> Leaderboard | None:
    """Return the methods on a split, or on several averaged; None where no method has a value.

    Args:
        run: The benchmark run.
        task: The task.
        splits: One split, or the severities of one corruption.
        metric: The metric; None is returned for one that must not rank.
        test_set: What to call the test set.
        among: The methods to show, all by default; variances and the significance level stay those of all methods.
    """
    scores = run.scores
    if not scores.ranks(metric):
        return None
    averaged = {m.name: scores.average(task, splits, m.name, metric) for m in run.methods_of(task)}
    finite = {name: cell for name, cell in averaged.items() if cell is not None and cell.n and isfinite(cell.mean)}
    shown = {name: cell for name, cell in finite.items() if not among or name in among}
    if not shown:
        return None
    sign = 1.0 if scores.better[metric] == "lower" else -1.0
    cells = dict(sorted(shown.items(), key=lambda item: sign * item[1].mean))
    losses = scores.losses(task, splits, metric) or None
    verdicts = against_best(finite, scores.better[metric], losses, scores.variance_groups, among)
    return Leaderboard(test_set, metric, cells, verdicts, losses)


def in_domain_leaderboard(run: RunView, task: TaskView, metric: str, among: Sequence[str] = ()) -> Leaderboard | None:
    """Return the methods on a task's in-domain test set."""
    noun = "labels" if task.target == "multilabel" else "classes"
    name = f"{task.key} ({len(task.classes)} {noun})"
    return leaderboard(run, task, (task.in_domain.name,), metric, test_set=name, among=among)


def leader(run: RunView, task: TaskView) -> str | None:
    """Return the method with the lowest calibrated NLL."""
    cells = {name: c for name, c in run.scores.row(task, task.in_domain.name, RANKED_BY).items() if c.n}
    return min(cells, key=lambda name: cells[name].mean) if cells else None


def shifted_leaderboards(run: RunView, kind: str, metric: str) -> list[Leaderboard]:
    """Return the methods on every OOD or shifted test set of a kind."""
    boards = [
        leaderboard(run, task, shifted.splits, metric, test_set=f"{task.key} → {shifted.title}")
        for task in run.tasks
        for shifted in task.test_sets
        if shifted.kind == kind
    ]
    return [board for board in boards if board is not None]


def compared(run: RunView, board: Leaderboard, pair: tuple[str, str]) -> Verdict | None:
    """Return the verdict of the first of two methods against the second; None where one has no value."""
    if not all(name in board.cells for name in pair):
        return None
    return pair_verdict(board.cells, run.scores.better[board.metric], pair, board.losses, run.scores.variance_groups)


def metric_phrase(metric: str) -> str:
    """Return a metric as it is written within a sentence: ``calibrated NLL``, ``AUROC by confidence``."""
    base, _, options = metric.partition("(")
    title = term(base).title
    phrase = title if title[:2].isupper() or title == "Brier" else title[:1].lower() + title[1:]
    quantity = options.removesuffix(")").removeprefix("quantity=").strip('"').replace("_", " ")
    return f"{phrase} by {quantity}" if quantity else phrase


def verdict_phrase(verdict: Verdict) -> str:
    """Return whether two methods differ significantly, with the numbers behind it."""
    if verdict.resolves is None:
        return f"difference {abs(verdict.difference):.2g}; not judged, because there is no spread over runs"
    difference, smallest = enough_digits(abs(verdict.difference), verdict.resolves)
    significance = "not significantly different" if verdict.place == "tied" else "significantly different"
    return f"{significance}: difference {difference}, smallest detectable difference {smallest}"
