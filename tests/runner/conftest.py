"""Fixtures of the runner's tests."""

from __future__ import annotations

import tomllib
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from dubio.core.registry import TASKS, network, task
from dubio.core.types import Examples, SourceCard, Split, Task
from dubio.runner.benchmark_file import Benchmark, TaskEntry, parse_benchmark
from tests.runner import fake_trainer
from tests.runner.helpers import PRESETS, WHOLE, fake_world

__all__ = ["fake_world"]


@pytest.fixture
def benchmark() -> Callable[..., Benchmark]:
    """A benchmark on the toy task."""

    def make(*methods: str, seeds: tuple[int, ...] = (0, 1), **training: object) -> Benchmark:
        return Benchmark("toy-run", (TaskEntry("toy", "toy-net", training=training),), methods, seeds)

    return make


@pytest.fixture
def preset_table() -> dict:
    """Return a benchmark with presets, variants and lists of methods for single tasks, as it is read from a file."""
    return tomllib.loads(PRESETS)


@pytest.fixture
def preset_world(fake_world):
    """Return the fake world with another network and a task whose name depends on an argument."""
    TASKS._entries.pop("toy")

    @task("toy")
    def toy(*, rows: int = 24, extra: bool = False, label: str = ""):
        """The toy task under a name of its own."""
        made = fake_trainer.toy(rows=rows, extra=extra)
        return replace(made, name=f"toy-{label}" if label else "toy")

    network("other-net", inputs="table")(fake_trainer.toy_net)
    return fake_world


@pytest.fixture
def mine():
    """Return the benchmark of the file that says everything."""
    return parse_benchmark(tomllib.loads(WHOLE))


@pytest.fixture
def small_task(monkeypatch):
    monkeypatch.setattr(TASKS, "_entries", {})
    monkeypatch.setattr(TASKS, "_filled", True)

    @task("small")
    def small() -> Task:
        """Twelve rows."""
        rows = Examples(np.arange(24.0).reshape(12, 2), np.arange(12) % 2)
        splits = [Split.of(name, kind, rows) for name, kind in (("train", "train"), ("val", "val"), ("test", "id"))]
        return Task("small", "table", "multiclass", ("a", "b"), tuple(splits), SourceCard("", "", "", ""))
