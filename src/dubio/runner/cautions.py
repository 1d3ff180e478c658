"""What one should know before the results of a benchmark are trusted."""

from __future__ import annotations

from collections.abc import Iterable

from dubio.core.registry import METHODS
from dubio.runner.arguments import given_arguments
from dubio.runner.benchmark import Benchmark
from dubio.runner.entries import TaskEntry

RATE = "p"
"""The argument that fixes a dropout rate."""


def cautions_on(benchmark: Benchmark) -> tuple[str, ...]:
    """One sentence for each thing the papers advise against."""
    untuned = [
        name for name in benchmark.all_methods if any(_untuned(benchmark, task, name) for task in benchmark.tasks)
    ]
    return (_sentence(untuned),) if untuned else ()


def _untuned(benchmark: Benchmark, task: TaskEntry, name: str) -> bool:
    """Whether a method samples dropout at a rate that nobody chose for the task (T §V)."""
    if name not in benchmark.methods_of(task) or RATE in benchmark.tune.get(name, {}):
        return False
    known = METHODS.entry(benchmark.base(name)).parameters()
    return {RATE, "samples"} <= known.keys() and RATE not in given_arguments(benchmark, task, name)


def _sentence(methods: Iterable[str]) -> str:
    return (
        f"MC dropout at a rate that was not tuned to the task often underestimates uncertainty: {', '.join(methods)}. "
        f"Tune it with [tune.METHOD] {RATE} = […], give {RATE} yourself, or prefer concrete dropout, which learns it."
    )
