"""Conformance rules: what a check reports, how rules are applied, and the rules for every registered function."""

from __future__ import annotations

import inspect
import json
import random
import re
import typing
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial, wraps
from pathlib import Path
from typing import Any, Generic, Literal, NamedTuple, ParamSpec, TypeVar

import numpy as np

from dubio.core.errors import DubioError, MissingExtra, UserError
from dubio.core.registry import REGISTRIES, Entry, Registry, load_plugin
from dubio.core.specs import describe

C = TypeVar("C")
S = TypeVar("S")
P = ParamSpec("P")

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
    applies: Callable[[C], bool] = lambda case: True


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
            yield Finding(rule.what, *problem)
    except Exception as fault:  # whatever a user's code raises is a finding, never the end of the checks
        advice = "Make this work, or raise an error with a sentence."
        yield Finding(rule.what, f"Checking this raised {one_line(fault)}", advice)


def one_line(fault: BaseException) -> str:
    """Return an error as one line that ends with a full stop."""
    text = " ".join(str(fault).split()) or "without a message"
    return f"{type(fault).__name__}: {text}" + ("" if text.endswith((".", "?", "!")) else ".")


def findings_of(examine: Callable[P, list[Outcome]]) -> Callable[P, list[Finding]]:
    """Return the check that gives the problems alone; an empty list when all rules hold."""

    @wraps(examine)
    def check(*args: P.args, **kwargs: P.kwargs) -> list[Finding]:
        return [finding for outcome in examine(*args, **kwargs) for finding in outcome.findings]

    return check


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


@dataclass
class Case(Generic[S]):
    """A task, network, method or metric to check.

    Attributes:
        entry: Its entry; None for one that is not registered.
        arguments: Arguments of the registered function, where its defaults do not suffice.
        make: Makes it.
        subject: The object itself, set by :func:`made` before any other rule reads it.
    """

    entry: Entry[Any] | None
    arguments: Mapping[str, Any]
    make: Callable[..., S]
    subject: S = None  # type: ignore[assignment]

    def made(self, *args: Any, action: str = "Making it") -> Generator[Problem, None, bool]:
        """Make the subject; yield the problems that prevent it, and return whether there are none.

        Args:
            *args: What ``make`` is called with.
            action: What is done, for the problem.
        """
        missing = [] if self.entry is None else [
            name for name, parameter in self.entry.parameters().items()
            if parameter.default is inspect.Parameter.empty and name not in self.arguments
        ]  # fmt: skip
        for name in missing:
            problem = f"The argument {name!r} has no default, so nothing can be made to check."
            advice = f"Give it a default, or call the check of dubio.testing with arguments={{{name!r}: …}}."
            yield Problem(problem, advice)
        if missing:
            return False
        try:
            self.subject = self.make(*args)
        except Exception as fault:
            yield Problem(f"{action} raised {one_line(fault)}", "Make it work with its default arguments.")
            return False
        return True


K = TypeVar("K", bound=Case[Any])


def case_of(kind: type[K], registry: Registry[Any], subject: Any, arguments: Mapping[str, Any] | None) -> K:
    """Return the case of a registered name or entry, of an object, or of a function that makes one.

    Args:
        kind: The class of the case.
        registry: Where names are registered.
        subject: The name, entry, object or function.
        arguments: Arguments of the registered function, where its defaults do not suffice.

    Raises:
        UnknownName: When nothing of that name is registered.
    """
    values = dict(arguments or {})
    entry = registry.entry(subject) if isinstance(subject, str) else subject
    if isinstance(entry, Entry):
        return kind(entry, values, partial(entry.make, **values))
    return kind(None, values, subject if callable(subject) else lambda: subject)


def signature_problems(entry: Entry[Any] | None, positional: tuple[str, ...] = ()) -> Iterator[Problem]:
    """Yield the problems of a factory's name, arguments and docstring.

    Args:
        entry: The registered factory; None has no problems.
        positional: The arguments that dubio itself passes by position.
    """
    if entry is None:
        return
    if not NAME.fullmatch(entry.name):
        problem = f"The name {entry.name!r} cannot be written in a benchmark file."
        yield Problem(problem, "Begin with a letter and use letters, digits, '.', '_' and '-'.")
    if not entry.summary:
        yield Problem("The function has no docstring.", "Its first line is what `dubio list` shows; write one.")
    try:
        hints = typing.get_type_hints(entry.factory)
    except Exception as fault:
        advice = "Import the names they use at the top of the file, outside `if TYPE_CHECKING`."
        yield Problem(f"Its type hints cannot be read: {one_line(fault)}", advice)
        return
    parameters = list(inspect.signature(entry.factory).parameters.values())
    if len(parameters) < len(positional):
        names = ", ".join(positional)
        problem = f"It takes {len(parameters)} arguments; dubio passes {names} by position."
        yield Problem(problem, f"Begin its arguments with {names}.")
    for parameter in parameters[len(positional) :]:
        name = parameter.name
        if parameter.kind is not inspect.Parameter.KEYWORD_ONLY:
            problem = f"The argument {name!r} is not keyword-only, so a benchmark file cannot set it."
            yield Problem(problem, f"Put a * before it: def …(*, {name.lstrip('*')}: … = …).")
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
        advice = "Use numbers, texts, true or false, None, and tuples of these: arguments are part of a run's identity."
        yield Problem(f"The default of {name!r} has no JSON form: {one_line(fault)}", advice)
    if isinstance(default, list | dict | set):
        yield Problem(f"The default of {name!r} is mutable.", "Use a tuple, so that no call can change the next one.")


SIGNATURE: Rule[Any] = Rule(
    "its arguments are keyword-only, typed and have a docstring", lambda case: signature_problems(case.entry)
)


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


# --- everything that a file registers ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class CheckedEntry:
    """A registered task, network, method or metric and the outcome of every rule."""

    kind: str
    entry: Entry[Any]
    outcomes: tuple[Outcome, ...]

    @property
    def passed(self) -> bool:
        """Whether no rule failed."""
        return all(outcome.state != "failed" for outcome in self.outcomes)


def check_plugin(file: Path, inputs: Sequence[str] = ("table",)) -> tuple[CheckedEntry, ...]:
    """Load a file and check everything it registers.

    Args:
        file: A Python file that registers tasks, networks, methods or metrics.
        inputs: Kinds of data that methods are fitted on: ``table``, ``text``, ``image``.

    Raises:
        UserError: If the file cannot be loaded or registers nothing.
    """
    from dubio import testing

    checked = []
    for kind, entry in _registered_by(file):
        examine: Callable[..., list[Outcome]] = getattr(testing, f"examine_{kind}")
        options = {"inputs": inputs} if kind == "method" else {}
        checked.append(CheckedEntry(kind, entry, tuple(examine(entry, **options))))
    return tuple(checked)


def _registered_by(file: Path) -> list[tuple[str, Entry[Any]]]:
    """Return (kind, entry) of everything that the file registers.

    A file of dubio itself is registered already; loading it once more would give its names twice.
    """
    before: dict[str, tuple[str, ...]] = {}
    unavailable: list[MissingExtra] = []
    for kind, registry in REGISTRIES.items():
        try:
            before[kind] = registry.names()
        except MissingExtra as missing:  # networks and methods without torch
            unavailable.append(missing)
    entries = [(kind, entry) for kind in before for entry in REGISTRIES[kind].entries()]
    package = Path(__file__).parents[1]
    if file.resolve().is_relative_to(package):
        own = ".".join(file.resolve().relative_to(package.parent).with_suffix("").parts)
        added = [(kind, entry) for kind, entry in entries if entry.origin == own]
    else:
        load_plugin(file)
        entries = [(kind, entry) for kind in before for entry in REGISTRIES[kind].entries()]
        added = [(kind, entry) for kind, entry in entries if entry.name not in before[kind]]
    if not added and unavailable:
        raise unavailable[0]
    if not added:
        decorators = "@dubio.task, @dubio.network, @dubio.method or @dubio.metric"
        raise UserError(f"{str(file)!r} registers nothing; decorate a function with {decorators}.")
    return [(kind.removesuffix("s"), entry) for kind, entry in added]
