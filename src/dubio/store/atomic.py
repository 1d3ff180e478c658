"""Writing so that a thing exists only if it is whole.

A file or directory is made in a scratch directory on the store's own file system, flushed to the disk, and renamed into
place. A scratch directory belongs to one process, which holds a lock beside it: whoever can take the lock knows that
the owner is dead and may sweep. Everything the operating system refuses becomes a :class:`StoreError` that names the
path and the reason.
"""

from __future__ import annotations

import shutil
import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from filelock import FileLock, Timeout

from dubio.core.errors import StoreError
from dubio.core.files import place_directory, place_file, sync_directory, writing

SWEEP_PATIENCE = 10.0
"""Seconds to retry a scratch lock that a sweeping process holds for a moment."""

storing = partial(writing, error=StoreError)
"""Turn what the operating system refuses within a block into a :class:`StoreError` about a path."""


class Scratch:
    """A process's own temporary directory inside a store."""

    def __init__(self, home: Path) -> None:
        """Make it; stale ones of dead processes are swept first.

        Args:
            home: The directory in which scratch directories live.
        """
        self._home = home
        # One thread may close it (the parent is gone) while another is putting something in place: never at once, or
        # half of a directory would be.
        self._placing = threading.Lock()
        self._closed = False
        with storing(home):
            home.mkdir(parents=True, exist_ok=True)
            sweep(home)
            name = uuid.uuid4().hex
            self._lock = FileLock(home / f"{name}.lock", thread_local=False)
            self._lock.acquire(timeout=SWEEP_PATIENCE)
            self.path = home / name
            self.path.mkdir()

    def close(self) -> None:
        """Remove it with whatever is in it; what is just being put in place is finished first, and nothing is after."""
        with self._placing:
            self._closed = True
        shutil.rmtree(self.path, ignore_errors=True)
        Path(self._lock.lock_file).unlink(missing_ok=True)
        self._lock.release()

    def new(self) -> Path:
        """A path in it that nothing has yet."""
        return self.path / uuid.uuid4().hex

    def adopt(self, fresh: Path, target: Path) -> None:
        """Flush a file made in this scratch directory and put it in place, replacing what was there."""
        with self._open_for(target), storing(target):
            place_file(fresh, target)

    def adopt_directory(self, fresh: Path, target: Path) -> None:
        """Flush a directory made in this scratch directory and put it in place; one that exists is left as it is."""
        with self._open_for(target), storing(target):
            place_directory(fresh, target)

    @contextmanager
    def _open_for(self, target: Path) -> Iterator[None]:
        with self._placing:
            if self._closed:
                raise StoreError(f"cannot write {str(target)!r}: the store was closed meanwhile.")
            yield

    def write_file(self, target: Path, content: bytes) -> None:
        """Put a whole file in place, replacing what was there.

        Raises:
            StoreError: When it cannot be written; nothing is left half-written.
        """
        fresh = self.new()
        try:
            with storing(target):
                fresh.write_bytes(content)
                target.parent.mkdir(parents=True, exist_ok=True)
            self.adopt(fresh, target)
            with storing(target):
                sync_directory(target.parent)
        finally:
            fresh.unlink(missing_ok=True)

    @contextmanager
    def directory(self, target: Path) -> Iterator[Path]:
        """A directory to write files into, put in place whole at the end; one that exists already is left as it is.

        Raises:
            StoreError: When it cannot be written; nothing is left half-written.
        """
        fresh = self.new()
        try:
            with storing(target):
                fresh.mkdir()
                yield fresh
            self.adopt_directory(fresh, target)
        finally:
            shutil.rmtree(fresh, ignore_errors=True)

    def write_directory(self, target: Path, files: dict[str, bytes]) -> None:
        """Put a whole directory of files in place, as :meth:`directory` does.

        Raises:
            StoreError: When it cannot be written; nothing is left half-written.
        """
        with self.directory(target) as fresh:
            for name, content in files.items():
                (fresh / name).write_bytes(content)


def sweep(home: Path) -> list[Path]:
    """Remove the scratch directories whose owners are dead; returns what was removed."""
    removed = []
    for lock_file in sorted(home.glob("*.lock")):
        lock = FileLock(lock_file, thread_local=False)
        try:
            lock.acquire(timeout=0)
        except Timeout:
            continue
        directory = lock_file.with_suffix("")
        if directory.exists():
            shutil.rmtree(directory, ignore_errors=True)
            removed.append(directory)
        # Unlinked while held: whoever waits for this file sees that it is gone and makes a new one.
        lock_file.unlink(missing_ok=True)
        lock.release()
    return removed
