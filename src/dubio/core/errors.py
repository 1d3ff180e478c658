"""The exceptions of dubio and helpers for their messages.

An error that reaches a user names the argument or file, what is allowed, what was given and the nearest known name.
The command line turns a :class:`DubioError` into one message and its ``exit_code``; any other error is a bug, for which
:mod:`dubio.__main__` writes a log.
"""

from __future__ import annotations

import difflib
import itertools
import re
from collections.abc import Collection, Iterable
from numbers import Real

MOST_LISTED = 40
"""Largest number of names in a message; a data set may have thousands of classes or patients."""


class DubioError(Exception):
    """Anything dubio refuses or reports on purpose."""

    exit_code = 1


class UserError(DubioError, ValueError):
    """A mistake that the user can correct: a name, a value, a file."""

    exit_code = 2


class UnknownName(UserError):
    """A name that is not among the known ones."""

    def __init__(self, what: str, name: object, names: Iterable[str], advice: str = "") -> None:
        """Compose the message from the name, the nearest one and all that are accepted.

        Args:
            what: The kind of name, e.g. ``"task"``.
            name: The name as the user wrote it.
            names: All names that are accepted.
            advice: A sentence on where others come from.
        """
        listed = sorted(names)
        hint = nearest(str(name), listed)
        guess = f" Did you mean {hint!r}?" if hint else ""
        super().__init__(f"unknown {what} {name!r}.{guess} Known: {listing(listed)}. {advice}".rstrip())


class BadFile(UserError):
    """A file that cannot be read, or is not of the expected format."""


class MissingExtra(UserError):
    """An optional dependency that is not installed."""

    def __init__(self, what: str, extra: str) -> None:
        """Name the use and the extra that installs the dependency."""
        super().__init__(f"{what} needs an optional part of dubio: pip install 'dubio[{extra}]'.")


class StoreError(UserError):
    """A store that cannot be opened, written or understood."""


class CorruptFile(DubioError):
    """A stored file whose content does not match its record."""


class TrainingFailed(DubioError):
    """A training that failed, such as one whose loss became NaN."""


def listing(names: Iterable[str]) -> str:
    """Return names separated by commas; of many, the first ones and the number of the others."""
    listed = list(names)
    more = f" and {len(listed) - MOST_LISTED} more" if len(listed) > MOST_LISTED else ""
    return ", ".join(listed[:MOST_LISTED]) + more if listed else "(none)"


def plural(noun: str, count: int) -> str:
    """Return a noun as it follows a count: ``row`` after 1, ``rows`` after any other; ``classes``."""
    return noun if count == 1 else f"{noun}es" if noun.endswith("s") else f"{noun}s"


def nearest(name: str, names: Iterable[str]) -> str | None:
    """Return the one of these names that is most like the given one, or None when none is close.

    But for a typing error, a name that shares whole words is meant: of ``packed`` and ``mimo-ensemble``, the names
    ``packed-ensemble`` and ``mimo`` are, though others have more letters in common.
    """
    word, folded = _folded(name), {_folded(item): item for item in names}
    close = difflib.get_close_matches(word, folded, n=1, cutoff=0.5)
    if close and difflib.SequenceMatcher(None, close[0], word).ratio() >= TYPING_ERROR:
        return folded[close[0]]
    same = _sharing_words(word, folded) or (close[0] if close else None)
    return None if same is None else folded[same]


TYPING_ERROR = 0.8
"""Similarity from which on a name differs from another by a typing error."""


def _leading_words(name: str, other: str) -> int:
    """Return the number of words with which both names begin."""
    pairs = zip(name.split("-"), other.split("-"), strict=False)
    return sum(1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], pairs))


def _folded(name: str) -> str:
    return re.sub(r"[_. ]+", "-", name.lower())


def _sharing_words(word: str, names: Collection[str]) -> str | None:
    """Return the name that begins with the given one, contains it, or is contained in it, as whole words."""
    listed = [name for name in names if min(len(name), len(word)) > 2]
    longer = [name for name in listed if f"-{word}-" in f"-{name}-"]
    begun = listed if any(word.startswith(f"{name}-") for name in listed) else []
    kinds = (
        sorted((name for name in names if name.startswith(f"{word}-")), key=len),
        sorted((name for name in listed if name.startswith(word)), key=len),
        sorted(begun, key=lambda name: (_leading_words(name, word), -len(name)), reverse=True),
        sorted(longer, key=len),
        sorted((name for name in listed if f"-{name}-" in f"-{word}-"), key=len, reverse=True),
    )
    return next((ordered[0] for ordered in kinds if ordered), None)


def one_of(argument: str, value: str, allowed: Iterable[str]) -> str:
    """Return the value if it is allowed.

    Args:
        argument: The argument the value was given for.
        value: The value.
        allowed: The values it may have.

    Raises:
        UnknownName: When it is none of them.
    """
    check_known(f"value of {argument}", [value], list(allowed))
    return value


def check_known(what: str, names: Iterable[str], allowed: Collection[str]) -> None:
    """Refuse the first of these names that is not allowed.

    Raises:
        UnknownName: With the names that are.
    """
    for name in names:
        if name not in allowed:
            raise UnknownName(what, name, allowed)


def check_between_0_and_1(argument: str, value: object) -> None:
    """Refuse what is not a number strictly between 0 and 1, such as a level or a share."""
    if not isinstance(value, Real) or not 0.0 < float(value) < 1.0:
        raise UserError(f"{argument} must lie between 0 and 1; given {value}.")
