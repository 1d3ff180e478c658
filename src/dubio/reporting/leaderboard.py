"""Leaderboards: all methods on one test set under one metric, best first, and sentences about their differences."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import isfinite, isinf

from dubio.reporting.manifest_view import TaskView
from dubio.reporting.measures import RANKED_BY
from dubio.reporting.run_view import RunView
from dubio.reporting.score_table import Cell, cell_text, decimals
from dubio.reporting.wording import enough_digits, listed, term
from dubio.statistics.learning import Learned
from dubio.statistics.limits import excess_limits
from dubio.statistics.verdicts import Pairs, Question, Verdict


@dataclass(frozen=True, eq=False)
class Leaderboard:
    """All methods on one test set under one metric.

    Attributes:
        task: The task's key.
        splits: The split of the test set, or several that are averaged.
        test_set: What the test set is called in a sentence.
        metric: The metric.
        cells: Method → its cell, of those with a finite mean, best first.
        verdicts: Method → its verdict against the best.
        pairs: Every pair of methods, those that are not shown among them.
    """

    task: str
    splits: tuple[str, ...]
    test_set: str
    metric: str
    cells: Mapping[str, Cell]
    verdicts: Mapping[str, Verdict]
    pairs: Pairs

    @property
    def order(self) -> tuple[str, ...]:
        """Methods, the best mean first."""
        return tuple(self.cells)

    @property
    def judged(self) -> bool:
        """Whether every difference can be judged."""
        return all(verdict.place != "unjudged" for verdict in self.verdicts.values())

    @property
    def tied(self) -> tuple[str, ...]:
        """The methods that are not significantly different from the best."""
        return tuple(name for name in self.order if self.verdicts[name].place == "tied")

    @cached_property
    def limits(self) -> dict[str, float]:
        """Method → the simultaneous upper limit of how much worse than the best of these it may be, where judged."""
        return excess_limits(self.pairs, self.cells) if len(self.cells) > 1 else dict.fromkeys(self.cells, 0.0)

    def same_as(self, name: str) -> tuple[str, ...]:
        """Return the other methods that make the same predictions as this one."""
        return tuple(other for other in self.order if other != name and self.pairs.same(name, other))

    def of(self, names: Collection[str]) -> Leaderboard:
        """Return the leaderboard of some of its methods."""
        cells = {name: cell for name, cell in self.cells.items() if name in names}
        return replace(self, cells=cells, verdicts=self.pairs.against_best(cells))

    def verdict(self, first: str, second: str) -> Verdict | None:
        """Return the verdict of one method against another; None where one has no value."""
        return self.pairs.verdict(first, second) if {first, second} <= self.cells.keys() else None

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
        metric: The metric; None is returned for one that must not, or cannot, rank.
        test_set: What to call the test set.
        among: The methods to show, all by default; variances and the significance level stay those of all methods.
    """
    scores = run.scores
    if not scores.ranks(metric, task):
        return None
    pairs = scores.pairs(task, splits, metric)
    row = run.manifest.simplest_first(scores.ranked_row(task, splits, metric))
    finite = {name: cell for name, cell in row.items() if cell.n and isfinite(cell.mean)}
    shown = {name: cell for name, cell in finite.items() if not among or name in among}
    if not shown:
        return None
    sign = 1.0 if pairs.better == "lower" else -1.0
    cells = dict(sorted(shown.items(), key=lambda item: sign * item[1].mean))
    return Leaderboard(task.key, tuple(splits), test_set, metric, cells, pairs.against_best(cells), pairs)


def in_domain_leaderboard(run: RunView, task: TaskView, metric: str, among: Sequence[str] = ()) -> Leaderboard | None:
    """Return the methods on a task's in-domain test set."""
    noun = "labels" if task.target == "multilabel" else "classes"
    name = f"{task.key} ({len(task.classes)} {noun})"
    return leaderboard(run, task, (task.in_domain.name,), metric, test_set=name, among=among)


def leader(run: RunView, task: TaskView) -> str | None:
    """Return the method with the lowest calibrated NLL among those that may be ranked; None where it cannot rank."""
    if not run.scores.ranks(RANKED_BY, task):
        return None
    row = run.manifest.simplest_first(run.scores.ranked_row(task, task.in_domain.name, RANKED_BY))
    cells = {name: cell for name, cell in row.items() if cell.n}
    return min(cells, key=lambda name: cells[name].mean) if cells else None


QUESTIONS: dict[Question, str] = {
    "methods": "The question is whether methods differ, given training set and split.",
    "systems": "The question is whether these trained systems differ: test examples vary, trainings are fixed.",
}
"""What every verdict of a report is about, on the page and in a terminal."""

NOT_RANKED: dict[Learned, str] = {
    "no evidence": "no evidence of learning (no significant gain in likelihood over the class frequencies)",
    "constant": "the same prediction for every example",
    "hardly": "hardly better than class frequencies (upper limit of the gain in likelihood below {margin:.2g})",
}


def not_ranked_sentences(run: RunView, task: TaskView) -> list[str]:
    """Return which methods are not ranked: hardly better than the class frequencies, or of infinite calibrated NLL."""
    learning = run.scores.learning(task)
    sentences = []
    for learned, why in NOT_RANKED.items():
        names = [run.title(name) for name, evidence in learning.items() if evidence.learned == learned]
        if names:
            margin = max(evidence.margin for evidence in learning.values())
            sentences.append(f"Not ranked, {why.format(margin=margin)}: {listed(names)}.")
    return [*sentences, *not_compared(run, task)]


def not_compared(run: RunView, task: TaskView) -> list[str]:
    """Return which trained systems are not compared by the ranking metric, because one zero makes it infinite."""
    cells = run.scores.ranked_row(task, task.in_domain.name, RANKED_BY) if run.question == "systems" else {}
    names = [run.title(name) for name, cell in cells.items() if isinf(cell.mean)]
    why = "infinite, because a true class has probability zero"
    return [f"Not compared by calibrated NLL ({why}): {listed(names)}."] if names else []


def shifted_leaderboards(run: RunView, kind: str, metric: str) -> list[Leaderboard]:
    """Return the methods on every OOD or shifted test set of a kind."""
    boards = [
        leaderboard(run, task, shifted.splits, metric, test_set=f"{task.key} → {shifted.title}")
        for task in run.tasks
        for shifted in task.test_sets
        if shifted.kind == kind
    ]
    return [board for board in boards if board is not None]


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
        return f"difference {abs(verdict.difference):.2g}; not judged, because one of the two was trained only once"
    difference, smallest = enough_digits(abs(verdict.difference), verdict.resolves)
    significance = "not significantly different" if verdict.place == "tied" else "significantly different"
    return f"{significance}: difference {difference}, smallest detectable difference {smallest}"
