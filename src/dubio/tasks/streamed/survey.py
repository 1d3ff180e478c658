"""Which photographs cannot be read: looked at once, and remembered as long as no file changes."""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from dubio.tasks.fundus.findings import Finding
from dubio.tasks.fundus.progress import on_screen
from dubio.tasks.sources.places import cache_dir
from dubio.tasks.streamed.decoding import fault_of
from dubio.tasks.streamed.layout import Files
from dubio.tasks.streamed.rows import THREADS

_CHUNK = 4096


def memory() -> Path:
    """Where surveys are remembered."""
    return cache_dir() / "imagenet"


def unreadable(root: Path, parts: Sequence[Files], *, verify: bool = False) -> list[Finding]:
    """The photographs that cannot be read, by name.

    The first time, the head of every file is read, and of a jpeg its end; ``verify`` decodes every file. What was found
    is kept in the cache under the names, sizes and times of change of all files, a thorough survey for good.

    Args:
        root: The folder of the names.
        parts: The photographs.
        verify: Decode every file.
    """
    digest = hashlib.sha256(str(root.resolve()).encode())
    for part in parts:
        digest.update("\n".join(part.names.tolist()).encode())
        digest.update(part.sizes.tobytes() + part.changed.tobytes())
    kept = memory() / f"{digest.hexdigest()[:32]}.json"
    known = _remembered(kept)
    if known is None or (verify and not known["verified"]):
        names = [name for part in parts for name in part.names.tolist()]
        known = {"schema": 1, "verified": verify, "unreadable": _looked_at(root, names, verify)}
        _remember(kept, known)
    return [Finding("unreadable", name, words) for name, words in sorted(known["unreadable"].items())]


def _looked_at(root: Path, names: list[str], verify: bool) -> dict[str, str]:
    show = on_screen("Decoding photographs" if verify else "Looking at photographs")
    found: dict[str, str] = {}
    with ThreadPoolExecutor(THREADS) as pool:
        for start in range(0, len(names), _CHUNK):
            chunk = names[start : start + _CHUNK]
            faults = pool.map(lambda name: fault_of(root / name, whole=verify), chunk)
            found |= {name: fault for name, fault in zip(chunk, faults, strict=True) if fault is not None}
            if show is not None:
                show(min(start + _CHUNK, len(names)), len(names))
    return found


def _remembered(path: Path) -> dict[str, Any] | None:
    try:
        said = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    right = isinstance(said, dict) and said.get("schema") == 1 and isinstance(said.get("unreadable"), dict)
    return said if right else None


def _remember(path: Path, known: dict[str, Any]) -> None:
    """Whole or not at all; a cache that cannot be written costs time, not the task."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, scratch = tempfile.mkstemp(dir=path.parent, prefix=".survey-")
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            json.dump(known, file)
        os.replace(scratch, path)
    except OSError:
        return
