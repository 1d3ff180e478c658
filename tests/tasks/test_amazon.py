"""Amazon reviews of four domains."""

from __future__ import annotations

from pathlib import Path

import pytest

from dubio.core.errors import BadFile, UserError
from dubio.tasks import amazon
from tests.tasks.helpers import make, make_real, needs, put, sizes

pytestmark = pytest.mark.usefixtures("no_other_data")


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


def test_the_seed_changes_only_what_is_cut(tmp_path: Path) -> None:
    reviews(tmp_path)
    one, other = make("amazon", tmp_path), make("amazon", tmp_path, split_seed=1)
    assert one.split("train").fingerprint != other.split("train").fingerprint
    assert one.split("dvd").fingerprint == other.split("dvd").fingerprint


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
