"""Plans share what can be shared, and only that."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dubio.core.errors import UnknownName, UserError
from dubio.runner.benchmark_file import TaskEntry, parse_benchmark
from dubio.runner.plan import default_title, make_plan, method_rows
from dubio.runner.tuning import combinations, plan_trials
from tests.runner import fake_trainer
from tests.runner.helpers import prepare

ALL = ("plain", "drop", "mc-drop", "plain-ensemble", "mc-drop-ensemble")


def planned(benchmark, chosen=None):
    return make_plan(benchmark, prepare(benchmark), fake_trainer, chosen or {})


def test_members_and_sampling_share_weights(fake_world, benchmark):
    plan = planned(benchmark(*ALL))
    assert len(plan.of_kind("fit")) == 2 * 3 * 2  # two families, three members, two seeds
    assert plan.unshared == 2 * (1 + 1 + 1 + 3 + 3)
    # plain, drop and mc-drop on three members each; the ensembles add none of their own
    assert len(plan.of_kind("predict")) == 2 * 3 * 3
    assert len(plan.of_kind("ensemble")) == 2 * 2


def test_single_rows_get_every_member_that_is_trained_anyway(fake_world, benchmark):
    plan = planned(benchmark("plain", "drop", "plain-ensemble", seeds=(4,)))
    members = {name: [run.member for run in plan.runs if run.method == name] for name in ("plain", "drop")}
    assert members == {"plain": [0, 1, 2], "drop": [0]}


def test_member_is_the_same_fit_whatever_the_size(fake_world, benchmark):
    small = planned(replace(benchmark("plain-ensemble"), method_arguments={"plain-ensemble": {"members": 2}}))
    large = planned(replace(benchmark("plain-ensemble"), method_arguments={"plain-ensemble": {"members": 5}}))
    assert {node.id for node in small.of_kind("fit")} < {node.id for node in large.of_kind("fit")}


def test_needs_come_first_and_parents_are_planned(fake_world, benchmark):
    plan = planned(benchmark("child", "plain", seeds=(0,)))
    seen: set[str] = set()
    for node in plan.nodes.values():
        assert set(node.needs) <= seen
        seen.add(node.id)
    assert len(plan.of_kind("fit")) == 2  # the child's parent is the plain method's fit
    assert plan.unshared == 3  # the child, its parent and the plain method


def test_a_new_version_of_an_opaque_method_is_another_prediction(fake_world, benchmark, monkeypatch):
    before = planned(benchmark("opaque", seeds=(0,)))
    monkeypatch.setattr(fake_trainer.OpaqueMethod, "version", 2, raising=False)
    assert planned(benchmark("opaque", seeds=(0,))).nodes.keys().isdisjoint(before.nodes)


def test_an_opaque_method_is_one_node(fake_world, benchmark):
    plan = planned(benchmark("opaque", "plain", seeds=(0, 1)))
    assert len(plan.of_kind("method")) == 2
    assert [run.fits for run in plan.runs if run.method == "opaque"] == [(), ()]


def test_family_is_the_single_method_an_ensemble_is_made_of(fake_world, benchmark):
    wanted = benchmark(*ALL)
    rows = {row["name"]: row for row in method_rows(wanted, prepare(wanted), planned(wanted))}
    assert rows["mc-drop-ensemble"]["family"] == "mc-drop"
    assert rows["plain-ensemble"]["family"] == "plain"
    assert rows["drop"]["family"] == "drop"
    assert (rows["mc-drop-ensemble"]["members"], rows["mc-drop-ensemble"]["samples"]) == (3, 5)


def test_titles():
    assert default_title("mc-dropout-ensemble") == "MC dropout ensemble"
    assert default_title("deep-ensemble") == "Deep ensemble"


def test_unknown_names_are_refused_with_the_nearest(fake_world, benchmark):
    with pytest.raises(UnknownName, match="Did you mean 'plain'"):
        planned(benchmark("plian"))
    with pytest.raises(UnknownName, match="Did you mean 'epochs'"):
        planned(benchmark("plain", epoch=3))
    bad = replace(benchmark("plain"), tasks=(TaskEntry("toi", "toy-net"),))
    with pytest.raises(UnknownName, match="Did you mean 'toy'"):
        planned(bad)
    bad = replace(benchmark("plain"), tasks=(TaskEntry("toy", "toy-net", network_arguments={"widht": 2}),))
    with pytest.raises(UnknownName, match="Did you mean 'width'"):
        planned(bad)


def test_training_arguments_go_to_the_methods_that_have_them(fake_world, benchmark):
    wanted = benchmark("plain", "opaque", epochs=9)
    arguments = prepare(wanted)[0].method_arguments
    assert arguments["plain"]["epochs"] == 9
    assert "epochs" not in arguments["opaque"]


def test_trials_are_the_product_of_the_lists(fake_world, benchmark):
    assert combinations({"a": (1, 2), "b": (3, 4)}) == [
        {"a": 1, "b": 3}, {"a": 1, "b": 4}, {"a": 2, "b": 3}, {"a": 2, "b": 4},
    ]  # fmt: skip
    wanted = replace(benchmark("plain", "drop"), tune={"plain": {"lr": (0.1, 0.2, 0.3)}})
    plan, trials = plan_trials(wanted, prepare(wanted), fake_trainer)
    assert [trial.arguments for trial in trials] == [{"lr": 0.1}, {"lr": 0.2}, {"lr": 0.3}]
    assert len(plan.of_kind("fit")) == 3


def test_tuning_what_does_not_change_the_fit_is_refused(fake_world, benchmark):
    wanted = replace(benchmark("mc-drop"), tune={"mc-drop": {"samples": (5, 10)}})
    with pytest.raises(UserError, match="same fit"):
        plan_trials(wanted, prepare(wanted), fake_trainer)
    wanted = replace(benchmark("opaque"), tune={"opaque": {}})
    with pytest.raises(UserError, match="recipes"):
        plan_trials(wanted, prepare(wanted), fake_trainer)


def test_an_entry_called_otherwise_shares_the_trainings_and_predicts_with_fewer_samples(fake_world, benchmark):
    """The same task twice: once as it is, once with more test sets, on which a few samples must do."""
    whole = benchmark("plain", "mc-drop", seeds=(0,))
    (entry,) = whole.tasks
    far = replace(entry, arguments={**entry.arguments, "extra": True}, called="toy-far", most_samples=2)
    plan = planned(replace(whole, tasks=(entry, far)))
    assert len(plan.of_kind("fit")) == len(planned(whole).of_kind("fit")) == 2
    runs = {(run.task, run.method): run for run in plan.runs}
    assert {task for task, _ in runs} == {"toy", "toy-far"}
    assert runs["toy-far", "mc-drop"].spec["latest"] == 2
    assert "latest" not in runs["toy", "mc-drop"].spec
    assert runs["toy", "mc-drop"].fits == runs["toy-far", "mc-drop"].fits


def test_what_an_entry_is_called_is_checked(fake_world, benchmark):
    table = {"name": "b", "methods": ["plain"], "task": [{"name": "toy", "network": "toy-net", "called": "a/b"}]}
    with pytest.raises(UserError, match="a/b"):
        parse_benchmark(table)
    table["task"][0] |= {"called": "ab", "most_samples": 0}
    with pytest.raises(UserError, match=r"most_samples.*at least 1"):
        parse_benchmark(table)
    table["task"][0] |= {"most_samples": 3}
    assert parse_benchmark(table).tasks[0].labels == ("ab",)
