"""AAPD, abstracts with several labels, in the form of their authors."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from dubio.core.errors import BadFile
from dubio.tasks.sources.locate import DataMissing
from tests.tasks.helpers import make, make_real, needs, put, sizes

pytestmark = pytest.mark.usefixtures("no_other_data")


def test_aapd_lines_and_the_other_name_of_information_theory(tmp_path: Path) -> None:
    subjects = ("cs.IT math.IT", "cs.LG stat.ML", "cs.CL cs.LG")
    for part, count in (("train", 12), ("val", 3), ("test", 6)):
        put(tmp_path / "AAPD" / f"text_{part}", "".join(f"{part} abstract {i}\n" for i in range(count)))
        put(tmp_path / "AAPD" / f"label_{part}", "".join(f"{subjects[i % 3]}\n" for i in range(count)))
    task = make("aapd", tmp_path)
    assert task.classes == ("cs.cl", "cs.it", "cs.lg", "math.it", "stat.ml")
    assert sizes(task) == {"train": 12, "val": 3, "test": 6}
    novelty = make("aapd", tmp_path, setting="novelty")
    assert novelty.classes == ("cs.cl", "cs.lg", "stat.ml")
    assert sizes(novelty) == {"train": 8, "val": 2, "test": 4, "novel": 2}
    assert any("no training document carries, left out: math.it" in note for note in novelty.notes)
    put(tmp_path / "AAPD" / "label_val", "cs.LG\n")
    with pytest.raises(BadFile, match="text_val has 3 lines, label_val 1"):
        make("aapd", tmp_path)


def test_aapd_without_training_texts_is_refused_with_advice(tmp_path: Path) -> None:
    put(tmp_path / "aapd_val_test.jsonl", json.dumps({"split": "val", "text": "a", "labels": ["cs.LG"]}))
    with pytest.raises(DataMissing, match=r"without the training texts.*Place text_train, label_train.*lancopku/SGM"):
        make("aapd", tmp_path)


def test_aapd_lacks_its_training_texts(real: Path) -> None:
    needs(real, "aapd_val_test.jsonl.gz")
    with pytest.raises(DataMissing, match="without the training texts"):
        make_real("aapd", real)
