"""How many documents a copy of a corpus has, beside how many it should have."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from dubio.tasks.sources.corpus import Document, Found

PAPER = "T, Table 2"


@dataclass(frozen=True)
class Count:
    """One number, found and published.

    Attributes:
        what: A part's name, ``documents`` or ``classes``.
        found: How many there are.
        published: How many there should be, or None where nobody says.
        by: Who says so.
    """

    what: str
    found: int
    published: int | None
    by: str

    @property
    def differs(self) -> bool:
        """Whether the numbers are not the same."""
        return self.published is not None and self.found != self.published

    def sentence(self) -> str:
        """The difference, for the notes of a task."""
        return f"{self.what}: {self.found:,}, published {self.published:,} ({self.by})."


def counted(documents: Iterable[Document]) -> dict[str, int]:
    """Documents of each part, documents and classes in all.

    ``documents`` and ``classes`` are of train, val and test alone: what a corpus adds beyond its classes is a part.
    """
    sizes: Counter[str] = Counter()
    classes: set[str] = set()
    for document in documents:
        sizes[document.part or "uncut"] += 1
        if document.part in ("", "train", "val", "test"):
            classes.update(document.labels)
    inside = sum(sizes[part] for part in ("uncut", "train", "val", "test"))
    return {**sizes, "documents": inside, "classes": len(classes)}


def compared(found: Found, documents: Iterable[Document]) -> list[Count]:
    """Every number of a copy beside what its form and the paper publish."""
    have = counted(documents)
    return [
        *_beside(have, found.layout.counts, f"this form: {found.layout.name}"),
        *_beside(have, found.corpus.published, PAPER),
        *(
            Count(what, number, None, "")
            for what, number in have.items()
            if what not in found.layout.counts and what not in found.corpus.published
        ),
    ]


def _beside(have: Mapping[str, int], published: Mapping[str, int], by: str) -> list[Count]:
    return [Count(what, have.get(what, 0), number, by) for what, number in published.items()]
