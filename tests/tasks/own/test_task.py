from __future__ import annotations

import csv
import itertools
import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dubio.core.errors import BadFile, UnknownName, UserError
from dubio.core.registry import TASKS
from dubio.core.types import Task

TOPICS = ("art", "news", "sport", "tech")


def write(path: Path, rows: Sequence[Mapping[str, Any]]) -> str:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    return str(path)


def rows(count: int = 120, seed: int = 0) -> list[dict[str, Any]]:
    rng = np.random.default_rng(seed)
    return [
        {
            "body": " ".join(rng.choice(list("abcdefghijklmnopqrstuvwxyz"), 12)),
            "topic": TOPICS[i % 4],
            "patient": f"p{rng.integers(0, 40)}",
            "day": f"2024-{1 + i // 28:02d}-{1 + i % 28:02d}",
            "site": "north" if i % 3 else "south",
            "width": i / 7,
            "height": "" if i % 10 == 0 else -i,
        }
        for i in range(count)
    ]


@pytest.fixture
def path(tmp_path: Path) -> str:
    return write(tmp_path / "my.csv", rows())


def own(**arguments: Any) -> Task:
    task: Task = TASKS.make("own", **arguments)
    return task


def groups(task: Task, *kinds: Any) -> set[str]:
    return {str(name) for split in task.of_kind(*kinds) for name in split.data.group}


def test_texts_are_split_stratified_and_every_row_is_used_once(path: str) -> None:
    task = own(data=path, text="body", label="topic")
    assert (task.inputs, task.target, task.classes) == ("text", "multiclass", TOPICS)
    assert [(split.name, split.kind, len(split)) for split in task.splits] == [
        ("train", "train", 72),
        ("val", "val", 12),
        ("cal", "cal", 18),
        ("test", "id", 18),
    ]
    assert np.bincount(task.split("train").data.labels).tolist() == [18] * 4
    numbers = sorted(int(name) for split in task.splits for name in split.data.ids)
    assert numbers == list(range(2, 122))
    data, truth = task.split("test").data, rows()
    for text, label, name in zip(data.inputs, data.labels, data.ids, strict=True):
        assert text == truth[int(name) - 2]["body"]
        assert TOPICS[label] == truth[int(name) - 2]["topic"]


def test_the_path_is_not_part_of_the_data(path: str, tmp_path: Path) -> None:
    other = write(tmp_path / "elsewhere.csv", rows())
    prints = [[s.fingerprint for s in own(data=p, text="body", label="topic").splits] for p in (path, other)]
    assert prints[0] == prints[1]


def test_features_may_be_all_columns_without_another_use(path: str) -> None:
    task = own(data=path, features=["width", "height"], label="topic")
    assert task.inputs == "table"
    assert task.split("train").data.inputs.shape == (72, 2)
    assert sum(int(np.isnan(split.data.inputs).sum()) for split in task.splits) == 12
    with pytest.raises(UserError, match="row 2, column 'body' must be a number"):
        own(data=path, features=["*"], label="topic")
    with pytest.raises(UserError, match="label column"):
        own(data=path, features=["width", "topic"], label="topic")


@given(st.integers(0, 10_000))
@settings(max_examples=15)
def test_groups_are_never_torn_whatever_else_is_wished(tmp_path_factory: pytest.TempPathFactory, seed: int) -> None:
    data = write(tmp_path_factory.mktemp("own") / "my.csv", rows(160, seed))
    task = own(data=data, text="body", label="topic", group="patient", novel=["auto"], split_seed=seed)
    named = [groups(task, split.kind) for split in task.splits if split.kind != "ood"]
    for index, one in enumerate(named):
        for other in named[index + 1 :]:
            assert not one & other
    assert not groups(task, "ood") & groups(task, "train", "val", "cal")


def test_time_goes_from_train_to_test(path: str) -> None:
    task = own(data=path, text="body", label="topic", time="day")
    order = [sorted(int(name) for name in split.data.ids) for split in task.splits]
    assert [number for part in order for number in part] == list(range(2, 122))  # rows are written in order of time


def test_a_class_that_comes_up_after_training_is_its_own_split(tmp_path: Path) -> None:
    late = rows()
    for row in late[80:]:
        row["topic"] = "crime" if row["topic"] == "art" else row["topic"]
    task = own(data=write(tmp_path / "t.csv", late), text="body", label="topic", time="day")
    assert task.classes == TOPICS
    unseen = task.split("unseen")
    assert unseen.kind == "ood"
    assert (unseen.data.labels == -1).all()
    assert any("training lacks" in note for note in task.notes)
    assert not any((split.data.labels == -1).any() for split in task.of_kind("train", "val", "cal", "id"))


def test_novel_classes_never_reach_training(path: str) -> None:
    task = own(data=path, text="body", label="topic", novel=["sport"])
    assert task.classes == ("art", "news", "tech")
    truth = rows()
    for split in task.splits:
        topics = {truth[int(name) - 2]["topic"] for name in split.data.ids}
        assert topics == ({"sport"} if split.kind == "ood" else {"art", "news", "tech"})
    assert len(task.split("novel")) == 30


def test_many_labels_a_row_every_row_with_a_novel_label_is_dropped(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    lines = [
        {"text": f"text {i} {rng.random()}", "labels": [t for t in TOPICS if rng.random() < 0.4]} for i in range(200)
    ]
    path = tmp_path / "many.jsonl"
    path.write_text("\n".join(json.dumps(line) for line in lines), encoding="utf-8")
    task = own(data=str(path), text="text", label="labels", novel=["news"])
    assert task.target == "multilabel"
    for split in task.splits:
        for labels, name in zip(split.data.labels, split.data.ids, strict=True):
            truth = lines[int(name) - 1]["labels"]
            assert ("news" in truth) == (split.kind == "ood")
            assert [task.classes[k] for k in np.flatnonzero(labels)] == [t for t in truth if t != "news"]
    assert any("without any label" in note for note in task.notes)


def test_labels_with_a_separator(tmp_path: Path) -> None:
    data = write(tmp_path / "t.csv", [{"x": i, "y": "a;b" if i % 2 else "b"} for i in range(40)])
    task = own(data=data, features=["x"], label="y", label_separator=";")
    assert (task.target, task.classes) == ("multilabel", ("a", "b"))
    with pytest.raises(UserError, match="row 3 has 2"):
        own(data=data, features=["x"], label="y", label_separator=";", target="multiclass")


def test_other_domains_are_shifts(path: str) -> None:
    task = own(data=path, text="body", label="topic", domain="site", train_domain="north")
    truth = rows()
    assert task.split("south").kind == "shift"
    for split in task.splits:
        sites = {truth[int(name) - 2]["site"] for name in split.data.ids}
        assert sites == ({"south"} if split.name == "south" else {"north"})
    with pytest.raises(UserError, match="needs train_domain: one of north, south"):
        own(data=path, text="body", label="topic", domain="site")
    with pytest.raises(UserError, match="needs domain"):
        own(data=path, text="body", label="topic", train_domain="north")


def test_domains_become_names_fit_for_files(tmp_path: Path) -> None:
    content = [row | {"site": ("a/b", "a b", "test", "home")[i // 30]} for i, row in enumerate(rows())]
    task = own(data=write(tmp_path / "t.csv", content), text="body", label="topic", domain="site", train_domain="home")
    assert [split.name for split in task.of_kind("shift")] == ["a-b", "a-b-2", "domain-test"]


def test_a_domain_that_is_a_number_says_so(tmp_path: Path) -> None:
    content = [row | {"good": i // 60} for i, row in enumerate(rows())]
    task = own(data=write(tmp_path / "t.csv", content), text="body", label="topic", domain="good", train_domain="1")
    assert [split.name for split in task.of_kind("shift")] == ["domain-0"]


def test_a_message_lists_the_first_of_many_domains(tmp_path: Path) -> None:
    path = write(tmp_path / "t.csv", [row | {"who": f"p{i:03}"} for i, row in enumerate(rows())])
    with pytest.raises(UserError, match=r"one of p000, p001, .*p039 and 80 more\.$"):
        own(data=path, text="body", label="topic", domain="who")
    with pytest.raises(UserError, match=r"Did you mean 'p119'\? Known: p000, .*p039 and 80 more\.$"):
        own(data=path, text="body", label="topic", domain="who", train_domain="p1190")


def test_classes_come_in_one_order_whatever_a_set_does(tmp_path: Path) -> None:
    labels = ["nan", "3", "1", "2.0", "2", "inf"]
    table = [{"x": i, "grade": labels[i % 6]} for i in range(60)]
    path = write(tmp_path / "g.csv", table)
    code = f"from dubio.tasks.own.task import own; print(own(data={path!r}, features=('x',), label='grade').classes)"
    found = {
        subprocess.run(
            [sys.executable, "-c", code], env={**os.environ, "PYTHONHASHSEED": seed}, capture_output=True, text=True
        ).stdout
        for seed in "12345678"
    }
    assert len(found) == 1
    assert "nan" in found.pop()


def test_given_parts_are_kept_and_missing_ones_cut_out_of_training(tmp_path: Path) -> None:
    content = [row | {"part": "test" if i >= 90 else "train"} for i, row in enumerate(rows())]
    content[80:90] = [row | {"part": "ood-far", "topic": "far"} for row in content[80:90]]
    task = own(data=write(tmp_path / "t.csv", content), text="body", label="topic", split="part")
    assert sorted(int(name) - 2 for name in task.split("test").data.ids) == list(range(90, 120))
    assert sorted(int(name) - 2 for name in task.split("ood-far").data.ids) == list(range(80, 90))
    assert task.split("ood-far").kind == "ood"
    assert task.classes == TOPICS
    sizes = [len(task.split(name)) for name in ("train", "val", "cal")]
    assert sum(sizes) == 80
    assert sizes[1:] == pytest.approx([8, 12], abs=2)
    assert any(note.startswith("Cut out of the named training rows") for note in task.notes)
    content[0]["part"] = "trian"
    with pytest.raises(UnknownName, match=r"part in row 2 'trian'\. Did you mean 'train'"):
        own(data=write(tmp_path / "u.csv", content), text="body", label="topic", split="part")


def test_ordinal_classes_keep_their_order(path: str, tmp_path: Path) -> None:
    task = own(data=path, text="body", label="topic", order=["tech", "art", "sport", "news"])
    assert (task.target, task.classes) == ("ordinal", ("tech", "art", "sport", "news"))
    with pytest.raises(UserError, match=r"order must name every class; it lacks tech \(given: art, sport, news\)"):
        own(data=path, text="body", label="topic", order=["art", "sport", "news"])
    grades = write(tmp_path / "g.csv", [{"x": i, "grade": (2, 10, 1)[i % 3]} for i in range(60)])
    assert own(data=grades, features=["x"], label="grade", target="ordinal").classes == ("1", "2", "10")


def test_empty_texts_are_left_out_and_named(tmp_path: Path) -> None:
    content = rows()
    content[3]["body"], content[7]["body"] = "", "  "
    content[7]["topic"] = ""  # nothing is asked of a row that is left out
    task = own(data=write(tmp_path / "t.csv", content), text="body", label="topic")
    assert "Left out, because the text is empty: 2 rows (row 5, row 9)." in task.notes
    assert sum(len(split) for split in task.splits) == 118
    with pytest.raises(UserError, match="all 120 texts are empty"):
        own(data=write(tmp_path / "u.csv", [row | {"body": ""} for row in content]), text="body", label="topic")


def test_one_class_and_one_row_of_a_class_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="at least two classes; the data has 1: art"):
        own(data=write(tmp_path / "t.csv", [r | {"topic": "art"} for r in rows()]), text="body", label="topic")
    content = rows()
    content[10]["topic"] = "crime"
    lonely = write(tmp_path / "u.csv", content)
    with pytest.raises(UserError, match="class 'crime' has one row, row 12; a class needs at least two"):
        own(data=lonely, text="body", label="topic")
    assert "crime" not in own(data=lonely, text="body", label="topic", novel=["crime"]).classes


def test_what_is_not_said_is_asked_for(path: str) -> None:
    with pytest.raises(UserError, match=r"label must name the column of classes; my\.csv has the columns body, topic"):
        own(data=path, text="body")
    with pytest.raises(UserError, match="neither is given"):
        own(data=path, label="topic")
    with pytest.raises(UserError, match="both are given"):
        own(data=path, label="topic", text="body", features=["width"])
    with pytest.raises(UnknownName, match="Did you mean 'topic'"):
        own(data=path, label="topics", text="body")
    with pytest.raises(UserError, match="size is for images"):
        own(data=path, label="topic", text="body", size=8)
    with pytest.raises(BadFile, match="no such file or folder"):
        own(data=path + "x", label="topic", text="body")
    with pytest.raises(UserError, match="needs the argument 'data'"):
        own(label="topic")


def test_rows_that_splits_share_are_noted(tmp_path: Path) -> None:
    content = rows(60) + [row | {"body": row["body"].upper()} for row in rows(60)]
    task = own(data=write(tmp_path / "t.csv", content), text="body", label="topic")
    assert any(note.startswith("Rows of test that are also in train") for note in task.notes)


def test_real_data(data_dir: Path) -> None:
    task = own(data=str(data_dir / "reuters90.jsonl.gz"), text="text", label="labels", split="split", novel=["acq"])
    assert (task.target, len(task.classes)) == ("multilabel", 89)
    assert len(task.split("novel")) == 1650 + 719  # documents of topic acq in ApteMod, for training and for test
    drid = own(data=str(data_dir / "deepdrid_64.npz"), group="patient", id="id", target="ordinal", size=16)
    assert drid.classes == ("0", "1", "2", "3", "4")
    assert drid.split("train").data.inputs.shape[1:] == (16, 16, 3)
    assert not groups(drid, "train", "val", "cal") & groups(drid, "id")


def test_an_unknown_target_is_answered_with_the_known_ones(path: str) -> None:
    with pytest.raises(UserError, match=r"target.*'multiclass', 'multilabel', 'ordinal'.*several"):
        own(data=path, text="body", label="topic", target="several")


def test_shifts_that_the_data_numbers_are_severities_of_a_family(tmp_path: Path) -> None:
    parts = ["train"] * 60 + ["test"] * 20 + ["shift-noise-1"] * 10 + ["shift-noise-2"] * 10
    content = [row | {"part": part} for row, part in zip(rows(), parts + ["shift-far"] * 20, strict=True)]
    task = own(data=write(tmp_path / "t.csv", content), text="body", label="topic", split="part")
    levels = {split.name: (split.family, split.severity) for split in task.of_kind("shift")}
    assert levels == {
        "shift-noise-1": ("shift-noise", 1),
        "shift-noise-2": ("shift-noise", 2),
        "shift-far": (None, None),
    }


def test_rows_of_a_novel_class_are_novel_examples_whatever_part_the_data_names(tmp_path: Path) -> None:
    """Those that the data names for training or validation vanished, without a word."""
    parts = ("train", "train", "train", "val", "test")
    data = [{**row, "part": parts[i // 4 % 5]} for i, row in enumerate(rows(200))]
    task = own(data=write(tmp_path / "t.csv", data), text="body", label="topic", split="part", novel=["sport"])
    assert len(task.split("novel")) == 50
    assert (task.rows, task.left_out) == (200, {})
    assert task.account == "Of 200 rows read: train 77, val 30, cal 13, test 30, novel 50."


OPTIONS: dict[str, Any] = {
    "group": [None, "patient"],
    "time": [None, "day"],
    "split": [None, "part"],
    "novel": [(), ("auto",), ("sport",)],
    "train_domain": [None, "north"],
}


@pytest.mark.parametrize("choices", list(itertools.product(*OPTIONS.values())))
def test_every_row_read_is_in_one_split_or_counted(tmp_path: Path, choices: tuple[Any, ...]) -> None:
    """Duplicates, empty texts, rare classes and classes that training lacks, under every combination of options."""
    rng = np.random.default_rng(len(str(choices)))
    data = rows(240)
    for i, row in enumerate(data):
        row["part"] = str(
            rng.choice(["train", "train", "train", "dev", "cal", "test", "test", "ood-far", "shift-near"])
        )
        row["body"] = " " if i % 31 == 0 else data[i - 1]["body"] if i % 17 == 0 else row["body"]
        row["patient"] = f"p{i % 111}" if i not in (3, 237) else "alone"
        row["topic"] = "rare" if i in (3, 237) else "late" if i > 200 and i % 4 == 0 else row["topic"]
    arguments = {name: value for name, value in zip(OPTIONS, choices, strict=True) if value}
    if "train_domain" in arguments:
        arguments["domain"] = "site"
    task = own(data=write(tmp_path / "t.csv", data), text="body", label="topic", **arguments)
    used = [name for split in task.splits for name in split.data.ids.tolist()]
    assert len(set(used)) == len(used)
    assert task.rows == 240
    assert len(used) + sum(task.left_out.values()) == 240
    assert task.left_out["because the text is empty"] == 9  # with a copy of one of them


def test_a_missing_label_is_refused_by_its_row_not_left_out(tmp_path: Path) -> None:
    data = [{**row, "topic": "" if i == 7 else row["topic"]} for i, row in enumerate(rows())]
    with pytest.raises(UserError, match="row 9"):
        own(data=write(tmp_path / "t.csv", data), text="body", label="topic")


def test_columns_that_look_like_groups_times_or_domains_are_named_with_their_options(path: str) -> None:
    notes = " ".join(own(data=path, text="body", label="topic").notes)
    assert "Column 'patient' is not used; rows of one group stay together with --group patient." in notes
    assert "--time day" in notes
    assert "--domain site and --train-domain" in notes
    assert "width" not in notes
    used = own(data=path, text="body", label="topic", group="patient", time="day", domain="site", train_domain="north")
    assert not any(note.startswith("Column") for note in used.notes)


def test_a_number_of_patients_that_a_star_takes_for_a_feature_is_named(tmp_path: Path) -> None:
    data = [{"x": i, "patient_id": i // 4, "y": "ab"[i % 2]} for i in range(80)]
    task = own(data=write(tmp_path / "t.csv", data), features=["*"], label="y")
    assert any(note.startswith("Column 'patient_id' is used as a feature") for note in task.notes)


def test_an_id_that_a_star_takes_for_a_feature_is_named(tmp_path: Path) -> None:
    data = [{"x": i % 7, "row_id": i, "width": i % 5, "y": "ab"[i % 2]} for i in range(80)]
    path = write(tmp_path / "t.csv", data)
    notes = [note for note in own(data=path, features=["*"], label="y").notes if note.startswith("Column")]
    assert notes == ["Column 'row_id' is used as a feature; it names rows with --id row_id."]
    assert not any(note.startswith("Column") for note in own(data=path, features=["*"], label="y", id="row_id").notes)
