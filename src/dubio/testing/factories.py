"""Rules for every registered function: its arguments are its configuration, typed and defaulted once."""

from __future__ import annotations

import inspect
import json
import re
import typing
from collections.abc import Iterator, Mapping
from typing import Any

from dubio.core.errors import UserError
from dubio.core.registry import Entry, Registry
from dubio.core.specs import describe
from dubio.testing.findings import Problem, spoken

NAME = re.compile(r"[A-Za-z_][\w.-]*")


def entry_of(registry: Registry[Any], given: str | Entry[Any]) -> Entry[Any]:
    """The entry itself, or the one of that name.

    Raises:
        UnknownName: When there is none of that name.
    """
    return registry.entry(given) if isinstance(given, str) else given


def signature_problems(entry: Entry[Any], positional: tuple[str, ...] = ()) -> Iterator[Problem]:
    """What is wrong with a factory's name, arguments and docstring.

    Args:
        entry: The registered factory.
        positional: The arguments that dubio itself gives, by position.
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
            f"Its type hints cannot be read: {spoken(fault)}",
            "Import the names they use at the top of the file, outside `if TYPE_CHECKING`.",
        )
        return
    found = list(inspect.signature(entry.factory).parameters.values())
    if len(found) < len(positional):
        yield Problem(
            f"It takes {len(found)} arguments; dubio gives {', '.join(positional)} by position.",
            f"Begin its arguments with {', '.join(positional)}.",
        )
    for parameter in found[len(positional) :]:
        name = parameter.name
        if parameter.kind is not inspect.Parameter.KEYWORD_ONLY:
            yield Problem(
                f"The argument {name!r} is not keyword-only, so a benchmark file cannot set it.",
                f"Put a * before it: def …(*, {name.lstrip('*')}: … = …).",
            )
        elif name not in hints:
            yield Problem(f"The argument {name!r} has no type hint, so no value is refused.", "Give it one.")
    for name, default in entry.defaults().items():
        yield from _default_problems(entry, name, default)


def _default_problems(entry: Entry[Any], name: str, default: Any) -> Iterator[Problem]:
    try:
        entry.check({name: default})
    except UserError as refusal:
        if "needs the argument" not in str(refusal):
            yield Problem(f"The default of {name!r} is not what its type hint says: {refusal}", "Mend either of them.")
    try:
        json.dumps(describe(default), allow_nan=False)
    except (TypeError, ValueError) as fault:
        yield Problem(
            f"The default of {name!r} cannot be written down in JSON: {spoken(fault)}",
            "Use numbers, texts, true or false, None, and tuples of these: arguments are part of a run's identity.",
        )
    if isinstance(default, list | dict | set):
        yield Problem(
            f"The default of {name!r} is changeable.", "Use a tuple, so that no call can change the next one."
        )


def missing_arguments(entry: Entry[Any], arguments: Mapping[str, Any]) -> Iterator[Problem]:
    """Arguments without a default that were not given: nothing can be made to look at."""
    empty = inspect.Parameter.empty
    for name, parameter in entry.parameters().items():
        if parameter.default is empty and name not in arguments:
            yield Problem(
                f"The argument {name!r} has no default, so nothing can be made to check.",
                f"Give it a default, or call the check of dubio.testing with arguments={{{name!r}: …}}.",
            )
