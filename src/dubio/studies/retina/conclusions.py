"""The conclusions of R about referral (``paper.toml``), tested with these results.

Two methods are compared by accuracy and by AUC of the retained, with the same fraction of patients referred by
predictive entropy, in-domain and under every shift. R also finds that all methods are alike without referral: no test
can support that two methods are equal, so that it is not among the claims.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import product
from typing import Any

from dubio.reporting.claims import Claim, Planned, claim_blocks
from dubio.reporting.leaderboard import Leaderboard, leaderboard
from dubio.reporting.manifest_view import TaskView
from dubio.reporting.measures import referral_name
from dubio.reporting.run_view import RunView
from dubio.reporting.section import Block, Section, Text, section
from dubio.reporting.wording import term
from dubio.studies.published_numbers import claims_of, paper_of

TASK = "retina"
"""The registered task on which R's conclusions are tested."""

METRICS = ("referral_accuracy", "referral_auc")


@section("retina-paper", part="closing", order=20)
class Conclusions(Section):
    """Which of R's conclusions these data support, contradict or cannot decide."""

    title = "Agreement with the paper"

    def blocks(self, run: RunView, task: TaskView | None) -> Iterator[Block]:
        """Yield the claims; nothing without the retina task in two classes, or with grades that are referred or not."""
        tasks = [task for task in run.tasks if task.corpus == TASK and task.has_positive_side and run.methods_of(task)]
        tested = claims(run, tasks)
        if any(claim.evidence for claim in tested):
            scope = "Judged by the spread over trainings on these test images: other patients would vary more."
            yield Text(f"{paper_of('retina')['source']}. {scope}", "small")
            yield from claim_blocks(tested, "Its conclusions, tested here")


def claims(run: RunView, tasks: list[TaskView]) -> tuple[Claim, ...]:
    """Return every claim with its comparisons on these tasks."""
    fractions = paper_of("retina")["fractions"]
    boards = [
        (board, f"{term(metric).title}, {fraction:.0%} retained")
        for task in tasks
        for split in (task.in_domain, *task.of_kind("shift"))
        for fraction, metric in product(fractions, METRICS)
        if (board := _board(run, task, split.name, referral_name(metric, fraction))) is not None
    ]
    return claims_of("retina", lambda claim: _pairs(run, boards, claim))


def _board(run: RunView, task: TaskView, split: str, metric: str) -> Leaderboard | None:
    return leaderboard(run, task, (split,), metric, test_set=f"{task.key} → {split}")


def _pairs(run: RunView, boards: list[tuple[Leaderboard, str]], claim: Mapping[str, Any]) -> Iterator[Planned]:
    """Compare each method that is claimed to be better with each that is claimed to be worse."""
    for (board, measure), *pair in product(boards, claim["better"], claim["worse"]):
        if {*pair} <= board.cells.keys():
            numbers = " against ".join(f"{board.value(name)} ({run.title(name)})" for name in pair)
            yield Planned(f"{board.test_set}, {measure}: {numbers}", board.pairs.advantage(*pair))
