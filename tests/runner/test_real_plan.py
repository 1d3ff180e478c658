"""The real methods' plans; skipped where torch is not installed."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from dubio.registry import METHODS, TASKS, task
from dubio.runner.benchmark import Benchmark, load_benchmark
from dubio.runner.costs import stored_samples
from dubio.runner.entries import TaskEntry
from dubio.runner.left import load_left
from dubio.runner.plan import make_plan, method_rows
from dubio.runner.running import BenchmarkRun
from dubio.runner.setting import prepare
from dubio.types import Examples, SourceCard, Split, Task

pytest.importorskip("torch")


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


def all_set_ups() -> tuple[str, ...]:
    return tuple(entry.name for entry in METHODS.entries() if entry.origin == "dubio.methods.setups")


def test_eighteen_set_ups_with_five_members_are_25_trainings(small_task):
    names = all_set_ups()
    assert len(names) == 18
    ensembles = [name for name in names if name.startswith("deep-ensemble") or name.endswith("-ensemble")]
    assert len(ensembles) == 9
    benchmark = Benchmark(
        "all", (TaskEntry("small", "mlp"),), names, (0,), {name: {"members": 5} for name in ensembles}
    )
    settings = prepare(benchmark)
    plan = make_plan(benchmark, settings, load_left(), {})
    assert len(plan.of_kind("fit")) == 25
    assert plan.asked == 9 * 5 + 9 == 54
    singles = [name for name in names if name not in ensembles]
    for name in singles:
        assert [run.member for run in plan.runs if run.method == name] == [0, 1, 2, 3, 4]
    families = {row.name: row.family for row in method_rows(benchmark, settings, plan)}
    assert families["deep-ensemble"] == "deterministic"
    assert families["mc-concrete-dropout-ensemble"] == "mc-concrete-dropout"
    assert None not in families.values()


def test_the_disk_forecast_counts_every_sample_that_is_stored(small_task):
    cycled = {"epochs": 6, "cycles": 2, "samples_per_cycle": 2, "sampling_epochs": 2}
    given = {"deterministic": {"epochs": 1}, "mc-dropout": {"epochs": 1, "samples": 3}, "csgld": cycled}
    benchmark = Benchmark("all", (TaskEntry("small", "mlp"),), tuple(given), (0,), given)
    settings, left = prepare(benchmark), load_left()
    plan = make_plan(benchmark, settings, left, {})
    found = {}
    for node in plan.of_kind("predict"):
        fit = plan.nodes[node.spec["fit"]].spec
        fitted = left.fit(fit, settings[0].task, left.FitContext())
        predict = left.predictor(fit, node.spec, fitted.tensors, fitted.encoder, device="cpu")
        assert stored_samples(node.spec, fit) == predict(settings[0].task.split("test")).samples
        found[node.method] = stored_samples(node.spec, fit)
    assert found == {"deterministic": 1, "mc-dropout": 3, "csgld": 4}
    weightless = SimpleNamespace(**{**vars(left), "estimate": lambda *_, **__: {"seconds": 0.0, "bytes": 0.0}})
    ahead = BenchmarkRun(benchmark, settings, weightless).forecast(None, 1)
    rows = sum(len(split) for split in settings[0].predicted)
    assert ahead.bytes == 4 * sum(found.values()) * rows * len(settings[0].task.classes)


def test_the_quick_benchmark_names_what_exists():
    benchmark = load_benchmark("quick")
    assert [(entry.name, entry.network) for entry in benchmark.tasks] == [
        ("digits", "cnn"), ("breast-cancer", "mlp"), ("movie-reviews", "textcnn"),
    ]  # fmt: skip
    assert set(benchmark.methods) <= set(METHODS.names())
    for name in benchmark.methods:
        METHODS.entry(name).check(benchmark.method_arguments.get(name, {}))
