"""Write files and directories atomically: aside, flushed to the disk, renamed into place.

A reader sees the old content or the new, never half of it, and a power cut does not leave an empty file under the new
name. Everything that dubio writes goes through here::

    write_file(path, text_or_bytes)              # the whole content at once
    with open_atomic(path) as sink: ...          # streamed
    with atomic_directory(path) as scratch: ...  # several files that belong together

A store writes aside in a scratch directory of its own and calls :func:`place_file` and :func:`place_directory`.
"""

from __future__ import annotations

import errno
import os
import shutil
import stat
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from dubio.core.errors import BadFile, UserError

MANY_FILES = 64
"""Directories with more files are flushed by one call for the whole system: a call per file may take minutes."""

REASONS = {
    errno.ENOSPC: "the disk is full",
    errno.EDQUOT: "the disk quota is used up",
    errno.EACCES: "permission denied",
    errno.EPERM: "permission denied",
    errno.EROFS: "the file system is read-only",
    errno.ENOTDIR: "a file is where a directory should be",
    errno.EEXIST: "something else is in the way",
    errno.EIO: "the disk reports an error",
}


@contextmanager
def writing(path: Path, error: type[UserError] = UserError) -> Iterator[None]:
    """Turn an :class:`OSError` within the block into an error for the user that names the file and the reason.

    Args:
        path: The file to name where the operating system names none.
        error: The type of error to raise.
    """
    try:
        yield
    except OSError as fault:
        reason = REASONS.get(fault.errno or 0, fault.strerror or str(fault))
        raise error(f"cannot write {str(fault.filename or path)!r}: {reason}.") from fault


@contextmanager
def reading(path: Path, error: type[UserError] = BadFile) -> Iterator[None]:
    """Turn an :class:`OSError` within the block into an error for the user that names the file and the reason.

    Pipes and devices are refused before they are opened: they may never end, and are read but once.
    """
    try:
        try:
            mode = path.stat().st_mode
        except ValueError as fault:  # a null character, or half of a surrogate pair
            raise error(f"{str(path)!r} cannot be read: no file can have this name.") from fault
        if not stat.S_ISREG(mode):
            kind = "a folder" if stat.S_ISDIR(mode) else "a pipe or a device"
            raise error(f"{str(path)!r} cannot be read: it is {kind}; a file is needed.")
        yield
    except OSError as fault:
        raise error(f"{str(path)!r} cannot be read: {fault.strerror or fault}.") from fault


def write_file(path: Path, content: bytes | str) -> Path:
    """Write a whole file, replacing an older one; text is written as UTF-8. Return the path.

    Raises:
        UserError: When the file cannot be written, naming it and the reason.
    """
    with writing(path):
        make_directories(path.parent)
        with open_atomic(path) as sink:
            sink.write(content.encode("utf-8") if isinstance(content, str) else content)
    return path


@contextmanager
def open_atomic(path: Path) -> Iterator[BinaryIO]:
    """Open a file for writing that replaces ``path`` when the block ends without an exception.

    Raises:
        OSError: When the operating system refuses to write.
    """
    scratch = _scratch_beside(path)
    try:
        with scratch.open("xb") as sink:
            yield sink
        place_file(scratch, path)
    finally:
        with suppress(OSError):  # it has been renamed, or what went wrong is being raised
            scratch.unlink()


@contextmanager
def atomic_directory(path: Path) -> Iterator[Path]:
    """Make a directory beside ``path`` that takes its place when the block ends without an exception.

    A directory that exists by then stays as it is: another process has finished first.

    Raises:
        OSError: When the operating system refuses to write.
    """
    make_directories(path.parent)
    scratch = _scratch_beside(path)
    scratch.mkdir()
    try:
        yield scratch
        place_directory(scratch, path)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def place_file(scratch: Path, target: Path) -> None:
    """Flush a file and rename it to its target on the same file system, replacing what was there; for good."""
    sync_file(scratch)
    os.replace(scratch, target)
    sync_directory(target.parent)


def place_directory(scratch: Path, target: Path) -> None:
    """Flush a directory with all it holds and rename it to its target; an existing target stays as it is."""
    paths = [scratch, *scratch.rglob("*")]
    if len(paths) > MANY_FILES and hasattr(os, "sync"):
        os.sync()
    else:
        for path in paths:
            (sync_directory if path.is_dir() else sync_file)(path)
    make_directories(target.parent)
    try:
        os.rename(scratch, target)
    except OSError:
        if not target.is_dir():  # no other process has finished first
            raise
    sync_directory(target.parent)


def make_directories(path: Path) -> None:
    """Make a directory with those above it; the name of each new one is flushed, so that it outlives a power cut."""
    if path.is_dir():
        return
    try:
        path.mkdir(exist_ok=True)
    except FileNotFoundError:
        make_directories(path.parent)
        path.mkdir(exist_ok=True)
    sync_directory(path.parent)


def sync_file(path: Path) -> None:
    """Flush a file's content to the disk."""
    with path.open("rb+") as handle:
        os.fsync(handle.fileno())


def sync_directory(path: Path) -> None:
    """Flush a directory's entries, so that a rename in it outlives a power cut; Windows has no such call."""
    if os.name == "nt":
        return
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _scratch_beside(path: Path) -> Path:
    return path.with_name(f".{path.name[:100]}.{uuid.uuid4().hex}.tmp")
