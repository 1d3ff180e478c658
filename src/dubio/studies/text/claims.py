"""The conclusions of T, tested with these results. Statements are ours, in our words; each names where T says it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from dubio.reporting.claims import Claim, Evidence, Outcome, outcome_of
from dubio.reporting.leaderboard import (
    Leaderboard,
    compared,
    in_domain_leaderboard,
    leaderboard,
    metric_phrase,
    shifted_leaderboards,
    verdict_phrase,
)
from dubio.reporting.manifest_view import TaskView
from dubio.reporting.measures import HEADLINE, RANKED_BY, detection_name
from dubio.reporting.run_view import RunView
from dubio.statistics.verdicts import pair_verdict

RANDOM_RANGE = (0.50, 0.54)
"""The range of T's cross-domain AUROCs (§IV-B)."""

MANY = 20
"""A task with at least this number of classes has many."""


def claims(run: RunView) -> tuple[Claim, ...]:
    """Return every claim, those without data last."""
    auroc = detection_name("ood_auroc", HEADLINE)
    inside = _in_domain(run)
    novel, shifted = shifted_leaderboards(run, "ood", auroc), shifted_leaderboards(run, "shift", auroc)
    several = _in_domain(run, lambda task: task.target == "multilabel")
    many = _in_domain(run, lambda task: task.target != "multilabel" and len(task.classes) >= MANY)
    found = (
        Claim("In-domain, a deep ensemble scores better than one network.", "T Table 3, §V",
              _pair(run, inside, "deep-ensemble", "deterministic")),
        Claim("Ensembling brings more than sampling: an ensemble of regularised networks beats MC dropout.", "T §V, A",
              _pair(run, inside, "deep-ensemble-regularised", "mc-dropout")),
        Claim("Learning the dropout rate helps: MC concrete dropout beats MC dropout at a fixed rate.", "T §V, C",
              _pair(run, inside, "mc-concrete-dropout", "mc-dropout")),
        Claim("With many classes, predicting the noise of the logits helps a single network.", "T §V, take-homes",
              _pair(run, many, "heteroscedastic", "regularised")),
        Claim("With several labels per example, any ensembling helps.", "T §V, take-homes", _ensembling(run, several)),
        Claim("For novel classes an MC concrete dropout ensemble beats a deep ensemble.", "T Table 9, §V",
              _pair(run, novel, "mc-concrete-dropout-ensemble", "deep-ensemble")),
        Claim("For novel classes MC dropout at a fixed rate is worse than one plain network.", "T Table 9, §V",
              _pair(run, novel, "deterministic", "mc-dropout")),
        Claim("Under domain shift, networks without regularisation stay more accurate.", "T Fig. 5, §IV-B",
              _pair(run, shifted_leaderboards(run, "shift", "accuracy"), "deterministic", "regularised")),
        Claim("Other domains are detected hardly better than by chance (AUROC 0.50 to 0.54).", "T Fig. 6, §IV-B",
              _near_chance(run, shifted)),
        Claim("TextCNN detects novel classes better than BERT.", "T Figs 13 and 14, §V", _networks(run, auroc)),
    )  # fmt: skip
    return tuple(sorted(found, key=lambda claim: not claim.evidence))


def _in_domain(run: RunView, chosen: Callable[[TaskView], bool] = lambda _: True) -> list[Leaderboard]:
    tasks = [task for task in run.tasks if run.methods_of(task) and chosen(task)]
    return [board for task in tasks if (board := in_domain_leaderboard(run, task, RANKED_BY)) is not None]


def _pair(run: RunView, boards: Iterable[Leaderboard], better: str, worse: str) -> tuple[Evidence, ...]:
    """Compare two methods on every test set that has both."""
    evidence = []
    for board in boards:
        verdict = compared(run, board, (better, worse))
        if verdict is not None:
            numbers = " against ".join(f"{board.value(name)} ({run.title(name)})" for name in (better, worse))
            text = f"{board.test_set}, {metric_phrase(board.metric)}: {numbers}; {verdict_phrase(verdict)}."
            evidence.append(Evidence(outcome_of(verdict), text))
    return tuple(evidence)


def _ensembling(run: RunView, boards: Sequence[Leaderboard]) -> tuple[Evidence, ...]:
    """Compare every ensemble with the single method it is made of."""
    pairs = [(method.name, method.family) for method in run.methods if method.ensemble]
    return tuple(each for pair in pairs for each in _pair(run, boards, *pair))


def _near_chance(run: RunView, boards: Sequence[Leaderboard]) -> tuple[Evidence, ...]:
    """Test whether even the best method stays in T's range; decided where two standard errors are enough."""
    evidence = []
    for board in boards:
        best, last = board.order[0], board.order[-1]
        cell, top = board.cells[best], RANDOM_RANGE[1]
        doubt = 2 * (cell.std or 0.0) / cell.n**0.5
        outcome: Outcome = "undecided"
        if cell.std is not None and abs(cell.mean - top) > doubt:
            outcome = "contradicts" if cell.mean > top else "supports"
        text = (
            f"{board.test_set}: AUROC from {board.value(last)} ({run.title(last)}) to {board.value(best)} "
            f"({run.title(best)})."
        )
        evidence.append(Evidence(outcome, text))
    return tuple(evidence)


def _networks(run: RunView, metric: str) -> tuple[Evidence, ...]:
    """Compare every method with both networks on the same OOD split."""
    evidence: list[Evidence] = []
    tasks = {(task.name, task.network): task for task in run.tasks}
    for (name, network), one in tasks.items():
        other = tasks.get((name, "bert"))
        if network != "textcnn" or other is None:
            continue
        for split in one.of_kind("ood"):
            evidence += _two_networks(run, one, other, split.name, metric)
    return tuple(evidence)


def _two_networks(run: RunView, one: TaskView, other: TaskView, split: str, metric: str) -> list[Evidence]:
    evidence = []
    sides = [leaderboard(run, task, (split,), metric, test_set=task.key) for task in (one, other)]
    if sides[0] is None or sides[1] is None:
        return []
    for method in sides[0].order:
        if method in sides[1].cells:
            cells = {"textcnn": sides[0].cells[method], "bert": sides[1].cells[method]}
            verdict = pair_verdict(cells, run.scores.better[metric], ("textcnn", "bert"))
            text = (
                f"{one.name} → {split}, {run.title(method)}: {sides[0].value(method)} (TextCNN) against "
                f"{sides[1].value(method)} (BERT); {verdict_phrase(verdict)}."
            )
            evidence.append(Evidence(outcome_of(verdict), text))
    return evidence
