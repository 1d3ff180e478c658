"""Runs end whole, whatever happens on the way."""

from __future__ import annotations

import errno
import json
import subprocess
from dataclasses import replace
from types import ModuleType

import numpy as np
import pytest

from dubio.core.errors import DubioError, StoreError
from dubio.core.predictions import pool_members
from dubio.store import Store
from dubio.store.locks import is_held
from dubio.store.maintenance import rebuild_index
from tests.runner import fake_trainer
from tests.store.helpers import dump_index

ALL = ("plain", "drop", "mc-drop", "plain-ensemble", "mc-drop-ensemble")


def prints(manifest):
    return {split["name"]: split["fingerprint"] for split in manifest["tasks"][0]["splits"]}


def test_a_run_is_whole_and_repeats_nothing(fake_world, benchmark):
    finish = fake_world.run(benchmark(*ALL))
    assert not finish.outcome.failures
    assert len(fake_world.ended()) == 12
    store, manifest = fake_world.store(), finish.manifest
    assert store.manifest("toy-run") == json.loads(json.dumps(manifest))
    for run in manifest["runs"]:
        for split in ("val", "test", "far/away"):
            found = store.read_predictions(run["id"], split, prints(manifest)[split])
            assert found.kind == {"val": "val", "test": "id", "far/away": "ood"}[split]
    before = dump_index(store)
    again = fake_world.run(benchmark(*ALL))
    assert again.outcome.completed == []
    assert len(fake_world.ended()) == 12
    assert dump_index(store) == before


def test_an_ensemble_is_its_members_pooled(fake_world, benchmark):
    manifest = fake_world.run(benchmark("mc-drop", "mc-drop-ensemble", seeds=(3,))).manifest
    store, test = fake_world.store(), prints(manifest)["test"]
    singles = [run["id"] for run in manifest["runs"] if run["method"] == "mc-drop"]
    (ensemble,) = [run for run in manifest["runs"] if run["method"] == "mc-drop-ensemble"]
    pooled = store.read_predictions(ensemble["id"], "test", test)
    parts = pool_members([store.read_predictions(single, "test", test) for single in singles])
    assert np.array_equal(pooled.logits, parts.logits)
    assert pooled.member.tolist() == [0] * 5 + [1] * 5 + [2] * 5
    assert [path.name for path in store.layout.directory("predictions", ensemble["id"]).iterdir()] == ["spec.json"]


@pytest.mark.parametrize("arguments", [{"extra": True}, {"moved": 1.0}])
def test_tasks_that_share_trainings_are_predicted_on_the_splits_of_each(fake_world, benchmark, arguments):
    """Only the first task's splits were predicted: of the others the report said that no run was completed."""
    whole = benchmark(*ALL, "opaque")
    (entry,) = whole.tasks
    both = replace(whole, tasks=(entry, replace(entry, arguments={**entry.arguments, **arguments}, called="toy-too")))
    finish = fake_world.run(both)
    assert not finish.outcome.failures
    assert len(fake_world.ended()) == 12
    store, manifest = fake_world.store(), finish.manifest
    tests = set()
    for task in manifest["tasks"]:
        runs = [run for run in manifest["runs"] if run["task"] == task["name"]]
        assert len(runs) == len(manifest["runs"]) / 2
        for run in runs:
            for split in task["splits"][1:]:
                read = store.read_predictions(run["id"], split["name"], split["fingerprint"])
                tests.add(read.logits.tobytes() if (run["method"], split["name"]) == ("plain", "test") else b"")
    seeds = len(whole.seeds) * 3
    assert len(tests) - 1 == (2 * seeds if "moved" in arguments else seeds)
    assert fake_world.run(both).outcome.completed == []


def test_one_job_or_two_give_the_same_bits(fake_world, benchmark):
    fake_world.run(benchmark(*ALL), store="one", jobs=1)
    fake_world.run(benchmark(*ALL), store="two", jobs=2)
    one, two = fake_world.store("one"), fake_world.store("two")
    assert dump_index(one) == dump_index(two)
    assert one.layout.index.read_bytes() == two.layout.index.read_bytes()


def test_the_index_can_be_deleted(fake_world, benchmark):
    fake_world.run(benchmark("plain"))
    store = fake_world.store()
    before = store.layout.index.read_bytes()
    store.layout.index.unlink()
    rebuild_index(store)
    assert store.layout.index.read_bytes() == before


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ("nan", "not a number"), ("bug", "ZeroDivisionError"), ("crash", "SIGSEGV"), ("killed", "out of memory"),
        ("exit", "exit code 7"), ("garbage", "where an answer was expected"),
    ],
)  # fmt: skip
def test_a_failure_is_recorded_and_never_stops_the_others(fake_world, benchmark, fault, words):
    attempts = 1 if fault in ("nan", "bug") else 3  # of a job whose worker dies
    wanted = replace(benchmark("plain", "drop", "plain-ensemble"), method_arguments={"drop": {"fault": fault}})
    finish = fake_world.run(wanted, jobs=2)
    (failure,) = finish.manifest["failures"]  # the prediction that needs the fit is a consequence, no second failure
    assert (failure["kind"], failure["blocked"]) == ("fit", ["predict of toy/toy-net: drop, seed 1, member 0"])
    assert len(finish.outcome.blocked) == 1
    store = fake_world.store()
    (recorded,) = store.failures()
    assert words in recorded["error"]
    assert recorded["method"] == "drop"
    assert ("tried 3 times" in recorded["error"]) == (attempts == 3)
    assert {"crash": "Segmentation fault", "exit": "no more"}.get(fault, "") in recorded["traceback"]
    done = {(run["method"], run["seed"]) for run in finish.manifest["runs"]}
    assert ("drop", 0) in done
    assert ("drop", 1) not in done
    assert ("plain-ensemble", 1) in done
    # tried again the next time, and only that
    made = len(fake_world.log())
    fake_world.run(wanted)
    begun = [line for line in fake_world.log()[made:] if line.startswith("begin")]
    assert begun == ["begin drop 0.1 1 0"] * attempts


def test_a_damaged_fit_is_reported_and_made_anew(fake_world, benchmark, capfd):
    fake_world.run(benchmark("plain", seeds=(0,)))
    store = fake_world.store()
    before = dump_index(store)
    (fit_id,) = store.ids("fits")
    weights = store.layout.directory("fits", fit_id) / "weights.safetensors"
    weights.write_bytes(weights.read_bytes()[:-8])
    fake_world.run(benchmark("plain", seeds=(0,)))
    assert "damaged" in capfd.readouterr().err
    assert len(fake_world.ended()) == 2
    assert dump_index(store) == before
    assert len(list(store.layout.corrupt.iterdir())) == 1


def test_a_fit_damaged_while_running_is_made_anew(fake_world, benchmark):
    """A new method needs a fit whose last byte has turned since the survey: found when it is read."""
    fake_world.run(benchmark("drop", seeds=(0,)))
    store = fake_world.store()
    (fit_id,) = store.ids("fits")
    prepared = fake_world.prepared(benchmark("mc-drop", seeds=(0,)))
    weights = store.layout.directory("fits", fit_id) / "weights.safetensors"
    good = weights.read_bytes()

    import dubio.runner.benchmark_run as running

    original = running.survey

    def damage_afterwards(*arguments):
        sound = original(*arguments)
        weights.write_bytes(good[:-1] + bytes([good[-1] ^ 1]))
        return sound

    running.survey = damage_afterwards
    try:
        with Store.open(store.path) as opened:
            finish = prepared.run(opened)
    finally:
        running.survey = original
    assert not finish.outcome.failures
    assert len(fake_world.ended()) == 2
    assert weights.read_bytes() == good


@pytest.mark.parametrize("name", ["record.json", "spec.json", "test"])
def test_a_damaged_prediction_is_made_anew(fake_world, benchmark, name):
    finish = fake_world.run(benchmark("plain", seeds=(0,)))
    store = fake_world.store()
    before = dump_index(store)
    directory = store.layout.directory("predictions", finish.manifest["runs"][0]["id"])
    (path,) = [path for path in directory.iterdir() if path.name.startswith(name)]
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    fake_world.run(benchmark("plain", seeds=(0,)))
    assert len(fake_world.ended()) == 1  # predicted anew from the fit, which is sound
    assert dump_index(store) == before


def test_a_new_split_is_added_to_what_is_there(fake_world, benchmark):
    wanted = benchmark("plain", "plain-ensemble", seeds=(0,))
    fake_world.run(wanted)
    more = replace(wanted, tasks=(replace(wanted.tasks[0], arguments={"extra": True}),))
    manifest = fake_world.run(more).manifest
    assert len(fake_world.ended()) == 3
    store = fake_world.store()
    for run in manifest["runs"]:
        for split in ("test", "more"):
            assert len(store.read_predictions(run["id"], split, prints(manifest)[split])) == 24
    assert len(store.manifests()) == 2


def test_start_and_opaque_methods_run(fake_world, benchmark):
    finish = fake_world.run(benchmark("child", "opaque", seeds=(2,)))
    assert not finish.outcome.failures
    assert "opaque 2" in fake_world.log()
    assert fake_world.log().index("end plain 0.1 2 0") < fake_world.log().index("begin plain-child 0.1 2 0")


def test_tuning_chooses_by_validation_and_says_so(fake_world, benchmark):
    wanted = replace(benchmark("plain", "drop"), tune={"plain": {"lr": (0.1, 0.29, 0.6)}})
    finish = fake_world.run(wanted)
    (tuned,) = finish.manifest["tuning"]
    assert tuned["chosen"] == {"lr": 0.29}
    assert [trial["val_nll"] for trial in tuned["trials"]] == pytest.approx([0.2, 0.01, 0.3])
    assert len(fake_world.ended()) == 3 + 1 + 2  # the winner's trial is seed 0's fit
    store = fake_world.store()
    for run in finish.manifest["runs"]:
        if run["method"] == "plain":
            assert store.spec("fits", run["fits"][0])["recipe"]["lr"] == 0.29


def test_a_method_whose_trials_all_fail_is_a_failure(fake_world, benchmark):
    wanted = replace(
        benchmark("plain", "drop", seeds=(1,)),
        tune={"drop": {"lr": (0.1, 0.2)}},
        method_arguments={"drop": {"fault": "nan"}},
    )
    finish = fake_world.run(wanted)
    assert {run["method"] for run in finish.manifest["runs"]} == {"plain"}
    assert "every trial" in finish.manifest["failures"][-1]["error"]


def test_forecast_counts_what_is_left(fake_world, benchmark):
    wanted = benchmark(*ALL, seconds=2.0, seeds=(0,))
    ahead = fake_world.prepared(wanted).forecast(None, jobs=2)
    assert (ahead.trainings, ahead.asked, ahead.trainings_left, ahead.training_seconds) == (6, 9, 6, 6.0)
    assert ahead.bytes == 6 * 1000 + 4 * 3 * 24 * 3 * (3 + 3 + 3 * 5)
    fake_world.run(replace(wanted, tasks=(replace(wanted.tasks[0], training={"seconds": 0.0}),)))
    assert fake_world.prepared(wanted).forecast(fake_world.store(), jobs=1).trainings_left == 6
    zero = benchmark(*ALL, seconds=0.0, seeds=(0,))
    assert fake_world.prepared(zero).forecast(fake_world.store(), jobs=1).trainings_left == 0


def test_a_full_disk_stops_the_run_with_a_reason(fake_world, benchmark):
    """A file where the directory of fits should be stands in for any store that refuses to be written."""
    with Store.open(fake_world.path / "store"):
        (fake_world.path / "store" / "fits").write_text("in the way")
    with pytest.raises(StoreError, match=r"cannot write .*fits"):
        fake_world.run(benchmark("plain", seeds=(0, 1, 2)))


def test_a_worker_that_cannot_start_is_an_error(fake_world, benchmark):
    with Store.open(fake_world.path / "store") as store:
        trainer = ModuleType("no_such_module")
        vars(trainer).update({**vars(fake_trainer), "__name__": "no_such_module"})
        with pytest.raises(DubioError, match=r"workers cannot start \(4 attempts\)(.|\n)*no_such_module"):
            replace(fake_world.prepared(benchmark("plain")), trainer=trainer).run(store)


def test_workers_that_die_while_starting_do_not_end_the_run(fake_world, benchmark, capfd):
    fake_world.kill("start-0", "start-1", "start-2")
    finish = fake_world.run(benchmark("plain", seeds=(0,)), jobs=2)
    assert not finish.outcome.failures
    assert fake_world.log()[:3] == ["killed start 0", "killed start 1", "killed start 2"]
    assert "while starting, the worker process was ended by signal SIGKILL" in capfd.readouterr().err


def test_a_process_that_the_system_refuses_is_asked_for_again(fake_world, benchmark, monkeypatch):
    refusals = [OSError(errno.EAGAIN, "Resource temporarily unavailable")] * 2
    start = subprocess.Popen

    def popen(*arguments, **options):
        if refusals:
            raise refusals.pop()
        return start(*arguments, **options)

    monkeypatch.setattr(subprocess, "Popen", popen)
    assert not fake_world.run(benchmark("plain", seeds=(0,))).outcome.failures
    assert not refusals


def test_workers_killed_anywhere_change_no_bit_and_repeat_no_finished_training(fake_world, benchmark, capfd):
    """Every job loses its worker twice, at places drawn at random; after it was stored, before it was told, too."""
    wanted = benchmark("plain", "child", "mc-drop", seeds=(0,))
    fake_world.run(wanted, store="calm", jobs=2)
    (fake_world.path / "log").unlink()
    draw = np.random.default_rng(4)
    places = {"fit": ["begin", "epoch 1", "epoch 3", "end", "stored"], "predict": ["predict", "stored"]}
    nodes = fake_world.prepared(wanted)._plans()[2].nodes.values()
    kills = [f"{place}-{node.id}" for node in nodes for place in draw.permutation(places[node.kind])[:2]]
    fake_world.kill(*kills)
    finish = fake_world.run(wanted, store="killed", jobs=2, checkpoint_seconds=0)
    assert not finish.outcome.failures
    log = fake_world.log()
    deaths = [line.removeprefix("killed ") for line in log if line.startswith("killed")]
    assert sorted(deaths) == sorted(kill.replace("-", " ") for kill in kills)
    assert capfd.readouterr().err.count("attempt 3 of 3") == len(kills) // 2
    calm, killed = fake_world.store("calm"), fake_world.store("killed")
    assert dump_index(calm) == dump_index(killed)
    for node in nodes:
        at = [k for k, line in enumerate(log) if line == f"killed stored {node.id}"]
        if at and node.kind == "fit":  # found by the next attempt, not made again
            recipe = node.spec["recipe"]
            assert f"begin {recipe['family']} {recipe['lr']} 0 0" not in log[at[0] :]
    assert any(line.startswith("resume") for line in log)
    assert list(killed.layout.checkpoints.iterdir()) == []
    assert not any(map(is_held, killed.layout.locks.iterdir()))


def test_a_checkpointed_fit_leaves_no_checkpoint_and_the_same_bits(fake_world, benchmark):
    fake_world.run(benchmark("plain"), store="one", checkpoint_seconds=0)
    fake_world.run(benchmark("plain"), store="two")
    assert dump_index(fake_world.store("one")) == dump_index(fake_world.store("two"))
    assert list(fake_world.store("one").layout.checkpoints.iterdir()) == []
