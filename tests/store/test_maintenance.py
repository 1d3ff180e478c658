"""Cleaning removes what is not a result and nothing else; an export is a store of its own."""

from __future__ import annotations

import tarfile
import zipfile

import numpy as np
import pytest

from dubio.core.errors import CorruptFile, StoreError, UserError
from dubio.core.specs import identity
from dubio.store import Store
from dubio.store.maintenance import export, litter, referenced, remove, unreferenced
from dubio.store.verification import verify
from tests.store.helpers import FIT, SPEC, predicted, split, write_fit, write_prediction

CHILD = {**SPEC, "start": FIT, "seed": 5}


@pytest.fixture
def store(tmp_path):
    with Store.open(tmp_path / "store") as opened:
        yield opened


@pytest.fixture
def kept(store):
    """A run made of an ensemble of two, whose fit was started from another; a trial; and one fit nobody needs."""
    write_fit(store)
    write_fit(store, start=FIT, seed=5)
    trial, stray = write_fit(store, seed=7), write_fit(store, seed=8)
    members = [write_prediction(store, seed) for seed in (0, 1)]
    spec = {"schema": 1, "kind": "prediction", "members": members}
    ensemble = store.write_ensemble(spec)
    run = {"id": ensemble, "fits": [identity(CHILD)], "spec": spec}
    manifest = {"name": "run", "runs": [run], "tuning": [{"trials": [{"fit": trial}]}], "failures": []}
    manifest |= {"tasks": [], "methods": []}
    store.write_manifest(manifest, "a" * 64)
    return {"fits": {FIT, identity(CHILD), trial}, "predictions": {ensemble, *members}, "stray": stray}


def test_members_parents_and_trials_are_referenced(store, kept):
    assert referenced(store, ["run-aaaaaaaa"]) == {"fits": kept["fits"], "predictions": kept["predictions"]}


def test_only_the_unreferenced_go(store, kept):
    assert litter(store) == ()
    rows = unreferenced(store)
    assert [row.path.name for row in rows] == [kept["stray"]]
    assert remove(store, rows) == rows[0].bytes > 0
    assert set(store.ids("fits")) == kept["fits"]
    assert unreferenced(store) == ()


def test_litter_is_found_by_reason(store, kept):
    store.checkpoint(FIT).save({"w": np.zeros(2)}, {})
    store.write_failure(FIT, {"error": "old"})
    (store.layout.directory("predictions", min(kept["predictions"])) / "x.safetensors").write_bytes(b"half")
    store.layout.corrupt.mkdir()
    (store.layout.corrupt / "fits-1").mkdir()
    (store.layout.scratch / "dead").mkdir()
    (store.layout.scratch / "dead.lock").touch()
    wanted = {"stale checkpoint", "resolved failure", "stray file", "corrupt", "temporary"}
    assert {row.reason for row in litter(store)} == wanted
    remove(store, litter(store))
    assert litter(store) == ()
    assert verify(store) == ()


def test_a_checkpoint_of_a_fit_under_way_is_kept(store):
    store.checkpoint("a" * 64).save({"w": np.zeros(2)}, {})
    assert litter(store) == ()
    assert [row.path.name for row in unreferenced(store)] == ["a" * 64]


def test_nothing_is_removed_while_a_run_is_under_way(store, kept):
    with store.lock(FIT), pytest.raises(StoreError, match="under way"):
        remove(store, unreferenced(store))
    assert store.has_fit(kept["stray"])


def test_nothing_is_removed_while_another_process_has_the_store_open_between_two_jobs(store, kept):
    with Store.open(store.path) as running:
        running.scratch.new()  # a run that makes something at times, and holds no lock of it now
        with pytest.raises(StoreError, match="under way"):
            remove(store, unreferenced(store))
    assert store.has_fit(kept["stray"])


def test_a_fit_that_a_run_refers_to_since_it_was_listed_is_kept(store, kept):
    rows = unreferenced(store)
    run = {"id": min(kept["predictions"]), "fits": [kept["stray"]], "spec": {}}
    store.write_manifest({"name": "late", "tasks": [], "methods": [], "runs": [run]}, "b" * 64)
    assert remove(store, rows) == 0
    assert store.has_fit(kept["stray"])


def test_cleaning_a_store_that_was_just_opened_removes_the_scratch_of_the_dead(store):
    (store.layout.scratch / "dead").mkdir()
    (store.layout.scratch / "dead.lock").touch()
    store.close()
    with Store.open(store.path) as opened:  # its own scratch is made by the removal, which sweeps
        rows = litter(opened)
        assert [row.path.name for row in rows] == ["dead"]
        remove(opened, rows)
    assert not (store.layout.scratch / "dead").exists()


def test_checkpoints_of_finished_fits_are_swept_when_a_store_is_opened_for_writing(store, kept):
    store.checkpoint(FIT).save({"w": np.zeros(2)}, {})
    store.checkpoint("a" * 64).save({"w": np.zeros(2)}, {})
    with store.lock(FIT), Store.open(store.path) as other:  # whoever holds the lock may still need it
        other.scratch.new()
        assert store.layout.checkpoint(FIT).exists()
    with Store.open(store.path) as other:
        other.scratch.new()
        assert not store.layout.checkpoint(FIT).exists()
        assert store.layout.checkpoint("a" * 64).exists()


@pytest.mark.parametrize("name", ["out.zip", "out.tar", "out"])
def test_an_export_is_a_store(store, kept, tmp_path, name):
    target, unpacked = tmp_path / name, tmp_path / "unpacked"
    files = export(store, ["run-aaaaaaaa"], target)
    assert all(not path.is_absolute() and ".." not in path.parts for path in files)
    if name.endswith(".zip"):
        zipfile.ZipFile(target).extractall(unpacked)
    elif name.endswith(".tar"):
        with tarfile.open(target) as archive:
            assert all(member.isfile() for member in archive)
            archive.extractall(unpacked, filter="data")
    else:
        unpacked = target
    copy = Store.open(unpacked, create=False)
    assert verify(copy) == ()
    assert set(copy.ids("fits")) == kept["fits"]
    ensemble = copy.manifest("run")["runs"][0]["id"]
    pooled = copy.read_predictions(ensemble, "test", split().fingerprint)
    assert np.array_equal(pooled.logits[:2], predicted(0).logits)


def test_the_same_runs_give_the_same_archive(store, kept, tmp_path):
    for suffix in ("zip", "tar"):
        for name in ("one", "two"):
            export(store, ["run-aaaaaaaa"], tmp_path / f"{name}.{suffix}")
        assert (tmp_path / f"one.{suffix}").read_bytes() == (tmp_path / f"two.{suffix}").read_bytes()


def test_a_new_folder_for_an_export_outlives_a_power_cut(store, kept, tmp_path, monkeypatch):
    flushed = []
    monkeypatch.setattr("dubio.core.files.sync_directory", flushed.append)
    export(store, ["run-aaaaaaaa"], tmp_path / "new" / "inner" / "copy.tar")
    assert {tmp_path, tmp_path / "new", tmp_path / "new" / "inner"} <= set(flushed)


def test_an_export_overwrites_nothing_and_carries_no_damage(store, kept, tmp_path):
    with pytest.raises(UserError, match="exists already"):
        export(store, ["run-aaaaaaaa"], tmp_path)
    (store.layout.directory("fits", FIT) / "weights.safetensors").write_bytes(b"")
    with pytest.raises(CorruptFile):
        export(store, ["run-aaaaaaaa"], tmp_path / "out.zip")
    assert not (tmp_path / "out.zip").exists()


def test_what_a_dead_process_left_is_removed_though_opening_the_scratch_directory_sweeps_it(tmp_path):
    with Store.open(tmp_path / "store") as store:
        (store.layout.scratch / "dead").mkdir()
        (store.layout.scratch / "dead.lock").touch()
        rows = litter(store)
        assert [row.reason for row in rows] == ["temporary"]
        remove(store, rows)
        assert not (store.layout.scratch / "dead").exists()
