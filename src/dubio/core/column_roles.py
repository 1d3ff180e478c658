"""Recognise columns by their names: parts of a data set, groups, times and domains; and groups by their values too.

A column of patients that nobody names is read as nothing, and rows of one patient are then taken for independent: their
intervals are too narrow, and their guarantees false. What looks like such a column and has no use is therefore named to
the reader, or refused.
"""

from __future__ import annotations

import difflib
import math
import re
from dataclasses import dataclass
from typing import Any

import numpy as np


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
        "session household family student worker annotator individual donor animal cluster",
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

ATTRIBUTES = frozenset((
    "age", "sex", "gender", "race", "weight", "height", "bmi", "length", "size", "count", "type", "kind", "agent",
    "status", "time", "date", "duration", "year", "month", "day", "score", "start", "end", "language", "category",
    "level", "severity", "position", "tokens", "words",
))  # fmt: skip
"""Words that make of a unit's name one of its attributes: the age of a patient is not the patient."""

SHARE = 1 / 20
"""A column of texts is taken for units if its levels, and its repetitions, are at least this share of the rows."""

FEWEST = 5
"""Fewest levels of such a column: with fewer it is a category, however few rows there are."""

LONG, ALIKE = 5, 0.85
"""A word with this much of a noun of at least five letters, or with all its letters, is a misspelling of it."""

_WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")


def words_of(name: str) -> list[str]:
    """Return the words of a column's name in small letters, split at signs, digits and capitals."""
    return [word.lower() for word in _WORD.findall(name)]


def column_role(name: str) -> str | None:
    """Return the role that a column's name suggests: ``group`` for ``patient_id`` and ``PatientID``; None for none."""
    if names_units(name):
        return "group"
    pieces = set(words_of(name))
    pieces |= {word.removesuffix("s") for word in pieces}
    return next((role for role, facts in ROLES.items() if role != "group" and pieces & facts.nouns), None)


def names_units(name: str) -> bool:
    """Return whether a column is named like units: ``patient_id``, ``SubjectNo``, or a misspelt ``group``."""
    pieces = words_of(name)
    if ATTRIBUTES & set(pieces):
        return False
    return any(_is_noun(word, noun) for word in pieces for noun in ROLES["group"].nouns)


def _is_noun(word: str, noun: str) -> bool:
    """Return whether a word is a noun, its plural, or a misspelling of a long one that begins alike."""
    return word.removesuffix("s") == noun or is_misspelt(word, noun)


def is_misspelt(word: str, noun: str) -> bool:
    """Return whether a word has nearly the letters of a noun of at least five that begins alike."""
    if len(noun) < LONG or word[:1] != noun[0]:
        return False
    return sorted(word) == sorted(noun) or difflib.SequenceMatcher(None, word, noun).ratio() >= ALIKE


def looks_like_units(name: str, cells: Any) -> bool:
    """Return whether a column looks like units that rows belong to.

    Its values must repeat. Then either its name is one for units and its values are no fractions, or they are not
    numbers and have many levels: at least a twentieth of the rows, which leave at least a twentieth as repetitions.

    Args:
        name: Of the column.
        cells: ``[N]`` texts, numbers or None.
    """
    numbers = _as_numbers(cells)
    if numbers is not None and not names_units(name):
        return False
    values: list[Any]
    if numbers is None:
        values = [str(cell) for cell in cells if cell is not None and cell != ""]
    else:
        values = numbers[~np.isnan(numbers)].tolist()
    levels = len(set(values))
    if levels < 2 or levels == len(values):
        return False
    if names_units(name):
        return numbers is None or all(map(float.is_integer, values))
    many = max(FEWEST, SHARE * len(values))
    return levels >= many and len(values) - levels >= SHARE * len(values)


def _as_numbers(cells: Any) -> Any:
    """Return a column in float64, NaN where a cell is empty; None where one is not a number."""
    try:
        if isinstance(cells, np.ndarray):
            return cells.astype(np.float64)
        return np.array([math.nan if cell is None or cell == "" else float(cell) for cell in cells])
    except (ValueError, TypeError, OverflowError):
        return None
