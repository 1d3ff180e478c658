"""The task: what is learned from and what is tested on, against the data's own columns; large arrays row by row."""

from __future__ import annotations

import hashlib
import json
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from dubio.core.errors import BadFile, UnknownName, UserError
from dubio.core.lazy_rows import MappedRows, iterate_blocks
from dubio.core.registry import TASKS
from dubio.core.types import Examples, SourceCard, Split
from dubio.encoders import ArrayRows, ImageRows, encoding_for, fit_encoder
from dubio.encoders import arrays as image_encoder
from dubio.tasks.fundus.photographs import PhotographSet
from dubio.tasks.fundus.shifts import RetinaOptions, retina_splits
from dubio.tasks.sources.locate import DataMissing
from dubio.testing import check_task


def arrays(path: Path, seed: int = 0, patients: int = 40, **more) -> str:
    """An npz of four noise pictures a patient, with grades, qualities and sites."""
    rng = np.random.default_rng(seed)
    count = 4 * patients
    columns = {
        "x": rng.integers(0, 255, (count, 64, 64, 3), dtype=np.uint8),
        "y": np.arange(count) % 5,
        "patient": np.repeat(np.arange(patients), 4),
        "quality": rng.integers(0, 2, count),
        "source": np.where(np.repeat(np.arange(patients), 4) < 6, "small", "large"),
    }
    np.savez(path, **(columns | more))
    return str(path)


def parts_of(task):
    return {split.name: (split.kind, len(split)) for split in task.splits}


def test_the_real_photographs_are_cut_as_their_columns_say(data_dir):
    path = data_dir / "deepdrid_64.npz"
    if not path.is_file():
        pytest.skip("no deepdrid_64.npz")
    with np.load(path, allow_pickle=False) as raw:
        given = {name: raw[name] for name in raw.files}
    row_of = {name: row for row, name in enumerate(given["id"].tolist())}
    task = TASKS.make("retina", data=str(path))
    rows = {split.name: np.array([row_of[name] for name in split.data.ids.tolist()]) for split in task.splits}
    assert {split.name: split.kind for split in task.splits} == {
        "train": "train", "val": "val", "cal": "cal", "test": "id", "bad-quality": "shift",
    }  # fmt: skip
    good = given["quality"] == 1
    official = {part: np.flatnonzero((given["split"] == part) & good) for part in ("train", "val", "test")}
    assert sorted([*rows["train"], *rows["cal"]]) == official["train"].tolist()
    assert rows["val"].tolist() == official["val"].tolist()
    assert rows["test"].tolist() == official["test"].tolist()
    learned = set(given["patient"][np.concatenate([official["train"], official["val"]])].tolist())
    bad = [row for row in np.flatnonzero(~good).tolist() if given["patient"][row] not in learned]
    assert rows["bad-quality"].tolist() == bad
    for split in task.splits:
        assert split.data.labels.tolist() == (given["y"][rows[split.name]] >= 2).astype(int).tolist()
        np.testing.assert_array_equal(split.data.inputs, given["x"][rows[split.name]])
    assert 0.1 < len(rows["cal"]) / len(official["train"]) < 0.2
    assert any("92 photographs of 23 patients" in note and "too few" in note for note in task.notes)


def test_the_real_photographs_by_hospital_are_called_underpowered(data_dir):
    path = data_dir / "deepdrid_64.npz"
    if not path.is_file():
        pytest.skip("no deepdrid_64.npz")
    task = TASKS.make("retina", data=str(path), shift="site")
    assert parts_of(task)["other-sites"] == ("shift", 92)
    # 1.96 · √(0.8 · 0.2 / 23) = 0.163
    assert any(note.startswith("Underpowered: other-sites has 92 photographs of 23 patients") and "± 16 points" in note
               for note in task.notes)  # fmt: skip
    severe = TASKS.make("retina", data=str(path), shift="severity")
    assert severe.name == "retina-severity"
    assert set(severe.split("severe").data.labels.tolist()) == {1}
    assert all((split.data.labels >= 0).all() for split in severe.splits)


def test_the_task_conforms(tmp_path):
    for arguments in ({}, {"target": "ordinal"}, {"shift": "severity"}, {"shift": "severity", "target": "ordinal"},
                      {"shift": "site+quality"}, {"shift": "none"}):  # fmt: skip
        assert check_task("retina", arguments={"data": arrays(tmp_path / "a.npz"), **arguments}) == []


def test_folders_conform_too(eyes):
    small = {"size": (64, 48), "centre": (32, 24), "radius": 22}
    for number in range(60):
        eyes.save(f"{number}.png", number, **small)
    labels = (f"{n},{n % 5},p{n // 3},{'good' if n % 4 else 'bad'}" for n in range(60))
    eyes.write("labels.csv", "image,grade,patient,quality", *labels)
    assert check_task("retina", arguments={"data": str(eyes.home)}) == []
    task = TASKS.make("retina", data=str(eyes.home))
    assert all(isinstance(split.data.inputs, MappedRows) for split in task.splits)


@settings(max_examples=30)
@given(st.data())
def test_no_patient_is_learned_from_and_tested_on(data):
    count = data.draw(st.integers(60, 120))
    seed = data.draw(st.integers(0, 2**16))
    rng = np.random.default_rng(seed)
    patients = rng.integers(0, count // 3, count).astype(np.str_)
    homes = dict(zip(np.unique(patients), rng.permutation(np.unique(patients).size), strict=True))
    parts = np.array([["train", "train", "train", "test"][homes[p] % 4] for p in patients])
    gathered = PhotographSet(
        "made", np.zeros((count, 2, 2, 3), np.uint8), rng.integers(0, 5, count), rng.integers(0, 2, count),
        np.arange(count).astype(np.str_), patients, np.full(count, ""),
        parts if data.draw(st.booleans()) else np.full(count, ""), (), SourceCard("a", "b", "c", "d"), (),
    )  # fmt: skip
    shifts = data.draw(st.sampled_from([(), ("quality",), ("severity",), ("severity", "quality")]))
    try:
        options = RetinaOptions("binary", shifts, 0.2, data.draw(st.sampled_from([0.0, 0.2])), seed)
        splits, *_ = retina_splits(gathered, options)
    except UserError:
        return  # too few patients for every part: refused, never torn
    fitted = [split for split in splits if split.kind in ("train", "val", "cal")]
    for one in fitted:
        for other in splits:
            if one is not other:
                assert not {*one.data.group.tolist()} & {*other.data.group.tolist()}
    ids = [name for split in splits for name in split.data.ids.tolist()]
    assert len(ids) == len(set(ids))


def test_a_patient_in_two_given_parts_is_refused_by_name(eyes):
    for number in range(4):
        eyes.save(f"{number}.png", number)
    eyes.write(
        "labels.csv", "image,grade,patient,split", "0,0,anna,train", "1,2,anna,test", "2,1,bert,train", "3,3,bert,train"
    )
    with pytest.raises(UserError, match=r"1 patients into more than one part.*anna \(test, train\)"):
        TASKS.make("retina", data=str(eyes.home))


def test_given_parts_are_kept_and_only_what_is_missing_is_cut(tmp_path):
    split = np.where(np.repeat(np.arange(40), 4) < 30, "train", "test")
    task = TASKS.make("retina", data=arrays(tmp_path / "a.npz", split=split), shift="none", cal=0.0)
    assert [*parts_of(task)] == ["train", "val", "test"]
    assert len(task.split("train")) + len(task.split("val")) == 120
    assert 16 <= len(task.split("val")) <= 28  # 20 % of 30 patients, four photographs each, like shares of every grade
    assert len(task.split("test")) == 40
    assert min(map(int, task.split("test").data.group)) == 30
    other = np.where(split == "test", "ood-clinic", split)
    found = TASKS.make("retina", data=arrays(tmp_path / "b.npz", split=other), shift="none")
    assert parts_of(found)["ood-clinic"] == ("ood", 40)
    with pytest.raises(UnknownName, match="part in photograph 0"):
        TASKS.make("retina", data=arrays(tmp_path / "c.npz", split=np.where(split == "train", "learn", "test")))


def test_another_data_set_is_the_shift(tmp_path):
    home, away = arrays(tmp_path / "home.npz"), arrays(tmp_path / "away.npz", seed=1, patients=30)
    task = TASKS.make("retina", data=home, shift_data=away)
    assert task.name == "retina-away"
    assert parts_of(task)["away"] == ("shift", 120)
    assert "bad-quality" not in parts_of(task)  # bad photographs are learned from where the shift is elsewhere
    assert task.split("away").data.ids[0] == "away/0"
    assert any(note.startswith("Underpowered: away has 120 photographs of 30") for note in task.notes)
    both = TASKS.make("retina", data=home, shift_data=away, shift="quality")
    assert {"bad-quality", "away"} <= set(parts_of(both))
    with pytest.raises(UserError, match="another data set"):
        TASKS.make("retina", data=home, shift_data=home)


def test_what_cannot_be_is_refused(tmp_path, monkeypatch):
    plain = arrays(tmp_path / "a.npz", quality=np.ones(160, int), source=np.full(160, ""))
    with pytest.raises(UserError, match="names no photograph of bad quality"):
        TASKS.make("retina", data=plain, shift="quality")
    with pytest.raises(UserError, match="does not name two sites"):
        TASKS.make("retina", data=plain, shift="site")
    with pytest.raises(UnknownName, match="Did you mean 'severity'"):
        TASKS.make("retina", data=plain, shift="severe")
    with pytest.raises(UserError, match="shares of training"):
        TASKS.make("retina", data=plain, val=0.7, cal=0.3)
    with pytest.raises(BadFile, match="no such file or folder"):
        TASKS.make("retina", data=str(tmp_path / "nothing"))
    assert any(note.startswith("No shift") for note in TASKS.make("retina", data=plain).notes)
    with pytest.raises(UserError, match="no training photograph is 'referable'"):
        TASKS.make("retina", data=arrays(tmp_path / "b.npz", y=np.zeros(160, int)))
    monkeypatch.delenv("DUBIO_DATA", raising=False)
    with pytest.raises(DataMissing, match=r"trainLabels\.csv"):
        TASKS.make("retina")


def mapped(tmp_path, images, rows):
    np.save(tmp_path / "rows.npy", images)
    digests = np.stack([np.frombuffer(hashlib.sha256(row.tobytes()).digest(), np.uint8) for row in images])
    return MappedRows(np.load(tmp_path / "rows.npy", mmap_mode="r"), rows, digests)


def test_rows_in_a_file_are_the_rows_in_memory(tmp_path):
    rng = np.random.default_rng(0)
    images = rng.integers(0, 255, (9, 4, 4, 3), dtype=np.uint8)
    rows = np.array([7, 1, 1, 4])
    lazy, eager = mapped(tmp_path, images, rows), images[rows]
    np.testing.assert_array_equal(np.asarray(lazy), eager)
    np.testing.assert_array_equal(lazy[2], eager[2])
    np.testing.assert_array_equal(lazy[1:3], eager[1:3])
    np.testing.assert_array_equal(lazy[np.array([True, False, False, True])], eager[[0, 3]])
    np.testing.assert_array_equal(np.asarray(lazy.take(np.array([3, 0]))), eager[[3, 0]])
    np.testing.assert_array_equal(np.concatenate(list(iterate_blocks(lazy))), eager)
    assert (lazy.shape, lazy.ndim, lazy.dtype, len(lazy)) == (eager.shape, 4, eager.dtype, 4)
    assert [key == lazy.keys()[1] for key in lazy.keys()] == [False, True, True, False]  # noqa: SIM118


def test_a_fingerprint_tells_content_order_and_labels_apart_without_reading_a_pixel(tmp_path):
    images = np.random.default_rng(0).integers(0, 255, (6, 4, 4, 3), dtype=np.uint8)
    lazy, labels = mapped(tmp_path, images, np.arange(5)), np.zeros(5, np.int64)
    known = Examples(lazy, labels).fingerprint()
    unread = MappedRows(np.empty_like(lazy.array), lazy.rows, lazy.digests)
    assert Examples(unread, labels).fingerprint() == known
    assert Examples(lazy.take(np.array([1, 0, 2, 3, 4])), labels).fingerprint() != known
    assert Examples(lazy, labels + 1).fingerprint() != known
    other = images.copy()
    other[3, 0, 0, 0] ^= 1
    assert Examples(mapped(tmp_path, other, np.arange(5)), labels).fingerprint() != known
    # what is not taken does not count, nor where in the file a row lies
    assert Examples(mapped(tmp_path, images[::-1], np.arange(5, 0, -1)), labels).fingerprint() == known


def test_large_images_are_encoded_batch_by_batch_with_the_same_values(tmp_path, monkeypatch):
    images = np.random.default_rng(0).integers(0, 255, (20, 6, 6, 3), dtype=np.uint8)
    lazy = Examples(mapped(tmp_path, images, np.arange(20)), np.zeros(20, np.int64))
    eager = Examples(images, np.zeros(20, np.int64))
    whole = fit_encoder(encoding_for("image", {}), eager)
    monkeypatch.setattr("dubio.core.lazy_rows.BLOCK_BYTES", 3 * 6 * 6 * 3)  # three images at a time
    assert fit_encoder(encoding_for("image", {}), lazy) == whole
    wanted = whole.encode(eager)
    assert isinstance(wanted, ArrayRows)
    monkeypatch.setattr(image_encoder, "EAGER_BYTES", 0)
    found = whole.encode(lazy)
    assert isinstance(found, ImageRows)
    assert len(found) == 20
    rows = np.array([3, 17, 3])
    np.testing.assert_array_equal(found.at(rows), wanted.at(rows))
    np.testing.assert_array_equal(found.take(rows).at(np.arange(3)), wanted.values[rows])
    batches = pytest.importorskip("dubio.inference.batches")
    assert (batches.collate(found, rows) == batches.collate(wanted, rows)).all()


def test_thirty_five_thousand_photographs_of_512_pixels_need_no_room_in_memory(tmp_path):
    shape = (35_000, 512, 512, 3)
    np.lib.format.open_memmap(tmp_path / "large.npy", mode="w+", dtype=np.uint8, shape=shape).flush()  # sparse: 27 GB
    whole = np.load(tmp_path / "large.npy", mmap_mode="r")
    tracemalloc.start()
    rows = MappedRows(whole, np.arange(len(whole)), np.zeros((len(whole), 32), np.uint8))
    everything = Examples(rows, np.arange(len(whole)) % 2, np.arange(len(whole)).astype(np.str_))
    train = Split.of("train", "train", everything.take(np.arange(0, len(whole), 2)))
    encoder = image_encoder.ImageEncoder(encoding_for("image", {}), (3, 512, 512), (0.0,) * 3, (1.0,) * 3)
    encoded = encoder.encode(train.data)
    assert encoded.at(np.array([0, 9_000, 17_499])).shape == (3, 3, 512, 512)
    assert tracemalloc.get_traced_memory()[1] < 60e6
    tracemalloc.stop()


def test_the_command_line_knows_photographs(eyes, monkeypatch):
    from dubio.cli.data import app

    def run(*words):
        result = CliRunner().invoke(app, words, catch_exceptions=False)
        assert result.exit_code == 0
        return result.stdout

    where = json.loads(run("where", "retina", "--json"))["ways"][0]
    assert where["here"] == []
    assert {source["name"] for source in where["sources"]} == {
        "deepdrid",
        "idrid",
        "messidor-2",
        "eyepacs",
        "aptos-2019",
    }
    for number in range(4):
        eyes.save(f"train_images/{number}.png", number)
    (eyes.home / "train_images/3.png").write_bytes(b"")
    eyes.write("train.csv", "id_code,diagnosis", *(f"{n},{n}" for n in range(4)))
    found = json.loads(run("check", "retina", "--data-dir", str(eyes.home), "--json"))
    assert (found["data"], found["photographs"], found["grades"]["severe"]) == ("aptos-2019", 3, 0)
    assert found["findings"] == ["3: unreadable: the file is empty (left out)"]
    assert "unreadable" in run("check", "retina", "--data-dir", str(eyes.home), "--verify")
    assert "aptos-2019" in run("where", "retina", "--data-dir", str(eyes.home))
    monkeypatch.setenv("DUBIO_DATA", str(eyes.home))
    assert str(eyes.home) in run("list")
    with pytest.raises(UserError, match="photographs"):
        run("check", "digits", "--verify")
    with pytest.raises(UserError, match="for your own data"):
        run("check", "retina", "--text", "x")
