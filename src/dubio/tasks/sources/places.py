"""Where data lies: the folders a user names, and the cache."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from dubio.core.errors import UserError

DATA_VARIABLE = "DUBIO_DATA"
CACHE_VARIABLE = "DUBIO_CACHE"


def cache_dir() -> Path:
    """The folder for what was fetched: ``DUBIO_CACHE``, else the platform's place for caches."""
    named = os.environ.get(CACHE_VARIABLE)
    if named:
        return Path(named).expanduser()
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "dubio"
    if sys.platform == "win32":
        local = os.environ.get("LOCALAPPDATA")
        return (Path(local) if local else Path.home() / "AppData" / "Local") / "dubio" / "Cache"
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "dubio"


def data_folders(data_dir: str | None) -> tuple[Path, ...]:
    """The folders the user names, first the argument, then ``DUBIO_DATA``.

    Args:
        data_dir: The argument ``data_dir`` of a task, or the option ``--data-dir``.

    Raises:
        UserError: When a named folder is none.
    """
    folders = []
    for what, name in (("data_dir", data_dir), (DATA_VARIABLE, os.environ.get(DATA_VARIABLE))):
        if name:
            folder = Path(name).expanduser()
            if not folder.is_dir():
                raise UserError(f"{what} must be a folder that exists; given {name!r}.")
            folders.append(folder)
    return tuple(dict.fromkeys(folders))
