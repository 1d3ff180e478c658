"""The process of a worker: a new interpreter, or a copy of this process, which has loaded everything already.

A new interpreter imports torch again, which takes seconds of every worker and memory of its own. A copy (``fork``) has
what its parent has loaded, at once and in shared memory. It is made only where nothing can go wrong with it: of a
command of dubio (a program that calls :func:`dubio.run` may have set what a copy would inherit, such as torch's default
type or its kernels, and the same fit would have other weights), on Linux, for the CPU, while this process has a single
thread (that of numpy's library, of pyarrow, of a notebook or of CUDA would be missing in the copy, perhaps with a lock
that it held), and after the trainer was loaded. Both kinds run :func:`dubio.runner.worker.main`, with one thread, and
end alike: with their standard input, or by a signal.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Iterable, Mapping
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import IO, NoReturn, Protocol

POLL_SECONDS = 0.005
"""Pause between two looks at a copy that is about to end."""

STREAMS = (0, 1, 2)

HARMLESS_THREADS = frozenset({"jemalloc_bg_thd"})
"""Names of threads that a copy can do without: jemalloc, which pyarrow brings, prepares itself for every fork."""

DELIVERED_LATER = (signal.SIGINT, signal.SIGTERM)
"""Signals that a copy hears only once it is a worker: before, they would run through the code of the parent."""


class WorkerProcess(Protocol):
    """A process with pipes to its standard input and output; one of :class:`subprocess.Popen` is one."""

    pid: int
    returncode: int | None

    @property
    def stdin(self) -> IO[bytes] | None:
        """The pipe to its standard input."""

    @property
    def stdout(self) -> IO[bytes] | None:
        """The pipe from its standard output."""

    def wait(self, timeout: float | None = None) -> int:
        """Wait for its end and return its exit code, or minus the signal that ended it."""

    def kill(self) -> None:
        """End it at once."""


def spawn(log: Path, environment: Mapping[str, str]) -> WorkerProcess:
    """Start a new interpreter that waits for its orders.

    Args:
        log: Receives its standard error.
        environment: Environment variables in addition to those of this process.
    """
    with log.open("wb") as sink:
        return subprocess.Popen(
            [sys.executable, "-m", "dubio.runner.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=sink,
            env={**os.environ, **environment},
            # Ctrl-C in a terminal reaches the whole process group; only the parent is to hear it.
            start_new_session=True,
        )


_commands: set[int] = set()
"""The number of this process, if it is a command of dubio."""


def declare_command() -> None:
    """Say that this process is a command of dubio, in which nobody else's program has set anything."""
    _commands.add(os.getpid())


def can_fork(trainer: str) -> bool:
    """Return whether a copy of this process would be a sound worker with this trainer."""
    if sys.platform != "linux" or os.getpid() not in _commands or trainer not in sys.modules:
        return False
    with suppress(OSError):
        for stream in STREAMS:
            os.fstat(stream)
        names = [path.read_text().strip() for path in Path("/proc/self/task").glob("*/comm")]
        return sum(name not in HARMLESS_THREADS for name in names) == 1
    return False


class Fork:
    """A copy of this process that waits for its orders.

    Attributes:
        pid: Its number.
        returncode: Its exit code, or minus the signal that ended it; None while nobody has noticed its end.
        stdin: The pipe to its standard input.
        stdout: The pipe from its standard output.
    """

    def __init__(self, log: Path, environment: Mapping[str, str]) -> None:
        """Make a copy; only where :func:`can_fork` allows it.

        Args:
            log: Receives its standard error.
            environment: Environment variables in addition to those of this process.
        """
        for stream in (sys.stdout, sys.stderr):
            with suppress(AttributeError, OSError, ValueError):  # there may be none, or one that is closed
                stream.flush()  # or the copy would write it once more
        self.returncode: int | None = None
        self._noticing = threading.Lock()
        with ExitStack() as own, ExitStack() as of_copy:
            sink = of_copy.enter_context(log.open("wb"))
            orders, stdin = os.pipe()
            of_copy.callback(os.close, orders)
            self.stdin: IO[bytes] = own.enter_context(os.fdopen(stdin, "wb"))
            stdout, answers = os.pipe()
            of_copy.callback(os.close, answers)
            self.stdout: IO[bytes] = own.enter_context(os.fdopen(stdout, "rb"))
            blocked = signal.pthread_sigmask(signal.SIG_BLOCK, DELIVERED_LATER)
            try:
                self.pid = os.fork()
                if self.pid == 0:
                    _serve(orders, answers, sink.fileno(), environment, blocked)
                own.callback(self._give_up)
            finally:
                # An interrupt that has waited is raised here, and nobody gets to know the copy: it must not live on.
                signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
            own.pop_all()

    def _give_up(self) -> None:
        self.kill()
        self.wait()

    def wait(self, timeout: float | None = None) -> int:
        """Wait for its end and return its exit code.

        Raises:
            TimeoutExpired: If it has not ended in time.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        while (code := self._look()) is None:
            if deadline is not None and time.monotonic() > deadline:
                raise subprocess.TimeoutExpired("a worker", timeout or 0.0)
            time.sleep(POLL_SECONDS)
        return code

    def _look(self) -> int | None:
        """Return its exit code if it has ended; only one thread may take it from the system."""
        with self._noticing:
            if self.returncode is None:
                try:
                    pid, status = os.waitpid(self.pid, os.WNOHANG)
                except ChildProcessError:  # it has ended, and where SIGCHLD is ignored the system keeps no exit code
                    pid, status = self.pid, 0
                self.returncode = os.waitstatus_to_exitcode(status) if pid else None
            return self.returncode

    def kill(self) -> None:
        """End it at once."""
        with self._noticing:
            if self.returncode is None:  # its number may belong to another process otherwise
                with suppress(ProcessLookupError):
                    os.kill(self.pid, signal.SIGKILL)


def _serve(
    orders: int, answers: int, log: int, environment: Mapping[str, str], blocked: Iterable[int | signal.Signals]
) -> NoReturn:
    """Be a worker in the copy, and never return into the code that made it."""
    inherited = sys.stdin, sys.stdout, sys.stderr  # an object that owns its number would close it with its last name
    try:
        os.setsid()  # as for a new interpreter, Ctrl-C is for the parent alone
        for own, stream in zip((orders, answers, log), STREAMS, strict=True):
            os.dup2(own, stream)
        _let_go()
        os.environ.update(environment)
        sys.stdin, sys.stdout, sys.stderr = (
            os.fdopen(0, encoding="utf-8", closefd=False),
            os.fdopen(1, "w", encoding="utf-8", closefd=False),
            os.fdopen(2, "w", 1, encoding="utf-8", errors="backslashreplace", closefd=False),
        )
        from dubio.runner import worker

        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
        worker.main()
        del inherited
    except BaseException:
        traceback.print_exc()
        with suppress(Exception):
            sys.stderr.flush()
    finally:
        os._exit(1)


def _let_go() -> None:
    """Give up the files of the parent: its locks, and pipes whose end others wait for.

    Their numbers stay taken, so that an object of the parent that closes its own closes no other.
    """
    nothing = os.open(os.devnull, os.O_RDWR)
    for number in map(int, os.listdir("/proc/self/fd")):
        if number not in (*STREAMS, nothing):
            with suppress(OSError):  # that of the list itself is closed by now
                os.fstat(number)
                os.dup2(nothing, number, inheritable=False)
