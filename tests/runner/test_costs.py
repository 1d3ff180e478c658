"""Forecasts of real methods: the disk that they need, and refusals before anything is trained."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import pytest

from dubio.core.errors import UserError
from dubio.core.registry import METHODS
from dubio.core.registry import method as registered
from dubio.methods.recipe import Recipe
from dubio.runner import costs
from dubio.runner.benchmark_file import Benchmark, TaskEntry
from dubio.runner.benchmark_run import PreparedBenchmark
from dubio.runner.costs import check_fits, stored_samples
from dubio.runner.plan import make_plan
from dubio.runner.trainer import load_trainer
from dubio.store import Store
from tests.runner.helpers import prepare

pytest.importorskip("torch")


def test_the_disk_forecast_counts_every_sample_that_is_stored(small_task):
    cycled = {"epochs": 6, "cycles": 2, "samples_per_cycle": 2, "sampling_epochs": 2}
    given = {"deterministic": {"epochs": 1}, "mc-dropout": {"epochs": 1, "samples": 3}, "csgld": cycled}
    benchmark = Benchmark("all", (TaskEntry("small", "mlp"),), tuple(given), (0,), given)
    settings, left = prepare(benchmark), load_trainer()
    plan = make_plan(benchmark, settings, left, {})
    found = {}
    for node in plan.of_kind("predict"):
        fit = plan.nodes[node.spec["fit"]].spec
        fitted = left.fit(fit, settings[0].task, left.FitContext())
        predict = left.predictor(fit, node.spec, fitted.tensors, fitted.encoder, device="cpu")
        assert stored_samples(node.spec, fit) == predict(settings[0].task.split("test")).samples
        found[node.method] = stored_samples(node.spec, fit)
    assert found == {"deterministic": 1, "mc-dropout": 3, "csgld": 4}
    weightless = SimpleNamespace(
        **{**vars(left), "estimate": lambda *_, **__: {"seconds": 0.0, "bytes": 0.0, "pace": 0.0}}
    )
    ahead = PreparedBenchmark(benchmark, settings, weightless).forecast(None, 1)
    rows = sum(len(split) for split in settings[0].predicted)
    assert ahead.bytes == 4 * sum(found.values()) * rows * len(settings[0].task.classes)


@pytest.mark.parametrize(
    ("method", "given", "reason"),
    [
        ("laplace", {"structure": "last-full"}, r"last layer has 2 × 4097 = 8194: use 'last-kron'"),
        ("heteroscedastic-laplace", {}, "given a HeteroscedasticHead"),
    ],
)
def test_what_could_not_be_finished_is_refused_before_anything_is_trained(
    small_task, monkeypatch, tmp_path, method, given, reason
):
    from dubio.networks.heads.heteroscedastic import Heteroscedastic

    METHODS.names()  # filled before it is copied: what is filled in a copy would be gone with it
    monkeypatch.setattr(METHODS, "_entries", {**METHODS._entries})

    @registered("heteroscedastic-laplace")
    def make() -> Recipe:
        """Laplace on a head that it is not made for."""
        plain = METHODS.make("laplace")
        return replace(plain, head=Heteroscedastic(), start=replace(plain.start, head=Heteroscedastic()))

    entry = TaskEntry("small", "mlp", network_arguments={"hidden": [4096]})
    benchmark = Benchmark("early", (entry,), ("deterministic", method), (0,), {method: given})
    run = PreparedBenchmark(benchmark, prepare(benchmark), load_trainer())
    refused = rf"small with mlp, method '{method}' \(--set {method}\.KEY=VALUE\): .*{reason}"
    with pytest.raises(UserError, match=refused):
        run.forecast(None, 1)
    with Store.open(tmp_path / "store") as store:
        with pytest.raises(UserError, match=refused):
            run.run(store)
        assert store.ids("fits") == ()


def test_a_network_with_a_bug_is_not_found_out_here(small_task):
    def broken(spec, task):
        raise ZeroDivisionError

    benchmark = Benchmark("broken", (TaskEntry("small", "mlp"),), ("laplace",), (0,), {})
    settings, left = prepare(benchmark), load_trainer()
    fits = make_plan(benchmark, settings, left, {}).of_kind("fit")
    check_fits(fits, SimpleNamespace(check=broken))


def test_a_forecast_measures_one_fit_of_a_network_and_extrapolates_the_others_when_time_is_up(small_task, monkeypatch):
    monkeypatch.setattr(costs, "MEASURING_SECONDS", 0.0)
    methods = ("deterministic", "mc-dropout", "concrete-dropout", "deep-ensemble")
    entries = tuple(
        TaskEntry("small", "mlp", network_arguments={"hidden": [width]}, called=f"m{width}") for width in (4, 8)
    )
    benchmark = Benchmark("many", entries, methods, (0, 1), {})
    settings, left = prepare(benchmark), load_trainer()
    paces: list[float | None] = []

    def estimate(spec, task, *, device, pace=None):
        paces.append(pace)
        return {"seconds": 1.0, "bytes": 0.0, "pace": 0.5 if pace is None else pace, "pass": 0.25}

    ahead = PreparedBenchmark(benchmark, settings, SimpleNamespace(**{**vars(left), "estimate": estimate})).forecast(
        None, 2
    )
    assert paces.count(None) == 2
    assert set(paces) == {None, 0.5}
    # every pass takes a quarter of a second: a sample, an example and a prediction each count once
    plan = make_plan(benchmark, settings, left, {})
    passes = [max(1, node.spec["samples"]) * sum(map(len, node.task.predicted)) for node in plan.of_kind("predict")]
    assert ahead.prediction_seconds == 0.25 * sum(passes) / 2
    assert sum(task.seconds for task in ahead.tasks) == ahead.training_seconds + ahead.prediction_seconds


def test_members_inside_a_network_and_random_heads_have_a_pace_of_their_own(small_task):
    """A forecast of them failed before: their edits were looked up where no specification has them."""
    names = ("deterministic", "mc-dropout", "packed-ensemble", "batch-ensemble", "vbll")
    given = {name: {"epochs": 1} for name in names}
    benchmark = Benchmark("members", (TaskEntry("small", "mlp"),), tuple(given), (0,), given)
    settings, trainer = prepare(benchmark), load_trainer()
    fits = make_plan(benchmark, settings, trainer, {}).of_kind("fit")
    keys = {node.method: costs.setup_key(node) for node in fits}
    assert keys["deterministic"] == keys["mc-dropout"]
    assert len(set(keys.values())) == 4
    ahead = PreparedBenchmark(benchmark, settings, trainer).forecast(None, 1)
    assert ahead.bytes > 0


def test_the_forecast_of_a_random_head_has_its_size(small_task):
    given = {"vbll": {"epochs": 1}, "deterministic": {"epochs": 1}}
    benchmark = Benchmark("size", (TaskEntry("small", "mlp"),), tuple(given), (0,), given)
    settings, left = prepare(benchmark), load_trainer()
    fits = make_plan(benchmark, settings, left, {}).of_kind("fit")
    sizes = {}
    for node in (*fits, *fits):
        task = settings[0].task
        cost = left.estimate(node.spec, task, device="cpu", pace=1.0)
        tensors = left.fit(node.spec, task, left.FitContext()).tensors if node.method not in sizes else {}
        sizes.setdefault(node.method, sum(array.nbytes for array in tensors.values()))
        assert cost["bytes"] == sizes[node.method]
    assert sizes["vbll"] > 2 * sizes["deterministic"]
