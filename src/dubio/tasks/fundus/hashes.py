"""The content of files in short, remembered by size and time of change so that nothing is read twice."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from dubio.tasks.fundus.crew import cores
from dubio.tasks.sources.places import cache_dir

EVERY = 2000
"""Files between two times that what is known is written down: so much is lost at most by an interruption."""


def file_hashes(
    paths: Sequence[Path], *, verify: bool = False, progress: Callable[[int, int], None] | None = None
) -> dict[Path, str | OSError]:
    """SHA-256 of every file, or why it cannot be read.

    Args:
        paths: The files.
        verify: Read all of them, whatever is remembered.
        progress: Told how many of those that must be read have been.
    """
    if not paths:
        return {}
    home = _memory_of(paths)
    recalled = _recalled(home)
    known = {} if verify else recalled
    stamps = {path: _stamp(path) for path in paths}
    found: dict[Path, str | OSError] = {}
    fresh = []
    for path, stamp in stamps.items():
        if isinstance(stamp, OSError):
            found[path] = stamp
        elif (kept := known.get(os.path.abspath(path))) is not None and kept[:2] == stamp:
            found[path] = str(kept[2])
        else:
            fresh.append(path)
    # hashing releases the interpreter's lock, and a slow disk is read by several at once
    with ThreadPoolExecutor(max_workers=cores()) as pool:
        for done, (path, said) in enumerate(zip(fresh, pool.map(_hashed, fresh), strict=True), start=1):
            found[path] = said
            stamp = stamps[path]
            if isinstance(said, str) and isinstance(stamp, list):
                recalled[os.path.abspath(path)] = [*stamp, said]
            if done % EVERY == 0 or done == len(fresh):
                _remember(home, recalled)
            if progress is not None:
                progress(done, len(fresh))
    return found


def _stamp(path: Path) -> list[int] | OSError:
    try:
        facts = path.stat()
    except OSError as fault:
        return fault
    return [facts.st_size, facts.st_mtime_ns]


def _hashed(path: Path) -> str | OSError:
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as fault:
        return fault


def _memory_of(paths: Sequence[Path]) -> Path:
    """Where what is known of these files is kept: a file for their common folder."""
    folder = os.path.commonpath([str(path.resolve().parent) for path in paths])
    return cache_dir() / "retina" / "hashes" / f"{hashlib.sha256(folder.encode()).hexdigest()[:32]}.json"


def _recalled(home: Path) -> dict[str, list[int | str]]:
    """What is remembered; nothing where the memory is missing or spoilt."""
    try:
        kept = json.loads(home.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return kept if isinstance(kept, dict) else {}


def _remember(home: Path, kept: dict[str, list[int | str]]) -> None:
    home.parent.mkdir(parents=True, exist_ok=True)
    scratch = home.with_suffix(f".{os.getpid()}")
    scratch.write_text(json.dumps(kept), encoding="utf-8")
    scratch.replace(home)
