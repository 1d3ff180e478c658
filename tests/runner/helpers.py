"""Helpers of the runner's tests."""

from __future__ import annotations

from dubio.runner.benchmark_file import Benchmark
from dubio.runner.prepare import PreparedTask, prepare_available


def prepare(benchmark: Benchmark) -> tuple[PreparedTask, ...]:
    """Prepare every task of a benchmark; none may be skipped."""
    prepared = prepare_available(benchmark)
    if prepared.skipped:
        raise prepared.skipped[0].reason
    return prepared.tasks
