"""Benchmarks are read strictly: every key is known or refused with the nearest known name."""

from __future__ import annotations

import copy

import pytest

from dubio.core.errors import BadFile, UnknownName, UserError
from dubio.runner.benchmark_file import Benchmark, TaskEntry, benchmark_files, load_benchmark, parse_benchmark
from tests.runner.helpers import TWO_METHODS, WHOLE, arguments_of, prepare


def test_a_file_is_read_whole(tmp_path, mine):
    path = tmp_path / "mine.toml"
    path.write_text(WHOLE)
    found = load_benchmark(str(path))
    assert found == mine
    assert found == Benchmark(
        name="mine",
        description="What I need.",
        seeds=(3, 4),
        methods=("deterministic", "deep-ensemble"),
        method_arguments={"deep-ensemble": {"members": 2}},
        tune={"deterministic": {"lr": (1e-3, 1e-4)}},
        tasks=(TaskEntry("digits", "cnn", arguments={"novel": ["8", "9"]}, training={"epochs": 3}),),
    )


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("seeds =", "seed =", "Did you mean 'seeds'"),
        ("network =", "netwrok =", "Did you mean 'network'"),
        ('network = "cnn"', "", "needs the field 'network'"),
        ('name = "mine"', "", "needs the field 'name'"),
        ("[3, 4]", "3", "'seeds' must be a list"),
        ("[3, 4]", "[3, 3]", "seeds has 3 twice"),
        ("[3, 4]", "[-1]", "at least 0"),
        ("[3, 4]", "[true]", "at least 0"),
        ("[3, 4]", "[]", "seeds must not be empty"),
        ("[method.deep-ensemble]", "[method.deep-ensemble-x]", "Did you mean 'deep-ensemble'"),
        ("[tune.deterministic]", "[tune.determinstic]", "Did you mean 'deterministic'"),
        ("lr = [1e-3, 1e-4]", "lr = 1e-3", "must be a list of values"),
        ('name = "mine"', 'name = "../mine"', "letters, digits"),
        ("epochs = 3", "epochs = nan", "the number nan is not finite"),
        ("epochs = 3", "epochs = 2020-01-01", "is a date or time"),
        ("name =", "name ==", "mine.toml"),
    ],
)
def test_what_is_wrong_is_named(tmp_path, old, new, words):
    path = tmp_path / "mine.toml"
    path.write_text(WHOLE.replace(old, new, 1))
    with pytest.raises(BadFile, match=words):
        load_benchmark(str(path))


def test_unknown_benchmarks_and_missing_files():
    assert "quick" in benchmark_files()
    with pytest.raises(UnknownName, match="Did you mean 'quick'"):
        load_benchmark("quik")
    with pytest.raises(BadFile, match="cannot be read"):
        load_benchmark("nowhere.toml")


def test_the_default_preset_is_the_one_the_file_names(preset_table):
    small = parse_benchmark(preset_table)
    assert small.preset == "small"
    assert small.methods == ("plain", "plain-ensemble")
    assert [(task.network, task.methods) for task in small.tasks] == [("toy-net", None), ("toy-net", None)]
    assert small.method_arguments == {}  # mc-drop is not there any more
    assert small.to_json()["preset"] == "small"


def test_a_preset_is_laid_over_everything_it_fits(preset_table, preset_world):
    paper = parse_benchmark(preset_table, "paper")
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
def test_what_is_wrong_in_a_preset_is_named(preset_table, change, words):
    broken = copy.deepcopy(preset_table)
    change(broken)
    with pytest.raises(UserError, match=words):
        parse_benchmark(broken, "paper")


def test_a_preset_extends_another(preset_table):
    preset_table["preset"]["longer"] = {
        "extends": "paper", "seeds": [7], "training": {"epochs": 99}, "where": [{"task": ["toy-far"], "methods": []}],
    }  # fmt: skip
    paper, longer = parse_benchmark(preset_table, "paper"), parse_benchmark(preset_table, "longer")
    assert (longer.preset, longer.seeds, longer.members, longer.methods) == (
        "longer",
        (7,),
        paper.members,
        paper.methods,
    )
    assert len(longer.tasks) < len(paper.tasks)
    for name, words in (("papr", "Did you mean 'paper'"), ("longer", "longer")):
        broken = copy.deepcopy(preset_table)
        broken["preset"]["again"] = {"extends": name}
        with pytest.raises(UserError, match=words):
            parse_benchmark(broken)


def test_unknown_presets(preset_table):
    with pytest.raises(UnknownName, match="Did you mean 'paper'"):
        parse_benchmark(preset_table, "papr")
    for key in ("preset", "default_preset"):
        preset_table.pop(key)
    with pytest.raises(UserError, match="has no presets"):
        parse_benchmark(preset_table, "paper")


def test_a_preset_may_tune_other_things_and_drop_what_speaks_of_absent_methods():
    assert parse_benchmark(TWO_METHODS, "all").tune == {"mc-dropout": {"p": (0.1, 0.2)}}
    one = parse_benchmark(TWO_METHODS, "one")
    assert (one.tasks[0].method_network, one.tune) == (
        {"deterministic": {"dense": 2}}, {"deterministic": {"l2": (0.0, 1e-4)}},
    )  # fmt: skip


def test_a_preset_that_has_only_the_variant_of_a_method_drops_the_tuning_of_the_method(preset_table, preset_world):
    preset_table["methods"] += ["drop", "drop-slow"]
    preset_table["method"]["drop"] = {"seconds": 0.5}
    preset_table["tune"] = {"drop": {"lr": [0.1, 0.3]}}
    preset_table["preset"]["small"]["methods"] = ["plain", "drop-slow"]
    small = parse_benchmark(preset_table)
    assert small.methods == ("plain", "drop-slow")
    assert small.tune == {}
    assert small.variants.keys() == {"drop-slow"}
    given = arguments_of(prepare(small))["toy", "toy-net"]["drop-slow"]
    assert (given["lr"], given["seconds"]) == (0.01, 0.5)  # the arguments of the method still hold for its variant
    # with the method requested, or without the preset, its tuning applies
    assert (
        parse_benchmark(preset_table, None, ("drop",)).tune
        == parse_benchmark(preset_table, "paper").tune
        == {"drop": {"lr": (0.1, 0.3)}}
    )
