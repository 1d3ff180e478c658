"""Identity: what a thing is called is the hash of everything that decides its content.

An id is the SHA-256 of the canonical JSON of a resolved specification. Device, jobs, batch size at prediction and
timings are never part of one. The pinned hashes in the tests hold this file still: changing what it returns orphans
every store.
"""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path
from typing import Any

from dubio.errors import StoreError

ID = re.compile(r"[0-9a-f]{64}")
CHUNK = 1 << 20


def canonical(value: Any) -> bytes:
    """The one JSON text of a value: keys sorted, no spaces, UTF-8 as it is, no NaN.

    Raises:
        ValueError: For NaN or an infinity, which have no JSON form.
        TypeError: For a value that has no JSON form.
    """
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    return text.encode("utf-8", "surrogatepass")


def identity(spec: Any) -> str:
    """The id of a specification: SHA-256 of its canonical JSON, in hex."""
    return hashlib.sha256(canonical(spec)).hexdigest()


def check_id(identifier: str) -> str:
    """Return an id that has the form of one; anything else could be a path out of the store.

    Raises:
        StoreError: When it is not 64 hexadecimal digits.
    """
    if not ID.fullmatch(identifier):
        raise StoreError(f"an id is 64 hexadecimal digits; given {identifier!r}.")
    return identifier


def hash_file(path: Path) -> str:
    """SHA-256 of a file's bytes, in hex."""
    digest = hashlib.sha256()
    with path.open("rb") as source:
        while chunk := source.read(CHUNK):
            digest.update(chunk)
    return digest.hexdigest()
