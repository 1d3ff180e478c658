"""Write files and directories atomically: aside, flushed to the disk, renamed into place.

A reader sees the old content or the new, never half of it, and a power cut does not leave an empty file under the new
name. Everything that dubio writes goes through here::

    write_file(path, text_or_bytes)              # the whole content at once
    with open_atomic(path) as sink: ...          # streamed
    with atomic_directory(path) as scratch: ...  # several files that belong together

Pipes and devices, ``/dev/stdout`` too, are written to as they are: they cannot be replaced. A link stays a link to the
new file, and a file keeps its permissions.

A store writes aside in a scratch directory of its own and calls :func:`place_file` and :func:`place_directory`.
"""

from __future__ import annotations

import errno
import os
import re
import shutil
import stat
import sys
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from dubio.core.errors import BadFile, UserError

MANY_FILES = 64
"""Directories with more files are flushed by one call for the whole system: a call per file may take minutes."""

CACHE_VARIABLE = "DUBIO_CACHE"
"""Names the folder for what can be made or fetched again."""

REASONS = {
    errno.ENOSPC: "the disk is full",
    errno.EDQUOT: "the disk quota is used up",
    errno.EACCES: "permission denied",
    errno.EPERM: "permission denied",
    errno.EROFS: "the file system is read-only",
    errno.ENOTDIR: "a file is where a directory should be",
    errno.EEXIST: "something else is in the way",
    errno.EIO: "the disk reports an error",
    errno.EISDIR: "it is a folder",
    errno.ENOENT: "its folder does not exist",
}


_NO_FILE_NAME = re.compile(r"[^A-Za-z0-9_.]+")


def file_name(text: str) -> str:
    """Return a text as a part of a file name: its letters, digits and dots, with one dash for everything between."""
    return _NO_FILE_NAME.sub("-", text).strip("-.") or "unnamed"


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
    if (stream := _open_stream(path)) is not None:
        with stream:
            yield stream
        return
    target = Path(os.path.realpath(path))
    if target.is_dir():
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    if target.exists() and not os.access(target, os.W_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
    scratch = _scratch_beside(target)
    try:
        with _open_scratch(scratch) as sink:
            yield sink
            sink.flush()
            with suppress(FileNotFoundError):
                os.chmod(sink.fileno() if os.chmod in os.supports_fd else scratch, stat.S_IMODE(target.stat().st_mode))
            os.fsync(sink.fileno())
            if not scratch.exists():  # src_dir_fd makes Python follow the link to the open file
                os.link(f"/proc/self/fd/{sink.fileno()}", scratch, src_dir_fd=sink.fileno())
        os.replace(scratch, target)
        sync_directory(target.parent)
    except OSError as fault:
        if fault.filename == str(scratch):
            fault.filename = str(path)
        raise
    finally:
        with suppress(OSError):  # it has been renamed, or what went wrong is being raised
            scratch.unlink()


def descriptor_of(path: Path) -> int | None:
    """Return the open file that a path such as ``/dev/stdout`` or ``/dev/fd/3`` stands for, or None."""
    match = re.fullmatch(r"/(?:dev|proc/self)/(?:fd/(\d{1,9})|(stdin|stdout|stderr))", os.path.abspath(path))
    if match is None or os.name == "nt":
        return None
    return int(match[1]) if match[1] else ("stdin", "stdout", "stderr").index(match[2])


def _open_stream(path: Path) -> BinaryIO | None:
    """Open what can only be written to as it is: an open file by its number, a pipe, a device; None for any other."""
    descriptor = descriptor_of(path)
    if descriptor is not None:
        sys.stdout.flush()  # what was printed comes first
        return os.fdopen(os.dup(descriptor), "wb")
    if path.exists() and not path.is_file() and not path.is_dir():
        return path.open("wb")
    return None


def _open_scratch(scratch: Path) -> BinaryIO:
    """Open a new file that has no name yet, where the system can: nothing is left of it if the process is killed."""
    if hasattr(os, "O_TMPFILE") and os.path.isdir("/proc/self/fd"):
        with suppress(OSError):
            return os.fdopen(os.open(scratch.parent, os.O_TMPFILE | os.O_RDWR, 0o666), "w+b")
    return scratch.open("xb")


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


def check_new_folder(folder: Path) -> None:
    """Refuse a folder for a command's or function's output that has files: older ones would stand beside the new."""
    if folder.exists() and not (folder.is_dir() and not any(folder.iterdir())):
        raise UserError(f"--output {str(folder)!r} must be a new or an empty folder.")


@contextmanager
def new_folder(folder: Path) -> Iterator[Path]:
    """Write a folder that is new or empty, all of it or nothing; the block gets the directory to write to.

    Raises:
        UserError: When the folder has files, or cannot be written.
    """
    check_new_folder(folder)
    with writing(folder):
        if folder.exists():
            folder.rmdir()  # it is empty
        with atomic_directory(folder) as scratch:
            yield scratch


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


def cache_dir() -> Path:
    """Return the folder for what can be made or fetched again: ``DUBIO_CACHE``, else the platform's for caches."""
    named = os.environ.get(CACHE_VARIABLE)
    if named:
        return Path(named).expanduser()
    platforms = {"darwin": ("", "Library/Caches", "dubio"), "win32": ("LOCALAPPDATA", "AppData/Local", "dubio/Cache")}
    variable, default, folder = platforms.get(sys.platform, ("XDG_CACHE_HOME", ".cache", "dubio"))
    base = os.environ.get(variable)
    return (Path(base) if base else Path.home() / default) / folder
