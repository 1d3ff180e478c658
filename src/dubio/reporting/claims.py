"""Claims of a paper, tested with these results: supported, contradicted or undecided.

A claim is a planned comparison: of two methods on the same test sets, of two networks, or of a value with a range. On
every test set with evidence the report's own verdict decides, so that no claim is supported by a difference that is
not significant.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from dubio.reporting.section import Block, Card, Cards, Headline, Text
from dubio.reporting.wording import counted
from dubio.statistics.verdicts import Verdict

Outcome = Literal["supports", "contradicts", "undecided"]


@dataclass(frozen=True)
class Evidence:
    """The outcome of a claim on one test set."""

    outcome: Outcome
    text: str


@dataclass(frozen=True)
class Claim:
    """A conclusion of a paper with the evidence for and against it; ``unit`` is what one piece of evidence is about."""

    statement: str
    where: str
    evidence: tuple[Evidence, ...]
    unit: str = "test set"

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
        outcome = "supported" if supporting else "contradicted"
        return outcome if undecided <= supporting + contradicting else f"{outcome} in part"

    @property
    def _counts(self) -> tuple[int, ...]:
        return tuple(sum(item.outcome == outcome for item in self.evidence) for outcome in get_args(Outcome))

    @property
    def tally(self) -> str:
        """The number of test sets for, against and undecided."""
        counts = "{} for, {} against, {} undecided".format(*self._counts)
        return f"{counted(len(self.evidence), self.unit)}: {counts}" if self.evidence else ""


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
