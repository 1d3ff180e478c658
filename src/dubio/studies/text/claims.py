"""The conclusions of T (``paper.toml``), tested with these results: one function per kind of claim."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from dubio.reporting.claims import Claim, Evidence, Outcome, outcome_of
from dubio.reporting.leaderboard import (
    Leaderboard,
    in_domain_leaderboard,
    leaderboard,
    metric_phrase,
    shifted_leaderboards,
    verdict_phrase,
)
from dubio.reporting.manifest_view import TaskView
from dubio.reporting.measures import HEADLINE, RANKED_BY, detection_name
from dubio.reporting.run_view import RunView
from dubio.statistics.verdicts import compare_methods
from dubio.studies.published_numbers import claims_of

RANDOM_RANGE = (0.50, 0.54)
"""The range of T's cross-domain AUROCs (§IV-B)."""

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
    return [board for task in tasks if (board := in_domain_leaderboard(run, task, RANKED_BY)) is not None]


def _pair(run: RunView, boards: Boards, claim: Mapping[str, Any]) -> Iterator[Evidence]:
    """Compare two methods on every test set that has both."""
    pair = claim["better"], claim["worse"]
    for board in boards:
        verdict = board.verdict(*pair)
        if verdict is not None:
            numbers = " against ".join(f"{board.value(name)} ({run.title(name)})" for name in pair)
            text = f"{board.test_set}, {metric_phrase(board.metric)}: {numbers}; {verdict_phrase(verdict)}."
            yield Evidence(outcome_of(verdict), text)


def _ensembling(run: RunView, boards: Boards, claim: Mapping[str, Any]) -> Iterator[Evidence]:
    """Compare every ensemble with the single method it is made of."""
    for method in run.methods:
        if method.ensemble:
            yield from _pair(run, boards, {"better": method.name, "worse": method.family})


def _near_chance(run: RunView, boards: Boards, claim: Mapping[str, Any]) -> Iterator[Evidence]:
    """Test whether even the best method stays in T's range; decided where two standard errors are enough."""
    for board in boards:
        best, last = board.order[0], board.order[-1]
        cell, top = board.cells[best], RANDOM_RANGE[1]
        outcome: Outcome = "undecided"
        if cell.std is not None and abs(cell.mean - top) > 2 * cell.std / cell.n**0.5:
            outcome = "contradicts" if cell.mean > top else "supports"
        low, high = (f"{board.value(name)} ({run.title(name)})" for name in (last, best))
        yield Evidence(outcome, f"{board.test_set}: AUROC from {low} to {high}.")


def _networks(run: RunView, boards: Boards, claim: Mapping[str, Any]) -> Iterator[Evidence]:
    """Compare every method with both networks on the same OOD split."""
    metric = detection_name("ood_auroc", HEADLINE)
    tasks = {(task.name, task.network): task for task in run.tasks}
    for one in run.tasks:
        other = tasks.get((one.name, "bert"))
        if one.network != "textcnn" or other is None:
            continue
        for split in one.of_kind("ood"):
            sides = [leaderboard(run, task, (split.name,), metric, test_set=task.key) for task in (one, other)]
            textcnn, bert = sides
            if textcnn is None or bert is None:
                continue
            for method in (name for name in textcnn.order if name in bert.cells):
                cells = {"textcnn": textcnn.cells[method], "bert": bert.cells[method]}
                verdict = compare_methods(cells, run.scores.better[metric]).verdict("textcnn", "bert")
                numbers = f"{textcnn.value(method)} (TextCNN) against {bert.value(method)} (BERT)"
                text = f"{one.name} → {split.name}, {run.title(method)}: {numbers}; {verdict_phrase(verdict)}."
                yield Evidence(outcome_of(verdict), text)


KINDS = {"pair": _pair, "ensembling": _ensembling, "near_chance": _near_chance, "networks": _networks}
"""Kind of claim → the test that yields evidence."""
