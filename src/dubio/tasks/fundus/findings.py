"""The preprocessing report: what is wrong with single photographs, and what was done about it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

Sort = Literal[
    "label without image", "image without label", "without grade", "duplicate id", "same photograph", "unreadable",
    "no disc", "too dark",
]  # fmt: skip
"""What may be wrong. Photographs without a disc and dark ones are kept; all others are left out."""

SORTS: tuple[Sort, ...] = get_args(Sort)
KEPT: tuple[Sort, ...] = ("no disc", "too dark")
SHOWN = 3
"""So many photographs of a sort are named in one sentence."""

_SPOKEN: dict[Sort, str] = {
    "label without image": "Labels without an image",
    "image without label": "Images without a label",
    "without grade": "Photographs without a grade from 0 to 4",
    "duplicate id": "Ids that occur more than once",
    "same photograph": "Copies of another photograph",
    "unreadable": "Files that cannot be read",
    "no disc": "Photographs in which no disc of an eye was found, kept whole",
    "too dark": "Photographs that are very dark, kept",
}


@dataclass(frozen=True, slots=True)
class Finding:
    """Something wrong with one photograph.

    Attributes:
        sort: What.
        id: Which photograph, by its id or file.
        words: The particulars, for a reader.
    """

    sort: Sort
    id: str
    words: str = ""

    def line(self) -> str:
        """One line of the report."""
        said = f"{self.id}: {self.sort}{': ' + self.words if self.words else ''}"
        if self.sort == "duplicate id":  # its words say which of them stay
            return said
        return f"{said} ({'kept' if self.sort in KEPT else 'left out'})"


def summary(findings: Sequence[Finding]) -> tuple[str, ...]:
    """A sentence for each sort of finding: how many, and the first of them."""
    made = []
    for sort in SORTS:
        found = [finding for finding in findings if finding.sort == sort]
        if found:
            named = ", ".join(f"{item.id}{f' ({item.words})' if item.words else ''}" for item in found[:SHOWN])
            made.append(f"{_SPOKEN[sort]}: {len(found):,}: {named}{', …' if len(found) > SHOWN else ''}.")
    return tuple(made)
