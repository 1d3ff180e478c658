"""What the campaigns disturb in a store: every kind of write, and a whole run; exported files are in ``exports.py``.

An operation acts in a folder that its preparation has filled, and is observed as ``{key: value}``, one key for each
thing that must be old or new as a whole: a fit, a prediction, a manifest, an exported file.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import sqlite3
from collections.abc import Callable, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np
from tests.runner import fake_trainer
from tests.runner.helpers import prepare as prepare_tasks
from tests.store import helpers

from campaigns.shim import mark
from dubio.core.errors import CorruptFile, DubioError
from dubio.core.specs import canonical, to_plain
from dubio.reporting.report_cache import ReportCache
from dubio.runner import benchmark_run
from dubio.runner.benchmark_file import Benchmark, TaskEntry
from dubio.runner.benchmark_run import PreparedBenchmark
from dubio.runner.executors import Event, Finished, WorkerOrders
from dubio.runner.worker import JobRunner
from dubio.store import Store
from dubio.store.checkpoints import FitCheckpoint
from dubio.store.examples import example_files
from dubio.store.maintenance import ENTRY_KINDS, litter, rebuild_index, remove

State = dict[str, str]
Folder = Callable[[Path], None]
OTHER_FIT = {"seed": 1}


class Operation(NamedTuple):
    """Something that writes.

    Attributes:
        name: Its name in the figures.
        prepare: Fills an empty folder.
        act: What is disturbed.
        observe: Returns what a reader sees.
        of_trained: Whether it needs the trained run of ``deployments.py``.
    """

    name: str
    prepare: Folder
    act: Folder
    observe: Callable[[Path], State]
    of_trained: bool = False


# --- what a reader sees ---------------------------------------------------------------------------------------------


def digest(*contents: bytes) -> str:
    """Return a short hash of contents."""
    return hashlib.sha256(b"\0".join(contents)).hexdigest()[:16]


def observe_store(folder: Path) -> State:
    """Return what the reopened store holds: entries by the hashes of their files, damaged ones as such."""
    root = folder / "store"
    if not (root / "store.json").exists():
        return {}
    store = Store.open(root, create=False)
    state = {"header": "there"}
    for kind in ENTRY_KINDS:
        for identifier in store.ids(kind):
            state[f"{kind}/{identifier}"] = _entry(store, kind, identifier)
    for name in store.manifests():
        state[f"runs/{name}"] = _manifest(store, name)
    for path in sorted(store.layout.failures.glob("*.json")):
        if not store.has_fit(path.stem):  # else resolved; swept later
            state[f"failures/{path.stem}"] = digest(path.read_bytes())
    for path in sorted(store.layout.checkpoints.glob("*")):
        if store.has_fit(path.name):
            continue  # of no use any more; swept later
        if (kept := FitCheckpoint(store.layout, cast(Any, None), path.name, 0).load()) is not None:
            tensors = [np.ascontiguousarray(kept["tensors"][name]).tobytes() for name in sorted(kept["tensors"])]
            state[f"checkpoints/{path.name}"] = digest(canonical(to_plain(kept["state"])), *tensors)
    for path in example_files(store.layout):
        state[f"{path.parent.parent.name}/{path.name}"] = digest(path.read_bytes())
    for path in store.layout.derived.glob("*.report"):  # its name depends on times of change
        whole = ReportCache(store, {}).read(path) is not None
        state[f"derived/{'whole' if whole else path.name}"] = "there" if whole else "damaged"
    if store.layout.index.exists():
        state["index"] = _index(store)
    return state


def _entry(store: Store, kind: Any, identifier: str) -> str:
    try:
        store.verify(kind, identifier)
        spec = store.spec(kind, identifier)
        files = {} if "members" in spec else store.record(identifier)["files"]
    except CorruptFile:
        return "damaged"
    return digest(canonical(spec), *(f"{name} {files[name]['sha256']}".encode() for name in sorted(files)))


def _manifest(store: Store, name: str) -> str:
    try:
        manifest = store.manifest(name)
    except CorruptFile:
        return "damaged"
    absent = [run["id"] for run in manifest["runs"] if run["id"] not in store.ids("predictions")]
    return f"names {len(absent)} predictions that are not there" if absent else digest(canonical(to_plain(manifest)))


def _index(store: Store) -> str:
    try:
        with closing(sqlite3.connect(f"{store.layout.index.as_uri()}?mode=ro", uri=True)) as base:
            return digest("\n".join(base.iterdump()).encode())
    except sqlite3.DatabaseError:
        return "damaged"


# --- the store ------------------------------------------------------------------------------------------------------


def empty(folder: Path) -> None:
    """Prepare nothing."""


def small_store(folder: Path) -> None:
    """Prepare a store with a fit, a prediction, a checkpoint and a failure."""
    with Store.open(folder / "store") as store:
        helpers.write_fit(store)
        helpers.write_prediction(store)
        other = helpers.identity({**helpers.SPEC, **OTHER_FIT})
        store.checkpoint(other, 0).save({"w": np.arange(5.0)}, {"epoch": 1}, {"first": {"s": np.arange(3.0)}})
        store.write_failure(other, {"error": "the loss is not a number."})


def littered_store(folder: Path) -> None:
    """Prepare a store with everything that is swept."""
    small_store(folder)
    root = folder / "store"
    (root / "corrupt" / "fits-old").mkdir(parents=True)
    (root / "corrupt" / "fits-old" / "weights.safetensors").write_bytes(b"half")
    (root / "tmp" / "dead" / "inner").mkdir(parents=True)
    (root / "tmp" / "dead" / "inner" / "half").write_bytes(b"half")
    (root / "tmp" / "dead.lock").touch()
    shutil.copytree(root / "checkpoints" / os.listdir(root / "checkpoints")[0], root / "checkpoints" / helpers.FIT)


def damaged_store(folder: Path) -> None:
    """Prepare a store whose fit is damaged."""
    small_store(folder)
    with (folder / "store" / "fits" / helpers.FIT / "weights.safetensors").open("r+b") as weights:
        weights.write(b"\xff" * 4)


def in_store(change: Callable[[Store], object]) -> Folder:
    """Return an act that opens the store, changes it and closes it."""

    def act(folder: Path) -> None:
        with Store.open(folder / "store") as store:
            change(store)

    return act


def save_checkpoint(store: Store) -> None:
    """Replace the checkpoint that is there; its settled arrays are taken over."""
    checkpoint = store.checkpoint(helpers.identity({**helpers.SPEC, **OTHER_FIT}), 0)
    checkpoint.load()
    checkpoint.save({"w": np.arange(6.0)}, {"epoch": 2}, {"first": {"s": np.arange(3.0)}, "second": {"s": np.ones(2)}})


def hold_lock(store: Store) -> None:
    """Take a lock, find it held, release it."""
    with store.lock(helpers.FIT):
        store.is_locked(helpers.FIT)


# --- a whole run in one process -------------------------------------------------------------------------------------


class InlineExecutor:
    """Runs every job at once in this process, so that all its calls are counted, and marks what has ended."""

    def __init__(self, jobs: int, orders: WorkerOrders, *_: object) -> None:
        self.jobs = 1
        self._store = Store.open(orders.store, create=False)
        self._runner = JobRunner(self._store, cast(Any, fake_trainer), orders.checkpoint_seconds)
        self._events: list[Event] = []

    def start(self, jobs: int) -> None:
        """Start nothing: jobs run in this process."""

    def free(self) -> int:
        """Return how many more jobs could start now."""
        return 1 - len(self._events)

    def submit(self, job: dict[str, Any]) -> None:
        """Run a job."""
        result = self._runner.run(job, lambda fraction, detail: None)
        if result["status"] == "made" and job["kind"] != "estimate":
            mark(f"{'fits' if job['kind'] == 'fit' else 'predictions'}/{job['id']}")
        self._events.append(Finished(job["id"], result))

    def wait(self, seconds: float) -> list[Event]:
        """Return the results since the last call."""
        events, self._events = self._events, []
        return events

    def close(self) -> None:
        """Close the store."""
        self._store.close()


def run_inline(folder: Path) -> None:
    """Run a small benchmark: two fits with a checkpoint each, their predictions on two splits, and their ensemble.

    Raises:
        DubioError: When some of it failed.
    """
    cast(dict[str, Any], benchmark_run.EXECUTORS)["inline"] = InlineExecutor
    tasks = (TaskEntry("toy", "toy-net", training={"epochs": 1, "members": 2}),)
    benchmark = Benchmark("toy-run", tasks, ("mc-drop-ensemble",), (0,))
    with Store.open(folder / "store") as store:
        prepared = PreparedBenchmark(benchmark, prepare_tasks(benchmark), cast(Any, fake_trainer))
        outcome = prepared.run(store, 1, "inline", checkpoint_seconds=0, show=False)
    if outcome.outcome.failures:
        raise DubioError("; ".join(failure["error"] for failure in outcome.outcome.failures.values()))


def store_operations() -> list[Operation]:
    """Return every kind of write to a store."""
    png = b"\x89PNG\r\n\x1a\n" + bytes(40)
    rows: Mapping[str, tuple[Folder, Callable[[Store], object]]] = {
        "create a store": (empty, lambda store: None),
        "write a fit": (small_store, lambda store: helpers.write_fit(store, **OTHER_FIT)),
        "write predictions": (small_store, lambda store: helpers.write_prediction(store, 1)),
        "add a split to predictions": (
            small_store, lambda store: helpers.write_prediction(store, 0, helpers.split("far", 1)),
        ),
        "write an ensemble": (small_store, lambda store: store.write_ensemble({"members": [helpers.FIT]})),
        "save a checkpoint": (small_store, save_checkpoint),
        "write a failure": (small_store, lambda store: store.write_failure("f" * 64, {"error": "no."})),
        "write examples": (small_store, lambda store: store.write_examples(helpers.FIT, {0: png, 7: "a text"})),
        "rebuild the index": (run_inline, rebuild_index),
        "take and release a lock": (small_store, hold_lock),
        "set a damaged fit aside": (damaged_store, lambda store: store.set_aside("fits", helpers.FIT)),
        "sweep": (littered_store, lambda store: remove(store, litter(store))),
    }  # fmt: skip
    made = [Operation(name, prepare, in_store(change), observe_store) for name, (prepare, change) in rows.items()]
    return [*made, Operation("a whole run", empty, run_inline, observe_store)]
