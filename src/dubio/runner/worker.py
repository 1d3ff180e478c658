"""A worker process: reads jobs as JSON lines, does them one at a time with one thread, answers in JSON lines.

It is started by an executor, imports the left side once and lives until its standard input ends. The end of that pipe
is noticed at once by a thread of its own, also in the middle of a training: when the parent dies, in whatever way, its
workers go too, and the locks they held with them.
"""

from __future__ import annotations

import faulthandler
import json
import os
import queue
import sys
import threading
import time
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dubio.runner.jobs import Workshop

TELL_SECONDS = 0.2
"""At least so long between two words about one job."""

Lines = queue.SimpleQueue[str]


def main() -> None:
    """Serve until the parent is gone."""
    faulthandler.enable()
    answers = _private_output()
    lines: Lines = queue.SimpleQueue()
    threading.Thread(target=_read, args=(lines,), daemon=True).start()
    workshop = open_workshop(json.loads(lines.get()))
    _answer(answers, {"ready": True})
    while True:
        job = json.loads(lines.get())
        _answer(answers, {"result": workshop.do(job, _Teller(answers)), "id": job["id"]})


def open_workshop(orders: dict[str, Any]) -> Workshop:
    """Make this process ready for jobs: search path, left side, one thread, plugins, store."""
    sys.path[:] = orders["path"]

    from dubio.core.registry import load_entry_points, load_plugin
    from dubio.runner.jobs import Workshop
    from dubio.runner.left import load_left
    from dubio.store import Store

    left = load_left(orders["left"])
    _one_thread()
    load_entry_points()
    for plugin in orders["plugins"]:
        load_plugin(Path(plugin))
    store = Store.open(orders["store"], create=False)
    _STORES.append(store)
    return Workshop(store, left, orders["checkpoint_seconds"], orders["device"])


class _Teller:
    """Passes on how far a job is, not too often."""

    def __init__(self, answers: IO[bytes]) -> None:
        self._answers, self._last = answers, 0.0

    def __call__(self, fraction: float, words: str) -> None:
        now = time.monotonic()
        if now - self._last >= TELL_SECONDS:
            self._last = now
            _answer(self._answers, {"progress": fraction, "words": words})


_STORES: list[Any] = []
"""The open store, for the thread that sees the parent go."""


def _read(lines: Lines) -> None:
    for line in sys.stdin:
        lines.put(line)
    # The parent is gone or wants us gone. What is half-made is in our scratch directory; nothing else needs us.
    for store in _STORES:
        store.close()
    os._exit(0)


def _private_output() -> IO[bytes]:
    """Keep standard output for answers alone: whatever else is printed here goes to standard error."""
    private = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    return private


def _answer(answers: IO[bytes], message: dict[str, Any]) -> None:
    try:
        answers.write(json.dumps(message).encode() + b"\n")
        answers.flush()
    except BrokenPipeError:
        os._exit(0)


def _one_thread() -> None:
    """One thread in every fit and prediction, so that results do not depend on the number of jobs."""
    torch = sys.modules.get("torch")
    if torch is not None:
        torch.set_num_threads(1)
        torch.set_num_interop_threads(1)


if __name__ == "__main__":
    main()
