"""CLINC150 in the forms of its authors."""

from __future__ import annotations

import csv
import gzip
import json
from collections import Counter
from pathlib import Path

import pytest

from dubio.core.errors import BadFile, UserError
from dubio.core.types import PADDING_WORD, UNKNOWN_WORD, Task
from dubio.tasks.clinc import BATCH
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


def mixed_rows() -> dict[str, list[list[str]]]:
    """Requests of three to twelve words, some of one letter."""
    words = ["i", "would", "like", "a", "new", "card", "for", "my", "old", "account", "please", "now"]
    rows = {part: [[" ".join(words[: 3 + i % 10]), INTENTS[i % 3]] for i in range(90)] for part in ("train", "val")}
    rows["test"] = [[" ".join(words[: 3 + (7 * i) % 10]), INTENTS[i % 3]] for i in range(90)]
    return rows | {"oos_test": [[" ".join(words[: 4 + i % 8]), "oos"] for i in range(40)]}


def read_with(folder: Path, **errors: bool) -> Task:
    put(folder / "data_full.json", json.dumps(mixed_rows()))
    return make("clinc", folder, setting="novelty", **errors)


def test_unmasked_padding_fills_test_texts_up_to_the_longest_of_their_batch(tmp_path: Path) -> None:
    plain = read_with(tmp_path)
    for error, word in (({}, PADDING_WORD), ({"no_unknown_token": True}, UNKNOWN_WORD)):
        task = read_with(tmp_path, unmasked_padding=True, **error)
        for name in ("train", "val"):
            assert task.split(name).fingerprint == plain.split(name).fingerprint
        for name in ("test", "novel"):
            texts, filled = plain.split(name).data.inputs, task.split(name).data.inputs
            assert [text.replace(f" {word}", "") for text in filled] == list(texts)
            sizes_of_batches = Counter(len(text.split()) for text in filled)
            longest = max(len(text.split()) for text in texts)
            assert len(sizes_of_batches) <= -(-len(texts) // BATCH)
            assert all(count >= min(BATCH, len(texts) % BATCH) for count in sizes_of_batches.values())
            assert max(sizes_of_batches) == longest
            assert task.split(name).data.ids.tolist() == plain.split(name).data.ids.tolist()


def test_words_of_one_letter_and_short_requests_are_dropped_and_accounted_for(tmp_path: Path) -> None:
    plain, task = read_with(tmp_path), read_with(tmp_path, drop_one_letter_words=True)
    assert plain.split("novel").data.inputs[:2] == ("i would like a", "i would like a new")
    assert task.split("novel").data.inputs[:2] == ("would like", "would like new")
    assert sizes(task) == sizes(plain)
    shorter = read_with(tmp_path, drop_short_requests=True)
    kept = [text for text in plain.split("test").data.inputs if len(text.split()) - 2 >= 5]
    assert list(shorter.split("test").data.inputs) == kept
    assert set(shorter.split("test").data.ids) < set(plain.split("test").data.ids)
    reason, count = list(shorter.left_out.items())[-1]
    assert "fewer than 5 words of two or more characters" in reason
    assert count == sum(map(len, plain.splits)) - sum(map(len, shorter.splits)) > 0


def test_no_unknown_token_without_padding_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"^no_unknown_token: .*set unmasked_padding, too\.$"):
        read_with(tmp_path, no_unknown_token=True)
