"""Claims of a paper, tested with these results: supported, contradicted or undecided.

A claim names its comparisons beforehand: of two methods on the same test sets, of two networks, or of a value with a
bound. They are corrected together after Holm, for each other alone and not for all pairs that a report compares; the
chance that a claim is decided by chance is at most 5 %. No claim is supported by a difference that is not significant.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from dubio.reporting.leaderboard import verdict_phrase
from dubio.reporting.section import Block, Card, Cards, Headline, Text
from dubio.reporting.wording import counted
from dubio.statistics.verdicts import Estimate, Pairs, Verdict, judge_differences

Outcome = Literal["supports", "contradicts", "undecided"]

FEW = 4
"""Where fewer than one of this number of comparisons decide, a claim is neither supported nor contradicted."""


@dataclass(frozen=True)
class Evidence:
    """The outcome of one comparison of a claim, such as that of two methods on one test set."""

    outcome: Outcome
    text: str


@dataclass(frozen=True)
class Planned:
    """A comparison that a claim makes, before it is corrected for the claim's others.

    Attributes:
        text: The values of both sides, as the beginning of a sentence.
        advantage: By how much the comparison comes out as claimed; negative where it does not.
    """

    text: str
    advantage: Estimate


def judged(items: Iterable[Evidence | Planned]) -> tuple[Evidence, ...]:
    """Return the evidence of one claim, its planned comparisons corrected together."""
    items = tuple(items)
    planned = {(str(index), "claimed"): item for index, item in enumerate(items) if isinstance(item, Planned)}
    tests = judge_differences({key: item.advantage for key, item in planned.items()}, "higher")
    pairs = Pairs({}, "higher", tests, "methods")
    verdicts = {int(key[0]): pairs.verdict(*key) for key in planned}
    return tuple(
        item
        if isinstance(item, Evidence)
        else Evidence(outcome_of(verdicts[index]), f"{item.text}; {verdict_phrase(verdicts[index])}.")
        for index, item in enumerate(items)
    )


@dataclass(frozen=True)
class Claim:
    """A conclusion of a paper with the evidence for and against it."""

    statement: str
    where: str
    evidence: tuple[Evidence, ...]

    @property
    def outcome(self) -> str:
        """The sum of the evidence, in a word or two."""
        supporting, contradicting, undecided = self._counts
        if not self.evidence:
            return "no data"
        if not (supporting or contradicting):
            return "cannot be decided"
        if supporting and contradicting:
            return "mixed"
        outcome, decided = "supported" if supporting else "contradicted", supporting + contradicting
        if decided * FEW < len(self.evidence):
            return "mostly undecided"
        return outcome if undecided <= decided else f"{outcome} in part"

    @property
    def _counts(self) -> tuple[int, ...]:
        return tuple(sum(item.outcome == outcome for item in self.evidence) for outcome in get_args(Outcome))

    @property
    def tally(self) -> str:
        """The number of comparisons for, against and undecided."""
        counts = "{} for, {} against, {} undecided".format(*self._counts)
        return f"{counted(len(self.evidence), 'comparison')}: {counts}" if self.evidence else ""


def outcome_of(verdict: Verdict) -> Outcome:
    """Return the outcome of a comparison in which the first method is claimed to be better."""
    outcomes: dict[str, Outcome] = {"best": "supports", "behind": "contradicts"}
    return outcomes.get(verdict.place, "undecided")


def claim_blocks(claims: Sequence[Claim], title: str) -> Iterator[Block]:
    """Yield claims with their evidence, and the claims without data in one sentence."""
    cards = []
    for claim in (claim for claim in claims if claim.evidence):
        evidence = tuple(f"{item.text} ({item.outcome})" for item in claim.evidence)
        cards.append(Card(claim.statement, (f"{claim.outcome.capitalize()} ({claim.tally}).",), evidence, claim.where))
    if cards:
        yield Headline(title)
        yield Cards(tuple(cards), "list")
    silent = [f"“{claim.statement}”" for claim in claims if not claim.evidence]
    if silent:
        yield Text(f"No data on: {', '.join(silent)}", "small")
