"""Claims of a paper, tested with these results: supported, contradicted or undecided.

A claim is a planned comparison: of two methods on the same test sets, of two networks, or of a value with a range. On
every test set with evidence the report's own verdict decides, so that no claim is supported by a difference that is
not significant.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

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
        counts = {kind: sum(each.outcome == kind for each in self.evidence) for kind in ("supports", "contradicts")}
        if not self.evidence:
            return "no data"
        if not any(counts.values()):
            return "cannot be decided"
        if all(counts.values()):
            return "mixed"
        word = "supported" if counts["supports"] else "contradicted"
        undecided = len(self.evidence) - sum(counts.values())
        return word if undecided <= sum(counts.values()) else f"{word} in part"

    @property
    def tally(self) -> str:
        """The number of test sets for, against and undecided."""
        kinds = {"supports": "for", "contradicts": "against", "undecided": "undecided"}
        counts = [f"{sum(each.outcome == kind for each in self.evidence)} {word}" for kind, word in kinds.items()]
        return f"{counted(len(self.evidence), self.unit)}: {', '.join(counts)}" if self.evidence else ""


def outcome_of(verdict: Verdict) -> Outcome:
    """Return the outcome of a comparison in which the first method is claimed to be better."""
    outcomes: dict[str, Outcome] = {"best": "supports", "behind": "contradicts"}
    return outcomes.get(verdict.place, "undecided")


def claim_blocks(claims: Sequence[Claim], title: str) -> Iterator[Block]:
    """Yield claims with their evidence, and the claims without data in one sentence."""
    cards = tuple(
        Card(
            claim.statement,
            (f"{claim.outcome.capitalize()} ({claim.tally}).",),
            tuple(f"{each.text} ({each.outcome})" for each in claim.evidence),
            claim.where,
        )
        for claim in claims
        if claim.evidence
    )
    if cards:
        yield Headline(title)
        yield Cards(cards, "list")
    silent = [f"“{claim.statement}”" for claim in claims if not claim.evidence]
    if silent:
        yield Text(f"No data on: {', '.join(silent)}", "small")
