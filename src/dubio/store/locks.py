"""Locks and scratch directories: which process is making what, and where it writes before a rename.

A lock file is held by the operating system for as long as its holder lives: a process that dies in any way releases
it, and nobody has to guess whether a lock is stale. Only its holder removes a lock file: a process that waits for it
sees that it is gone and makes a new one. A scratch directory belongs to one process, which holds a lock beside it; if
that lock can be taken, or there is none, its owner is dead and the directory may be removed. Files are made in the
scratch directory, on the store's own file system, and put in place by :mod:`dubio.core.files`.
"""

from __future__ import annotations

import shutil
import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

from filelock import FileLock, Timeout

from dubio.core.errors import StoreError
from dubio.core.files import make_directories, place_directory, place_file, writing

SWEEP_PATIENCE = 10.0
"""Seconds to retry a scratch lock that another process holds for a moment while it removes stale directories."""

GATE = "gate.lock"
"""The lock in the directory of scratch directories that keeps new ones from being made while it is held."""

storing = partial(writing, error=StoreError)
"""Turn an OSError within a block into a :class:`StoreError` that names the path and the reason."""


class BusyError(Exception):
    """Another process holds this lock: not an error, try again later."""


def try_lock(path: Path) -> FileLock | None:
    """Take a lock at once, or return None when another process has it.

    Args:
        path: The lock file; its directory must exist.
    """
    lock = FileLock(path, thread_local=False)
    with storing(path):
        try:
            lock.acquire(timeout=0)
        except Timeout:
            return None
    return lock


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold a lock within a block.

    Raises:
        BusyError: When another process has it.
    """
    lock = try_lock(path)
    if lock is None:
        raise BusyError(str(path))
    try:
        yield
    finally:
        drop(lock)


def drop(lock: FileLock) -> None:
    """Release a lock and remove its file."""
    path = Path(lock.lock_file)
    with suppress(OSError):  # a system that cannot remove an open file keeps it; so does a read-only one
        path.unlink(missing_ok=True)
    with storing(path):
        lock.release()


def is_held(path: Path) -> bool:
    """Return whether some process holds this lock now; the file of one that nobody holds is removed."""
    if not path.exists():
        return False
    lock = try_lock(path)
    if lock is None:
        return True
    drop(lock)
    return False


class ScratchDirectory:
    """A process's own temporary directory inside a store."""

    def __init__(self, parent: Path) -> None:
        """Make it; those of dead processes are removed first.

        Args:
            parent: The directory in which scratch directories live.
        """
        # One thread may close it (the parent process is gone) while another is putting something in place: never at
        # once, or half of a directory would be in place.
        self._placing = threading.Lock()
        self._closed = False
        with storing(parent):
            make_directories(parent)
            sweep(parent)
            self.path = parent / uuid.uuid4().hex
            self._lock = FileLock(self.path.with_suffix(".lock"), thread_local=False)
            gate = FileLock(parent / GATE, thread_local=False)
            try:
                with gate.acquire(timeout=SWEEP_PATIENCE):
                    self._lock.acquire(timeout=SWEEP_PATIENCE)
            except Timeout:
                raise StoreError(f"{str(parent.parent)!r} is being cleaned by another process; try again.") from None
            self.path.mkdir()

    def close(self) -> None:
        """Remove it with its content; a placement in progress is finished first, and none follows.

        What cannot be removed is left to the next process: nothing that was written depends on it.
        """
        with self._placing:
            self._closed = True
        shutil.rmtree(self.path, ignore_errors=True)
        with suppress(StoreError):
            drop(self._lock)

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Keep other processes from opening the store for writing within a block.

        Raises:
            BusyError: When one has it open already.
        """
        others = [path for path in self.path.parent.glob("*.lock") if path.name not in (GATE, f"{self.path.name}.lock")]
        with locked(self.path.with_name(GATE)):
            if any(map(is_held, others)):
                raise BusyError(str(self.path.parent))
            yield

    def new(self) -> Path:
        """Return a path in it that does not exist yet."""
        return self.path / uuid.uuid4().hex

    def adopt(self, fresh: Path, target: Path) -> None:
        """Put a file made in this directory in place, replacing what was there."""
        with self._open_for(target), storing(target):
            place_file(fresh, target)

    def adopt_directory(self, fresh: Path, target: Path) -> None:
        """Put a directory made in this directory in place; one that exists stays as it is."""
        with self._open_for(target), storing(target):
            place_directory(fresh, target)

    @contextmanager
    def _open_for(self, target: Path) -> Iterator[None]:
        with self._placing:
            if self._closed:
                raise StoreError(f"cannot write {str(target)!r}: the store was closed meanwhile.")
            yield

    def write_file(self, target: Path, content: bytes) -> None:
        """Write a whole file, replacing what was there.

        Raises:
            StoreError: When it cannot be written; nothing incomplete remains.
        """
        fresh = self.new()
        try:
            with storing(target):
                fresh.write_bytes(content)
                make_directories(target.parent)
            self.adopt(fresh, target)
        finally:
            with suppress(OSError):
                fresh.unlink()

    @contextmanager
    def directory(self, target: Path) -> Iterator[Path]:
        """Yield a directory to write files into and put it in place at the end; one that exists stays as it is.

        Raises:
            StoreError: When it cannot be written; nothing incomplete remains.
        """
        with self.unplaced() as fresh:
            with storing(target):
                yield fresh
            self.adopt_directory(fresh, target)

    @contextmanager
    def unplaced(self) -> Iterator[Path]:
        """Give a new directory here, and remove what has not been put in place by the end."""
        fresh = self.new()
        try:
            with storing(fresh):
                fresh.mkdir()
            yield fresh
        finally:
            shutil.rmtree(fresh, ignore_errors=True)


def abandoned(parent: Path) -> list[Path]:
    """Return the scratch directories whose owners are dead; they have no lock, or one that nobody holds."""
    # A living owner takes its lock before it makes its directory: one that is listed now has its lock by now.
    return [path for path in sorted(parent.glob("*")) if path.suffix != ".lock" and not is_held(_lock_beside(path))]


def sweep(parent: Path) -> None:
    """Remove the scratch directories whose owners are dead, and their locks; what cannot be removed is left."""
    for path in abandoned(parent):
        with suppress(OSError):
            shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
    for path in parent.glob("*.lock"):
        is_held(path)


def _lock_beside(path: Path) -> Path:
    return path.with_name(f"{path.name}.lock")
