"""A worker: makes one fit or one prediction at a time in the store, under its lock, with one thread.

A job and its result are plain JSON, so that any executor can carry them. Jobs::

    {"kind": "fit" | "predict" | "method" | "estimate", "id": …, "spec": …, "task": [name, arguments],
     "others": [[name, arguments], …], "splits": [[name, fingerprint], …]}

``others`` are further tasks that have some of the splits.

A result has a ``status``: ``made``, ``found`` (it was there), ``busy`` (another process is making it), ``damaged`` (a
fit it needs was damaged, and has been set aside), ``failed``, or ``store`` (the store cannot be written). An executor
adds ``lost``: its worker died (:class:`dubio.runner.executors.Finished`). Its ``notes`` are sentences for the user.

As a process (``python -m dubio.runner.worker``) it reads its orders and then jobs as JSON lines, and answers in JSON
lines, until its standard input ends. A thread of its own notices that end at once, also during a training: when the
parent dies, in whatever way, its workers exit too, and release their locks.
"""

from __future__ import annotations

import faulthandler
import json
import os
import platform
import queue
import sys
import threading
import time
import traceback
from collections.abc import Callable, Mapping
from functools import lru_cache
from importlib.metadata import PackageNotFoundError, version
from typing import IO, Any, cast

from dubio.core.errors import CorruptFile, DubioError, StoreError, UserError
from dubio.core.predictions import Predictions
from dubio.core.registry import METHODS, TASKS, load_plugin
from dubio.core.specs import canonical, restore
from dubio.core.types import Split, Task
from dubio.encoders import Encoding
from dubio.runner.executors import CPU
from dubio.runner.trainer import Trainer, load_trainer
from dubio.store import BusyError, Store
from dubio.store.fits import StoredFit

Json = dict[str, Any]
Report = Callable[[float, str], None]
Predictor = tuple[Encoding, Callable[[Split, Any], Predictions], float]
"""The encoding, a function that predicts a split, raw and encoded, and the seconds that preparing it took."""

TASKS_IN_MEMORY = 4

REPORT_SECONDS = 0.2
"""Shortest time between two progress reports of one job."""


class DamagedFitError(Exception):
    """A fit that a job needs is missing or damaged; it has been set aside."""

    def __init__(self, fit_id: str, error: CorruptFile) -> None:
        super().__init__(str(error))
        self.fit_id = fit_id


class JobRunner:
    """Runs jobs in one store and keeps the tasks it has read."""

    def __init__(self, store: Store, trainer: Trainer, checkpoint_seconds: float, device: str = CPU) -> None:
        """Make a runner.

        Args:
            store: Where results are written.
            trainer: Fits and predicts.
            checkpoint_seconds: Interval at which a running fit is saved.
            device: Where fits and predictions run.
        """
        self._store, self._trainer, self._checkpoint_seconds = store, trainer, checkpoint_seconds
        self._device = device
        self._tasks: dict[bytes, Task] = {}
        self._notes: list[str] = []

    def run(self, job: Json, report: Report) -> Json:
        """Run a job; every outcome, an error too, is returned as a result."""
        self._notes = []
        return {**self._run(job, report), "notes": self._notes}

    def _run(self, job: Json, report: Report) -> Json:
        started = time.monotonic()
        self._trainer.begin_job()
        try:
            if job["kind"] == "estimate":
                cost = self._trainer.estimate(job["spec"], self._task(job), device=self._device)
                return {"status": "made", "cost": dict(cost)}
            with self._store.lock(job["id"]):
                status = self._fit(job, report) if job["kind"] == "fit" else self._predict(job, report)
        except BusyError:
            return {"status": "busy"}
        except DamagedFitError as error:
            return {"status": "damaged", "fit": error.fit_id, "error": str(error)}
        except StoreError as error:
            return {"status": "store", "error": str(error)}
        except Exception as error:
            return {"status": "failed", "error": error_message(error), "traceback": traceback.format_exc()}
        return {"status": status, "seconds": time.monotonic() - started}

    def _fit(self, job: Json, report: Report) -> str:
        if self._store.has_fit(job["id"]):
            self._store.checkpoint(job["id"]).remove()  # left by a process that died after it had stored the fit
            return "found"
        spec = job["spec"]
        parent = None if spec["start"] is None else self._read_fit(spec["start"])
        checkpoint = self._store.checkpoint(job["id"], self._checkpoint_seconds)
        self._notes = checkpoint.notes
        start = None if parent is None else parent.tensors
        context = self._trainer.FitContext(device=self._device, progress=report, checkpoint=checkpoint, start=start)
        fitted = self._trainer.fit(spec, self._task(job), context)
        # A fit costs what it needs on its own, also where another one of this process came first.
        seconds = fitted.record["seconds"] + self._trainer.seconds_saved()
        record = {**fitted.record, "seconds": seconds, "environment": environment(self._device)}
        self._store.write_fit(spec, fitted.tensors, fitted.encoder, record)
        return "made"

    def _predict(self, job: Json, report: Report) -> str:
        """Predict the missing splits and store them together; the seconds of each include those of the setup."""
        missing = self._missing(job)
        if not missing:
            return "found"
        make_predictor = self._predictor_of_fit if job["kind"] == "predict" else self._predictor_of_method
        encoding, predict, setup = make_predictor(job, report)
        learned_from = self._trainer.encoder_split(encoding, self._task(job))
        with self._store.prediction_writer(job["spec"], environment(self._device)) as writer:
            for index, split in enumerate(missing):
                report(index / len(missing), split.name)
                # The worker keeps the encoding: without this, the first prediction of a split would be timed with it.
                encoded = self._trainer.encode_split(encoding, learned_from, split)
                started, saved = time.perf_counter(), self._trainer.seconds_saved()
                predictions = predict(split, encoded)
                saved = self._trainer.seconds_saved() - saved
                writer.add(split, predictions, setup + time.perf_counter() - started + saved)
        self._store.forget_failure(job["id"])
        return "made"

    def _predictor_of_fit(self, job: Json, report: Report) -> Predictor:
        fit = self._read_fit(job["spec"]["fit"])
        started = time.perf_counter()
        predict = self._trainer.predictor(fit.spec, job["spec"], fit.tensors, fit.encoder, device=self._device)
        setup = time.perf_counter() - started  # part of the cost of predicting any one of the splits
        return cast(Encoding, restore(fit.spec["encoding"])), lambda split, encoded: predict(split), setup

    def _predictor_of_method(self, job: Json, report: Report) -> Predictor:
        """Fit a method that is not a recipe: only the method knows what its fit is."""
        spec, device = job["spec"], self._device
        encoding = cast(Encoding, restore(spec["encoding"]))
        method = METHODS.make(spec["method"]["name"], **spec["method"]["arguments"])
        network = self._trainer.NetworkSpec(spec["network"]["name"], spec["network"]["arguments"])
        context = self._trainer.FitContext(device=device, progress=report, encoding=encoding)
        posterior = method.fit(self._task(job), network, seed=spec["seed"], context=context)

        def predict(split: Split, encoded: Any) -> Predictions:
            return self._trainer.predict_with(posterior, encoded, split, spec["task"], seed=spec["seed"], device=device)

        return encoding, predict, 0.0

    def _missing(self, job: Json) -> list[Split]:
        tasks = [self._task({"task": named}) for named in (job["task"], *job["others"])]
        splits = {(split.name, split.fingerprint): split for task in tasks for split in task.splits}
        planned = [(name, fingerprint) for name, fingerprint in job["splits"]]
        for key in planned:
            if key not in splits:
                name = f"split {key[0]!r} of task {tasks[0].name!r}"
                raise UserError(f"{name} differs from the planned one; did a file change?")
        return [splits[key] for key in self._store.missing_splits(job["id"], planned)]

    def _read_fit(self, fit_id: str) -> StoredFit:
        try:
            return self._store.read_fit(fit_id)
        except CorruptFile as error:
            self._store.set_aside("fits", fit_id)
            raise DamagedFitError(fit_id, error) from error

    def _task(self, job: Json) -> Task:
        name, arguments = job["task"]
        key = canonical([name, arguments])
        if key not in self._tasks:
            while len(self._tasks) >= TASKS_IN_MEMORY:
                del self._tasks[next(iter(self._tasks))]
            self._tasks[key] = TASKS.make(name, **arguments)
        return self._tasks[key]


def error_message(error: BaseException) -> str:
    """Return the message of dubio's own errors, and of others with the name of their class."""
    if isinstance(error, DubioError):
        return str(error)
    if isinstance(error, MemoryError):
        return "not enough memory."
    return f"{type(error).__name__}: {error}"


@lru_cache(maxsize=1)
def environment(device: str) -> Mapping[str, Any]:
    """Return versions and machine, for the record; never part of an identity."""
    facts = {"python": platform.python_version(), "platform": platform.platform(), "machine": platform.machine()}
    for package in ("dubio", "numpy", "torch"):
        try:
            facts[package] = version(package)
        except PackageNotFoundError:
            module = sys.modules.get(package)
            if module is not None:
                facts[package] = str(getattr(module, "__version__", "unknown"))
    return {**facts, "device": device, "threads": 1}


def open_job_runner(orders: Json) -> JobRunner:
    """Prepare this process for jobs: search path, trainer, one thread, plugins, store."""
    sys.path[:] = orders["path"]
    trainer = load_trainer(orders["trainer"])
    _use_one_thread()
    for plugin in (*orders["plugins"], *orders["installed"]):
        load_plugin(plugin)
    store = Store.open(orders["store"], create=False)
    _STORES.append(store)
    return JobRunner(store, trainer, orders["checkpoint_seconds"], orders["device"])


_STORES: list[Store] = []
"""The open store, for the thread that notices the parent's end."""


def _use_one_thread() -> None:
    """Use one thread in every fit and prediction, so that results do not depend on the number of jobs.

    A copy of a process has its libraries already, for which variables of the environment come too late: torch is told,
    and so are the others where scikit-learn is loaded, which may have an OpenMP of its own.
    """
    if "sklearn" in sys.modules:
        from threadpoolctl import threadpool_limits

        threadpool_limits(1)
    torch = sys.modules.get("torch")
    if torch is not None:
        torch.set_num_threads(1)
        if torch.get_num_interop_threads() != 1:  # in a copy of a process that has set it torch allows no second time
            torch.set_num_interop_threads(1)


# The process.

Lines = queue.SimpleQueue[str]


def main() -> None:
    """Serve until the parent closes standard input."""
    faulthandler.enable()
    answers = _private_output()
    lines: Lines = queue.SimpleQueue()
    threading.Thread(target=_read, args=(lines,), daemon=True).start()
    try:
        runner = open_job_runner(json.loads(lines.get()))
    except DubioError as error:  # its last words, without the lines of this program
        print(error, file=sys.stderr, flush=True)
        os._exit(1)
    _answer(answers, {"ready": True})
    while True:
        job = json.loads(lines.get())
        _answer(answers, {"result": runner.run(job, _Reporter(answers)), "id": job["id"]})


class _Reporter:
    """Sends the progress of a job, not too often."""

    def __init__(self, answers: IO[bytes]) -> None:
        self._answers, self._last = answers, 0.0

    def __call__(self, fraction: float, detail: str) -> None:
        now = time.monotonic()
        if now - self._last >= REPORT_SECONDS:
            self._last = now
            _answer(self._answers, {"progress": fraction, "detail": detail})


def _read(lines: Lines) -> None:
    for line in sys.stdin:
        lines.put(line)
    # The parent has died or dismissed this process. Unfinished files are in the scratch directory.
    for store in _STORES:
        store.close()
    os._exit(0)


def _private_output() -> IO[bytes]:
    """Reserve standard output for answers: everything else that is printed goes to standard error."""
    private = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    return private


def _answer(answers: IO[bytes], message: Json) -> None:
    try:
        answers.write(json.dumps(message).encode() + b"\n")
        answers.flush()
    except BrokenPipeError:
        os._exit(0)


if __name__ == "__main__":
    main()
