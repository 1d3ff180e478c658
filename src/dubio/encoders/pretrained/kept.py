"""Encoders in the cache, each in a folder named by its content: whole or not there."""

from __future__ import annotations

import json
import re
import shutil
import tempfile
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from filelock import FileLock

from dubio.core.errors import BadFile, UserError
from dubio.encoders.pretrained.content import digest, parts_of
from dubio.tasks.sources.places import CACHE_VARIABLE, cache_dir

ENCODER = re.compile(r"sha256:[0-9a-f]{64}")
"""What an encoder is called in a specification."""

SOURCE = "source.json"


def home() -> Path:
    """Where encoders are kept.

    Raises:
        UserError: When the folder cannot be made.
    """
    folder = cache_dir() / "encoders"
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as fault:
        raise UserError(f"the cache {str(folder)!r} cannot be made: {fault.strerror}; set {CACHE_VARIABLE}.") from fault
    return folder


def is_kept(name: str) -> bool:
    """Whether the encoder of this content is in the cache."""
    return (home() / name.partition(":")[2]).is_dir()


def keep(folder: Path, source: Mapping[str, Any]) -> str:
    """Copy the encoder in a folder into the cache; returns its name by content.

    Args:
        folder: Holds the encoder's files.
        source: Where it came from, for the record; no part of its name.
    """
    code = digest(folder)
    target = home() / code
    with FileLock(home() / ".lock"):
        if not target.is_dir():
            scratch = Path(tempfile.mkdtemp(prefix=".keeping-", dir=home()))
            try:
                for name in parts_of(folder):
                    shutil.copyfile(folder / name, scratch / name)
                (scratch / SOURCE).write_text(json.dumps(dict(source), indent=1, sort_keys=True), "utf-8")
                scratch.rename(target)
            finally:
                shutil.rmtree(scratch, ignore_errors=True)
    return f"sha256:{code}"


def folder_of(name: str) -> Path:
    """The folder of the encoder of this content, its files compared with the name once a process.

    Raises:
        UserError: When it is not in the cache.
        BadFile: When a file there is not what it was.
    """
    folder = home() / name.partition(":")[2]
    if not folder.is_dir():
        raise UserError(
            f"the encoder {name} is not in the cache {str(folder.parent)!r}; name it once more by its folder, package "
            "or hub name (the same dubio run brings it back)."
        )
    _verify(folder)
    return folder


@lru_cache(maxsize=16)
def _verify(folder: Path) -> None:
    if digest(folder) != folder.name:
        raise BadFile(f"the encoder in {str(folder)!r} is not what was kept there; delete that folder and try again.")


def source_of(name: str) -> dict[str, Any]:
    """Where the encoder of this content came from, as it was written down when it was kept."""
    found: dict[str, Any] = json.loads((folder_of(name) / SOURCE).read_text("utf-8"))
    return found
