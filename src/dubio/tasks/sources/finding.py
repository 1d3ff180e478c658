"""Looking for a corpus on this machine, without touching the network."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from dubio.tasks.sources.corpus import Corpus, Found, Original
from dubio.tasks.sources.places import cache_dir, data_folders


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
