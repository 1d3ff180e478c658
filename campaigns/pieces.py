"""Pieces of a campaign: several at a time, each in a process of its own, and the figures of finished ones are kept.

The same command continues after an interruption: what is kept counts only for the same code and the same options.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

from dubio.core.files import write_file

ROOT = Path(__file__).resolve().parents[1]
CODE = ("src", "campaigns", "tests/runner", "tests/store")
"""Folders whose code decides what a campaign finds."""

Figures = dict[str, Any]


class Piece(NamedTuple):
    """A part of a campaign.

    Attributes:
        name: Its name.
        work: Returns its figures.
        lane: Of pieces with the same lane, one runs at a time; those without one wait for nobody.
    """

    name: str
    work: Callable[[], Figures]
    lane: str = ""


class Kept:
    """A folder with the figures of finished pieces; those of other code or other options are removed."""

    def __init__(self, folder: Path, options: Mapping[str, Any]) -> None:
        self.folder = folder
        plan = json.dumps({"code": code_digest(), "options": dict(options)}, sort_keys=True)
        if folder.exists() and (not (folder / "plan").exists() or (folder / "plan").read_text() != plan):
            shutil.rmtree(folder)
        write_file(folder / "plan", plan)

    def path(self, name: str) -> Path:
        """Return the file of a piece."""
        return self.folder / f"{sha256(name.encode()).hexdigest()[:16]}.json"

    def figures(self, name: str) -> Figures | None:
        """Return the figures of a finished piece."""
        path = self.path(name)
        return dict(json.loads(path.read_text())) if path.exists() else None


def code_digest() -> str:
    """Return a hash of the code that is tried and of the code that tries it."""
    paths = (path for folder in CODE for path in (ROOT / folder).rglob("*") if path.is_file() and path.suffix != ".pyc")
    digest = sha256()
    for path in sorted(paths):
        digest.update(f"{path.relative_to(ROOT)}\0".encode() + path.read_bytes())
    return digest.hexdigest()[:16]


def run_pieces(pieces: Sequence[Piece], kept: Kept, jobs: int) -> list[Figures]:
    """Run the pieces that are not kept, so many at a time; return the figures of all.

    Raises:
        RuntimeError: When a piece ends without figures.
    """
    waiting = [piece for piece in pieces if kept.figures(piece.name) is None]
    running: dict[int, tuple[Piece, float]] = {}
    try:
        while waiting or running:
            busy = {piece.lane for piece, _ in running.values()} - {""}
            ready = [piece for piece in waiting if piece.lane not in busy]
            if ready and len(running) < jobs:
                waiting.remove(ready[0])
                running[_start(ready[0], kept.path(ready[0].name))] = ready[0], time.monotonic()
                continue
            process, _ = os.wait()
            (name, *_), began = running.pop(process)
            figures = kept.figures(name)
            if figures is None:
                raise RuntimeError(f"{name}: ended without figures.")
            problems = f", {len(figures['problems'])} PROBLEMS" if figures["problems"] else ""
            seconds = time.monotonic() - began
            print(f"{name}: {seconds:.0f} s{problems}; {len(waiting) + len(running)} to go", flush=True)
    finally:
        _end(set(running))
    return [figures for piece in pieces if (figures := kept.figures(piece.name)) is not None]


def _end(processes: set[int]) -> None:
    """End processes; again after some seconds, for an interrupt that meets a finaliser is lost."""
    while processes:
        for process in processes:
            os.kill(process, signal.SIGTERM)
        deadline = time.monotonic() + 5
        while processes and time.monotonic() < deadline:
            processes -= {process for process in processes if os.waitpid(process, os.WNOHANG)[0]}
            time.sleep(0.05)


def _start(piece: Piece, path: Path) -> int:
    process = os.fork()
    if process:
        return process
    code = 1
    try:
        os.setsid()  # Ctrl-C reaches the first process alone, which ends the others one by one
        signal.signal(signal.SIGTERM, _interrupted)
        write_file(path, json.dumps(piece.work()))
        code = 0
    except KeyboardInterrupt:
        pass
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)


def _interrupted(*_: object) -> None:
    raise KeyboardInterrupt


def total(figures: Sequence[Figures]) -> Figures:
    """Return the figures of several pieces together: numbers added, lists joined, tables merged.

    >>> total([{"a": 1, "b": {"c": 2}, "problems": []}, {"a": 4, "b": {"c": 1, "d": 5}, "problems": ["no"]}])
    {'a': 5, 'b': {'c': 3, 'd': 5}, 'problems': ['no']}
    """
    together: Figures = {}
    for one in figures:
        for key, value in one.items():
            if isinstance(value, Mapping):
                together[key] = total([together.get(key, {}), dict(value)])
            else:
                together[key] = together[key] + value if key in together else value
    return together
