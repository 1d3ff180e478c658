"""Every part of a store that is damaged is named with what to do, and nothing that is whole."""

from __future__ import annotations

import io
import json
import shutil
import sqlite3
from contextlib import closing
from hashlib import sha256
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from dubio.core.errors import CorruptFile
from dubio.store import Store
from dubio.store.checkpoints import POINTER
from dubio.store.examples import encode_examples
from dubio.store.maintenance import litter, rebuild_index, remove
from dubio.store.verification import examine, verify
from tests.store.helpers import FIT, write_fit, write_prediction

OLD = Path(__file__).parent / "data" / "store-0.1" / "store"
UNFINISHED, PICTURED = "e" * 64, "ab" * 32


def png(value: int) -> bytes:
    sink = io.BytesIO()
    Image.new("L", (4, 4), value).save(sink, "PNG")
    return sink.getvalue()


@pytest.fixture
def store(tmp_path):
    """A store with one thing of every kind."""
    with Store.open(tmp_path / "store") as opened:
        write_fit(opened)
        pred_id = write_prediction(opened)
        run = {"id": pred_id, "fits": [FIT], "spec": {}, "task": "toy", "network": "net", "method": "m", "seed": 0}
        manifest = {"name": "run", "tasks": [{"name": "toy"}], "methods": [{"name": "m"}], "runs": [run]}
        opened.write_manifest({**manifest, "command": "dubio run toy"}, "a" * 64)
        opened.checkpoint(UNFINISHED).save({"w": np.zeros(2)}, {}, {"0/": {"w": np.ones(3)}})
        opened.write_failure("f" * 64, {"id": "f" * 64, "error": "out of memory"})
        opened.write_examples(PICTURED, {0: "a text"})
        for row, image in {3: png(1), 7: png(200)}.items():
            opened.scratch.write_file(opened.layout.pictures / PICTURED / f"{row}.png", image)
        rebuild_index(opened)
        yield opened


def flipped(path: Path, place: float) -> None:
    content = bytearray(path.read_bytes())
    content[int(place * (len(content) - 1))] ^= 8
    path.write_bytes(content)


def test_a_whole_store_has_no_damage_and_no_notes(store):
    result = examine(store)
    assert (result.damages, result.notes) == ((), ())
    one = dict.fromkeys(("fits", "predictions", "runs", "checkpoints", "failures"), 1)
    assert result.checked == {**one, "pictures": 2, "examples": 1}


KINDS = {
    "runs/run-aaaaaaaa.json": "runs",
    f"checkpoints/{UNFINISHED}/{POINTER}": "checkpoints",
    f"pictures/{PICTURED}/3.png": "pictures",
    f"examples/{PICTURED}/{sha256(encode_examples({0: 'a text'})).hexdigest()}.json": "examples",
    "index.sqlite": "index",
}


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("damage", ["half", "empty", "flipped", "deep"])
def test_damage_is_named_by_kind_with_what_to_do(store, name, damage):
    path = store.path / name
    content = path.read_bytes()
    harm = {"half": content[: len(content) // 2], "empty": b"", "deep": b"[" * 100_000}
    if damage == "flipped":
        flipped(path, 0.0 if name == "index.sqlite" else 0.6)
    else:
        path.write_bytes(harm[damage])
    (row,) = verify(store)
    assert (row.kind, str(path.parent) in row.error) == (KINDS[name], True)
    assert ("again" in row.error) if row.kind == "runs" else row.advice


@pytest.mark.parametrize("place", np.linspace(0, 1, 40))
def test_no_byte_of_a_manifest_can_change_unseen(store, place):
    flipped(store.layout.manifests / "run-aaaaaaaa.json", place)
    assert [row.kind for row in verify(store)] == ["runs"]
    with pytest.raises(CorruptFile, match=r"run-aaaaaaaa\.json.*[Rr]un"):
        store.manifest("run")


def test_a_manifest_is_read_as_it_was_written(store):
    assert "seal" not in store.manifest("run")
    written = json.loads((store.layout.manifests / "run-aaaaaaaa.json").read_bytes())
    assert {**store.manifest("run"), "seal": written["seal"]} == written


def test_a_run_names_the_predictions_it_lacks_and_the_command_that_makes_them(store):
    (pred_id,) = store.ids("predictions")
    shutil.rmtree(store.layout.directory("predictions", pred_id))
    rows = {row.kind: row.error for row in verify(store)}
    assert pred_id in rows["runs"]
    assert "dubio run toy" in rows["runs"]
    assert set(rows) == {"runs", "index"}


def test_an_ensemble_names_the_members_it_lacks(store):
    lost = "c" * 64
    ensemble = store.write_ensemble({"schema": 1, "kind": "prediction", "members": [*store.ids("predictions"), lost]})
    (row,) = verify(store)
    assert (row.kind, row.id, lost in row.error) == ("predictions", ensemble, True)


def test_an_index_that_lacks_rows_is_a_note_and_one_that_contradicts_the_files_is_damage(store):
    write_fit(store, seed=3)
    assert verify(store) == ()
    assert any("index.sqlite lacks 1 rows" in note for note in examine(store).notes)
    rebuild_index(store)
    with closing(sqlite3.connect(store.layout.index)) as base, base:
        base.execute("UPDATE fits SET weights = 'other' WHERE id = ?", (FIT,))
    assert [row.kind for row in verify(store)] == ["index"]


def test_an_index_with_a_view_without_end_is_not_read(store):
    store.layout.index.unlink()
    endless = "CREATE VIEW fits AS WITH RECURSIVE t(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM t) SELECT n FROM t"
    with closing(sqlite3.connect(store.layout.index)) as base, base:
        base.execute(endless)
    assert [row.kind for row in verify(store)] == ["index"]


def test_a_checkpoint_that_is_being_written_is_no_damage(store):
    (store.layout.checkpoint(UNFINISHED) / POINTER).write_bytes(b"")
    with store.lock(UNFINISHED):
        assert verify(store) == ()
    assert len(verify(store)) == 1


def test_leftovers_foreign_files_and_unsealed_manifests_are_notes(store, tmp_path):
    (store.layout.scratch / "orphan").mkdir()
    (store.path / "notes.txt").write_text("mine")
    (store.path / "fits" / "draft").mkdir()
    body = store.manifest("run")
    (store.layout.manifests / "run-aaaaaaaa.json").write_text(json.dumps(body))
    result = examine(store)
    assert result.damages == ()
    unsealed, leftover, foreign = result.notes
    assert "run-aaaaaaaa" in unsealed
    assert "tmp/orphan" in leftover
    assert "notes.txt" in foreign
    assert "fits/draft" in foreign


def test_a_store_of_version_0_1_is_whole_and_its_manifest_is_named_as_unsealed(tmp_path):
    shutil.copytree(OLD, tmp_path / "store")
    with Store.open(tmp_path / "store", create=False) as store:
        result = examine(store)
        assert result.damages == ()
        assert any("no seal" in note and "quick-a4f56c7a" in note for note in result.notes)
        assert store.manifest("quick")["name"] == "quick"


def test_verifying_changes_nothing(store):
    (store.layout.manifests / "run-aaaaaaaa.json").write_bytes(b"{")
    before = {path: path.read_bytes() for path in store.path.rglob("*") if path.is_file()}
    verify(store)
    assert {path: path.read_bytes() for path in store.path.rglob("*") if path.is_file()} == before


def test_cleaning_writes_the_index_anew(store):
    store.layout.index.write_bytes(b"SQLite format 3\0 and nothing more")
    assert [row.kind for row in verify(store)] == ["index"]
    remove(store, litter(store))
    assert verify(store) == ()


@pytest.mark.parametrize(
    "text",
    ['{"files": {"a": {"sha256": "x", "bytes": "many"}}}', '{"files": {"../a": {"sha256": "x", "bytes": 1}}}',
     '{"files": {"a": 1}}', '{"files": {}, "n": 1e999}', '{"files": {}, "n": NaN}', '"text"', "[" * 50_000],
)  # fmt: skip
def test_a_record_of_anything_else_is_damage_and_no_traceback(store, text):
    from dubio.store.records import seal

    path = store.layout.directory("fits", FIT) / "record.json"
    try:
        path.write_bytes(seal(json.loads(text)))
    except (ValueError, RecursionError, AttributeError):
        path.write_text(text)
    assert [row.kind for row in verify(store)][:1] == ["fits"]
    rebuild_index(store)
