"""Plans share what can be shared, and only that."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dubio.core.errors import UnknownName, UserError
from dubio.core.registry import METHODS
from dubio.runner.benchmark_file import Benchmark, TaskEntry, parse_benchmark
from dubio.runner.plan import default_title, make_plan, method_rows
from dubio.runner.trainer import load_trainer
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


def test_rows_of_methods_that_only_some_tasks_have(preset_table, preset_world):
    paper = parse_benchmark(preset_table, "paper")
    settings = prepare(paper)
    plan = make_plan(paper, settings, fake_trainer, {})
    rows = {row["name"]: row for row in method_rows(paper, settings, plan)}
    assert list(rows) == ["plain", "plain-ensemble", "mc-drop", "drop-slow", "drop-fast"]
    assert (rows["drop-slow"]["method"], rows["drop-slow"]["arguments"]) == ("drop", {"lr": 0.01})
    assert (rows["drop-slow"]["title"], rows["drop-fast"]["title"]) == ("Drop, lr = 0.01", "Fast")
    assert rows["plain-ensemble"]["family"] == "plain"
    assert {run.method for run in plan.runs if run.network == "other-net"} == {"drop-slow", "drop-fast"}
    # five members, shared by plain but where its rate is its own, and mc-drop; two variants; two seeds
    assert len(plan.of_kind("fit")) == 2 * ((5 + 1) + (5 + 1 + 1) + 2)


def all_set_ups() -> tuple[str, ...]:
    return tuple(entry.name for entry in METHODS.entries() if entry.facts.get("family") == "dropout")


def test_eighteen_set_ups_with_five_members_are_25_trainings(small_task):
    pytest.importorskip("torch")
    names = all_set_ups()
    assert len(names) == 18
    ensembles = [name for name in names if name.startswith("deep-ensemble") or name.endswith("-ensemble")]
    assert len(ensembles) == 9
    benchmark = Benchmark(
        "all", (TaskEntry("small", "mlp"),), names, (0,), {name: {"members": 5} for name in ensembles}
    )
    settings = prepare(benchmark)
    plan = make_plan(benchmark, settings, load_trainer(), {})
    assert len(plan.of_kind("fit")) == 25
    assert plan.unshared == 9 * 5 + 9 == 54
    singles = [name for name in names if name not in ensembles]
    for name in singles:
        assert [run.member for run in plan.runs if run.method == name] == [0, 1, 2, 3, 4]
    families = {row["name"]: row["family"] for row in method_rows(benchmark, settings, plan)}
    assert families["deep-ensemble"] == "deterministic"
    assert families["mc-concrete-dropout-ensemble"] == "mc-concrete-dropout"
    assert None not in families.values()
