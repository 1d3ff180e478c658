"""What a machine lacks is said and left out; what is wrong in a benchmark stays an error."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dubio.core.errors import MissingExtra, UnknownName, UserError
from dubio.core.registry import NETWORKS, network, task
from dubio.runner.benchmark_file import TaskEntry, parse_benchmark
from dubio.runner.benchmark_run import PreparedBenchmark
from dubio.runner.manifest import manifest_key
from dubio.runner.overrides import Overrides
from dubio.runner.prepare import prepare_available
from dubio.store import Store
from dubio.tasks.sources.locate import DataMissing
from tests.runner import fake_trainer
from tests.runner.helpers import TWO_METHODS, prepare


@pytest.fixture
def world(fake_world):
    """A corpus that is nowhere, one that is broken, one that is read from a folder; reads are counted."""
    fake_world.reads = []

    @task("far-away")
    def far_away(*, setting: str = "in-domain", data_dir: str | None = None):
        """Is not here."""
        fake_world.reads.append(setting)
        raise DataMissing("the corpus 'far-away' is not on this machine. Place it in a folder.")

    @task("broken")
    def broken(*, setting: str = "in-domain"):
        """Is here, and wrong."""
        raise UserError("cal must be a share.")

    @task("lying")
    def lying(*, data_dir: str | None = None, setting: str = "in-domain"):
        """The toy task, from a folder."""
        return replace(fake_trainer.toy(), name="lying")

    network("other-net", inputs="table")(fake_trainer.toy_net)
    return fake_world


def test_what_is_not_here_is_left_out_and_recorded(world, benchmark):
    wanted = benchmark("plain", seeds=(0,))
    novelty = {"setting": "novelty"}
    tasks = (TaskEntry("far-away", "toy-net"), *wanted.tasks, TaskEntry("far-away", "other-net"),
             TaskEntry("far-away", "toy-net", arguments=novelty))  # fmt: skip
    wanted = replace(wanted, tasks=tasks)
    found = prepare_available(wanted)
    assert world.reads == ["in-domain", "novelty"]  # once for two networks
    assert [setting.index for setting in found.tasks] == [0]
    with Store.open(world.path / "store") as store:
        run = PreparedBenchmark(wanted, found.tasks, fake_trainer, found.skipped)
        finish = run.run(store)
    assert not finish.outcome.failures
    assert [(item["task"], item["network"]) for item in finish.manifest["skipped"]] == [
        ("far-away", "toy-net"), ("far-away", "other-net"), ("far-away-novelty", "toy-net"),
    ]  # fmt: skip
    assert "Place it in a folder" in finish.manifest["skipped"][0]["reason"]
    assert [entry["name"] for entry in finish.manifest["tasks"]] == ["toy"]
    with pytest.raises(DataMissing):
        prepare(wanted)


def test_nothing_left_is_an_error(world, benchmark):
    wanted = replace(benchmark("plain"), tasks=(TaskEntry("far-away", "toy-net"),))
    with pytest.raises(DataMissing, match="not on this machine") as caught:
        prepare_available(wanted)
    assert caught.value.exit_code == 2


def test_a_network_whose_packages_are_missing_is_left_out(world, benchmark, monkeypatch):
    from dubio.runner import prepare as prepare_module

    def resolve_arguments(entry, arguments):
        if entry.name == "other-net":
            raise MissingExtra("network 'other-net'", "bert")
        return dict(arguments)

    monkeypatch.setattr(prepare_module, "resolve_arguments", resolve_arguments)
    wanted = benchmark("plain")
    wanted = replace(wanted, tasks=(*wanted.tasks, replace(wanted.tasks[0], network="other-net")))
    found = prepare_available(wanted)
    assert [item.entry.network for item in found.skipped] == ["other-net"]
    assert "dubio[bert]" in str(found.skipped[0].reason)


def test_a_mistake_is_no_reason_to_go_on(world, benchmark):
    wanted = benchmark("plain")
    with pytest.raises(UserError, match="cal must be a share"):
        prepare_available(replace(wanted, tasks=(*wanted.tasks, TaskEntry("broken", "toy-net"))))
    with pytest.raises(UnknownName, match="Did you mean 'setting'"):
        prepare_available(replace(wanted, tasks=(TaskEntry("far-away", "toy-net", arguments={"seting": "novelty"}),)))
    assert world.reads == []  # arguments are checked before anything is read


def test_what_is_tuned_is_checked_before_anything_is_read(world, benchmark):
    wanted = replace(benchmark("plain"), tasks=(TaskEntry("far-away", "toy-net"),))
    with pytest.raises(UnknownName, match="Did you mean 'epochs'"):
        prepare_available(replace(wanted, tune={"plain": {"epoch": (1, 2)}}))
    with pytest.raises(UserError, match="epochs must be a whole number"):
        prepare_available(replace(wanted, tune={"plain": {"epochs": (1, "many")}}))
    assert world.reads == []


def test_a_folder_goes_to_the_tasks_that_take_one_and_changes_no_run(world, benchmark, tmp_path):
    wanted = benchmark("plain")
    wanted = replace(wanted, tasks=(*wanted.tasks, TaskEntry("lying", "toy-net")))
    changed = Overrides(data_dir=tmp_path).apply(wanted)
    assert [dict(entry.arguments) for entry in changed.tasks] == [{}, {"data_dir": str(tmp_path)}]
    assert manifest_key(changed, prepare(changed)) == manifest_key(wanted, prepare(wanted))


def test_trials_say_what_they_try(fake_world, benchmark, capfd):
    fake_world.run(replace(benchmark("plain", seeds=(0,)), tune={"plain": {"lr": (0.1, 0.29)}}))
    words = capfd.readouterr().err
    assert "fit of toy/toy-net: plain with lr = 0.1, seed 0, member 0" in words
    assert "fit of toy/toy-net: plain with lr = 0.29, seed 0, member 0" in words


def test_a_variant_must_not_be_taken_for_a_registered_method(preset_table, preset_world):
    preset_table["variant"]["drop"] = {"method": "plain", "lr": 0.5}
    preset_table["methods"].append("drop")
    with pytest.raises(UserError, match=r"\[variant.drop\] .*registered method; .*\[method.drop\]"):
        prepare(parse_benchmark(preset_table, "paper"))


def test_a_method_may_have_other_arguments_of_the_network():
    pytest.importorskip("torch")
    benchmark = parse_benchmark(TWO_METHODS)
    (setting,) = prepare(benchmark)
    usual = NETWORKS.entry("cnn").defaults()["dense"]
    assert (setting.network_of("deterministic")["dense"], setting.network_of("mc-dropout")["dense"]) == (usual, 4)
    changed = Overrides(settings=["network.dense=8"]).apply(benchmark)
    (setting,) = prepare(changed)
    assert {setting.network_of(name)["dense"] for name in setting.methods} == {8}
    assert Overrides(methods=["deterministic"]).apply(benchmark).tasks[0].method_network == {}
    with pytest.raises(UnknownName, match="Did you mean 'mc-dropout'"):
        parse_benchmark({**TWO_METHODS, "task": [{**TWO_METHODS["task"][0], "method_network": {"mc-dropot": {}}}]})
    wrong = parse_benchmark(
        {**TWO_METHODS, "task": [{**TWO_METHODS["task"][0], "method_network": {"mc-dropout": {"dens": 4}}}]}
    )
    with pytest.raises(UnknownName, match="Did you mean 'dense'"):
        prepare(wrong)
