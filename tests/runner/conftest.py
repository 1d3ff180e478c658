"""The fake world of the runner's tests."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from dubio.core.registry import METHODS, NETWORKS, TASKS
from dubio.runner.benchmark_file import Benchmark, TaskEntry
from dubio.runner.benchmark_run import PreparedBenchmark, RunOutcome
from dubio.store import Store
from tests.runner import fake_trainer
from tests.runner.helpers import prepare


class World:
    """A directory with a log of trainings, and runs of fake benchmarks in stores beside it."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def log(self) -> list[str]:
        log = self.path / "log"
        return log.read_text().splitlines() if log.exists() else []

    def ended(self) -> list[str]:
        return [line for line in self.log() if line.startswith("end ")]

    def prepared(self, benchmark: Benchmark) -> PreparedBenchmark:
        return PreparedBenchmark(benchmark, prepare(benchmark), fake_trainer)  # type: ignore[arg-type]

    def run(
        self, benchmark: Benchmark, store: str = "store", jobs: int = 1, checkpoint_seconds: float = 600
    ) -> RunOutcome:
        with Store.open(self.path / store) as opened:
            return self.prepared(benchmark).run(opened, jobs, checkpoint_seconds=checkpoint_seconds)

    def store(self, name: str = "store") -> Store:
        return Store.open(self.path / name, create=False)


@pytest.fixture
def fake_world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    """Registries that hold the fake world alone, for this test."""
    for registry in (METHODS, NETWORKS, TASKS):
        monkeypatch.setattr(registry, "_entries", {})
        monkeypatch.setattr(registry, "_filled", True)
    monkeypatch.setenv("DUBIO_FAKE_LOG", str(tmp_path))
    fake_trainer.register()
    return World(tmp_path)


@pytest.fixture
def benchmark() -> Callable[..., Benchmark]:
    """A benchmark on the toy task."""

    def make(*methods: str, seeds: tuple[int, ...] = (0, 1), **training: object) -> Benchmark:
        return Benchmark("toy-run", (TaskEntry("toy", "toy-net", training=training),), methods, seeds)

    return make
