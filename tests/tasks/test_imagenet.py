"""ImageNet's folders, streamed: a small tree with the sorts of files that the real one has."""

from __future__ import annotations

import pickle
import threading
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from dubio.core.errors import BadFile, UserError
from dubio.core.registry import TASKS
from dubio.encoders import ImageEncoding, ImageRows, fit_encoder
from dubio.encoders import arrays as image_encoder
from dubio.tasks.images import streamed
from dubio.tasks.images.streamed import Square, StreamedRows, decode_square
from dubio.tasks.sources.locate import DataMissing
from dubio.testing import check_task

Image = pytest.importorskip("PIL.Image")

WNIDS = ("n01440764", "n01443537", "n02102040")
SMALL = {"shorter": 20, "size": 16, "val": 0.2}


def picture(path: Path, seed: int, mode: str = "RGB", size: tuple[int, int] = (60, 40)) -> None:
    """Patches of colour, saved as jpeg whatever the name says."""
    patches = np.random.default_rng(seed).integers(0, 256, (4, 6, 3)).astype(np.uint8)
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(patches).resize(size, Image.Resampling.NEAREST).convert(mode).save(path, "JPEG")


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Three classes of ten photographs, and nine to test on."""
    monkeypatch.setenv("DUBIO_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("DUBIO_DATA", raising=False)
    root = tmp_path / "imagenet"
    for k, name in enumerate(WNIDS):
        for i in range(10):
            mode = {0: "L", 1: "CMYK"}.get(i, "RGB")
            picture(root / "train" / name / f"{name}_{i}.JPEG", 100 * k + i, mode, (60, 40) if i % 2 else (33, 70))
        for i in range(3):
            picture(root / "val" / name / f"ILSVRC2012_val_{3 * k + i:08d}.JPEG", 500 + 3 * k + i)
    return root


def test_folders_become_splits(home: Path) -> None:
    task = TASKS.make("imagenet", data=str(home), **SMALL)
    counts = [(split.name, split.kind, len(split)) for split in task.splits]
    assert counts == [("train", "train", 24), ("val", "val", 6), ("test", "id", 9)]
    assert task.classes == WNIDS
    for split in task.splits:
        assert isinstance(split.data.inputs, StreamedRows)
        assert split.data.inputs.shape == (len(split), 16, 16, 3)
        for name, label in zip(split.data.ids.tolist(), split.data.labels.tolist(), strict=True):
            assert Path(name).parent.name == WNIDS[label]
        assert (np.bincount(split.data.labels) == len(split) / 3).all()
    assert check_task("imagenet", arguments={"data": str(home), **SMALL}) == []
    above = TASKS.make("imagenet", data_dir=str(home.parent), **SMALL)
    assert [split.fingerprint for split in above.splits] == [split.fingerprint for split in task.splits]


def test_a_photograph_is_the_centre_of_its_resized_self(tmp_path: Path) -> None:
    # 120×80: the shorter side 80 becomes 20, the longer 30; of 30×20 the middle 16×16 starts at (7, 2)
    picture(tmp_path / "a.JPEG", 0, size=(120, 80))
    found = decode_square(tmp_path / "a.JPEG", Square(20, 16))
    with Image.open(tmp_path / "a.JPEG") as image:
        whole = np.asarray(image.resize((30, 20), Image.Resampling.BILINEAR))
    np.testing.assert_array_equal(found, whole[2:18, 7:23])
    picture(tmp_path / "b.JPEG", 0, size=(37, 90))
    assert decode_square(tmp_path / "b.JPEG", Square(20, 20)).shape == (20, 20, 3)


@pytest.mark.parametrize("mode", ["L", "CMYK", "RGB"])
def test_every_mode_is_colour(tmp_path: Path, mode: str) -> None:
    path = tmp_path / "a.JPEG"
    Image.new("RGB", (40, 40), (200, 100, 50)).convert(mode).save(path, "JPEG")
    found = decode_square(path, Square(20, 16)).reshape(-1, 3).mean(axis=0)
    level = 0.299 * 200 + 0.587 * 100 + 0.114 * 50
    np.testing.assert_allclose(found, [level] * 3 if mode == "L" else [200, 100, 50], atol=4)


def test_rows_are_the_same_however_they_are_asked_for(home: Path) -> None:
    rows = TASKS.make("imagenet", data=str(home), **SMALL).split("train").data.inputs
    whole = rows[:]
    np.testing.assert_array_equal(np.array([rows[i] for i in range(len(rows))]), whole)
    order = np.random.default_rng(0).permutation(len(rows))
    np.testing.assert_array_equal(rows[order], whole[order])
    np.testing.assert_array_equal(rows.take(order)[3:9], whole[order][3:9])
    again = pickle.loads(pickle.dumps(rows))  # to another process
    np.testing.assert_array_equal(again[2:4], whole[2:4])


def test_files_that_cannot_be_read_are_listed_and_left_out(home: Path) -> None:
    folder = home / "train" / WNIDS[0]
    cut = folder / f"{WNIDS[0]}_4.JPEG"
    cut.write_bytes(cut.read_bytes()[:-120])
    (folder / f"{WNIDS[0]}_5.JPEG").write_bytes(b"")
    (folder / f"{WNIDS[0]}_6.JPEG").write_bytes(b"<html>no such photograph</html>")
    Image.new("RGB", (40, 40)).save(folder / f"{WNIDS[0]}_7.JPEG", "PNG")  # ImageNet has a PNG that is called JPEG
    task = TASKS.make("imagenet", data=str(home), **SMALL)
    ids = {name for split in task.splits for name in split.data.ids.tolist()}
    assert len(ids) == 30 + 9 - 3
    assert not any(name.endswith(("_4.JPEG", "_5.JPEG", "_6.JPEG")) and WNIDS[0] in name for name in ids)
    (note,) = [note for note in task.notes if "cannot be read" in note]
    assert all(f"{WNIDS[0]}_{number}.JPEG" in note for number in (4, 5, 6))
    for split in task.splits:
        assert split.data.inputs[:].shape == (len(split), 16, 16, 3)


def test_a_survey_is_remembered_until_a_file_changes(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from dubio.tasks import imagenet as survey

    looked: list[bool] = []
    real = survey.read_fault

    def watched(path: Path, *, verify: bool) -> str | None:
        looked.append(verify)
        return real(path, verify=verify)

    monkeypatch.setattr(survey, "read_fault", watched)
    for _ in range(2):
        TASKS.make("imagenet", data=str(home), **SMALL)
    assert looked == [False] * 39
    TASKS.make("imagenet", data=str(home), verify=True, **SMALL)
    TASKS.make("imagenet", data=str(home), verify=True, **SMALL)
    assert looked == [False] * 39 + [True] * 39
    picture(home / "train" / WNIDS[0] / f"{WNIDS[0]}_3.JPEG", 99)
    TASKS.make("imagenet", data=str(home), **SMALL)
    assert len(looked) == 3 * 39


def test_a_file_that_breaks_later_is_named(home: Path) -> None:
    rows = TASKS.make("imagenet", data=str(home), **SMALL).split("test").data.inputs
    name = str(rows.names[4])
    (home / name).write_bytes(b"gone")
    with pytest.raises(BadFile, match=name):
        rows[:]


@pytest.mark.parametrize(
    ("table", "line"),
    [
        ("LOC_val_solution.csv", "ILSVRC2012_val_{i:08d},{wnid} 85 1 499 272 {wnid} 1 2 3 4"),
        ("val/val_annotations.txt", "ILSVRC2012_val_{i:08d}.JPEG\t{wnid}\t0\t0\t62\t62"),
        ("val_labels.txt", "ILSVRC2012_val_{i:08d}.JPEG {wnid}"),
        ("imagenet_2012_validation_synset_labels.txt", "{wnid}"),
    ],
)
def test_flat_photographs_with_a_table_of_labels(home: Path, table: str, line: str) -> None:
    folders = TASKS.make("imagenet", data=str(home), **SMALL).split("test").data
    pixels = folders.inputs[:]
    for path in sorted(home.glob("val/*/*.JPEG")):
        path.rename(home / "val" / path.name)
    for name in WNIDS:
        (home / "val" / name).rmdir()
    with pytest.raises(BadFile, match="no file of labels"):
        TASKS.make("imagenet", data=str(home), **SMALL)
    lines = [line.format(i=i, wnid=WNIDS[i // 3]) for i in range(9)]
    (home / table).write_text("\n".join((["ImageId,PredictionString"] if "csv" in table else []) + lines) + "\n")
    flat = TASKS.make("imagenet", data=str(home), **SMALL).split("test").data
    np.testing.assert_array_equal(flat.labels, folders.labels)
    np.testing.assert_array_equal(flat.inputs[:], pixels)
    (home / table).write_text("\n".join(lines[:-1]) + "\n")
    with pytest.raises(BadFile, match="photographs"):
        TASKS.make("imagenet", data=str(home), **SMALL)


def test_without_a_validation_part_all_photographs_are_trained_on(home: Path) -> None:
    with_part, without = (TASKS.make("imagenet", data=str(home), **{**SMALL, **own}) for own in ({}, {"val": 0.0}))
    assert [split.name for split in without.splits if split.kind == "val"] == []
    names = {split.name: len(split.data.labels) for split in with_part.splits}
    assert len(without.split("train").data.labels) == names["train"] + names["val"]


def test_wishes_that_cannot_be_are_refused(home: Path, tmp_path: Path) -> None:
    for wish in ({"size": 300}, {"val": -0.1}, {"train": 2}, {"test": 10}, {"val": 0.001}):
        with pytest.raises(UserError):
            TASKS.make("imagenet", data=str(home), **{**SMALL, **wish})
    (tmp_path / "empty").mkdir()
    with pytest.raises(BadFile, match="does not hold ImageNet"):
        TASKS.make("imagenet", data=str(tmp_path / "empty"))
    with pytest.raises(DataMissing, match="not on this machine"):
        TASKS.make("imagenet")


def test_channel_statistics_come_from_a_bounded_sample(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    train = TASKS.make("imagenet", data=str(home), **SMALL).split("train").data
    whole = fit_encoder(ImageEncoding(), train)
    np.testing.assert_allclose(whole.mean, train.inputs[:].mean(axis=(0, 1, 2)))
    np.testing.assert_allclose(whole.deviation, train.inputs[:].std(axis=(0, 1, 2)))
    monkeypatch.setattr(image_encoder, "SAMPLE", 5)
    read: list[int] = []
    real = streamed.decode_square
    monkeypatch.setattr(streamed, "decode_square", lambda path, square: read.append(1) or real(path, square))
    few = fit_encoder(ImageEncoding(), train)
    assert len(read) == 5
    chosen = train.inputs[np.linspace(0, len(train) - 1, 5).astype(int)]
    np.testing.assert_allclose(few.mean, chosen.mean(axis=(0, 1, 2)))


def test_batches_are_read_ahead_and_hold_what_they_should(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torch")
    from dubio.inference.batches import collate, prediction_rows, training_rows

    train = TASKS.make("imagenet", data=str(home), **SMALL).split("train").data
    encoder = fit_encoder(ImageEncoding(), train)
    eager = encoder.encode(train)
    monkeypatch.setattr(image_encoder, "EAGER_BYTES", 0)
    lazy = encoder.encode(train)
    assert isinstance(lazy, ImageRows)
    threads: set[str] = set()
    real = StreamedRows._decoded

    def spied(self: StreamedRows, key: object) -> np.ndarray:
        threads.add(threading.current_thread().name.rpartition("_")[0])
        return real(self, key)

    monkeypatch.setattr(StreamedRows, "_decoded", spied)
    batches = training_rows(lazy, 5, np.random.default_rng(0))
    assert sorted(np.concatenate(batches).tolist()) == list(range(len(train)))
    for rows in batches:
        np.testing.assert_array_equal(collate(lazy, rows).numpy(), collate(eager, rows).numpy())
    assert "dubio-reading-ahead" in threads
    for rows in list(prediction_rows(lazy, 7)):
        np.testing.assert_array_equal(collate(lazy, rows).numpy(), collate(eager, rows).numpy())
    next(prediction_rows(lazy, 7))  # a pass that is not finished does not harm the next
    np.testing.assert_array_equal(collate(lazy, np.array([9, 2])).numpy(), eager.values[[9, 2]])


def test_a_network_learns_from_streamed_photographs(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torch")
    from dubio.core.registry import METHODS
    from dubio.methods.fitting import FitContext
    from dubio.methods.specification import NetworkSpec

    task = TASKS.make("imagenet", data=str(home), **SMALL)
    method = METHODS.make("deterministic", epochs=2, batch=8)
    tensors = []
    for bytes_ in (1 << 29, 0):
        monkeypatch.setattr(image_encoder, "EAGER_BYTES", bytes_)
        fresh = TASKS.make("imagenet", data=str(home), **SMALL)
        posterior = method.fit(fresh, NetworkSpec("cnn", {}), seed=0, context=FitContext())
        tensors.append(posterior.tensors())
    assert task.split("train").fingerprint == fresh.split("train").fingerprint
    for name, tensor in tensors[0].items():
        np.testing.assert_array_equal(tensor.numpy(), tensors[1][name].numpy())


def test_the_command_line_knows_it(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from dubio.cli.data import app

    monkeypatch.setenv("DUBIO_DATA", str(home.parent))
    (home / "train" / WNIDS[1] / f"{WNIDS[1]}_2.JPEG").write_bytes(b"")
    runner = CliRunner()
    asked = ("list", "where imagenet", "get imagenet", "check imagenet", "check imagenet --verify")
    asked += ("show imagenet --set val=0.2",)
    said = {words: runner.invoke(app, words.split()) for words in asked}
    assert {words: result.exit_code for words, result in said.items()} == dict.fromkeys(said, 0)
    assert "1,281,167 (DIFFERS)" in said["check imagenet"].output
    assert f"{WNIDS[1]}_2.JPEG: unreadable: the file is empty (left out)" in said["check imagenet --verify"].output
    assert str(home) in said["where imagenet"].output
    assert "rows that two splits share" in said["show imagenet --set val=0.2"].output
    assert runner.invoke(app, ["check", "imagenet", "--size", "64"]).exit_code != 0
