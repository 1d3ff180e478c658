"""One family of exceptions, and the sentences they speak in.

Every error that reaches a user names the argument or file, what is allowed, what was given and the nearest known
name. The command line turns a :class:`DubioError` into one message and its ``exit_code``; only a bug shows a traceback.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable

MOST_LISTED = 40
"""So many names stand in a message; a data set may have thousands of classes or patients."""


class DubioError(Exception):
    """Anything dubio refuses or reports on purpose."""

    exit_code = 1


class UserError(DubioError, ValueError):
    """A mistake the user can mend: a name, a value, a file."""

    exit_code = 2


class UnknownName(UserError):
    """A name that is not among the known ones."""

    def __init__(self, what: str, given: object, known: Iterable[str]) -> None:
        """Say what was given, what is nearest and what there is.

        Args:
            what: What the name stands for, e.g. ``"task"``.
            given: The name as the user wrote it.
            known: Every name that would have been accepted.
        """
        names = sorted(known)
        hint = nearest(str(given), names)
        guess = f" Did you mean {hint!r}?" if hint else ""
        super().__init__(f"unknown {what} {given!r}.{guess} Known: {listing(names)}.")


class BadFile(UserError):
    """A file that cannot be read as what it claims to be."""


class MissingExtra(UserError):
    """An optional dependency that this use of dubio needs."""

    def __init__(self, what: str, extra: str) -> None:
        """Name the use and the extra that brings what it needs."""
        super().__init__(f"{what} needs an optional part of dubio: pip install 'dubio[{extra}]'.")


class StoreError(UserError):
    """A store that cannot be opened, written or understood."""


class CorruptFile(DubioError):
    """A stored file whose content is not what its record says."""


class TrainingFailed(DubioError):
    """A training that came to nothing, such as one whose loss is not a number."""


def listing(names: Iterable[str]) -> str:
    """Names with commas, the first of many and how many more there are."""
    known = list(names)
    more = f" and {len(known) - MOST_LISTED} more" if len(known) > MOST_LISTED else ""
    return ", ".join(known[:MOST_LISTED]) + more if known else "(none)"


def nearest(given: str, known: Iterable[str]) -> str | None:
    """The known name most like the given one, or None when nothing is close.

    Args:
        given: The name as written.
        known: The names that exist.
    """
    names = list(known)
    folded = {name.lower().replace("_", "-"): name for name in names}
    close = difflib.get_close_matches(given.lower().replace("_", "-"), folded, n=1, cutoff=0.5)
    return folded[close[0]] if close else None


def one_of(argument: str, given: str, allowed: Iterable[str]) -> str:
    """Return ``given`` if it is allowed, else refuse it by name.

    Args:
        argument: The argument the value was given for.
        given: The value.
        allowed: The values it may have.

    Raises:
        UnknownName: When it is none of them.
    """
    names = list(allowed)
    if given not in names:
        raise UnknownName(f"value of {argument}", given, names)
    return given
