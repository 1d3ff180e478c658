"""IMDb reviews with ten ratings, and the eight that stand in for them."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from dubio.tasks.sources.locate import DataMissing
from tests.tasks.helpers import make, make_real, needs, put, sizes

pytestmark = pytest.mark.usefixtures("no_other_data")


def test_ten_ratings_are_cut_65_15_20(tmp_path: Path) -> None:
    rows = [{"review": f"film<br/>{rating} {i}", "rating": rating} for rating in range(11) for i in range(20)]
    put(tmp_path / "jmars" / "data.json", json.dumps(rows))
    task = make("imdb", tmp_path)
    assert task.classes == tuple(map(str, range(1, 11)))  # a rating of 0 is none
    assert sizes(task) == {"train": 130, "val": 30, "test": 40}
    for split, each in (("train", 13), ("val", 3), ("test", 4)):
        assert np.bincount(task.split(split).data.labels).tolist() == [each] * 10
    assert "\n" in task.split("train").data.inputs[0]
    novelty = make("imdb", tmp_path, setting="novelty", ratings="ten")
    assert "5" not in novelty.classes
    assert sizes(novelty) == {"train": 117, "val": 27, "test": 36, "novel": 4}
    assert novelty.split("test").data.ids.tolist() == [
        name
        for name, label in zip(task.split("test").data.ids, task.split("test").data.labels, strict=True)
        if label != 4
    ]


def test_eight_ratings_stand_in(tmp_path: Path) -> None:
    for part in ("train", "test"):
        for rating in (1, 2, 3, 4, 7, 8, 9, 10):
            for i in range(20 if part == "train" else 5):
                side = "pos" if rating > 5 else "neg"
                put(tmp_path / "aclImdb" / part / side / f"{i}{rating}_{rating}.txt", f"{part}<br /><br />{rating} {i}")
    task = make("imdb", tmp_path)
    assert task.classes == ("1", "2", "3", "4", "7", "8", "9", "10")
    assert sizes(task) == {"train": 136, "val": 24, "test": 40}
    assert any("classes: 8, published 10" in note for note in task.notes)
    assert "4" not in make("imdb", tmp_path, setting="novelty").classes
    with pytest.raises(DataMissing, match="does not hold the corpus 'imdb'"):
        make("imdb", tmp_path, ratings="ten")


def test_the_stand_in_for_imdb_holds_out_rating_4(real: Path) -> None:
    needs(real, "imdb_lmrd_18k.jsonl.gz")
    task = make_real("imdb", real, setting="novelty")
    assert task.classes == ("1", "2", "3", "7", "8", "9", "10")
    assert len(task.split("novel")) == 632
