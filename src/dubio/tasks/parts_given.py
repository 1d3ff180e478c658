"""Parts that the data itself names, in a column or as folders."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from dubio.core.errors import UnknownName, UserError
from dubio.core.types import BoolArray, IntArray, Kind, StrArray
from dubio.tasks.splits import PARTS, TRAIN

PART_ALIASES: dict[str, str] = {
    **dict.fromkeys(("train", "training"), "train"),
    **dict.fromkeys(("val", "valid", "validation", "dev"), "val"),
    **dict.fromkeys(("cal", "calibration"), "cal"),
    **dict.fromkeys(("test", "testing", "id"), "test"),
}
"""What a part may be called, in lower case. Beside these, ``shift``, ``shift-…``, ``ood`` and ``ood-…`` make splits."""

_OUTSIDE = re.compile(r"(shift|ood)([-_.][\w.-]+)?")

OUTSIDE = -1
"""The part of a row that belongs to a given shift or ood split."""


@dataclass(frozen=True, eq=False)
class Given:
    """Rows by the part their data names.

    Attributes:
        parts: ``[N]`` index in ``PARTS``, or −1 for a shift or ood split.
        outside: Kind and rows of every given shift or ood split, by name.
    """

    parts: IntArray
    outside: dict[str, tuple[Kind, BoolArray]]


def given_parts(split: StrArray, places: Sequence[str]) -> Given:
    """Read a column of parts.

    Args:
        split: What each row says ``[N]``.
        places: How a message calls each row.

    Raises:
        UnknownName: For a word that names no part.
        UserError: When no row is for training.
    """
    parts = np.full(len(split), OUTSIDE, dtype=np.int64)
    outside: dict[str, tuple[Kind, BoolArray]] = {}
    for word in dict.fromkeys(split.tolist()):
        rows = split == word
        part = PART_ALIASES.get(word.lower())
        if part is not None:
            parts[rows] = PARTS.index(part)
        elif _OUTSIDE.fullmatch(word.lower()):
            outside[word.lower()] = ("shift" if word.lower().startswith("shift") else "ood", rows)
        else:
            where = places[int(np.flatnonzero(rows)[0])]
            raise UnknownName(f"part in {where}", word, [*PART_ALIASES, "shift", "shift-…", "ood", "ood-…"])
    if not (parts == TRAIN).any():
        raise UserError("split names no row for training; write 'train' for those.")
    return Given(parts, outside)


def fill_missing(
    parts: IntArray, fractions: Sequence[float], cut: Callable[[IntArray, tuple[float, ...]], IntArray]
) -> tuple[IntArray, tuple[str, ...]]:
    """Cut the parts that the data does not name out of its training rows.

    Args:
        parts: The given parts ``[N]``, −1 outside.
        fractions: Shares of train, val, cal and test; a missing part takes its share of the training rows.
        cut: From rows and four shares to the part of each of those rows.

    Returns:
        The parts, and the names of those that were cut.
    """
    missing = [index for index, share in enumerate(fractions) if share > 0 and not (parts == index).any()]
    if not missing:
        return parts, ()
    shares = [fractions[index] if index in missing else 0.0 for index in range(len(PARTS))]
    shares[TRAIN] = 1.0 - sum(shares)
    rows = np.flatnonzero(parts == TRAIN)
    filled = parts.copy()
    filled[rows] = cut(rows, tuple(shares))
    return filled, tuple(PARTS[index] for index in missing)
