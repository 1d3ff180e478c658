"""A process that runs a fake benchmark: ``python fake_run.py STORE JOBS SECONDS``; tests start and kill it."""

from __future__ import annotations

import sys
from pathlib import Path

if __name__ == "__main__":
    from dubio.runner.benchmark_file import Benchmark, TaskEntry
    from dubio.runner.benchmark_run import PreparedBenchmark
    from dubio.store import Store
    from tests.runner import fake_trainer
    from tests.runner.helpers import prepare

    training = {"seconds": float(sys.argv[3])}
    methods = ("plain", "drop", "mc-drop", "plain-ensemble", "mc-drop-ensemble")
    wanted = Benchmark("toy-run", (TaskEntry("toy", "toy-net", training=training),), methods, (0, 1))
    with Store.open(Path(sys.argv[1])) as store:
        prepared = PreparedBenchmark(wanted, prepare(wanted), fake_trainer)
        finish = prepared.run(store, int(sys.argv[2]), checkpoint_seconds=0)
    sys.exit(1 if finish.outcome.failures else 0)
