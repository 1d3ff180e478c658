"""A trainer that writes a line when a training begins, resumes and ends, around the one that DUBIO_TRIAL_TRAINER names.

As a program (``python -m campaigns.logged_trainer STORE JOBS``) it runs the small benchmark that is killed: fits long
enough to save many checkpoints, of torch on real digits, or of a stand-in that needs no torch and starts fast.
"""

from __future__ import annotations

import importlib
import os
import sys
from pathlib import Path
from typing import Any

from dubio.core.specs import identity

FAKE, TORCH = "tests.runner.fake_trainer", "dubio.methods"
LOG = "trainings"

_inner: Any = importlib.import_module(os.environ.get("DUBIO_TRIAL_TRAINER", FAKE))
FitContext, NetworkSpec = _inner.FitContext, _inner.NetworkSpec
fit_spec, pred_spec, check, estimate = _inner.fit_spec, _inner.pred_spec, _inner.check, _inner.estimate
predictor, predict_with = _inner.predictor, _inner.predict_with
begin_job, seconds_saved = _inner.begin_job, _inner.seconds_saved
encode_split, encoder_split = _inner.encode_split, _inner.encoder_split


def fit(spec: Any, task: Any, context: Any) -> Any:
    """Fit as the inner trainer does."""
    identifier = identity(spec)
    saved = Path(os.environ["DUBIO_TRIAL_STORE"]) / "checkpoints" / identifier / "latest.json"
    _log(f"{'resume' if saved.exists() else 'begin'} {identifier}")
    fitted = _inner.fit(spec, task, context)
    _log(f"end {identifier}")
    return fitted


def _log(line: str) -> None:
    with (Path(os.environ["DUBIO_TRIAL_LOG"]) / LOG).open("a") as log:
        log.write(line + "\n")


def benchmark() -> Any:
    """Return the benchmark that is killed; it fits the trainer."""
    from dubio.runner.benchmark_file import Benchmark, TaskEntry

    if _inner.__name__ == FAKE:
        task = TaskEntry("toy", "toy-net", training={"seconds": 0.8, "epochs": 8})
        return Benchmark("trial", (task,), ("plain", "drop", "mc-drop", "plain-ensemble", "mc-drop-ensemble"), (0, 1))
    task = TaskEntry("digits", "cnn", training={"epochs": 24, "patience": 0})
    return Benchmark("trial", (task,), ("deterministic", "mc-dropout", "swag", "deep-ensemble"), (0,))


def main() -> None:
    """Run the benchmark in a store; the exit code is 1 if something failed."""
    from dubio.runner.benchmark_run import PreparedBenchmark
    from dubio.runner.prepare import prepare_available
    from dubio.runner.trainer import load_trainer
    from dubio.store import Store

    wanted = benchmark()
    with Store.open(Path(sys.argv[1])) as store:
        prepared = PreparedBenchmark(wanted, prepare_available(wanted).tasks, load_trainer("campaigns.logged_trainer"))
        outcome = prepared.run(store, int(sys.argv[2]), checkpoint_seconds=float(os.environ["DUBIO_TRIAL_INTERVAL"]))
    sys.exit(1 if outcome.outcome.failures else 0)


if __name__ == "__main__":
    main()
