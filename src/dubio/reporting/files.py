"""Writing what a reader will open: whole or not at all, under names any system takes."""

from __future__ import annotations

import os
import re
import tempfile
from pathlib import Path

from dubio.core.errors import UserError

_PLAIN = re.compile(r"[^A-Za-z0-9_.-]+")


def write_whole(path: Path, content: bytes) -> Path:
    """Write a file so that it is never seen half; an older one is replaced at the last moment.

    Raises:
        UserError: Naming the file, when it cannot be written.
    """
    try:
        return _replace(path, content)
    except OSError as fault:
        raise UserError(f"{str(path)!r} cannot be written: {fault.strerror or fault}.") from fault


def _replace(path: Path, content: bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, scratch = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}-")
    try:
        with os.fdopen(handle, "wb") as sink:
            sink.write(content)
            sink.flush()
            os.fsync(sink.fileno())
        os.chmod(scratch, 0o644)
        os.replace(scratch, path)
    except BaseException:
        Path(scratch).unlink(missing_ok=True)
        raise
    return path


def file_name(text: str) -> str:
    """A part of a file name: letters, digits and dashes of the text."""
    return _PLAIN.sub("-", text).strip("-.") or "unnamed"
