"""Which method for your problem? Advice computed from the results.

Every piece of advice belongs to a situation (few or many classes, several labels, little memory or time, novelty,
shift), names the test sets that are evidence for it, and follows the report's own verdicts. Without such a test set
there is no advice; where the data do not decide, it says so.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from math import inf, isfinite
from typing import Any

from dubio.reporting.leaderboard import (
    Leaderboard,
    in_domain_leaderboard,
    leaderboard,
    metric_phrase,
    shifted_leaderboards,
    verdict_phrase,
)
from dubio.reporting.manifest_view import TaskView, TestSet
from dubio.reporting.measures import DETECTED_BY, HEADLINE, RANKED_BY, detection_name
from dubio.reporting.run_view import RunView
from dubio.reporting.section import Block, Card, Cards, Section, Text, section
from dubio.reporting.wording import counted, listed
from dubio.statistics.verdicts import compare_means

MANY = 20
"""A task with at least this number of classes has many."""


@dataclass(frozen=True)
class Advice:
    """Advice on a situation: the conclusion, and one sentence for each test set that supports it."""

    circumstance: str
    conclusion: str
    evidence: tuple[str, ...]


@section("advice", part="opening", order=20)
class Advising(Section):
    """Advice by situation."""

    title = "Which method for your problem?"

    def blocks(self, run: RunView, task: TaskView | None) -> Iterator[Block]:
        """Yield one card per situation."""
        cards = tuple(Card(item.circumstance, (item.conclusion,), item.evidence) for item in advice(run))
        if cards:
            yield Text(
                "Advice by situation. Of methods that are not significantly different, the cheaper is as good a choice."
            )
            yield Cards(cards)

    def document(self, run: RunView) -> dict[str, Any]:
        """Return every piece of advice."""
        return {"advice": [vars(item) for item in advice(run)]}


def advice(run: RunView) -> tuple[Advice, ...]:
    """Return all advice that these results support."""
    labels = [task for task in _tasks(run) if task.target == "multilabel"]
    few, many = (
        [task for task in _tasks(run) if task not in labels and (len(task.classes) >= MANY) == large]
        for large in (False, True)
    )
    single = [method for method in run.methods if not method.ensemble]
    auroc = detection_name("ood_auroc", HEADLINE)
    items = (
        _advice(run, f"Few classes (fewer than {MANY})", _boards(run, few)),
        _advice(run, f"Many classes (at least {MANY})", _boards(run, many)),
        _advice(run, "Several labels per example", _boards(run, labels)),
        _limited(run, "Little memory or training time: one training", [m.name for m in single], _size),
        _limited(run, "Low latency: one network, one pass", [m.name for m in single if not m.samples], _speed),
        _advice(run, "Novel classes may occur: detect them", shifted_leaderboards(run, "ood", auroc)),
        _quantity(run),
        _advice(run, "Inputs may shift: stay accurate", shifted_leaderboards(run, "shift", "accuracy")),
        _advice(run, "Inputs may shift: detect it", shifted_leaderboards(run, "shift", auroc)),
    )
    return tuple(item for item in items if item is not None)


def _boards(run: RunView, tasks: Sequence[TaskView]) -> list[Leaderboard]:
    return [board for task in tasks if (board := in_domain_leaderboard(run, task, RANKED_BY)) is not None]


def _advice(run: RunView, situation: str, boards: Sequence[Leaderboard]) -> Advice | None:
    contests = [board for board in boards if len(board.cells) > 1]
    if not contests:
        return None
    return Advice(situation, conclusion(run, contests), tuple(leading_two(run, board) for board in contests))


def leading_two(run: RunView, board: Leaderboard) -> str:
    """Return the best two methods of a test set, and whether they differ significantly."""
    best, second = board.order[:2]
    return (
        f"{board.test_set}: best {metric_phrase(board.metric)} with {run.title(best)}, {board.value(best)}; next "
        f"{run.title(second)}, {board.value(second)} ({verdict_phrase(board.verdicts[second])})."
    )


def conclusion(run: RunView, boards: Sequence[Leaderboard]) -> str:
    """Return the cheapest method that is never significantly worse than the best, if there is one."""
    if not all(board.judged for board in boards):
        often, count = _most_frequent(board.order[0] for board in boards)
        return (
            f"{run.title(often)} has the best mean on {count} of {len(boards)} test sets, but with one run per method "
            "differences cannot be judged: these data do not decide."
        )
    once = {name for board in boards for name, cell in board.cells.items() if cell.n == 1}
    caution = f" {counted(len(once), 'method').capitalize()} ran once: the spread over runs is not known."
    return _choice(run, boards) + (caution if once else "")


def _choice(run: RunView, boards: Sequence[Leaderboard]) -> str:
    sets = {1: "on this test set", 2: "on both test sets"}.get(len(boards), f"on all {len(boards)} test sets")
    safe = frozenset.intersection(*(board.among_the_best for board in boards))
    if not safe:
        leaders = list(dict.fromkeys(run.title(board.order[0]) for board in boards))
        return f"No method is among the best {sets}: it depends on the data. Best on some: {listed(leaders)}."
    cheap = cheapest(run, safe, boards)
    price = f" ({counted(int(_trainings(run, cheap)), 'training')})" if isfinite(_trainings(run, cheap)) else ""
    choice = f"{run.title(cheap)}{price}"
    if safe == frozenset.intersection(*(frozenset(board.cells) for board in boards)):
        return f"No significant differences between methods {sets}. Take the cheapest, {choice}."
    others = [run.title(name) for name in boards[0].order if name in safe and name != cheap]
    also = f" The same holds for {listed(others)}." if others else ""
    return f"Take {choice}: never significantly worse than the best {sets}.{also}"


def _most_frequent(names: Iterable[str]) -> tuple[str, int]:
    """Return the most frequent name, the first among equals, and how often it occurs."""
    return Counter(names).most_common(1)[0]


def cheapest(run: RunView, names: Iterable[str], boards: Sequence[Leaderboard]) -> str:
    """Return the method with the fewest trainings; among equals, the one with the best mean rank."""
    ranks = {name: sum(board.order.index(name) for board in boards) for name in names}
    return min(ranks, key=lambda name: (_trainings(run, name), ranks[name], name))


def _trainings(run: RunView, name: str) -> float:
    counts = [cost.trainings for (_, method), cost in run.costs.items() if method == name]
    return max((count.mean for count in counts if count.n), default=inf)


def _limited(
    run: RunView, situation: str, allowed: Sequence[str], cost_phrase: Callable[[RunView, TaskView, str], str]
) -> Advice | None:
    """Advise on the best of some methods, and compare it with the best of all."""
    evidence, boards = [], []
    for task in _tasks(run):
        every, some = (in_domain_leaderboard(run, task, RANKED_BY, among) for among in ((), allowed))
        if every is None or some is None or len(every.cells) == len(some.cells):
            continue
        boards.append(some)
        chosen, best = some.order[0], every.order[0]
        text = f"{every.test_set}: {run.title(chosen)}, {metric_phrase(RANKED_BY)} {some.value(chosen)}"
        text += cost_phrase(run, task, chosen)
        verdict = None if chosen == best else every.verdict(chosen, best)
        if verdict is None:
            text += "; no more expensive method does better."
        else:
            text += f"; without that limit {run.title(best)}, {every.value(best)}"
            text += f"{cost_phrase(run, task, best)} ({verdict_phrase(verdict)})."
        evidence.append(text)
    if not evidence:
        return None
    contests = [board for board in boards if len(board.cells) > 1]
    only = f"{run.title(boards[0].order[0])} is the only such method here."
    return Advice(situation, conclusion(run, contests) if contests else only, tuple(evidence))


def _size(run: RunView, task: TaskView, name: str) -> str:
    cost = run.costs.get((task.key, name))
    if cost is None or not cost.stored_bytes.n or not cost.training_seconds.n:
        return ""
    return f" ({cost.stored_bytes.mean / 1e6:.3g} MB of weights, {cost.training_seconds.mean:.3g} s of training)"


def _speed(run: RunView, task: TaskView, name: str) -> str:
    cost = run.costs.get((task.key, name))
    if cost is None or not cost.examples_per_second.n:
        return ""
    return f" ({cost.examples_per_second.mean:,.0f} examples per second)"


def _quantity(run: RunView) -> Advice | None:
    """Advise on the uncertainty quantity that detects novel classes best, for the leading method of each test set."""
    boards = [
        board
        for task in run.tasks
        for novel in task.test_sets
        if novel.kind == "ood" and (board := _quantities(run, task, novel)) is not None
    ]
    if not boards:
        return None
    often, count = _most_frequent(board.order[0] for board in boards)
    share = f"{count} of {len(boards)} test sets" if len(boards) > 1 else "the only test set"
    lead = f"{often.capitalize()} detects novel classes best on {share}."
    return Advice("Which uncertainty detects novel classes", lead, tuple(leading_two(run, board) for board in boards))


def _quantities(run: RunView, task: TaskView, novel: TestSet) -> Leaderboard | None:
    """Return the AUROC by each quantity of the method that leads on a test set, the best first."""
    name = detection_name("ood_auroc", HEADLINE)
    board = leaderboard(run, task, novel.splits, name, test_set=f"{task.key} → {novel.title}")
    if board is None:
        return None
    best = board.order[0]
    names = {quantity.replace("_", " "): detection_name("ood_auroc", quantity) for quantity in DETECTED_BY}
    cells = {phrase: run.scores.cell(task, novel.splits[0], best, metric) for phrase, metric in names.items()}
    scored = {phrase: cell for phrase, cell in cells.items() if cell is not None and cell.n}
    if len(scored) < 2:
        return None
    ranked = dict(sorted(scored.items(), key=lambda item: -item[1].mean))
    pairs = compare_means(ranked, "higher")
    return Leaderboard(f"{board.test_set}, {run.title(best)}", "ood_auroc", ranked, pairs.against_best(), pairs)


def _tasks(run: RunView) -> list[TaskView]:
    return [task for task in run.tasks if run.methods_of(task)]
