"""A store keeps what it is given, whole, and trusts nothing it reads."""

from __future__ import annotations

import errno
import json
import os
import sqlite3
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

from dubio.core import files
from dubio.core.errors import BadFile, CorruptFile, StoreError, UnknownName, UserError
from dubio.store import BusyError, Store, maintenance, predictions
from dubio.store.maintenance import rebuild_index
from dubio.store.store import SCHEMA
from dubio.store.verification import verify
from tests.store.helpers import FIT, SPEC, dump_index, predicted, split, write_fit, write_prediction


@pytest.fixture
def store(tmp_path):
    with Store.open(tmp_path / "store") as opened:
        yield opened


def test_entries_are_found_by_the_beginning_of_their_name(store, monkeypatch):
    fit, prediction = write_fit(store), write_prediction(store)
    store.write_manifest({"name": "run"}, "a" * 64)
    (run,) = store.manifests()
    assert store.find("ru") == ("runs", run)
    assert store.find(fit[:6]) == ("fits", fit)
    assert store.find(prediction) == ("predictions", prediction)
    for name in ("ran", fit[:5]):  # no hexadecimal number, too few digits
        with pytest.raises(UnknownName, match=name):
            store.find(name)
    with pytest.raises(UserError, match="no fit or prediction"):
        store.find("0" * 64)
    ids = {"fits": ("abcdef1",), "predictions": ("abcdef2",)}
    monkeypatch.setattr(Store, "ids", lambda self, kind: ids[kind])
    with pytest.raises(UserError, match=r"2 ids: abcdef1.*\(fit\), abcdef2.*\(prediction\)"):
        store.find("abcdef")


def test_a_fit_comes_back_as_it_was(store):
    assert write_fit(store) == FIT
    spec, tensors, encoder, record = store.read_fit(FIT)
    assert spec == SPEC
    assert tensors["a"].tolist() == [[0, 3], [1, 4], [2, 5]]  # a transposed array is stored as it reads, not as it lies
    assert tensors["b"].shape == ()
    assert tensors["c"].shape == (0, 2)
    assert encoder == {"words": ["ä"]}
    assert (record["seconds"], record["val_nll"], record["curve"]) == (1.5, None, [0.5, 2])
    assert record["bytes"] == sum(file["bytes"] for file in record["files"].values())


def test_the_same_weights_give_the_same_bytes(store, tmp_path):
    write_fit(store)
    with Store.open(tmp_path / "other") as other:
        write_fit(other)
        one, two = (s.layout.directory("fits", FIT) / "weights.safetensors" for s in (store, other))
        assert one.read_bytes() == two.read_bytes()
    assert set(load_file(one)) == {"a", "b", "c"}  # any safetensors reader can read it


def test_predictions_come_back_and_splits_are_added(store):
    pred_id = write_prediction(store)
    more = split("../more splits/ü" * 12, seed=1)
    test = (split().name, split().fingerprint)
    key = (more.name, more.fingerprint)
    assert store.missing_splits(pred_id, [test, key]) == (key,)
    with store.prediction_writer(store.spec("predictions", pred_id), {}) as writer:
        writer.add(more, predicted(1), 0.5)
    assert store.missing_splits(pred_id, [test, key]) == ()
    assert np.array_equal(store.read_predictions(pred_id, *test).logits, predicted(0).logits)
    assert np.array_equal(store.read_predictions(pred_id, *key).logits, predicted(1).logits)
    record = store.record(pred_id)
    assert (record["seconds"], record["examples"]) == (0.75, 8)
    with pytest.raises(StoreError, match="not made on split"):
        store.read_predictions(pred_id, "test", "0" * 64)
    with pytest.raises(StoreError, match="no prediction"):
        store.read_predictions("0" * 64, *test)


def test_a_record_is_checked_once_for_all_splits_until_it_changes(store, monkeypatch):
    first, second = split("first"), split("second", seed=1)
    pred_id = write_prediction(store, 0, first, second)
    checked = []
    real = predictions.read_record
    monkeypatch.setattr(predictions, "read_record", lambda *args: checked.append(args) or real(*args))
    for own in (first, second, first):
        store.read_predictions(pred_id, own.name, own.fingerprint)
    assert len(checked) == 1
    path = store.layout.directory("predictions", pred_id) / "record.json"
    path.write_text(path.read_text().replace('"seconds"', '"Seconds"', 1))
    with pytest.raises(CorruptFile, match="not what was written"):
        store.read_predictions(pred_id, first.name, first.fingerprint)
    path.unlink()
    with pytest.raises(CorruptFile, match=r"record\.json"):
        store.read_predictions(pred_id, first.name, first.fingerprint)


def test_an_ensemble_sums_its_members_records(store):
    members = [write_prediction(store, seed) for seed in (0, 1)]
    pred_id = store.write_ensemble({"schema": 1, "kind": "prediction", "members": members})
    record = store.record(pred_id)
    assert (record["seconds"], record["examples"]) == (0.5, 4)
    assert store.read_predictions(pred_id, "test", split().fingerprint).samples == 4
    assert os.listdir(store.layout.directory("predictions", pred_id)) == ["spec.json"]


@pytest.mark.parametrize("name", ["spec.json", "record.json", "weights.safetensors", "encoder.json"])
@pytest.mark.parametrize("damage", ["truncated", "turned", "missing", "empty"])
def test_a_damaged_fit_is_never_trusted(store, name, damage):
    write_fit(store)
    path = store.layout.directory("fits", FIT) / name
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 4
    harm = {
        "truncated": lambda: path.write_bytes(path.read_bytes()[:-1][: len(content) - 3]),
        "turned": lambda: path.write_bytes(content),
        "missing": path.unlink,
        "empty": lambda: path.write_bytes(b""),
    }
    harm[damage]()
    with pytest.raises(CorruptFile, match=name.replace(".", r"\.")):
        store.read_fit(FIT)
    assert [row.id for row in verify(store)] == [FIT]
    aside = store.set_aside("fits", FIT)
    assert aside is not None
    assert aside.is_dir()
    assert not store.has_fit(FIT)
    write_fit(store)
    assert verify(store) == ()


def test_what_is_sound_or_being_mended_is_not_set_aside(store):
    write_fit(store)
    assert store.set_aside("fits", FIT) is None
    (store.layout.directory("fits", FIT) / "encoder.json").write_text("{}")
    with store.lock(FIT):
        assert store.set_aside("fits", FIT) is None
    assert store.has_fit(FIT)


def test_a_lock_is_held_once(store, tmp_path):
    other = Store.open(tmp_path / "store")
    with store.lock(FIT):
        assert other.is_locked(FIT)
        with pytest.raises(BusyError), other.lock(FIT):
            pass
    assert not other.is_locked(FIT)
    with other.lock(FIT):
        pass
    other.close()


def test_a_newer_schema_is_refused(store):
    store.layout.header.write_text(json.dumps({"schema": SCHEMA + 1}))
    with pytest.raises(StoreError, match=f"schema {SCHEMA + 1}; this dubio reads up to {SCHEMA}"):
        Store.open(store.path)


@pytest.mark.parametrize("content", ["", "{}", "[]", '{"schema": "x"}'])
def test_a_damaged_header_is_refused(store, content):
    store.layout.header.write_text(content)
    with pytest.raises(StoreError, match=r"store\.json"):
        Store.open(store.path)


@pytest.mark.parametrize("content", ["{}", "[]"])
def test_a_header_without_a_schema_is_refused_in_words(store, content):
    store.layout.header.write_text(content)
    with pytest.raises(StoreError, match="is not the header of a dubio store: it names no schema"):
        Store.open(store.path)


def test_a_directory_of_something_else_is_refused(tmp_path):
    (tmp_path / "thesis.tex").write_text("")
    with pytest.raises(StoreError, match=r"thesis\.tex"):
        Store.open(tmp_path)
    with pytest.raises(StoreError, match="no dubio store"):
        Store.open(tmp_path / "none", create=False)
    with pytest.raises(StoreError, match="a file is where a directory should be"):
        Store.open(tmp_path / "thesis.tex" / "store")
    with pytest.raises(StoreError, match="in the way"):
        Store.open(tmp_path / "thesis.tex")


@pytest.mark.parametrize(("code", "words"), [(errno.ENOSPC, "disk is full"), (errno.EACCES, "permission denied")])
def test_what_the_system_refuses_leaves_nothing_half_written(store, monkeypatch, code, words):
    pred_id = write_prediction(store)
    before = sorted(path for path in store.path.rglob("*") if path.is_file())

    def refuse(path: Path) -> None:
        raise OSError(code, os.strerror(code), str(path))

    monkeypatch.setattr(files, "sync_file", refuse)
    with pytest.raises(StoreError, match=words):
        write_fit(store)
    with pytest.raises(StoreError, match=words):
        write_prediction(store, 7)
    again = store.prediction_writer(store.spec("predictions", pred_id), {})
    with pytest.raises(StoreError, match=words), again as writer:
        writer.add(split("more"), predicted(), 0.0)
    with pytest.raises(StoreError, match=words):
        store.checkpoint(FIT).save({"a": np.zeros(2)}, {})
    with pytest.raises(StoreError, match=words):
        store.write_manifest({"name": "run"}, "0" * 64)
    assert sorted(path for path in store.path.rglob("*") if path.is_file()) == before
    assert not store.has_fit(FIT)


def test_a_dead_process_s_scratch_is_swept_and_a_living_one_s_is_not(store):
    (store.layout.scratch / "dead").mkdir(parents=True)
    (store.layout.scratch / "dead.lock").touch()
    mine = store.scratch.path
    with Store.open(store.path) as other:
        assert other.scratch.path.is_dir()
        assert mine.is_dir()
        assert not (store.layout.scratch / "dead").exists()


def test_a_checkpoint_comes_back_or_is_dropped(store):
    checkpoint = store.checkpoint(FIT, every_seconds=3)
    assert checkpoint.every_seconds == 3
    assert checkpoint.load() is None
    for epoch in (1, 2):
        tensors = {"w": np.full((2, 2), epoch, np.float32).T, "step": np.array(epoch)}
        checkpoint.save(tensors, {"epoch": epoch, "ä": [0.1]})
    kept = checkpoint.load()
    assert kept is not None
    assert kept["state"] == {"epoch": 2, "ä": [0.1]}
    assert kept["tensors"]["w"].tolist() == [[2, 2], [2, 2]]
    assert kept["tensors"]["step"].shape == ()
    (path,) = store.layout.checkpoint(FIT).glob("*.safetensors")
    path.write_bytes(path.read_bytes()[:-2])
    assert checkpoint.load() is None
    assert not store.layout.checkpoint(FIT).exists()


def test_a_fit_forgets_its_failure_and_checkpoint(store):
    store.write_failure(FIT, {"error": "NaN"})
    store.checkpoint(FIT).save({"w": np.zeros(1)}, {})
    assert store.failures() == ({"error": "NaN"},)
    write_fit(store)
    assert store.failures() == ()
    assert store.checkpoint(FIT).load() is None


def test_manifests_by_name_beginning_and_path(store, tmp_path):
    for name, key in (("quick", "a" * 64), ("quick", "b" * 64), ("own", "c" * 64)):
        store.write_manifest({"name": name, "key": key[0], "tasks": [], "methods": [], "runs": [], "failures": []}, key)
    assert store.manifests() == ("own-cccccccc", "quick-aaaaaaaa", "quick-bbbbbbbb")
    assert store.manifest("own")["key"] == "c"
    assert store.manifest("quick-b")["key"] == "b"
    assert store.manifest(store.layout.manifests / "own-cccccccc.json")["key"] == "c"
    with pytest.raises(UserError, match="may be any of"):
        store.manifest("quick")
    with pytest.raises(UnknownName, match="Did you mean 'own-cccccccc'"):
        store.manifest("own-ccccccdd")


def test_the_index_leaves_out_what_is_damaged_and_says_so(store):
    write_fit(store)
    write_fit(store, seed=1)
    assert rebuild_index(store) == ()
    whole = dump_index(store)
    assert FIT in whole
    assert "1.5" not in whole  # no timings
    (store.layout.directory("fits", FIT) / "spec.json").write_text("{}")
    (damaged,) = rebuild_index(store)
    assert "spec.json" in damaged
    assert FIT not in dump_index(store)


def test_an_index_that_a_full_disk_refuses_is_a_store_error(store, monkeypatch):
    write_fit(store)
    connect = sqlite3.connect

    def small(path):
        base = connect(path)
        base.execute("PRAGMA max_page_count = 2")  # SQLite's own word for a full disk
        return base

    monkeypatch.setattr(maintenance.sqlite3, "connect", small)
    with pytest.raises(StoreError, match=r"cannot write '.*index\.sqlite': database or disk is full"):
        rebuild_index(store)


def test_predictions_that_the_disk_cannot_give_are_no_damage(tmp_path, monkeypatch):
    def refuse(path):
        raise BadFile("cannot be read: Input/output error.") from OSError(5, "Input/output error")

    with Store.open(tmp_path / "store") as store:
        pred_id = write_prediction(store)
        monkeypatch.setattr("dubio.store.predictions.read_verified", refuse)
        with pytest.raises(StoreError, match="Input/output error"):
            store.read_predictions(pred_id, "test", split().fingerprint)
