"""Benchmarks are read strictly: every key is known or refused with the nearest known name."""

from __future__ import annotations

import pytest

from dubio.core.errors import BadFile, UnknownName, UserError
from dubio.runner.benchmark_file import Benchmark, TaskEntry, benchmark_files, load_benchmark, parse_benchmark
from dubio.runner.overrides import Overrides, parse_seeds, parse_setting
from dubio.runner.prepare import explicit_arguments

WHOLE = """
name = "mine"
description = "What I need."
seeds = [3, 4]
methods = ["deterministic", "deep-ensemble"]

[method.deep-ensemble]
members = 2

[tune.deterministic]
lr = [1e-3, 1e-4]

[[task]]
name = "digits"
network = "cnn"
arguments = { novel = ["8", "9"] }
training = { epochs = 3 }
"""


@pytest.fixture
def mine():
    import tomllib

    return parse_benchmark(tomllib.loads(WHOLE))


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
        ("epochs = 3", "epochs = nan", "values must be"),
        ("epochs = 3", "epochs = 2020-01-01", "values must be"),
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


def test_overrides(mine):
    pytest.importorskip("torch")
    changed = Overrides(
        methods=["deep-ensemble", "mc-dropout"],
        seeds=(0,),
        networks=["mlp"],
        settings=["epochs=5", "network.width=[1, 2]", "mc-dropout.samples=20", "task.novel=auto", "encoding.size = 8"],
    ).apply(mine)
    assert changed.methods == ("deep-ensemble", "mc-dropout")
    assert changed.seeds == (0,)
    assert changed.method_arguments == {"deep-ensemble": {"members": 2}, "mc-dropout": {"samples": 20}}
    assert changed.tune == {}
    (task,) = changed.tasks
    assert task == TaskEntry(
        "digits", "mlp", arguments={"novel": "auto"}, network_arguments={"width": [1, 2]}, encoding={"size": 8},
        training={"epochs": 5},
    )  # fmt: skip
    assert Overrides().apply(mine) == mine


def test_what_is_said_of_all_methods_stands_before_what_the_file_says_of_one():
    pytest.importorskip("torch")
    given = {
        "name": "b",
        "methods": ["deterministic", "mc-dropout", "csgld"],
        "method": {"csgld": {"epochs": 40, "cycles": 2}},
        "tune": {"deterministic": {"l2": [0.0, 1e-4], "lr": [1e-3, 1e-2]}},
        "task": [{"name": "digits", "network": "cnn", "method": {"mc-dropout": {"epochs": 30, "p": 0.3}}}],
    }
    plain = parse_benchmark(given)
    settings = ["csgld.epochs=6", "epochs=3", "l2=1e-5"]
    for order in (settings, settings[::-1]):
        changed = Overrides(settings=order).apply(plain)
        (task,) = changed.tasks
        told = {name: explicit_arguments(changed, task, name) for name in changed.methods}
        assert {name: found["epochs"] for name, found in told.items()} == {
            "deterministic": 3, "mc-dropout": 3, "csgld": 6,
        }  # fmt: skip
        assert told["mc-dropout"]["p"] == 0.3
        assert told["csgld"]["cycles"] == 2
        assert changed.tune == {"deterministic": {"lr": (1e-3, 1e-2)}}


def test_overrides_are_checked(mine):
    with pytest.raises(UnknownName, match="Did you mean 'digits'"):
        Overrides(tasks=["digit"]).apply(mine)
    with pytest.raises(UnknownName, match="Did you mean 'network'"):
        Overrides(settings=["netwrk.width=3"]).apply(mine)
    for bad in ("epochs", "=3", ".x=3"):
        with pytest.raises(UserError, match="--set"):
            parse_setting(bad)


def test_settings_are_read_as_toml():
    assert parse_setting("lr=1e-3") == ("training", "lr", 1e-3)
    assert parse_setting("p = 0.5") == ("training", "p", 0.5)
    assert parse_setting("a.flag=true") == ("a", "flag", True)
    assert parse_setting("optimiser=sgd") == ("training", "optimiser", "sgd")


def test_seeds():
    assert parse_seeds("0,1,2") == (0, 1, 2)
    assert parse_seeds("0-3, 7,2") == (0, 1, 2, 3, 7)
    assert parse_seeds("5") == (0, 1, 2, 3, 4)
    assert parse_seeds(" 1 ") == (0,)
    assert parse_seeds("5-5") == parse_seeds("5,5") == (5,)
    for bad in ("", "a", "1,,2", "3-1", "-1", "0-99999", "0", "99999"):
        with pytest.raises(UserError, match="--seeds"):
            parse_seeds(bad)
