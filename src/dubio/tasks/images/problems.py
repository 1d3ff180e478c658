"""Problems with single photographs, as a preprocessing report lists them, and progress on a screen."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

ProblemKind = Literal[
    "label without image", "image without label", "without grade", "duplicate id", "same photograph", "unreadable",
    "no disc", "too dark",
]  # fmt: skip
"""Photographs without a disc and dark ones are used; all others are left out."""

PROBLEM_KINDS: tuple[ProblemKind, ...] = get_args(ProblemKind)
USED: tuple[ProblemKind, ...] = ("no disc", "too dark")
EXAMPLES_NAMED = 3
"""Photographs named in one sentence of the summary."""

_HEADINGS: dict[ProblemKind, str] = {
    "label without image": "Labels without an image",
    "image without label": "Images without a label",
    "without grade": "Photographs without a grade from 0 to 4",
    "duplicate id": "Ids that occur more than once",
    "same photograph": "Copies of another photograph",
    "unreadable": "Files that cannot be read",
    "no disc": "Photographs in which no disc of an eye was found, used whole",
    "too dark": "Photographs that are very dark, used",
}


@dataclass(frozen=True, slots=True)
class Problem:
    """A problem with one photograph.

    Attributes:
        kind: The kind of problem.
        id: The photograph, by its id or file.
        details: Details, for a reader.
    """

    kind: ProblemKind
    id: str
    details: str = ""

    def line(self) -> str:
        """Return one line of the report."""
        text = f"{self.id}: {self.kind}{': ' + self.details if self.details else ''}"
        if self.kind == "duplicate id":  # its details say which labels are used
            return text
        return f"{text} ({'kept' if self.kind in USED else 'left out'})"


def summary(problems: Sequence[Problem]) -> tuple[str, ...]:
    """Return a sentence for each kind of problem: how many there are, and the first of them."""
    sentences = []
    for kind in PROBLEM_KINDS:
        same = [problem for problem in problems if problem.kind == kind]
        if same:
            examples = same[:EXAMPLES_NAMED]
            named = ", ".join(f"{item.id}{f' ({item.details})' if item.details else ''}" for item in examples)
            more = ", …" if len(same) > EXAMPLES_NAMED else ""
            sentences.append(f"{_HEADINGS[kind]}: {len(same):,}: {named}{more}.")
    return tuple(sentences)


_SECONDS = 0.2


def progress_on_screen(action: str) -> Callable[[int, int], None] | None:
    """Return a function that shows progress on one line of standard error, or None where that is not a terminal."""
    if not sys.stderr.isatty():
        return None
    last = [0.0]

    def show(count: int, total: int) -> None:
        now = time.monotonic()
        if count < total and now - last[0] < _SECONDS:
            return
        last[0] = now
        sys.stderr.write(f"\r{action}: {count:,} of {total:,}" + ("\n" if count == total else ""))
        sys.stderr.flush()

    return show
