from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dubio.core.errors import BadFile, UserError
from dubio.core.registry import TASKS
from dubio.core.types import Task

Image = pytest.importorskip("PIL.Image")


def own(**arguments: Any) -> Task:
    task: Task = TASKS.make("own", **arguments)
    return task


def save(path: Path, mode: str, level: int, seed: int = 0) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    shape = (20, 30) if mode == "L" else (20, 30, 3)
    noise = np.random.default_rng(seed).integers(-20, 20, shape)
    Image.fromarray(np.clip(level + noise, 0, 255).astype(np.uint8)).save(path)


def folder(root: Path, mode: str = "RGB", below: str = "") -> Path:
    for index in range(40):
        name, level = ("dark", 60) if index % 2 else ("light", 200)
        save(root / below / name / f"{index}.png", mode, level, index)
    return root


def test_a_folder_a_class(tmp_path: Path) -> None:
    task = own(data=str(folder(tmp_path)), size=16)
    assert (task.inputs, task.classes) == ("image", ("dark", "light"))
    assert "40 images of 16×16 pixels, colour." in task.notes
    train = task.split("train").data
    assert train.inputs.shape == (24, 16, 16, 3)
    assert train.inputs.dtype == np.uint8
    means = train.inputs.reshape(len(train), -1).mean(axis=1)
    np.testing.assert_array_equal(means > 130, train.labels == 1)
    assert all(str(name).endswith(".png") for name in train.ids)


def test_grey_images_stay_grey_and_one_in_colour_makes_all_colour(tmp_path: Path) -> None:
    grey = own(data=str(folder(tmp_path / "g", "L")))
    assert grey.split("train").data.inputs.shape[1:] == (64, 64, 1)
    save(folder(tmp_path / "m", "L") / "dark" / "extra.png", "RGB", 60)
    assert own(data=str(tmp_path / "m")).split("train").data.inputs.shape[1:] == (64, 64, 3)


def test_sixteen_bit_levels_are_scaled_not_cut(tmp_path: Path) -> None:
    root = folder(tmp_path, "L")
    Image.fromarray(np.full((8, 8), 40_000, dtype=np.uint16)).save(root / "light" / "deep.png")
    task = own(data=str(root), size=8)
    levels = [
        split.data.inputs[row] for split in task.splits for row in np.flatnonzero(split.data.ids == "light/deep.png")
    ]
    assert np.unique(levels).tolist() == [round(40_000 / 257)]


def test_folders_of_parts(tmp_path: Path) -> None:
    folder(tmp_path, below="train")
    for index in range(10):
        save(tmp_path / "test" / ("dark", "light")[index % 2] / f"{index}.png", "RGB", 100, 100 + index)
    task = own(data=str(tmp_path))
    assert len(task.split("test")) == 10
    assert sum(len(split) for split in task.of_kind("train", "val", "cal")) == 40


def test_files_that_are_not_used_are_named(tmp_path: Path) -> None:
    root = folder(tmp_path)
    assert not any("ignored" in note for note in own(data=str(root)).notes)
    for name in ("dark/a.txt", "dark/b.heic", "light/c.csv", "stray.png", "light/.DS_Store", ".cache/x"):
        (root / name).parent.mkdir(exist_ok=True)
        (root / name).write_bytes(b"")
    (sentence,) = [note for note in own(data=str(root)).notes if "ignored" in note]
    assert sentence.startswith("Files that are ignored: 4: dark/a.txt, dark/b.heic, light/c.csv, …; they")


def test_bad_folders_are_refused(tmp_path: Path) -> None:
    with pytest.raises(BadFile, match="no images"):
        own(data=str(tmp_path))
    root = folder(tmp_path)
    with pytest.raises(UserError, match="label names a column"):
        own(data=str(root), label="y")
    with pytest.raises(UserError, match="size must be at least 1"):
        own(data=str(root), size=0)
    (root / "dark" / "broken.png").write_bytes(b"not an image")
    with pytest.raises(BadFile, match=r"broken.png"):
        own(data=str(root))


def test_npz_of_images_with_side_columns(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    path = tmp_path / "t.npz"
    x = rng.integers(0, 256, (60, 8, 8)).astype(np.uint8)
    np.savez(path, x=x, y=np.arange(60) % 3, patient=np.arange(60) // 2)
    task = own(data=str(path), group="patient")
    assert task.classes == ("0", "1", "2")
    data = task.split("train").data
    np.testing.assert_array_equal(data.inputs[..., 0], x[data.ids.astype(int)])
    assert own(data=str(path), size=4).split("train").data.inputs.shape[1:] == (4, 4, 1)


def test_npz_of_numbers(tmp_path: Path) -> None:
    path = tmp_path / "t.npz"
    np.savez(path, x=np.random.default_rng(0).normal(size=(60, 5)), y=np.arange(60) % 2)
    task = own(data=str(path))
    assert (task.inputs, task.split("train").data.inputs.shape) == ("table", (36, 5))


def test_bad_npz_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "t.npz"
    np.savez(path, images=np.zeros(3))
    with pytest.raises(BadFile, match="no array 'x'; it has images"):
        own(data=str(path))
    np.savez(path, x=np.zeros((4, 2, 2, 2), dtype=np.uint8), y=np.arange(4))
    with pytest.raises(BadFile, match="1 or 3 channels"):
        own(data=str(path))
    np.savez(path, x=np.array([{"a": 1}], dtype=object), y=np.arange(1))
    with pytest.raises(BadFile, match="Python objects"):
        own(data=str(path))  # an object array is a pickle, never loaded
    path.write_bytes(b"PK nothing")
    with pytest.raises(BadFile, match="not an npz file"):
        own(data=str(path))


@pytest.mark.parametrize("value", [np.inf, -np.inf])
def test_an_infinite_number_in_npz_is_named_and_nan_is_missing(tmp_path: Path, value: float) -> None:
    x = np.random.default_rng(0).normal(size=(40, 3))
    x[5, 1] = np.nan
    np.savez(tmp_path / "mine.npz", x=x, y=np.arange(40) % 2)
    assert len(own(data=str(tmp_path / "mine.npz")).split("train")) == 24
    x[17, 2] = value
    np.savez(tmp_path / "mine.npz", x=x, y=np.arange(40) % 2)
    with pytest.raises(BadFile, match=rf"x\[17, 2\] is {value}, which is not a finite number. A missing value is NaN"):
        own(data=str(tmp_path / "mine.npz"))


def test_a_column_has_one_use(tmp_path: Path) -> None:
    """The label as the text would be learned without an error; a feature twice would only count twice."""
    path = tmp_path / "t.csv"
    path.write_text("short,a,label\n" + "\n".join(f"{'xy'[i % 2]},{i % 7},{'xy'[i % 2]}" for i in range(60)))
    with pytest.raises(UserError, match="text and label are the same column 'label'"):
        own(data=str(path), text="label", label="label")
    with pytest.raises(UserError, match="features must be different columns; given 'a' more than once"):
        own(data=str(path), features=["a", "a"], label="label")


def test_the_current_folder_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError, match=r"label names a column; '\.' is a folder of images"):
        own(data=".", label="y")


def test_classes_of_one_row_are_counted(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("text,label\nhello,a\nbye,b\n")
    with pytest.raises(UserError, match=r"class 'a' has one row, row 2 \(and 1 other class has one row\)"):
        own(data=str(path), text="text", label="label")
