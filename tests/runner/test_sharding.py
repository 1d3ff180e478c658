"""Shards: disjoint and complete parts, the same on every machine; merged, they are the run of one machine."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dubio.core.errors import UserError
from dubio.runner.prepare import Skipped
from dubio.runner.sharding import Shard
from dubio.store import Store
from dubio.store.merging import merge
from dubio.store.verification import verify
from tests.runner import fake_trainer
from tests.store.helpers import dump_index

EVERYTHING = ("plain", "child", "drop", "mc-drop", "plain-ensemble", "mc-drop-ensemble", "opaque")


def parts(world, wanted, count):
    whole = world.prepared(wanted)
    return [replace(whole, shard=Shard(k + 1, count))._plans()[2].nodes for k in range(count)]


def run_shards(world, wanted, count):
    """Run every shard in a store of its own, merge them and run the whole on the merged store."""
    for number in range(1, count + 1):
        with Store.open(world.path / f"shard-{number}") as store:
            outcome = replace(world.prepared(wanted), shard=Shard(number, count)).make(store).outcome
        assert not outcome.failures
        assert store.manifests() == ()  # nothing that could pass for the whole run
    lines = len(world.log())
    with Store.open(world.path / "merged") as store:
        merged = merge(store, [world.store(f"shard-{number}") for number in range(1, count + 1)])
    assert (merged.damaged, merged.conflicts) == ([], [])
    finish = world.run(wanted, store="merged")
    assert world.log()[lines:] == []  # nothing is trained again
    kinds = {store.spec("predictions", i).get("members") is not None for i in finish.outcome.completed}
    assert kinds <= {True}  # nor predicted: only ensembles were listed
    return finish


BAD = ("0/3", "4/3", "a/b", "3", "1/0", "-1/3", "1/3/5", "", "1/99999", "١/٣", "1.0/3", " 1/3")


@pytest.mark.parametrize("text", BAD)
def test_a_shard_that_does_not_exist_is_refused(text):
    with pytest.raises(UserError, match="--shard must be I/N with I from 1 to N, such as 2/3"):
        Shard.parse(text)


def test_a_shard_is_read_as_it_is_written():
    assert Shard.parse("2/3") == Shard(2, 3)
    assert str(Shard.parse("10/12")) == "10/12"


@pytest.mark.parametrize("count", [1, 2, 3, 5, 40])
def test_the_parts_are_disjoint_complete_and_whole(fake_world, benchmark, count):
    wanted = benchmark(*EVERYTHING)
    whole = fake_world.prepared(wanted)._plans()[2].nodes
    divided = parts(fake_world, wanted, count)
    assert sorted(i for part in divided for i in part) == sorted(i for i in whole if whole[i].kind != "ensemble")
    for part in divided:
        assert all(set(node.needs) <= part.keys() for node in part.values())


def test_equal_fits_are_divided_equally(fake_world, benchmark):
    wanted = benchmark("plain-ensemble", "mc-drop-ensemble", seeds=tuple(range(7)))  # 42 fits of one cost
    fits = [sum(node.kind == "fit" for node in part.values()) for part in parts(fake_world, wanted, 4)]
    assert (sum(fits), max(fits) - min(fits)) == (42, 1)


def test_expensive_fits_are_spread(fake_world, benchmark):
    wanted = replace(benchmark("plain", "drop", seeds=tuple(range(6))), method_arguments={"drop": {"seconds": 100.0}})
    for part in parts(fake_world, wanted, 3):
        methods = [node.spec["recipe"]["family"] for node in part.values() if node.kind == "fit"]
        assert sorted(methods) == ["drop"] * 2 + ["plain"] * 2


def test_no_clock_takes_part_in_the_division(fake_world, benchmark, monkeypatch):
    def estimate(spec, task, *, device, pace=None):
        assert pace == 1.0
        return {"seconds": 3.0, "bytes": 1.0, "pace": pace, "pass": 0.1}

    monkeypatch.setattr(fake_trainer, "estimate", estimate)
    wanted = benchmark(*EVERYTHING)
    assert [list(p) for p in parts(fake_world, wanted, 3)] == [list(p) for p in parts(fake_world, wanted, 3)]


def test_merged_shards_are_the_run_of_one_machine(fake_world, benchmark):
    wanted = benchmark(*EVERYTHING, seeds=(0,))
    single = fake_world.run(wanted)
    trainings = len(fake_world.ended())
    finish = run_shards(fake_world, wanted, 3)
    assert len(fake_world.ended()) == 2 * trainings  # each once on one machine, and once in some shard
    one, merged = fake_world.store(), fake_world.store("merged")
    assert dump_index(one) == dump_index(merged)  # has the SHA-256 of all weights and predictions
    assert single.path.name == finish.path.name
    assert single.path.read_bytes() == finish.path.read_bytes()
    assert verify(merged) == ()


def test_a_tuning_stays_in_one_shard(fake_world, benchmark):
    wanted = replace(
        benchmark("plain", "plain-ensemble", "drop", "mc-drop"),
        tune={"plain": {"lr": (0.1, 0.29)}, "plain-ensemble": {"lr": (0.29, 0.5)}},
    )
    fake_world.run(wanted)
    trainings = sorted(fake_world.ended())
    (fake_world.path / "log").unlink()
    finish = run_shards(fake_world, wanted, 3)
    assert sorted(set(fake_world.ended())) == sorted(set(trainings))
    assert finish.manifest["tuning"][0]["chosen"] == {"lr": 0.29}
    assert dump_index(fake_world.store()) == dump_index(fake_world.store("merged"))


def test_the_name_of_the_run_does_not_depend_on_the_shard(fake_world, benchmark):
    prepared = fake_world.prepared(benchmark("plain"))
    assert replace(prepared, shard=Shard(2, 3)).name == prepared.name
    assert fake_world.run(benchmark("plain")).path.stem == prepared.name


def test_machines_that_would_divide_another_plan_are_refused(fake_world, benchmark):
    prepared = fake_world.prepared(benchmark("plain", "drop"))
    missing = Skipped(prepared.benchmark.tasks[0], UserError("its data is not here."))
    with pytest.raises(UserError, match=r"--shard: every machine must divide the same plan.*its data is not here"):
        replace(prepared, skipped=(missing,), shard=Shard(1, 2))._plans()


def test_a_forecast_is_of_the_part(fake_world, benchmark):
    prepared = fake_world.prepared(benchmark("plain", "drop", seeds=(0, 1, 2), seconds=10.0))
    forecasts = [replace(prepared, shard=Shard(k, 3)).forecast(None, jobs=1) for k in (1, 2, 3)]
    assert [ahead.trainings for ahead in forecasts] == [2, 2, 2]
    assert {ahead.seconds for ahead in forecasts} == {20.0}  # no report is written
