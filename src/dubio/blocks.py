"""Passes over blocks of rows: small enough for the cache, in one thread or several, and in bounded memory.

An array ``[S, N, K]`` of logits may be far larger than memory. It is worked through in blocks of rows with all samples
and classes of each; what a pass keeps between blocks is one number a row or so. Of a memory-mapped file the pages
that a pass is done with are given back, so that resident memory does not grow with the file.
"""

from __future__ import annotations

import math
import mmap
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dubio.errors import UserError

FloatArray = NDArray[np.floating]

BLOCK_BYTES = 5 << 17
"""Bytes of float64 logits that one block of rows may hold: it and its exponentials stay in the second-level cache."""

SHARED_BLOCKS = 8
"""Blocks are so many times larger when threads share them: each call then outlasts the handing over of Python's lock,
which costs more than the second-level cache saves."""

MAPPED_BYTES = 1 << 26
"""Bytes of a mapped file that one thread reads before its pages are given back."""

_LINE = 64
"""Bytes of a cache line: vectors that straddle two lines take a sixth longer."""

_THREADS: ContextVar[int] = ContextVar("threads", default=1)


def row_blocks(samples: int, rows: int, classes: int, *, block_bytes: int = BLOCK_BYTES) -> Iterator[slice]:
    """Slices over rows such that one block of all samples and classes stays small.

    Args:
        samples: Samples a row.
        rows: Rows in all.
        classes: Classes a row.
        block_bytes: Bytes of float64 values a block may hold.
    """
    step = max(1, block_bytes // max(1, 8 * samples * classes))
    for start in range(0, rows, step):
        yield slice(start, min(rows, start + step))


@contextmanager
def threads(count: int) -> Iterator[None]:
    """Within this, passes over predictions share their blocks among so many threads; results do not change.

    Args:
        count: At least one; one is the default.

    Raises:
        UserError: For fewer.
    """
    if count < 1:
        raise UserError(f"threads must be at least 1; given {count}.")
    token = _THREADS.set(count)
    try:
        yield
    finally:
        _THREADS.reset(token)


class Room:
    """Memory that one thread uses again for every block, so that a pass allocates once."""

    def __init__(self) -> None:
        self._held: dict[str, NDArray[np.uint8]] = {}

    def array(self, name: str, shape: tuple[int, ...], dtype: type[np.floating] = np.float64) -> FloatArray:
        """An uninitialised array, valid until the same name is asked for again."""
        size = math.prod(shape) * np.dtype(dtype).itemsize
        held = self._held.get(name)
        if held is None or held.size < size:
            raw = np.empty(size + _LINE, dtype=np.uint8)
            held = self._held[name] = raw[-raw.ctypes.data % _LINE :][:size]
        return held[:size].view(dtype).reshape(shape)


Work = Callable[[slice, Room], None]


def over_rows(array: NDArray[Any], work: Work, *, block_bytes: int = BLOCK_BYTES) -> None:
    """Do some work for every block of rows of an array ``[S, N, K]``.

    Args:
        array: What the work reads; if it is mapped from a file, its pages are given back as the pass goes on.
        work: Called with the rows of a block and the room of its thread; must write to these rows alone.
        block_bytes: Bytes of float64 values a block may hold.
    """
    wanted = _THREADS.get()
    each = block_bytes if wanted == 1 else SHARED_BLOCKS * block_bytes
    blocks = list(row_blocks(*array.shape, block_bytes=each))
    count = min(wanted, len(blocks))
    if count == 1:
        _run(array, work, blocks)
        return
    cuts = [len(blocks) * index // count for index in range(count + 1)]
    with ThreadPoolExecutor(count) as pool:
        parts = [pool.submit(_run, array, work, blocks[cuts[i] : cuts[i + 1]]) for i in range(count)]
        for part in parts:
            part.result()


def _run(array: NDArray[Any], work: Work, blocks: list[slice]) -> None:
    room, mapping = Room(), mapping_of(array)
    row_bytes = array.nbytes // array.shape[1]
    unreleased = 0
    for rows in blocks:
        work(rows, room)
        unreleased += (rows.stop - rows.start) * row_bytes
        if mapping is not None and unreleased >= MAPPED_BYTES:
            mapping.madvise(mmap.MADV_DONTNEED)
            unreleased = 0
    if mapping is not None:
        mapping.madvise(mmap.MADV_DONTNEED)


def mapping_of(array: NDArray[Any]) -> mmap.mmap | None:
    """The read-only file mapping that an array is a view of, or None; only such pages can be dropped without loss."""
    base: Any = array
    while isinstance(base, np.ndarray):
        if isinstance(base, np.memmap) and base.mode != "r":
            return None
        base = base.base
    # Windows cannot give pages back on request; there the system itself trims them.
    return base if isinstance(base, mmap.mmap) and hasattr(base, "madvise") else None
