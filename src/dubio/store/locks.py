"""Locks: who is making what, across processes.

One lock file an id, held by the operating system for as long as the holder lives: a process that dies in any way lets
go of what it was making, and nobody has to guess whether a lock is stale.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from dubio.store.atomic import storing


class BusyError(Exception):
    """Another process holds this lock: not an error, come back later."""


def try_lock(path: Path) -> FileLock | None:
    """Take a lock at once, or return None when another holder has it.

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
        BusyError: When another holder has it.
    """
    lock = try_lock(path)
    if lock is None:
        raise BusyError(str(path))
    try:
        yield
    finally:
        lock.release()


def is_held(path: Path) -> bool:
    """Whether someone holds this lock now."""
    if not path.exists():
        return False
    lock = try_lock(path)
    if lock is None:
        return True
    lock.release()
    return False
