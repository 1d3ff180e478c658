"""The preloaded library of ``shim.c`` from Python: build it, start a process with it, fail a call, read its record.

Watching starts and stops within a process, so that a process with everything imported can fork once per injected
fault. A record is a list of :class:`Call` (what could have been failed) and :class:`Effect` (what changed).
"""

from __future__ import annotations

import ctypes
import errno
import os
import shutil
import struct
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

SOURCE = Path(__file__).with_name("shim.c")
SHORT = -1
"""A write that takes only a part of its bytes, in place of an error."""

INTERRUPTIBLE, ALLOCATES, WRITES = 1, 2, 4

FAULTS = {"EIO": errno.EIO, "ENOSPC": errno.ENOSPC, "EINTR": errno.EINTR, "short": SHORT}
NEEDS = {"EIO": 0, "ENOSPC": ALLOCATES, "EINTR": INTERRUPTIBLE, "short": WRITES}
"""A full disk fails calls that allocate, an interrupt those that the manual lets be interrupted; an error any call."""

IN_MEMORY = "/dev/shm"
"""Where Linux keeps files in memory: thousands of cases wear out no disk, and flushing takes no time."""

_HEAD = struct.Struct("5Q")


class NoCompiler(Exception):
    """There is no C compiler on this machine."""


@dataclass(frozen=True)
class Call:
    """A counted call; ``answers`` says which faults it can meet."""

    name: str
    answers: int

    def can(self, fault: str) -> bool:
        """Return whether this call can meet a fault."""
        return not NEEDS[fault] or bool(self.answers & NEEDS[fault])


@dataclass(frozen=True)
class Effect:
    """A change of the disk, a flush, or a mark that the process set.

    Attributes:
        kind: C create, A create without a name, T truncate, W write, F flush of one file or directory, S of all,
            R rename, L link (to ``path``), U remove, M make a directory, X mark.
        inode: Of the file, where it is known.
        offset: Where the data were written, or the new length.
        path: The path or the text of a mark.
        data: The data, or the new path.
    """

    kind: str
    inode: int
    offset: int
    path: str
    data: bytes


def compiled(folder: Path) -> Path:
    """Build the library in a folder.

    Raises:
        NoCompiler: When there is no ``cc``.
    """
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        raise NoCompiler("failing system calls needs a C compiler (cc); install one, such as gcc.")
    library = folder / "shim.so"
    command = [compiler, "-shared", "-fPIC", "-O2", "-Wall", "-Werror", "-o", str(library), str(SOURCE)]
    subprocess.run(command, check=True)
    return library


def run_preloaded(module: str, arguments: Sequence[str], **variables: str) -> int:
    """Run a module in a process with the library and these environment variables; return its exit code."""
    with tempfile.TemporaryDirectory(prefix="dubio-shim-") as folder:
        library = compiled(Path(folder))
        environment = {**os.environ, **variables, "LD_PRELOAD": str(library)}
        environment |= {"OMP_NUM_THREADS": "1", "MPLBACKEND": "Agg"}
        if os.access(IN_MEMORY, os.W_OK):
            environment["TMPDIR"] = IN_MEMORY
        process = subprocess.Popen([sys.executable, "-m", module, *arguments], env=environment)
        while True:
            with suppress(KeyboardInterrupt):  # the process is interrupted too, and ends in its own time
                return process.wait()


@contextmanager
def watching(
    folder: Path, *, at: int = 0, fault: str = "EIO", onwards: bool = False, record: Path | None = None
) -> Iterator[list[str]]:
    """Watch the calls below a folder within a block; yield a list that receives the name of the call that failed.

    Args:
        folder: Only calls on paths below it count.
        at: The number of the call to fail, from 1; 0 for none.
        fault: A key of :data:`FAULTS`.
        onwards: Whether all later calls fail too.
        record: Where the record is written.
    """
    library = ctypes.CDLL(None)
    library.faults_end.restype = ctypes.c_char_p
    path = None if record is None else os.fsencode(record)
    failed: list[str] = []
    library.faults_begin(os.fsencode(folder), ctypes.c_long(at), FAULTS[fault], int(onwards), path)
    try:
        yield failed
    finally:
        failed += filter(None, [library.faults_end().decode()])


def mark(text: str) -> None:
    """Leave a mark in the record, where there is one."""
    library = ctypes.CDLL(None)
    if hasattr(library, "faults_mark"):
        library.faults_mark(text.encode())


def read_record(path: Path) -> tuple[list[Call], list[Effect]]:
    """Return the calls and the effects of a record, in order."""
    content, position = path.read_bytes(), 0
    calls: list[Call] = []
    effects: list[Effect] = []
    while position < len(content):
        kind, inode, offset, first, second = _HEAD.unpack_from(content, position)
        position += _HEAD.size
        text = os.fsdecode(content[position : position + first])
        data = content[position + first : position + first + second]
        position += first + second
        if chr(kind) == "N":
            calls.append(Call(text, inode))
        else:
            effects.append(Effect(chr(kind), inode, offset, text, data))
    return calls, effects
