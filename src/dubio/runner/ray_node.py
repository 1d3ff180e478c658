"""The Ray executor's part on the nodes of a cluster: what a node is, the actor that runs jobs, and a node's own files.

Nodes may lack dubio, or have another version of it. :func:`node_facts` and :func:`guest_class` therefore return a
function and a class that travel to the node as code and import dubio there only when told to.
"""

from __future__ import annotations

import contextlib
import faulthandler
import getpass
import json
import os
import shutil
import sys
import tempfile
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

LOG_TAIL = 2000
NEWS_SECONDS = 1.0
"""Longest wait for the end of a job before its progress is reported, and so the interval of the reports."""

Piece = tuple[str, int, bytes]
"""A file's path below a node's folder, an offset, and the bytes that stand there."""


def node_facts() -> Callable[[str], dict[str, Any]]:
    """Return a function that describes the node it runs on; its argument is a file that the driver has written."""

    def look(beacon: str) -> dict[str, Any]:
        import importlib.metadata as metadata
        import os
        import platform
        import socket
        import sys

        import ray

        def version(name: str) -> str | None:
            try:
                return metadata.version(name)
            except metadata.PackageNotFoundError:
                return None

        try:
            import dubio

            own: str | None = str(dubio.__version__)
        except ImportError:
            own = None
        return {
            "node": ray.get_runtime_context().get_node_id() if ray.is_initialized() else "",
            "host": socket.gethostname(),
            "sees": os.path.exists(beacon),
            "log": os.path.realpath("/proc/self/fd/2"),
            "versions": {"dubio": own, "Python": platform.python_version(), "torch": version("torch")},
            "executable": sys.executable,
        }

    return look


def guest_class() -> type[Any]:
    """Return the class of every actor: it describes its node, then holds an object of this module."""
    facts_here = node_facts()

    class Guest:
        def facts(self, beacon: str) -> dict[str, Any]:
            return facts_here(beacon)

        def open(self, name: str, *arguments: Any) -> None:
            import importlib

            self._held = getattr(importlib.import_module("dubio.runner.ray_node"), name)(*arguments)

        def call(self, name: str, *arguments: Any) -> Any:
            return getattr(self._held, name)(*arguments)

    return Guest


class JobServer:
    """Runs one job at a time in a thread, so that the actor can answer for its progress meanwhile."""

    def __init__(self, orders: str, variables: dict[str, str]) -> None:
        from dubio.runner.worker import open_job_runner

        faulthandler.enable(all_threads=False)  # the others are Ray's, and would fill the last words
        os.environ.update(variables)
        own_orders = json.loads(orders)
        # The node's own packages first: those of the driver may be for another machine.
        further = (path for path in own_orders["path"] if path not in sys.path and os.path.exists(path))
        own_orders["path"] = [*sys.path, *further]
        self._runner = open_job_runner(own_orders)
        self._progress: tuple[float, str] | None = None
        self._result: dict[str, Any] | None = None
        self._ended = threading.Event()

    def ping(self) -> None:
        """Answer."""

    def start(self, job: str) -> None:
        """Start a job."""
        self._progress = self._result = None
        self._ended.clear()
        threading.Thread(target=self._run, args=(json.loads(job),), daemon=True).start()

    def _run(self, job: dict[str, Any]) -> None:
        try:
            self._result = self._runner.run(job, self._report)
        finally:
            self._ended.set()

    def _report(self, fraction: float, detail: str) -> None:
        self._progress = fraction, detail

    def news(self) -> str:
        """Return the result as soon as there is one, else the latest progress after a while, both as JSON."""
        self._ended.wait(NEWS_SECONDS)
        return json.dumps({"ended": self._ended.is_set(), "result": self._result, "progress": self._progress})


class NodeFolder:
    """A folder on a node that does not see the store: a store of its own, and copies of the driver's files.

    It is locked for as long as its actor lives, and swept by the next one on that node if the actor was killed.
    """

    def __init__(self, folders: Sequence[str]) -> None:
        from dubio.store.locks import ScratchDirectory
        from dubio.store.store import Store

        self._scratch = ScratchDirectory(Path(tempfile.gettempdir()) / f"dubio-nodes-{getpass.getuser()}")
        self._root = self._scratch.path
        Store.open(self._root / "store").close()
        for folder in folders:
            (self._root / folder).mkdir(parents=True, exist_ok=True)

    def root(self) -> str:
        """Return its path."""
        return str(self._root)

    def write(self, pieces: Sequence[Piece]) -> None:
        """Write pieces of files; those of one file come in order, and its first piece begins it anew."""
        for name, offset, content in pieces:
            path = self._root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("r+b" if offset else "wb") as sink:
                sink.seek(offset)
                sink.write(content)

    def place(self, source: str, target: str) -> None:
        """Move a folder to its place; one that is there stays."""
        (self._root / target).parent.mkdir(exist_ok=True)
        if not (self._root / target).is_dir():
            (self._root / source).rename(self._root / target)

    def files(self, folder: str) -> list[tuple[str, int]]:
        """Return the names and sizes of the files in a folder."""
        return sorted((path.name, path.stat().st_size) for path in (self._root / folder).iterdir())

    def read(self, name: str, offset: int, count: int) -> bytes:
        """Return a piece of a file."""
        with (self._root / name).open("rb") as source:
            source.seek(offset)
            return source.read(count)

    def remove(self, folder: str) -> None:
        """Remove a folder."""
        shutil.rmtree(self._root / folder, ignore_errors=True)

    def close(self) -> None:
        """Remove everything."""
        self._scratch.close()


def last_words(log: str) -> str:
    """Return the end of the log of a process on this node."""
    with contextlib.suppress(OSError):
        return Path(log).read_bytes()[-LOG_TAIL:].decode("utf-8", "replace").strip()
    return ""
