"""A user's changes to a benchmark: tasks, networks, methods, seeds and settings."""

from __future__ import annotations

import shlex

import numpy as np
import pytest

from dubio.cli.app import app
from dubio.core.errors import UnknownName, UserError
from dubio.runner.benchmark_file import Benchmark, TaskEntry, parse_benchmark
from dubio.runner.benchmark_run import prepare_run
from dubio.runner.overrides import Overrides, parse_seeds, parse_setting, with_data_options
from dubio.runner.prepare import explicit_arguments
from tests.cli.helpers import invoke
from tests.runner import fake_trainer
from tests.runner.helpers import arguments_of, prepare


def test_a_method_that_the_preset_leaves_out_has_its_tables_when_it_is_asked_for(preset_table, preset_world):
    preset_table["tune"] = {"mc-drop": {"lr": [0.2, 0.3]}}
    preset_table["preset"]["small"]["where"].insert(0, {"method": {"mc-drop": {"seconds": 0.5}}})
    asked = Overrides(methods=("mc-drop",)).apply(parse_benchmark(preset_table, None, ("mc-drop",)))
    assert asked.methods == ("mc-drop",)
    assert asked.method_arguments == {"mc-drop": {"lr": 0.2}}
    assert asked.tune == {"mc-drop": {"lr": (0.2, 0.3)}}
    assert all(task.method_arguments == {"mc-drop": {"seconds": 0.5}} for task in asked.tasks)
    assert {given["mc-drop"]["lr"] for given in arguments_of(prepare(asked)).values()} == {0.2}
    # a variant likewise; the base of variants alone stands for those that are left, as without a preset
    variant = Overrides(methods=("drop-slow",)).apply(parse_benchmark(preset_table, None, ("drop-slow",)))
    assert {given["drop-slow"]["lr"] for given in arguments_of(prepare(variant)).values()} == {0.01}
    bases = Overrides(methods=("drop",)).apply(parse_benchmark(preset_table, "paper", ("drop",)))
    assert bases.all_methods == ("drop-slow", "drop-fast")
    # what the preset has is no other for having been asked for
    assert parse_benchmark(preset_table, None, ("plain", "unheard-of")) == parse_benchmark(preset_table)


@pytest.mark.parametrize(("setting", "place"), [("width=3", "network.width"), ("rows=9", "task.rows")])
def test_an_argument_of_the_network_or_task_is_told_from_training(preset_table, preset_world, setting, place):
    with pytest.raises(UserError, match=f"no method has a training argument .*: set {place}"):
        prepare(Overrides(settings=[setting]).apply(parse_benchmark(preset_table, "paper")))


def test_tasks_networks_and_methods_are_chosen(preset_table, preset_world):
    paper = parse_benchmark(preset_table, "paper")

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


def test_a_network_that_no_task_has_learns_every_task_once(preset_table, preset_world):
    from dubio.core.registry import network

    network("third-net", inputs="table")(fake_trainer.toy_net)
    changed = Overrides(networks=["third-net"]).apply(parse_benchmark(preset_table, "paper"))
    assert [(task.labels[-1], task.network, task.network_arguments) for task in changed.tasks] == [
        ("toy", "third-net", {}), ("toy-far", "third-net", {}),
    ]  # fmt: skip


def test_what_the_user_sets_goes_before_what_a_task_says_of_a_method(preset_table, preset_world):
    changed = Overrides(settings=["plain.lr=0.9", "drop.epochs=3"]).apply(parse_benchmark(preset_table, "paper"))
    given = arguments_of(prepare(changed))
    assert given["toy-far", "toy-net"]["plain"]["lr"] == 0.9
    assert given["toy", "other-net"]["drop-slow"]["epochs"] == 3


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


@pytest.mark.parametrize(
    "overrides",
    [
        Overrides(data_options={"data": "my points.csv", "features": ("*",), "label": "class"}),
        Overrides(
            methods=["deterministic", "mc-dropout"],
            seeds=[5],
            settings={"epochs": 3, "mc-dropout.p": 0.25, "network.hidden": [8, 4]},
            data_options={"data": "my points.csv", "features": ["x", "y"], "label": "class", "novel": ["c"],
                          "fractions": (0.5, 0.2, 0.1, 0.2), "split_seed": 3, "name": "named"},
        ),
        Overrides(
            networks=["mlp"],
            seeds="0-1",
            baselines=True,
            settings=["training.lr=0.01", "deep-ensemble.members=2"],
            data_options={"data": "my points.csv", "features": ["x"], "label": "class", "novel": ["d, e"]},
        ),
    ],
)  # fmt: skip
@pytest.mark.parametrize("preset", [None, "start"])
def test_the_command_of_a_run_plans_the_same_ids(tmp_path, monkeypatch, overrides, preset):
    """The command on the page had … in the place of most options."""
    monkeypatch.chdir(tmp_path)
    generator = np.random.default_rng(0)
    lines = [f'{x:.3f},{y:.3f},"{c}"' for c in ("a", "b", "c", "d, e") for x, y in generator.normal(size=(30, 2))]
    (tmp_path / "my points.csv").write_text("\n".join(["x,y,class", *lines]))
    planned: list[set[str]] = []

    def plan_only(prepared, *arguments, **options):
        planned.append({*prepared._plans()[2].nodes})

    prepared = prepare_run(None, overrides, preset=preset)
    plan_only(prepared)
    monkeypatch.setattr("dubio.cli.run._print_forecast", plan_only)
    program, *words = shlex.split(prepared.command)
    assert program == "dubio"
    assert invoke(app, *words, "--dry-run").exit_code == 0
    assert planned[0] == planned[1]
    assert len(planned[0]) > 1


def test_the_command_of_a_benchmark_has_every_option():
    overrides = Overrides(["amazon"], ["deterministic"], ["textcnn"], 2, ["epochs=1"], {}, "a folder", baselines=True)
    assert overrides.command("text", "small", ["my plugin.py"]) == (
        "dubio run text --preset small --task amazon --method deterministic --network textcnn --seeds 2 --set epochs=1 "
        "--data-dir 'a folder' --plugin 'my plugin.py'"
    )
    assert Overrides(seeds=1).command("quick", "", []) == "dubio run quick --seeds 1 --no-baselines"


def test_entries_with_names_of_their_own_stay_apart_whatever_the_data_options() -> None:
    entries = [TaskEntry("retina", "vgg-retina", called=name) for name in ("retina", "retina-unscaled-kl")]
    benchmark = Benchmark("two", tuple(entries), ("mean-field-vi",))
    changed = with_data_options(benchmark, {"size": 64})
    assert [(entry.called, entry.arguments) for entry in changed.tasks] == [(e.called, {"size": 64}) for e in entries]
