"""Files between the driver and nodes that do not see the store: what a job needs goes there, what it made comes back.

Everything travels through Ray's object store in pieces of bounded size, two at a time on the way to a node and one on
the way back, so that memory does not grow with the files. On the node, a file of the driver lies below ``files/`` under
its whole path, and the arguments of a job that name files are changed to match.
"""

from __future__ import annotations

import contextlib
import os
import re
import threading
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from dubio.core.errors import CorruptFile, StoreError
from dubio.core.files import CACHE_VARIABLE, cache_dir
from dubio.core.registry import TASKS
from dubio.core.specs import canonical
from dubio.encoders.pretrained import ENCODER
from dubio.runner.ray_node import Piece
from dubio.store import Store
from dubio.store.records import EntryKind, Layout
from dubio.tasks.sources.locate import DATA_VARIABLE, DataSource

PIECE = 16 * 2**20
"""Largest number of bytes that travel at once."""

TRANSFERS = threading.Semaphore(4)
"""Transfers at a time, so that the driver's memory does not grow with the number of nodes."""

PATH_ARGUMENTS = ("data", "data_dir", "shift_data")
"""Arguments of tasks that name a file or folder; in others, only a whole path counts as one."""

Json = dict[str, Any]


def named_paths(arguments: Mapping[str, Any]) -> dict[str, Path]:
    """Return the whole paths of the arguments that name a file or folder of this machine."""
    texts = {name: os.path.expanduser(value) for name, value in arguments.items() if value and isinstance(value, str)}
    paths = {name: text for name, text in texts.items() if name in PATH_ARGUMENTS or os.path.isabs(text)}
    return {name: Path(text).absolute() for name, text in paths.items() if os.path.exists(text)}


def with_paths(job: Mapping[str, Any], root: str = "") -> Json:
    """Return a job whose paths are whole, or those of the copies on a node.

    Args:
        job: The job.
        root: The node's folder; empty for a node that sees the driver's files.
    """

    def moved(named: tuple[str, Mapping[str, Any]]) -> list[Any]:
        name, arguments = named
        files = named_paths(arguments).items()
        return [name, {**arguments, **{key: f"{root}/{copy_name(p)}" if root else str(p) for key, p in files}}]

    return {**job, "task": moved(job["task"]), "others": [moved(named) for named in job["others"]]}


def copy_name(path: Path) -> str:
    """Return where a node keeps its copy of a file, below its folder."""
    return f"files/{path.absolute().as_posix().replace(':', '').lstrip('/')}"


def data_variables(root: str) -> dict[str, str]:
    """Return the environment variables by which tasks on a node find the copies of data sets."""
    folders = {CACHE_VARIABLE: str(cache_dir()), DATA_VARIABLE: os.environ.get(DATA_VARIABLE, "")}
    return {name: f"{root}/{copy_name(Path(path).expanduser())}" for name, path in folders.items() if path}


def data_paths(job: Mapping[str, Any]) -> list[Path]:
    """Return the files and folders that a job's tasks and encoding read: those they name, or copies of data sets."""
    tasks = [path for named in (job["task"], *job["others"]) for path in _task_paths(*named)]
    digests = re.findall(ENCODER, canonical(job["spec"]).decode())
    encoders = (cache_dir() / "encoders" / digest.partition(":")[2] for digest in digests)
    return list(dict.fromkeys([*tasks, *filter(Path.exists, encoders)]))


def _task_paths(name: str, arguments: Mapping[str, Any]) -> list[Path]:
    named = named_paths(arguments)
    source: DataSource | None = TASKS.entry(name).facts.get("source")
    copies = None if source is None or "data" in named else source.copies(arguments.get("data_dir"))
    if copies:
        named.pop("data_dir", None)
    return [*named.values(), *(Path(copy["path"]) for copy in copies or ())]


def pieces(files: Iterable[tuple[Path, str]]) -> Iterator[list[Piece]]:
    """Yield files in batches of at most :data:`PIECE` bytes; small files share a batch.

    Args:
        files: Each file, and its name on the node.
    """
    batch: list[Piece] = []
    space = PIECE
    for path, name in files:
        with path.open("rb") as source:
            offset = 0
            while (content := source.read(space)) or offset == 0:
                batch.append((name, offset, content))
                offset += len(content)
                space -= len(content)
                if not space:
                    yield batch
                    batch, space = [], PIECE
                if not content:
                    break
    if batch:
        yield batch


def _files_of(path: Path, name: str) -> Iterator[tuple[Path, str]]:
    """Yield a file, or every file of a folder, with its name on the node."""
    if path.is_file():
        yield path, name
    for folder, folders, files in os.walk(path, followlinks=True):
        folders.sort()
        below = Path(folder).relative_to(path).as_posix()
        yield from ((Path(folder) / file, f"{name}/{below}/{file}") for file in sorted(files))


class NodeLink:
    """A node that does not see the store, and what it holds already."""

    def __init__(self, ray: Any, guest: Any, host: str) -> None:
        """Make a folder on the node.

        Args:
            ray: The module.
            guest: An actor on the node.
            host: The name of the node.
        """
        self.host, self.guest = host, guest
        self._ray = ray
        self._lock = threading.Lock()
        self._copies: set[str] = set()
        ray.get(guest.open.remote("NodeFolder", sorted(data_variables("").values())))
        self.root: str = self._call("root")

    def _call(self, name: str, *arguments: Any) -> Any:
        return self._ray.get(self.guest.call.remote(name, *arguments))

    def send(self, path: Path) -> None:
        """Send a file or folder, unless the node has it."""
        self._send(path, copy_name(path))

    def send_fit(self, layout: Layout, fit_id: str) -> None:
        """Send a fit into the node's store; the node verifies it when it reads it."""
        source = layout.directory("fits", fit_id)
        if not source.is_dir():
            raise CorruptFile(f"{source}: the fit is missing.")
        if self._send(source, f"incoming/{fit_id}"):
            self._call("place", f"incoming/{fit_id}", f"store/fits/{fit_id}")

    def forget_fit(self, fit_id: str) -> None:
        """Remove a fit that arrived damaged, so that it is sent again."""
        with self._lock:
            self._call("remove", f"store/fits/{fit_id}")
            self._copies.discard(f"incoming/{fit_id}")

    def _send(self, path: Path, name: str) -> bool:
        with self._lock:
            if name in self._copies:
                return False
            with TRANSFERS:
                on_the_way = None
                for batch in pieces(_files_of(path, name)):
                    previous, on_the_way = on_the_way, self.guest.call.remote("write", batch)
                    if previous is not None:
                        self._ray.get(previous)
                if on_the_way is not None:
                    self._ray.get(on_the_way)
            self._copies.add(name)
            return True

    def collect(self, store: Store, kind: EntryKind, identifier: str) -> None:
        """Bring back a fit or prediction, verify it and put it into the store.

        Raises:
            CorruptFile: When it did not arrive as it was written.
            StoreError: When it cannot be written here.
        """
        arrived = Layout(store.scratch.new())
        folder, name = arrived.directory(kind, identifier), f"store/{kind}/{identifier}"
        try:
            folder.mkdir(parents=True)
            with TRANSFERS:
                for file, size in self._call("files", name):
                    with (folder / os.path.basename(file)).open("wb") as sink:
                        for offset in range(0, size, PIECE):
                            sink.write(self._call("read", f"{name}/{file}", offset, PIECE))
        except OSError as fault:
            raise StoreError(f"cannot write {str(fault.filename or folder)!r}: {fault.strerror or fault}.") from fault
        Store(arrived).verify(kind, identifier)
        store.place(folder, kind, identifier)
        if kind == "fits":
            with self._lock:
                self._copies.add(f"incoming/{identifier}")
        else:
            self._call("remove", name)


def is_complete(store: Store, job: Mapping[str, Any]) -> bool:
    """Return whether the store holds what a job makes."""
    if job["kind"] == "fit":
        return store.has_fit(job["id"])
    with contextlib.suppress(CorruptFile):
        return not store.missing_splits(job["id"], [(name, fingerprint) for name, fingerprint in job["splits"]])
    return False
