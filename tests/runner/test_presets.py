"""Presets, variants, lists of methods for single tasks: what a benchmark's table says, laid over each other."""

from __future__ import annotations

import copy
import tomllib

import pytest

from dubio.core.errors import UnknownName, UserError
from dubio.runner.benchmark_file import parse_benchmark
from dubio.runner.manifest import benchmark_warnings
from dubio.runner.overrides import Overrides
from dubio.runner.plan import make_plan, method_rows
from tests.runner import fake_trainer
from tests.runner.helpers import prepare

TEXT = """
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


@pytest.fixture
def table() -> dict:
    return tomllib.loads(TEXT)


@pytest.fixture
def world(fake_world):
    """Another network, and a task whose name can be told apart."""
    from dubio.core.registry import TASKS, network, task

    TASKS._entries.pop("toy")

    @task("toy")
    def toy(*, rows: int = 24, extra: bool = False, label: str = ""):
        """The toy task under a name of its own."""
        from dataclasses import replace

        made = fake_trainer.toy(rows=rows, extra=extra)
        return replace(made, name=f"toy-{label}" if label else "toy")

    network("other-net", inputs="table")(fake_trainer.toy_net)
    return fake_world


def arguments_of(settings) -> dict:
    return {(s.name, s.entry.network): s.method_arguments for s in settings}


def test_the_default_preset_is_the_one_the_file_names(table):
    small = parse_benchmark(table)
    assert small.preset == "small"
    assert small.methods == ("plain", "plain-ensemble")
    assert [(task.network, task.methods) for task in small.tasks] == [("toy-net", None), ("toy-net", None)]
    assert small.method_arguments == {}  # mc-drop is not there any more
    assert small.to_json()["preset"] == "small"


def test_a_method_that_the_preset_leaves_out_has_its_tables_when_it_is_asked_for(table, world):
    table["tune"] = {"mc-drop": {"lr": [0.2, 0.3]}}
    table["preset"]["small"]["where"].insert(0, {"method": {"mc-drop": {"seconds": 0.5}}})
    asked = Overrides(methods=("mc-drop",)).apply(parse_benchmark(table, None, ("mc-drop",)))
    assert asked.methods == ("mc-drop",)
    assert asked.method_arguments == {"mc-drop": {"lr": 0.2}}
    assert asked.tune == {"mc-drop": {"lr": (0.2, 0.3)}}
    assert all(task.method_arguments == {"mc-drop": {"seconds": 0.5}} for task in asked.tasks)
    assert {given["mc-drop"]["lr"] for given in arguments_of(prepare(asked)).values()} == {0.2}
    # a variant likewise; the base of variants alone stands for those that are left, as without a preset
    variant = Overrides(methods=("drop-slow",)).apply(parse_benchmark(table, None, ("drop-slow",)))
    assert {given["drop-slow"]["lr"] for given in arguments_of(prepare(variant)).values()} == {0.01}
    bases = Overrides(methods=("drop",)).apply(parse_benchmark(table, "paper", ("drop",)))
    assert bases.all_methods == ("drop-slow", "drop-fast")
    # what the preset has is no other for having been asked for
    assert parse_benchmark(table, None, ("plain", "unheard-of")) == parse_benchmark(table)


def test_a_preset_that_has_only_the_variant_of_a_method_drops_the_tuning_of_the_method(table, world):
    table["methods"] += ["drop", "drop-slow"]
    table["method"]["drop"] = {"seconds": 0.5}
    table["tune"] = {"drop": {"lr": [0.1, 0.3]}}
    table["preset"]["small"]["methods"] = ["plain", "drop-slow"]
    small = parse_benchmark(table)
    assert small.methods == ("plain", "drop-slow")
    assert small.tune == {}
    assert small.variants.keys() == {"drop-slow"}
    given = arguments_of(prepare(small))["toy", "toy-net"]["drop-slow"]
    assert (given["lr"], given["seconds"]) == (0.01, 0.5)  # the arguments of the method still hold for its variant
    # with the method requested, or without the preset, its tuning applies
    assert (
        parse_benchmark(table, None, ("drop",)).tune
        == parse_benchmark(table, "paper").tune
        == {"drop": {"lr": (0.1, 0.3)}}
    )


def test_a_preset_is_laid_over_everything_it_fits(table, world):
    paper = parse_benchmark(table, "paper")
    assert (paper.members, paper.samples, paper.seeds) == (5, 9, (0, 1))
    assert [task.training["epochs"] for task in paper.tasks] == [40, 40, 50]  # over the network's own 6
    given = arguments_of(prepare(paper))
    home, other, far = given["toy", "toy-net"], given["toy", "other-net"], given["toy-far", "toy-net"]
    assert home["plain-ensemble"]["members"] == 5
    assert home["plain"]["members"] == 1
    assert home["mc-drop"]["samples"] == 9
    assert home["plain"]["samples"] == 0
    assert home["mc-drop"]["lr"] == 0.2
    assert (home["plain"]["lr"], far["plain"]["lr"]) == (0.1, 0.7)
    assert other.keys() == {"drop-slow", "drop-fast"}
    assert (other["drop-slow"]["lr"], other["drop-fast"]["lr"]) == (0.01, 1.0)
    assert paper.tasks[1].network_arguments == {"width": 7}
    assert paper.tasks[2].arguments == {"rows": 30, "label": "far", "extra": True}


def test_rows_of_methods_that_only_some_tasks_have(table, world):
    paper = parse_benchmark(table, "paper")
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


def test_a_run_with_variants_is_whole_and_goes_on(table, world):
    small = parse_benchmark(table, "paper")
    narrowed = Overrides(networks=["other-net"], seeds=(0,)).apply(small)
    finish = world.run(narrowed)
    assert not finish.outcome.failures
    assert {run["method"] for run in finish.manifest["runs"]} == {"drop-slow", "drop-fast"}
    assert [row["name"] for row in finish.manifest["methods"]] == ["drop-slow", "drop-fast"]
    assert finish.manifest["benchmark"]["preset"] == "paper"
    assert world.run(narrowed).outcome.completed == []


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda t: t.update(default_preset="smal"), "Did you mean 'small'"),
        (lambda t: t["preset"]["paper"].update(member=3), "Did you mean 'members'"),
        (lambda t: t["preset"]["paper"].update(members=1), "at least 2"),
        (lambda t: t["preset"]["paper"].update(method={"plane": {}}), "Did you mean 'plain'"),
        (lambda t: t["preset"]["paper"]["where"][0].update(task=["toy-fra"]), "Did you mean 'toy-far'"),
        (lambda t: t["preset"]["paper"]["where"][0].update(network=["toi-net"]), "Did you mean 'toy-net'"),
        (lambda t: t["preset"]["paper"]["where"][0].update(encodings={}), "Did you mean 'encoding'"),
        (lambda t: t["network"].update({"othr-net": {}}), "Did you mean 'other-net'"),
        (lambda t: t["network"]["other-net"].update(methods=["drop-slow"]), "drop-fast. is not used"),
        (lambda t: t["variant"]["drop-slow"].pop("method"), "needs the field 'method'"),
        (lambda t: t["task"][1].update(methods=[]), "not empty"),
        (lambda t: t["task"][1].update(method={"plian": {}}), "Did you mean 'plain'"),
        (lambda t: t.update(thresholds="tuned"), "thresholds"),
        (lambda t: t.update(members=True), "whole number"),
    ],
)
def test_what_is_wrong_is_named(table, change, words):
    broken = copy.deepcopy(table)
    change(broken)
    with pytest.raises(UserError, match=words):
        parse_benchmark(broken, "paper")


def test_a_variant_must_not_be_taken_for_a_registered_method(table, world):
    table["variant"]["drop"] = {"method": "plain", "lr": 0.5}
    table["methods"].append("drop")
    with pytest.raises(UserError, match=r"\[variant.drop\] .*registered method; .*\[method.drop\]"):
        prepare(parse_benchmark(table, "paper"))


@pytest.mark.parametrize(("setting", "place"), [("width=3", "network.width"), ("rows=9", "task.rows")])
def test_an_argument_of_the_network_or_task_is_told_from_training(table, world, setting, place):
    with pytest.raises(UserError, match=f"no method has a training argument .*: set {place}"):
        prepare(Overrides(settings=[setting]).apply(parse_benchmark(table, "paper")))


def test_unknown_presets(table):
    with pytest.raises(UnknownName, match="Did you mean 'paper'"):
        parse_benchmark(table, "papr")
    for key in ("preset", "default_preset"):
        table.pop(key)
    with pytest.raises(UserError, match="has no presets"):
        parse_benchmark(table, "paper")


def test_tasks_networks_and_methods_are_chosen(table, world):
    paper = parse_benchmark(table, "paper")

    def chosen(**overrides):
        changed = Overrides(**overrides).apply(paper)
        return [(task.labels[-1], task.network, changed.methods_of(task)) for task in changed.tasks]

    every = ("plain", "plain-ensemble", "mc-drop")
    assert [key[:2] for key in chosen(tasks=["toy"])] == [
        ("toy", "toy-net"),
        ("toy", "other-net"),
        ("toy-far", "toy-net"),
    ]
    assert chosen(tasks=["toy-far"]) == [("toy-far", "toy-net", every)]
    assert chosen(networks=["other-net"]) == [("toy", "other-net", ("drop-slow", "drop-fast"))]
    # what the benchmark has runs where it has it; a base name stands for its variants
    assert chosen(methods=["plain", "drop-fast"], tasks=["toy"])[1] == ("toy", "other-net", ("drop-fast",))
    assert chosen(methods=["drop"]) == [("toy", "other-net", ("drop-slow", "drop-fast"))]
    # what it has not runs where the tasks take the benchmark's own list
    assert chosen(methods=["opaque"]) == [("toy", "toy-net", ("opaque",)), ("toy-far", "toy-net", ("opaque",))]
    assert chosen(methods=["opaque"], networks=["other-net"]) == [("toy", "other-net", ("opaque",))]
    world_net = [key[:2] for key in chosen(networks=["toy-net"], tasks=["toy"])]
    assert world_net == [("toy", "toy-net"), ("toy-far", "toy-net")]
    with pytest.raises(UnknownName, match="Did you mean 'toy-far'"):
        chosen(tasks=["toy-fra"])


def test_a_network_that_no_task_has_learns_every_task_once(table, world):
    from dubio.core.registry import network

    network("third-net", inputs="table")(fake_trainer.toy_net)
    changed = Overrides(networks=["third-net"]).apply(parse_benchmark(table, "paper"))
    assert [(task.labels[-1], task.network, task.network_arguments) for task in changed.tasks] == [
        ("toy", "third-net", {}), ("toy-far", "third-net", {}),
    ]  # fmt: skip


def test_what_the_user_sets_goes_before_what_a_task_says_of_a_method(table, world):
    changed = Overrides(settings=["plain.lr=0.9", "drop.epochs=3"]).apply(parse_benchmark(table, "paper"))
    given = arguments_of(prepare(changed))
    assert given["toy-far", "toy-net"]["plain"]["lr"] == 0.9
    assert given["toy", "other-net"]["drop-slow"]["epochs"] == 3


def test_mc_dropout_without_a_tuned_rate_is_cautioned_against(fake_world, benchmark):
    from dataclasses import replace

    from dubio.core.registry import method

    def sampled(*, p: float = 0.5, samples: int = 5):
        """Fixed dropout, sampled."""

    method("mc-fixed")(sampled)
    plain = benchmark("plain", "mc-drop", "mc-fixed")
    (caution,) = benchmark_warnings(plain)
    assert "mc-fixed." in caution
    assert "mc-drop" not in caution  # it has no rate to fix
    assert benchmark_warnings(replace(plain, tune={"mc-fixed": {"p": (0.1, 0.2)}})) == ()
    assert benchmark_warnings(replace(plain, method_arguments={"mc-fixed": {"p": 0.1}})) == ()
    assert benchmark_warnings(benchmark("plain", "mc-fixed", p=0.1)) == ()
