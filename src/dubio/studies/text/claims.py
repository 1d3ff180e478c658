"""The conclusions of T (``paper.toml``), tested with these results: one function per kind of claim."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from dubio.reporting.claims import Claim, Planned
from dubio.reporting.leaderboard import (
    Leaderboard,
    in_domain_leaderboard,
    leaderboard,
    metric_phrase,
    shifted_leaderboards,
)
from dubio.reporting.manifest_view import TaskView
from dubio.reporting.measures import HEADLINE, RANKED_BY, detection_name
from dubio.reporting.run_view import RunView
from dubio.statistics.verdicts import Estimate
from dubio.studies.published_numbers import claims_of

IN_DOMAIN = (RANKED_BY, "brier")
"""What the in-domain conclusions are tested by. T counts NLL and Brier score at temperature 1, of which the former must
not rank models; calibrated, it may."""

HARDLY = 0.54
"""The largest of T's cross-domain AUROCs (§IV-B)."""

MANY = 20
"""A task with at least this number of classes has many."""

Boards = Sequence[Leaderboard]


def claims(run: RunView) -> tuple[Claim, ...]:
    """Return every claim, those without data last."""
    auroc = detection_name("ood_auroc", HEADLINE)
    boards = {
        "in-domain": _in_domain(run, lambda task: True),
        "several labels": _in_domain(run, lambda task: task.target == "multilabel"),
        "many classes": _in_domain(run, lambda task: task.target != "multilabel" and len(task.classes) >= MANY),
        "novel classes": shifted_leaderboards(run, "ood", auroc),
        "shift detection": shifted_leaderboards(run, "shift", auroc),
        "accuracy under shift": shifted_leaderboards(run, "shift", "accuracy"),
    }
    tested = claims_of("text", lambda claim: KINDS[claim["kind"]](run, boards[claim["on"]], claim))
    return tuple(sorted(tested, key=lambda claim: not claim.evidence))


def _in_domain(run: RunView, chosen: Callable[[TaskView], bool]) -> Boards:
    tasks = [task for task in run.tasks if run.methods_of(task) and chosen(task)]
    boards = (in_domain_leaderboard(run, task, metric) for task in tasks for metric in IN_DOMAIN)
    return [board for board in boards if board is not None]


def _pair(run: RunView, boards: Boards, claim: Mapping[str, Any]) -> Iterator[Planned]:
    """Compare two methods on every test set that has both."""
    pair = claim["better"], claim["worse"]
    for board in boards:
        if {*pair} <= board.cells.keys():
            numbers = " against ".join(f"{board.value(name)} ({run.title(name)})" for name in pair)
            text = f"{board.test_set}, {metric_phrase(board.metric)}: {numbers}"
            yield Planned(text, board.pairs.advantage(*pair))


def _ensembling(run: RunView, boards: Boards, claim: Mapping[str, Any]) -> Iterator[Planned]:
    """Compare every ensemble with the single method it is made of."""
    for method in run.methods:
        if method.ensemble:
            yield from _pair(run, boards, {"better": method.name, "worse": method.family})


def _near_chance(run: RunView, boards: Boards, claim: Mapping[str, Any]) -> Iterator[Planned]:
    """Compare the AUROC of one method with the largest of T's."""
    method, tasks = claim["method"], {task.key: task for task in run.tasks}
    for board in boards:
        if method not in board.cells:
            continue
        value, terms = _estimate(run, tasks[board.task], board, method)
        text = f"{board.test_set}: AUROC {board.value(method)} ({run.title(method)}) against {HARDLY}"
        yield Planned(text, (HARDLY - value, terms))


def _estimate(run: RunView, task: TaskView, board: Leaderboard, method: str) -> Estimate:
    """Return a method's mean with the variance over trainings and test examples; of one training without variance."""
    repeated = method in run.scores.trainings(task, board.splits, board.metric)
    estimates = run.scores.estimates(task, board.splits, board.metric) if repeated else {}
    return estimates.get(method, (board.cells[method].mean, ()))


def _networks(run: RunView, boards: Boards, claim: Mapping[str, Any]) -> Iterator[Planned]:
    """Compare every method with both networks on the same OOD split, but on tasks where T found otherwise.

    Both variances over test examples are added: that these are the same examples is not used.
    """
    metric = detection_name("ood_auroc", HEADLINE)
    tasks = {(task.name, task.network): task for task in run.tasks}
    for one in run.tasks:
        other = tasks.get((one.name, "bert"))
        if one.network != "textcnn" or other is None or one.name in claim["but_on"]:
            continue
        for split in one.of_kind("ood"):
            sides = [leaderboard(run, task, (split.name,), metric, test_set=task.key) for task in (one, other)]
            textcnn, bert = sides
            if textcnn is None or bert is None:
                continue
            for method in (name for name in textcnn.order if name in bert.cells):
                numbers = f"{textcnn.value(method)} (TextCNN) against {bert.value(method)} (BERT)"
                text = f"{one.name} → {split.name}, {run.title(method)}: {numbers}"
                (value, terms), (bert_value, bert_terms) = (
                    _estimate(run, task, board, method) for task, board in ((one, textcnn), (other, bert))
                )
                yield Planned(text, (value - bert_value, [*terms, *bert_terms] if terms and bert_terms else ()))


KINDS = {"pair": _pair, "ensembling": _ensembling, "near_chance": _near_chance, "networks": _networks}
"""Kind of claim → the comparisons that it plans."""
