"""What a check finds, in plain words, and how a list of rules is gone through."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Literal, NamedTuple, TypeVar

from dubio.core.errors import DubioError

S = TypeVar("S")

State = Literal["passed", "failed", "skipped"]


@dataclass(frozen=True)
class Finding:
    """Something that is not as it should be.

    Attributes:
        what: The rule, as a sentence that ought to be true.
        problem: What was seen instead.
        advice: What to do about it.
    """

    what: str
    problem: str
    advice: str

    def __str__(self) -> str:
        """The problem and the advice, as two sentences."""
        return f"{self.problem} {self.advice}".strip()


class Problem(NamedTuple):
    """What a rule saw, and what to do about it."""

    problem: str
    advice: str


def _always(subject: Any) -> bool:
    return True


@dataclass(frozen=True)
class Rule(Generic[S]):
    """One thing that must be true.

    Attributes:
        what: The rule, as a sentence.
        check: Yields what is wrong with a subject.
        ends: Whether the rules after it mean nothing once it is broken.
        applies: Whether the rule says anything about a subject.
    """

    what: str
    check: Callable[[S], Iterable[Problem]]
    ends: bool = False
    applies: Callable[[S], bool] = _always


@dataclass(frozen=True)
class Outcome:
    """What became of one rule.

    Attributes:
        what: The rule, as a sentence.
        state: ``passed``, ``failed``, or ``skipped`` because an earlier rule was broken or it says nothing here.
        findings: What is wrong, when it failed.
    """

    what: str
    state: State
    findings: tuple[Finding, ...] = ()


class ConformanceError(DubioError, AssertionError):
    """Findings, raised."""


def follow(rules: Sequence[Rule[S]], subject: S) -> list[Outcome]:
    """Go through the rules in order; a rule whose check itself raises is broken, and says so."""
    outcomes: list[Outcome] = []
    over = False
    for rule in rules:
        if over or not rule.applies(subject):
            outcomes.append(Outcome(rule.what, "skipped"))
            continue
        found = tuple(_findings(rule, subject))
        outcomes.append(Outcome(rule.what, "failed" if found else "passed", found))
        over = rule.ends and bool(found)
    return outcomes


def _findings(rule: Rule[S], subject: S) -> Iterator[Finding]:
    try:
        for problem in rule.check(subject):
            yield Finding(rule.what, problem.problem, problem.advice)
    except Exception as fault:  # whatever a stranger's code raises is a finding, never the end of the checks
        yield Finding(rule.what, f"Checking this raised {spoken(fault)}", "Make this work, or refuse with a sentence.")


def spoken(fault: BaseException) -> str:
    """An error in one line, ended by a full stop."""
    words = " ".join(str(fault).split()) or "without a message"
    return f"{type(fault).__name__}: {words}" + ("" if words.endswith((".", "?", "!")) else ".")


def flattened(outcomes: Iterable[Outcome]) -> list[Finding]:
    """Every finding of every outcome."""
    return [finding for outcome in outcomes for finding in outcome.findings]


def assert_ok(findings: Iterable[Finding]) -> None:
    """Raise when there is anything to complain about.

    Args:
        findings: What a check returned.

    Raises:
        ConformanceError: With every finding, one a line.
    """
    lines = [f"{finding.what}: {finding}" for finding in findings]
    if lines:
        raise ConformanceError("\n".join(lines))
