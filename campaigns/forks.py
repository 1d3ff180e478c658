"""Run a piece of work in a fork of this process, with everything imported, and bring back what came of it."""

from __future__ import annotations

import json
import os
import signal
import sys
import tempfile
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dubio.core.errors import DubioError

SECONDS = 60
"""Longer is a hang."""


@dataclass(frozen=True)
class Ending:
    """How a piece of work ended.

    Attributes:
        code: Exit code as the command line would give it; -1 for anything it would call a bug, or a hang.
        words: What it printed on standard error, or the traceback.
        value: What it returned.
    """

    code: int
    words: str
    value: Any = None


def in_fork(work: Callable[[], Any]) -> Ending:
    """Run work in a fork; errors become exit codes as they do on the command line."""
    with tempfile.TemporaryDirectory(prefix="dubio-fork-") as folder:
        answer, words = Path(folder) / "answer", Path(folder) / "words"
        sys.stdout.flush()
        sys.stderr.flush()
        child = os.fork()
        if not child:
            _serve(work, answer, words)
        _, status = os.waitpid(child, 0)
        said = words.read_text("utf-8", "replace") if words.exists() else ""
        if not answer.exists():
            return Ending(-1, f"ended by signal {os.WTERMSIG(status)}: {said}")
        code, value, trace = json.loads(answer.read_text())
        return Ending(code, said + trace, value)


def _serve(work: Callable[[], Any], answer: Path, words: Path) -> None:
    signal.alarm(SECONDS)
    sink = os.open(words, os.O_CREAT | os.O_WRONLY, 0o600)
    os.dup2(sink, 1)
    os.dup2(sink, 2)
    code, value, trace = 0, None, ""
    try:
        value = work()
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 0
    except DubioError as error:
        code, trace = error.exit_code, f"{error}"
    except BaseException:
        code, trace = -1, traceback.format_exc()
    sys.stdout.flush()
    sys.stderr.flush()
    answer.write_text(json.dumps([code, value, trace]))
    os._exit(0)


def processor_seconds(process: int) -> float:
    """Return the seconds of the processor that a process has used; 0 for one that has ended."""
    try:
        fields = Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
