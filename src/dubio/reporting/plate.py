"""A figure that can be drawn: what it is called, where it belongs, how it is read, and what is seen in it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from matplotlib.figure import Figure

Chapter = Literal["in_domain", "referral", "screening", "promise", "elsewhere", "cost", "across", "ensembles"]


@dataclass(frozen=True)
class Plate:
    """A figure that can be drawn.

    Attributes:
        slug: What its file is called, after the task.
        chapter: Where it belongs.
        title: What it is.
        caption: How to read it.
        draw: Draws it.
        narrow: Whether it is less wide than the text.
        folded: Whether a page shows it only when asked.
        reading: What is seen in it, in a sentence with its numbers.
    """

    slug: str
    chapter: Chapter
    title: str
    caption: str
    draw: Callable[[], Figure]
    narrow: bool = False
    folded: bool = False
    reading: str = ""


def slug_of(text: str) -> str:
    """A text as part of a file's name."""
    return "".join(letter if letter.isalnum() else "-" for letter in text)
