"""Baselines in a benchmark: before the other methods, on the tasks they apply to, once whatever the seeds."""

from __future__ import annotations

from dubio.runner.benchmark_file import load_benchmark, parse_benchmark
from dubio.runner.benchmark_run import prepare_run
from dubio.runner.overrides import Overrides
from dubio.runner.plan import make_plan, method_rows
from dubio.runner.trainer import load_trainer
from tests.runner.helpers import prepare

TABLE = {
    "name": "mine",
    "methods": ["deterministic", "deep-ensemble"],
    "seeds": [4, 5],
    "task": [{"name": "breast-cancer", "network": "mlp"}, {"name": "digits", "network": "cnn"}],
}


def test_baselines_come_first_on_the_tasks_they_apply_to():
    quick = Overrides(baselines=True).apply(load_benchmark("quick"))
    assert quick.methods[:4] == ("prior", "linear", "boosting", "deterministic")
    lists = {task.name: quick.methods_of(task)[:4] for task in quick.tasks}
    without = ("prior", "linear", "deterministic", "regularised")
    assert lists == {"digits": without, "breast-cancer": quick.methods[:4], "movie-reviews": without}
    assert "boosting" not in Overrides(baselines=True, tasks=["digits"]).apply(load_benchmark("quick")).all_methods
    assert Overrides().apply(load_benchmark("quick")) == load_benchmark("quick")


def test_methods_that_a_user_names_stand_beside_baselines_unless_these_are_declined():
    named = {"methods": ["deterministic", "linear"]}
    asked = Overrides(**named, baselines=True).apply(parse_benchmark(TABLE))
    assert asked.methods == ("prior", "linear", "boosting", "deterministic")
    assert Overrides(**named).apply(parse_benchmark(TABLE)).methods == ("deterministic", "linear")
    changed = Overrides(baselines=True, settings=["boosting.rounds=7"]).apply(parse_benchmark(TABLE))
    assert changed.method_arguments == {"boosting": {"rounds": 7}}


def test_a_baseline_is_planned_once_whatever_the_seeds_and_networks():
    tasks = [
        *TABLE["task"],
        {"name": "breast-cancer", "network": "mlp", "called": "again", "network_arguments": {"hidden": [8]}},
    ]
    benchmark = Overrides(baselines=True).apply(parse_benchmark({**TABLE, "task": tasks}))
    prepared = prepare(benchmark)
    plan = make_plan(benchmark, prepared, load_trainer(), {})
    runs = [(run.task, run.method, run.seed) for run in plan.runs if run.method in ("prior", "linear", "boosting")]
    assert sorted(runs) == sorted(
        (task, name, 4)
        for task in ("breast-cancer", "digits", "again")
        for name in ("prior", "linear", "boosting")
        if (task, name) != ("digits", "boosting")
    )
    fits = [node for node in plan.of_kind("fit") if node.method in ("prior", "linear", "boosting")]
    assert len(fits) == 5  # those of one data set are shared by its networks
    assert len({run.id for run in plan.runs if run.method == "linear"}) == 2
    other = make_plan(
        Overrides(baselines=True, seeds="7-7").apply(parse_benchmark(TABLE)), prepared[:1], load_trainer(), {}
    )
    assert {node.id for node in other.of_kind("fit") if node.method == "prior"} <= {node.id for node in fits}
    facts = {row["name"]: row["facts"] for row in method_rows(benchmark, prepared, plan)}
    assert (facts["linear"]["role"], facts["linear"]["trainings_vary"]) == ("baseline", False)
    assert "trainings_vary" not in facts["deterministic"]


def test_a_baseline_that_does_not_apply_is_left_out_and_that_is_said():
    notes = prepare_run("quick", Overrides(tasks=["digits"], baselines=True)).notes
    assert "digits: The baseline boosting is for table inputs and is left out." in notes
    assert not any("boosting" in note for note in prepare_run("quick", Overrides(tasks=["digits"])).notes)
