"""Rows that two splits share: what a test claims to judge must not have been trained on.

Training, validation and calibration are compared with every split that comes after them. Texts are the same when their
lower-cased words are the same; images and table rows when their bytes are. What is *nearly* the same is said in
``near_texts.py`` and ``near_arrays.py``. Nothing is removed: the counts are for the reader to judge.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dubio.core.lazy_rows import row_keys
from dubio.core.types import Examples, IntArray, Modality, Split
from dubio.tasks.near_arrays import IMAGE_TOLERANCE, TABLE_TOLERANCE, near_points, standardised, thumbnails
from dubio.tasks.near_texts import near_matches, signatures

_WORDS = re.compile(r"\w+")


@dataclass(frozen=True)
class Shared:
    """What a later split shares with an earlier one.

    Attributes:
        earlier: Name of the split that training, selection or calibration sees.
        later: Name of the split that comes after it.
        rows: Rows of the later split.
        exact: How many of them have the same content as an earlier row.
        near: How many others are nearly the same as an earlier row.
        example: Ids (or row numbers) of one such pair: earlier, later.
    """

    earlier: str
    later: str
    rows: int
    exact: int
    near: int
    example: tuple[str, str]

    def sentence(self) -> str:
        """What a reader of the report must know."""
        both = self.exact + self.near
        return (
            f"Rows of {self.later} that are also in {self.earlier}: {both:,} of {self.rows:,} "
            f"({100 * both / self.rows:.1f} %), {self.exact:,} the same and {self.near:,} nearly the same; for example "
            f"{self.example[1]} of {self.later} and {self.example[0]} of {self.earlier}."
        )


def shared_rows(splits: Sequence[Split], inputs: Modality) -> tuple[Shared, ...]:
    """Every pair of splits that share rows, the earlier one being train, val or cal.

    Args:
        splits: In the task's order.
        inputs: What an example is.
    """
    fitted = [split for split in splits if split.kind in ("train", "val", "cal")]
    if not fitted:
        return ()
    prints = {split.name: _Prints.of(split.data, inputs, fitted[0].data) for split in splits}
    found = []
    for index, earlier in enumerate(splits):
        if earlier.kind not in ("train", "val", "cal"):
            continue
        for later in splits[index + 1 :]:
            shared = _compare(earlier, later, prints[earlier.name], prints[later.name], inputs)
            if shared is not None:
                found.append(shared)
    return tuple(found)


@dataclass(frozen=True, eq=False)
class _Prints:
    """What of a split's rows is compared: exact keys, and texts with signatures or points."""

    keys: list[Any]
    texts: tuple[str, ...]
    points: NDArray[Any]

    @classmethod
    def of(cls, data: Examples, inputs: Modality, reference: Examples) -> _Prints:
        if isinstance(data.inputs, tuple):
            texts = tuple(plain(text) for text in data.inputs)
            return cls(list(texts), texts, signatures(texts))
        keys = row_keys(data.inputs)
        if inputs == "image":
            return cls(keys, (), thumbnails(data.inputs))
        return cls(keys, (), standardised(np.asarray(data.inputs), np.asarray(reference.inputs)))


def plain(text: str) -> str:
    """The words of a text in lower case, one space between them; the text itself where it has no word."""
    return " ".join(_WORDS.findall(text.lower())) or text.strip()


def _compare(earlier: Split, later: Split, old: _Prints, new: _Prints, inputs: Modality) -> Shared | None:
    first: dict[Any, int] = {}
    for row, key in enumerate(old.keys):
        first.setdefault(key, row)
    match = np.array([first.get(key, -1) for key in new.keys], dtype=np.int64)
    exact = int((match >= 0).sum())
    rest = np.flatnonzero(match < 0)
    if len(rest) and len(old.keys):
        match[rest] = _near(old, new, rest, inputs)
    rows = np.flatnonzero(match >= 0)
    if len(rows) == 0:
        return None
    pair = (_called(earlier.data, int(match[rows[0]])), _called(later.data, int(rows[0])))
    return Shared(earlier.name, later.name, len(later), exact, len(rows) - exact, pair)


def _near(old: _Prints, new: _Prints, rest: IntArray, inputs: Modality) -> IntArray:
    if inputs == "text":
        texts = [new.texts[row] for row in rest.tolist()]
        return near_matches(old.texts, old.points, texts, new.points[rest])
    tolerance = IMAGE_TOLERANCE if inputs == "image" else TABLE_TOLERANCE
    return near_points(old.points, new.points[rest], tolerance)


def _called(data: Examples, row: int) -> str:
    return f"row {row}" if data.ids is None else str(data.ids[row])
