"""Doing one job: make one fit or one prediction in the store, under its lock.

A job and its result are plain JSON, so that any executor can carry them. Jobs::

    {"kind": "fit" | "predict" | "method" | "estimate", "id": …, "spec": …, "task": [name, arguments], "splits": […]}

Results have a ``status``: ``made``, ``found`` (it was there), ``busy`` (another process is making it), ``damaged``
(what it needs was not what was written, and is out of the way), ``failed``, or ``store`` (which cannot be written).
"""

from __future__ import annotations

import platform
import sys
import time
import traceback
from collections.abc import Callable, Mapping
from functools import lru_cache
from importlib.metadata import PackageNotFoundError, version
from typing import Any, cast

from dubio.core.errors import CorruptFile, DubioError, StoreError, UserError
from dubio.core.registry import METHODS, TASKS
from dubio.core.specs import restore
from dubio.core.types import Split, Task
from dubio.encoders import Encoding
from dubio.runner.executor import CPU
from dubio.runner.left import Left
from dubio.store import BusyError, Store, canonical
from dubio.store.fits import StoredFit

Json = dict[str, Any]
Tell = Callable[[float, str], None]

TASKS_KEPT = 4


class DamagedFitError(Exception):
    """A fit that a job needs is not there or not what was written; it has been moved out of the way."""

    def __init__(self, fit_id: str, fault: CorruptFile) -> None:
        super().__init__(str(fault))
        self.fit_id = fit_id


class Workshop:
    """Does jobs in one store, keeping the tasks it has read."""

    def __init__(self, store: Store, left: Left, checkpoint_seconds: float, device: str = CPU) -> None:
        """Make it.

        Args:
            store: Where results go.
            left: What fits and predicts.
            checkpoint_seconds: How often a fit under way is saved.
            device: Where fits and predictions run.
        """
        self._store, self._left, self._checkpoint_seconds = store, left, checkpoint_seconds
        self._device = device
        self._tasks: dict[bytes, Task] = {}
        self._kinds = {"fit": self._fit, "predict": self._predict, "method": self._method}

    def do(self, job: Json, tell: Tell) -> Json:
        """Do a job; whatever happens comes back as a result."""
        started = time.monotonic()
        try:
            if job["kind"] == "estimate":
                cost = self._left.estimate(job["spec"], self._task(job), device=self._device)
                return {"status": "made", "cost": dict(cost)}
            with self._store.lock(job["id"]):
                status = self._kinds[job["kind"]](job, tell)
        except BusyError:
            return {"status": "busy"}
        except DamagedFitError as fault:
            return {"status": "damaged", "fit": fault.fit_id, "error": str(fault)}
        except StoreError as fault:
            return {"status": "store", "error": str(fault)}
        except Exception as fault:
            return {"status": "failed", "error": sentence(fault), "traceback": traceback.format_exc()}
        return {"status": status, "seconds": time.monotonic() - started}

    def _fit(self, job: Json, tell: Tell) -> str:
        if self._store.has_fit(job["id"]):
            return "found"
        spec = job["spec"]
        parent = None if spec["start"] is None else self._read_fit(spec["start"])
        context = self._left.FitContext(
            device=self._device,
            progress=tell,
            checkpoint=self._store.checkpoint(job["id"], self._checkpoint_seconds),
            start=None if parent is None else parent.tensors,
        )
        fitted = self._left.fit(spec, self._task(job), context)
        record = {**fitted.record, "environment": environment(self._device)}
        self._store.write_fit(spec, fitted.tensors, fitted.encoder, record)
        return "made"

    def _predict(self, job: Json, tell: Tell) -> str:
        missing = self._missing(job)
        if not missing:
            return "found"
        fit = self._read_fit(job["spec"]["fit"])
        encoding = cast(Encoding, restore(fit.spec["encoding"]))
        (train,) = self._task(job).of_kind("train")
        started = time.perf_counter()
        predict = self._left.predictor(fit.spec, job["spec"], fit.tensors, fit.encoder, device=self._device)
        ready = time.perf_counter() - started  # part of what predicting any one of the splits costs
        with self._store.prediction_writer(job["spec"], environment(self._device)) as writer:
            for place, split in enumerate(missing):
                tell(place / len(missing), split.name)
                # Remembered by the worker: without this, whoever predicts a split first is timed for encoding it too.
                self._left.encode_split(encoding, train, split)
                started = time.perf_counter()
                predicted = predict(split)
                writer.add(split, predicted, ready + time.perf_counter() - started)
        self._store.forget_failure(job["id"])
        return "made"

    def _method(self, job: Json, tell: Tell) -> str:
        """A method that is not a recipe: fitted and predicted in one go, since only it knows what its fit is."""
        missing = self._missing(job)
        if not missing:
            return "found"
        spec, task = job["spec"], self._task(job)
        encoding = cast(Encoding, restore(spec["encoding"]))
        method = METHODS.make(spec["method"]["name"], **spec["method"]["arguments"])
        network = self._left.NetworkSpec(spec["network"]["name"], spec["network"]["arguments"])
        context = self._left.FitContext(device=self._device, progress=tell, encoding=encoding)
        posterior = method.fit(task, network, seed=spec["seed"], context=context)
        (train,) = task.of_kind("train")
        with self._store.prediction_writer(spec, environment(self._device)) as writer:
            for split in missing:
                encoded = self._left.encode_split(encoding, train, split)
                started = time.perf_counter()
                predicted = self._left.predict_with(
                    posterior, encoded, split, spec["task"], seed=spec["seed"], device=self._device
                )
                writer.add(split, predicted, time.perf_counter() - started)
        self._store.forget_failure(job["id"])
        return "made"

    def _missing(self, job: Json) -> list[Split]:
        task = self._task(job)
        splits = [task.split(name) for name, _ in job["splits"]]
        for split, (_, fingerprint) in zip(splits, job["splits"], strict=True):
            if split.fingerprint != fingerprint:
                raise UserError(
                    f"split {split.name!r} of task {task.name!r} is not what was planned; has a file changed meanwhile?"
                )
        wanted = self._store.missing_splits(job["id"], [tuple(key) for key in job["splits"]])
        return [split for split in splits if (split.name, split.fingerprint) in wanted]

    def _read_fit(self, fit_id: str) -> StoredFit:
        try:
            return self._store.read_fit(fit_id)
        except CorruptFile as fault:
            self._store.set_aside("fits", fit_id)
            raise DamagedFitError(fit_id, fault) from fault

    def _task(self, job: Json) -> Task:
        name, arguments = job["task"]
        key = canonical([name, arguments])
        if key not in self._tasks:
            while len(self._tasks) >= TASKS_KEPT:
                del self._tasks[next(iter(self._tasks))]
            self._tasks[key] = TASKS.make(name, **arguments)
        return self._tasks[key]


def sentence(fault: BaseException) -> str:
    """What went wrong, for a reader: dubio's own errors speak for themselves, others are named."""
    if isinstance(fault, DubioError):
        return str(fault)
    if isinstance(fault, MemoryError):
        return "not enough memory."
    return f"{type(fault).__name__}: {fault}"


@lru_cache(maxsize=1)
def environment(device: str) -> Mapping[str, Any]:
    """Versions and machine, for the record; never part of an identity."""
    found = {"python": platform.python_version(), "platform": platform.platform(), "machine": platform.machine()}
    for package in ("dubio", "numpy", "torch"):
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            module = sys.modules.get(package)
            if module is not None:
                found[package] = str(getattr(module, "__version__", "unknown"))
    return {**found, "device": device, "threads": 1}
