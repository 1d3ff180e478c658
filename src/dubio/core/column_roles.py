"""Recognise columns by their names: parts of a data set, groups, times and domains.

A column of patients that nobody names is read as nothing, and rows of one patient are then taken for independent. What
looks like such a column and has no use is therefore named to the reader.
"""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True)
class Role:
    """A use that a column may have.

    Attributes:
        nouns: Words of a column's name that suggest it; a plural counts too.
        use: What the use of the column would change, as the beginning of a sentence.
    """

    nouns: frozenset[str]
    use: str


def _role(nouns: str, use: str) -> Role:
    return Role(frozenset(nouns.split()), use)


ROLES: dict[str, Role] = {
    "group": _role(
        "group patient subject user person participant customer client author speaker writer document doc article case "
        "session household family student worker annotator",
        "rows of one group stay together",
    ),
    "split": _role("split part partition fold subset", "the parts it names are kept"),
    "time": _role("date time datetime timestamp year month day", "the oldest rows train and the newest test"),
    "domain": _role(
        "domain site hospital clinic centre center institution device scanner camera country region language source",
        "other domains than the one to train on become shifts",
    ),
}
"""Roles by the name of the option that gives a column this role, the most important first."""

_WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")


def column_role(name: str) -> str | None:
    """Return the role that a column's name suggests: ``group`` for ``patient_id`` and ``PatientID``; None for none."""
    pieces = {word.lower() for word in _WORD.findall(name)}
    pieces |= {piece.removesuffix("s") for piece in pieces}
    return next((name for name, role in ROLES.items() if pieces & role.nouns), None)
