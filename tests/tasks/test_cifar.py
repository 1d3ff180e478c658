"""CIFAR's splits, and what was not trained on."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from dubio.core.errors import UnknownName, UserError
from dubio.core.registry import TASKS
from dubio.encoders import ImageEncoding, fit_encoder
from dubio.tasks import cifar as names
from dubio.tasks.duplicates import shared_rows
from dubio.tasks.images.corruptions import CorruptedRows
from dubio.testing import assert_ok, check_task
from tests.tasks.helpers import made, npz

PLACES = [Path(os.environ.get("DUBIO_DATA", "")), Path(__file__).resolve().parents[2].parent / "shared" / "data"]
REAL = next((place for place in PLACES if (place / "cifar10_10k_5k.npz").is_file()), None)


pytestmark = pytest.mark.usefixtures("alone")


def test_numbers_of_images_and_classes_in_balance(tmp_path: Path) -> None:
    path = str(npz(tmp_path / "cifar10.npz"))
    task = TASKS.make("cifar10", data=path, train=40, test=10, val=0.2, cal=0.1)
    assert {split.name: len(split) for split in task.splits} == {"train": 40, "val": 20, "cal": 10, "test": 10}
    for split in task.splits:
        assert (np.bincount(split.data.labels, minlength=10) == len(split) / 10).all()
    more = TASKS.make("cifar10", data=path, train=60, test=10, val=0.2, cal=0.1)
    for name in ("val", "cal", "test"):  # however many images train, the others are the same
        assert more.split(name).fingerprint == task.split(name).fingerprint
    assert set(task.split("train").data.ids) < set(more.split("train").data.ids)
    other = TASKS.make("cifar10", data=path, train=40, split_seed=1)
    assert other.split("val").fingerprint != task.split("val").fingerprint


def test_without_a_share_for_validation_all_images_train(tmp_path: Path) -> None:
    path = str(npz(tmp_path / "cifar10.npz"))
    task = TASKS.make("cifar10", data=path, val=0.0)
    assert {split.name: len(split) for split in task.splits} == {"train": 100, "test": 20}
    assert any("keep the last" in note for note in task.notes)
    assert not any(note.startswith("Cut out") for note in task.notes)
    assert_ok(check_task("cifar10", arguments={"data": path, "val": 0.0}))


@pytest.mark.parametrize(
    ("argument", "named"),
    [
        ({"train": 1000}, "train must be between 1 and"),
        ({"test": 0}, "test must be between 1 and 20"),
        ({"val": -0.1}, "val and cal must be at least 0"),
        ({"severities": [1, 6]}, "severities"),
        ({"severities": []}, "severities"),
        ({"corruptions": "jpg"}, "jpeg"),
        ({"ood": "cifar-100"}, "cifar100"),
        ({"split_seed": -1}, "split_seed"),
    ],
)
def test_arguments_that_cannot_be_are_refused(tmp_path: Path, argument: dict, named: str) -> None:
    with pytest.raises((UserError, UnknownName), match=named):
        TASKS.make("cifar10", data=str(npz(tmp_path / "cifar10.npz")), **argument)


def test_corrupted_and_foreign_splits(tmp_path: Path) -> None:
    npz(tmp_path / "cifar10.npz")
    x, y = made(100, 100, 55)
    np.savez(tmp_path / "cifar100_few.npz", x=x, y=y)
    grey = np.random.default_rng(6).integers(0, 256, (30, 28, 28)).astype(np.uint8)
    np.savez(tmp_path / "fashion_mnist_few.npz", x=grey, y=np.zeros(30, np.uint8))
    arguments = {"corruptions": "jpeg+contrast", "severities": (1, 5), "ood": "all", "val": 0.2}
    arguments["data_dir"] = str(tmp_path)
    task = TASKS.make("cifar10", **arguments)
    wanted = ["contrast-1", "contrast-5", "jpeg-1", "jpeg-5"]
    wanted += ["cifar100", "fashion-mnist", "noise-uniform", "noise-gaussian"]
    assert [split.name for split in task.splits] == ["train", "val", "test", *wanted]
    assert [split.kind for split in task.splits[3:]] == ["shift"] * 4 + ["ood"] * 4
    assert [(split.family, split.severity) for split in task.splits[3:7]] == [
        ("contrast", 1), ("contrast", 5), ("jpeg", 1), ("jpeg", 5),
    ]  # fmt: skip
    assert all(split.severity is None for split in task.of_kind("ood"))
    assert all(isinstance(split.data.inputs, CorruptedRows) for split in task.of_kind("shift"))
    test = task.split("test").data
    for split in task.of_kind("shift"):
        np.testing.assert_array_equal(split.data.labels, test.labels)
    for split in task.of_kind("ood"):
        assert len(split) == len(test)
        assert (split.data.labels == -1).all()
    clothes = task.split("fashion-mnist").data.inputs
    assert (clothes[:, :2] == 0).all()
    assert (clothes[:, :, -2:] == 0).all()
    assert {image[2:-2, 2:-2, 1].tobytes() for image in clothes} <= {image.tobytes() for image in grey}
    assert len({split.fingerprint for split in task.splits}) == len(task.splits)
    assert check_task("cifar10", arguments=arguments) == []
    encoder = fit_encoder(ImageEncoding(), task.split("train").data)
    jpeg = task.split("jpeg-5").data
    in_memory = replace(jpeg, inputs=jpeg.inputs[:])
    np.testing.assert_array_equal(encoder.encode(jpeg).values, encoder.encode(in_memory).values)


def test_the_command_line_knows_it(tmp_path: Path) -> None:
    from dubio.cli.data import app

    npz(tmp_path / "cifar10.npz")
    for words in ("list", "where cifar10", "get cifar10", "check cifar10"):
        result = CliRunner().invoke(app, [*words.split(), "--data-dir", str(tmp_path), "--json"])
        assert result.exit_code == 0, result.output
        assert str(tmp_path / "cifar10.npz") in result.output
    counts = {count["what"]: count for count in json.loads(result.output)["copies"][0]["counts"]}
    assert (counts["train"]["found"], counts["train"]["published"]) == (100, 50_000)
    assert (counts["test"]["found"], counts["test"]["published"]) == (20, 10_000)
    shown = CliRunner().invoke(app, ["show", "cifar10", "--set", f"data={tmp_path}", "--set", "corruptions=contrast"])
    assert shown.exit_code == 0, shown.output
    assert "contrast-5" in shown.output


def test_an_unchanged_corrupted_image_counts_as_shared(tmp_path: Path) -> None:
    images, labels = made(40, 10, 3)
    test = np.full((10, 32, 32, 3), 77, np.uint8)
    images[:10] = 77  # a blurred plain image is the plain image: it is also in training
    np.savez(tmp_path / "cifar10.npz", x_train=images, y_train=labels, x_test=test, y_test=labels[:10])
    task = TASKS.make("cifar10", data=str(tmp_path), corruptions="gaussian-blur", severities=(1,), val=0.25)
    found = {(one.earlier, one.later): one.exact for one in shared_rows(task.splits, "image")}
    assert found["train", "gaussian-blur-1"] == found["train", "test"] == 10


@pytest.mark.skipif(REAL is None, reason="no cifar10_10k_5k.npz in DUBIO_DATA or beside the project")
def test_the_real_images() -> None:
    task = TASKS.make("cifar10", data_dir=str(REAL), train=1000, test=100, corruptions="all", ood="all")
    assert len(task.of_kind("shift")) == 55
    assert [len(split) for split in task.of_kind("ood")] == [100] * 4
    with np.load(REAL / "cifar10_10k_5k.npz") as arrays:
        assert tuple(arrays["classes"].tolist()) == names.CIFAR10.classes
    with np.load(REAL / "cifar100_2k.npz") as arrays:
        assert tuple(arrays["classes"].tolist()) == names.CIFAR100.classes
    with np.load(REAL / "fashion_mnist_10k.npz") as arrays:
        assert tuple(arrays["classes"].tolist()) == names.FASHION.classes
    clean = task.split("test").data.inputs.astype(float)
    for name in ("jpeg", "motion-blur", "fog"):
        near, far = (np.square(task.split(f"{name}-{k}").data.inputs[:] - clean).mean() for k in (1, 5))
        assert 0 < near < far
