"""Saying how far a long preparation is, on a screen only."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

_SECONDS = 0.2


def on_screen(what: str) -> Callable[[int, int], None] | None:
    """What shows how many are done on one line of standard error; None where that is no screen."""
    if not sys.stderr.isatty():
        return None
    last = [0.0]

    def show(done: int, total: int) -> None:
        now = time.monotonic()
        if done < total and now - last[0] < _SECONDS:
            return
        last[0] = now
        sys.stderr.write(f"\r{what}: {done:,} of {total:,}" + ("\n" if done == total else ""))
        sys.stderr.flush()

    return show
