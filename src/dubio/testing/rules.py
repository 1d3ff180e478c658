"""Conformance rules: what a check reports, how rules are applied, and the rules for every registered function."""

from __future__ import annotations

import inspect
import json
import random
import re
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Generic, Literal, NamedTuple, TypeVar

import numpy as np

from dubio.core.errors import DubioError, UserError
from dubio.core.registry import Entry, Registry
from dubio.core.specs import describe

C = TypeVar("C")

State = Literal["passed", "failed", "skipped"]

NAME = re.compile(r"[A-Za-z_][\w.-]*")


@dataclass(frozen=True)
class Finding:
    """A broken rule.

    Attributes:
        what: The rule, as a sentence that ought to be true.
        problem: What was observed.
        advice: How to correct it.
    """

    what: str
    problem: str
    advice: str

    def __str__(self) -> str:
        """Return the problem and the advice, as two sentences."""
        return f"{self.problem} {self.advice}".strip()


class Problem(NamedTuple):
    """An observed problem, and how to correct it."""

    problem: str
    advice: str


def _always(case: Any) -> bool:
    return True


@dataclass(frozen=True)
class Rule(Generic[C]):
    """A sentence that must be true of every conforming object.

    Attributes:
        what: The rule, as a sentence.
        check: Yields the problems of a case.
        ends: Whether the following rules are skipped once it is broken.
        applies: Whether the rule concerns a case.
    """

    what: str
    check: Callable[[C], Iterable[Problem]]
    ends: bool = False
    applies: Callable[[C], bool] = _always


@dataclass(frozen=True)
class Outcome:
    """The outcome of one rule.

    Attributes:
        what: The rule, as a sentence.
        state: ``passed``, ``failed``, or ``skipped`` because an earlier rule was broken or it does not apply.
        findings: The problems of a rule that failed.
    """

    what: str
    state: State
    findings: tuple[Finding, ...] = ()


class ConformanceError(DubioError, AssertionError):
    """Findings, raised."""


def apply_rules(rules: Sequence[Rule[C]], case: C) -> list[Outcome]:
    """Apply the rules in order; a rule whose check raises an exception is broken and reports it."""
    outcomes: list[Outcome] = []
    ended = False
    for rule in rules:
        if ended or not rule.applies(case):
            outcomes.append(Outcome(rule.what, "skipped"))
            continue
        findings = tuple(_findings(rule, case))
        outcomes.append(Outcome(rule.what, "failed" if findings else "passed", findings))
        ended = rule.ends and bool(findings)
    return outcomes


def _findings(rule: Rule[C], case: C) -> Iterator[Finding]:
    try:
        for problem in rule.check(case):
            yield Finding(rule.what, problem.problem, problem.advice)
    except Exception as fault:  # whatever a user's code raises is a finding, never the end of the checks
        yield Finding(
            rule.what, f"Checking this raised {one_line(fault)}", "Make this work, or raise an error with a sentence."
        )


def one_line(fault: BaseException) -> str:
    """Return an error as one line that ends with a full stop."""
    text = " ".join(str(fault).split()) or "without a message"
    return f"{type(fault).__name__}: {text}" + ("" if text.endswith((".", "?", "!")) else ".")


def all_findings(outcomes: Iterable[Outcome]) -> list[Finding]:
    """Return the findings of all outcomes."""
    return [finding for outcome in outcomes for finding in outcome.findings]


def assert_ok(findings: Iterable[Finding]) -> None:
    """Raise an error unless there are no findings.

    Args:
        findings: What a check returned.

    Raises:
        ConformanceError: With every finding, one per line.
    """
    lines = [f"{finding.what}: {finding}" for finding in findings]
    if lines:
        raise ConformanceError("\n".join(lines))


# --- every registered function ----------------------------------------------------------------------------------------


def find_entry(registry: Registry[Any], name: str | Entry[Any]) -> Entry[Any]:
    """Return the entry of that name, or the entry itself.

    Raises:
        UnknownName: When there is none of that name.
    """
    return registry.entry(name) if isinstance(name, str) else name


def signature_problems(entry: Entry[Any], positional: tuple[str, ...] = ()) -> Iterator[Problem]:
    """Yield the problems of a factory's name, arguments and docstring.

    Args:
        entry: The registered factory.
        positional: The arguments that dubio itself passes by position.
    """
    if not NAME.fullmatch(entry.name):
        yield Problem(
            f"The name {entry.name!r} cannot be written in a benchmark file.",
            "Begin with a letter and use letters, digits, '.', '_' and '-'.",
        )
    if not entry.summary:
        yield Problem("The function has no docstring.", "Its first line is what `dubio list` shows; write one.")
    try:
        hints = typing.get_type_hints(entry.factory)
    except Exception as fault:
        yield Problem(
            f"Its type hints cannot be read: {one_line(fault)}",
            "Import the names they use at the top of the file, outside `if TYPE_CHECKING`.",
        )
        return
    parameters = list(inspect.signature(entry.factory).parameters.values())
    if len(parameters) < len(positional):
        yield Problem(
            f"It takes {len(parameters)} arguments; dubio passes {', '.join(positional)} by position.",
            f"Begin its arguments with {', '.join(positional)}.",
        )
    for parameter in parameters[len(positional) :]:
        name = parameter.name
        if parameter.kind is not inspect.Parameter.KEYWORD_ONLY:
            yield Problem(
                f"The argument {name!r} is not keyword-only, so a benchmark file cannot set it.",
                f"Put a * before it: def …(*, {name.lstrip('*')}: … = …).",
            )
        elif name not in hints:
            yield Problem(f"The argument {name!r} has no type hint, so no value is refused.", "Add one.")
    for name, default in entry.defaults().items():
        yield from _default_problems(entry, name, default)


def _default_problems(entry: Entry[Any], name: str, default: Any) -> Iterator[Problem]:
    try:
        entry.check({name: default})
    except UserError as refusal:
        if "needs the argument" not in str(refusal):
            yield Problem(f"The default of {name!r} contradicts its type hint: {refusal}", "Correct one of them.")
    try:
        json.dumps(describe(default), allow_nan=False)
    except (TypeError, ValueError) as fault:
        yield Problem(
            f"The default of {name!r} has no JSON form: {one_line(fault)}",
            "Use numbers, texts, true or false, None, and tuples of these: arguments are part of a run's identity.",
        )
    if isinstance(default, list | dict | set):
        yield Problem(f"The default of {name!r} is mutable.", "Use a tuple, so that no call can change the next one.")


def missing_arguments(entry: Entry[Any], arguments: Mapping[str, Any]) -> Iterator[Problem]:
    """Yield a problem for each argument that has no default and no value: nothing can be made to check."""
    for name, parameter in entry.parameters().items():
        if parameter.default is inspect.Parameter.empty and name not in arguments:
            yield Problem(
                f"The argument {name!r} has no default, so nothing can be made to check.",
                f"Give it a default, or call the check of dubio.testing with arguments={{{name!r}: …}}.",
            )


def attempt(
    make: Callable[[], Any], entry: Entry[Any] | None, arguments: Mapping[str, Any], action: str = "Making it"
) -> tuple[Any, list[Problem]]:
    """Return what a registered function makes, or None with the problems that prevent it.

    Args:
        make: Calls the function.
        entry: Its entry; None for a function that is not registered.
        arguments: The arguments that ``make`` passes.
        action: What ``make`` does, for the problem.
    """
    if entry is not None and (missing := list(missing_arguments(entry, arguments))):
        return None, missing
    try:
        return make(), []
    except Exception as fault:
        return None, [Problem(f"{action} raised {one_line(fault)}", "Make it work with its default arguments.")]


@contextmanager
def other_global_seed(seed: int) -> Iterator[None]:
    """Reseed Python's and numpy's global generators during the block, to expose code that draws from them."""
    python_state, numpy_state = random.getstate(), np.random.get_state()
    random.seed(seed)
    np.random.seed(seed)
    try:
        yield
    finally:
        random.setstate(python_state)
        np.random.set_state(numpy_state)
