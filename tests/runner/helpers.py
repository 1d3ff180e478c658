"""Helpers of the runner's tests: the fake world, prepared tasks, and benchmarks as text."""

from __future__ import annotations

from pathlib import Path

import pytest

from dubio.core.registry import METHODS, NETWORKS, TASKS
from dubio.runner.benchmark_file import Benchmark
from dubio.runner.benchmark_run import PreparedBenchmark, RunOutcome
from dubio.runner.prepare import PreparedTask, prepare_available
from dubio.store import Store
from tests.runner import fake_trainer


def prepare(benchmark: Benchmark) -> tuple[PreparedTask, ...]:
    """Prepare every task of a benchmark; none may be skipped."""
    prepared = prepare_available(benchmark)
    if prepared.skipped:
        raise prepared.skipped[0].reason
    return prepared.tasks


PRESETS = """
name = "both"
methods = ["plain", "plain-ensemble", "mc-drop"]
default_preset = "small"

[method.mc-drop]
lr = 0.2

[variant.drop-slow]
method = "drop"
lr = 0.01

[variant.drop-fast]
method = "drop"
title = "Fast"
lr = 1.0

[network.other-net]
methods = ["drop-slow", "drop-fast"]
training = { epochs = 6 }
network_arguments = { width = 7 }

[[task]]
name = "toy"
network = ["toy-net", "other-net"]
arguments = { rows = 24 }
training = { seconds = 0.0 }

[[task]]
name = "toy"
network = "toy-net"
arguments = { rows = 30, label = "far" }

[preset.paper]
members = 5
samples = 9
seeds = [0, 1]
training = { epochs = 40 }

[[preset.paper.where]]
task = ["toy-far"]
training = { epochs = 50 }
arguments = { extra = true }
method.plain = { lr = 0.7 }

[preset.small]
methods = ["plain", "plain-ensemble"]

[[preset.small.where]]
network = ["other-net"]
methods = []
"""


def arguments_of(settings) -> dict:
    return {(s.name, s.entry.network): s.method_arguments for s in settings}


WHOLE = """
name = "mine"
description = "What I need."
seeds = [3, 4]
methods = ["deterministic", "deep-ensemble"]

[method.deep-ensemble]
members = 2

[tune.deterministic]
lr = [1e-3, 1e-4]

[[task]]
name = "digits"
network = "cnn"
arguments = { novel = ["8", "9"] }
training = { epochs = 3 }
"""


TWO_METHODS = {
    "name": "two",
    "methods": ["deterministic", "mc-dropout"],
    "tune": {"deterministic": {"l2": [0.0, 1e-4]}},
    "task": [
        {"name": "digits", "network": "cnn", "method_network": {"mc-dropout": {"dense": 4}}},
    ],
    "preset": {
        "all": {"tune": {"mc-dropout": {"p": [0.1, 0.2]}}},
        "one": {"methods": ["deterministic"], "where": [{"method_network": {"deterministic": {"dense": 2}}}]},
    },
}


class World:
    """A directory with a log of trainings, and runs of fake benchmarks in stores beside it."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def log(self) -> list[str]:
        log = self.path / "log"
        return log.read_text().splitlines() if log.exists() else []

    def ended(self) -> list[str]:
        return [line for line in self.log() if line.startswith("end ")]

    def kill(self, *places: str) -> None:
        """Kill the worker that reaches such a place, ``<place>-<id>``, once each."""
        (self.path / "kill").mkdir(exist_ok=True)
        for place in places:
            (self.path / "kill" / place).touch()

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
