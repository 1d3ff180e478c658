"""A worker's records: what fits and predictions cost by themselves."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from dubio.runner.benchmark_file import Benchmark
from dubio.runner.plan import make_plan
from dubio.runner.worker import JobRunner
from dubio.store import Store
from tests.runner import fake_trainer
from tests.runner.helpers import World


def test_costs_include_what_a_job_saved_because_of_earlier_ones(
    fake_world: World, benchmark: Callable[..., Benchmark], monkeypatch: pytest.MonkeyPatch
) -> None:
    saved = [0.0]

    def seconds_saved() -> float:
        saved[0] += 50.0  # as if every stretch of work looked something up
        return saved[0]

    monkeypatch.setattr(fake_trainer, "begin_job", lambda: saved.__setitem__(0, 0.0))
    monkeypatch.setattr(fake_trainer, "seconds_saved", seconds_saved)
    prepared = fake_world.prepared(benchmark("plain", seeds=(0,), seconds=3.0))
    plan = make_plan(prepared.benchmark, prepared.tasks, fake_trainer, {})  # type: ignore[arg-type]
    with Store.open(fake_world.path / "store") as store:
        runner = JobRunner(store, fake_trainer, 600)  # type: ignore[arg-type]
        (fit,), (prediction,) = plan.of_kind("fit"), plan.of_kind("predict")
        for node in (fit, prediction):
            assert runner.run(node.job(), lambda fraction, text: None)["status"] == "made"
        assert store.record(fit.id)["seconds"] == 3.0 + 50.0
        splits = len(fit.task.predicted)
        assert 50.0 * splits <= store.record(prediction.id)["seconds"] < 50.0 * splits + 25.0
