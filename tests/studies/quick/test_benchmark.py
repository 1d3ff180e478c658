"""The quick benchmark names what exists."""

from __future__ import annotations

import pytest

from dubio.core.registry import METHODS
from dubio.runner.benchmark_file import load_benchmark

pytest.importorskip("torch")


def test_the_quick_benchmark_names_what_exists():
    benchmark = load_benchmark("quick")
    assert [(entry.name, entry.network) for entry in benchmark.tasks] == [
        ("digits", "cnn"), ("breast-cancer", "mlp"), ("movie-reviews", "textcnn"),
    ]  # fmt: skip
    assert set(benchmark.methods) <= set(METHODS.names())
    for name in benchmark.methods:
        METHODS.entry(name).check(benchmark.method_arguments.get(name, {}))
