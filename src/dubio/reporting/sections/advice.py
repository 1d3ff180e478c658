"""Which method for your problem? Advice computed from the results.

Every piece of advice belongs to a situation (few or many classes, several labels, little memory or time, novelty,
shift) and names the test sets that are evidence for it; without such a test set there is none. The best mean is taken,
or a cheaper method where the simultaneous upper limit of its difference to the best (:mod:`dubio.statistics.limits`) is
within the run's margin on every test set: "not significantly different" is not "as good". A method that is worse in
mean and more expensive than another is never taken, nor is one whose comparison was not judged. No advice on detection
comes from a detector that is not above chance (:mod:`dubio.reporting.detectors`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from dubio.reporting.detectors import detection_on, quantity_pairs
from dubio.reporting.leaderboard import (
    Leaderboard,
    in_domain_leaderboard,
    leaderboard,
    metric_phrase,
    shifted_leaderboards,
    verdict_phrase,
)
from dubio.reporting.manifest_view import TaskView, TestSet
from dubio.reporting.measures import HEADLINE, RANKED_BY, detection_name
from dubio.reporting.method_choice import conclusion, sets_phrase
from dubio.reporting.run_view import PREDICTED, RunView
from dubio.reporting.score_table import Cell
from dubio.reporting.section import Block, Card, Cards, Section, Text, section
from dubio.reporting.wording import listed, number

MANY = 20
"""A task with at least this number of classes has many."""

AUROC = detection_name("ood_auroc", HEADLINE)


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
                "Advice by situation. “Not significantly different” does not mean “as good”: instead of the best, a "
                f"cheaper method is advised only where it is at most {run.margin:g} worse (--margin), in nats of "
                "NLL or as a share in accuracy and AUROC. This is the upper limit of its difference to the best, at "
                f"95 % for all methods together. Costs are measured: training, and predicting {PREDICTED:,} examples."
            )
            yield Cards(cards)

    def document(self, run: RunView) -> dict[str, Any]:
        """Return every piece of advice."""
        return {"margin": run.margin, "advice": [vars(item) for item in advice(run)]}


def advice(run: RunView) -> tuple[Advice, ...]:
    """Return all advice that these results support; none of systems whose cost is not known."""
    if run.question == "systems":
        return ()
    labels = [task for task in _tasks(run) if task.target == "multilabel"]
    few, many = (
        [task for task in _tasks(run) if task not in labels and (len(task.classes) >= MANY) == large]
        for large in (False, True)
    )
    single = [method for method in run.methods if not method.ensemble]
    items = (
        _advice(run, f"Few classes (fewer than {MANY})", _boards(run, few)),
        _advice(run, f"Many classes (at least {MANY})", _boards(run, many)),
        _advice(run, "Several labels per example", _boards(run, labels)),
        _limited(run, "Little memory or training time: one training", [m.name for m in single], _size),
        _limited(run, "Low latency: one network, one pass", [m.name for m in single if not m.samples], _speed),
        _detection(run, "Novel classes may occur: detect them", "ood"),
        _quantity(run),
        _advice(run, "Inputs may shift: stay accurate", shifted_leaderboards(run, "shift", "accuracy")),
        _detection(run, "Inputs may shift: detect it", "shift"),
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
    metric, same = metric_phrase(board.metric), board.same_as(board.order[0])
    others = [name for name in board.order[1:] if name not in same]
    if not others:
        names = listed([run.title(name) for name in board.order])
        return f"{board.test_set}: {names} make the same predictions, {metric} {board.value(board.order[0])}."
    first, second = (f"{run.title(name)}, {board.value(name)}" for name in (board.order[0], others[0]))
    verdict = board.verdicts[others[0]]
    numbers = verdict_phrase(verdict)
    if verdict.place == "tied":
        return f"{board.test_set}: {first}, and {second}, tie for the best {metric} ({numbers})."
    return f"{board.test_set}: best {metric} with {first}; next {second} ({numbers})."


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
        verdict = None if chosen == best or chosen in every.same_as(best) else every.verdict(chosen, best)
        if verdict is None:
            text += "; no more expensive method has a better mean."
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


def _detection(run: RunView, situation: str, kind: str) -> Advice | None:
    """Advise on detection by the methods that are above chance; say where there is none, and where it is inverted."""
    boards, cautions, evidence = [], [], []
    test_sets = [(task, shifted) for task in _tasks(run) for shifted in task.test_sets if shifted.kind == kind]
    for task, shifted in test_sets:
        test_set = f"{task.key} → {shifted.title}"
        every = leaderboard(run, task, shifted.splits, AUROC, test_set=test_set)
        if every is None or len(every.cells) < 2:
            continue
        detection = detection_on(run, task, shifted.splits)
        able = detection.methods("detects")
        evidence.append(leading_two(run, every))
        cautions += [f"{test_set}: {text}" for text in detection.sentences(run)]
        board = leaderboard(run, task, shifted.splits, AUROC, test_set=test_set, among=able) if able else None
        boards += [board] if board is not None else []
    if not evidence:
        return None
    common = frozenset.intersection(*(frozenset(board.cells) for board in boards)) if boards else frozenset()
    if boards and not common:
        cautions.insert(0, f"No method detects them {sets_phrase(boards)}.")
    elif boards:
        cautions.insert(0, conclusion(run, boards))
    return Advice(situation, " ".join(cautions), tuple(evidence))


def _quantity(run: RunView) -> Advice | None:
    """Advise on the uncertainty quantity that detects novel classes best, for the leading method of each test set."""
    boards = [
        board
        for task in _tasks(run)
        for novel in task.test_sets
        if novel.kind == "ood" and (board := _quantities(run, task, novel)) is not None
    ]
    if not boards:
        return None
    winners = Counter(board.order[0] for board in boards if board.judged and not board.tied)
    texts = [f"{name.capitalize()} detects novel classes best {_among(n, boards)}." for name, n in winners.items()]
    ties = Counter(listed([board.order[0], *board.tied]) for board in boards if board.tied)
    texts += [f"A tie {_among(n, boards)}: {names} are not significantly different." for names, n in ties.items()]
    if not texts:
        texts = ["Not judged, for want of repeated trainings."]
    return Advice(
        "Which uncertainty detects novel classes", " ".join(texts), tuple(leading_two(run, board) for board in boards)
    )


def _among(count: int, boards: Sequence[Leaderboard]) -> str:
    return f"on {number(count)} of {number(len(boards))} test sets" if len(boards) > 1 else "on the only test set"


def _quantities(run: RunView, task: TaskView, novel: TestSet) -> Leaderboard | None:
    """Return the AUROC by each quantity above chance, of the method that leads by confidence, the best first.

    Where a method detects better by a score of its own than that one by confidence, it is the one.
    """
    able = [detector for detector in detection_on(run, task, novel.splits).detectors if detector.outcome == "detects"]
    chosen = {HEADLINE, *run.scores.own_quantities}
    leader = max((one for one in able if one.quantity in chosen), key=lambda one: one.auroc, default=None)
    quantities = [one.quantity for one in able if leader is not None and one.method == leader.method]
    if leader is None or len(quantities) < 2:
        return None
    pairs = quantity_pairs(run, task, novel.splits, leader.method, quantities)
    cells = {name: Cell(runs.values) for name, runs in sorted(pairs.scores.items(), key=lambda item: -item[1].mean)}
    title = f"{task.key} → {novel.title}, {run.title(leader.method)}"
    return Leaderboard(task.key, tuple(novel.splits), title, "ood_auroc", cells, pairs.against_best(), pairs)


def _tasks(run: RunView) -> list[TaskView]:
    return [task for task in run.tasks if run.methods_of(task)]
