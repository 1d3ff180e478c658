"""Fetching a public file: resumed where it broke off, verified before it is in place.

What has arrived is kept in a ``.part`` file beside the target. A connection that breaks is taken up again with a Range
request; a server that ignores Range sends everything again. Only a file whose SHA-256 is the known one is renamed into
place; any other is deleted. Proxies are those of the environment (``https_proxy``, ``no_proxy``), as urllib reads them.
"""

from __future__ import annotations

import hashlib
import http.client
import os
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from dubio.core.errors import BadFile, UserError
from dubio.tasks.sources.corpus import DataMissing

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
    os.replace(part, target)
    return target


def _size(path: Path) -> int:
    return path.stat().st_size if path.is_file() else 0


def _spoken(fault: BaseException) -> str:
    if isinstance(fault, urllib.error.HTTPError):
        return f"the server answers {fault.code} {fault.reason}"
    if isinstance(fault, urllib.error.URLError):
        return str(fault.reason)
    return str(fault) or type(fault).__name__
