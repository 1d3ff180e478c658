"""Rows of an earlier model stay in their parts, whatever comes with them."""

from __future__ import annotations

import csv

import numpy as np
import pytest

from dubio.core.errors import BadFile, UserError
from dubio.tasks.own.earlier_parts import read_earlier_parts, write_parts
from dubio.tasks.own.task import own
from dubio.tasks.splitting import PARTS

NAMES = ("first", "second", "patient", "class")


def numbers(count, seed, patients="p"):
    rng = np.random.default_rng(seed)
    values = rng.normal(size=(count, 2)).round(6)
    return [[*row, f"{patients}{k // 2}", "yes" if row[0] > 0 else "no"] for k, row in enumerate(values.tolist())]


def write(path, rows):
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([NAMES, *rows])
    return str(path)


def task_of(path, **options):
    return own(data=path, features=("first", "second"), label="class", **options)


def parts_of(task):
    return {tuple(row): split.name for split in task.splits if split.name in PARTS
            for row in np.asarray(split.data.inputs[:]).tolist()}  # fmt: skip


def test_rows_stay_where_they_were_and_new_ones_are_divided_by_the_shares(tmp_path):
    earlier = task_of(write(tmp_path / "old.csv", numbers(200, 0)))
    write_parts(tmp_path / "parts.npz", earlier)
    rows = numbers(200, 0) + numbers(400, 1)
    np.random.default_rng(2).shuffle(rows)
    more = write(tmp_path / "more.csv", rows)
    later = task_of(more, parts=str(tmp_path / "parts.npz"))
    before, after = parts_of(earlier), parts_of(later)
    assert {row: after[row] for row in before} == before
    assert parts_of(task_of(more)) != after  # divided anew, rows would change their parts
    new = [name for row, name in after.items() if row not in before]
    assert {name: new.count(name) for name in PARTS} == pytest.approx(
        dict(zip(PARTS, (240, 40, 60, 60), strict=True)), abs=2
    )
    assert any("200 rows of the earlier model" in note and "400 new rows" in note for note in later.notes)


def test_new_rows_of_an_earlier_group_go_where_the_group_is(tmp_path):
    earlier = task_of(write(tmp_path / "old.csv", numbers(200, 0)), group="patient")
    write_parts(tmp_path / "parts.npz", earlier)
    more = write(tmp_path / "more.csv", numbers(200, 0) + numbers(300, 1))  # the same patients, and fifty others
    later = task_of(more, group="patient", parts=str(tmp_path / "parts.npz"))
    groups = {split.name: set(split.data.group.tolist()) for split in later.splits}
    assert sum(map(len, groups.values())) == 150
    for split in earlier.splits:
        assert set(split.data.group.tolist()) <= groups[split.name]


def test_a_corrected_label_a_removed_row_and_a_single_new_row_change_no_part(tmp_path):
    rows = numbers(200, 0)
    earlier = task_of(write(tmp_path / "old.csv", rows))
    write_parts(tmp_path / "parts.npz", earlier)
    rows[5][3] = "no" if rows[5][3] == "yes" else "yes"
    later = task_of(write(tmp_path / "more.csv", rows[1:] + numbers(1, 1)), parts=str(tmp_path / "parts.npz"))
    before, after = parts_of(earlier), parts_of(later)
    assert {row: after[row] for row in before if row in after} == {row: before[row] for row in before if row in after}
    assert len(after) == 200
    assert any("Earlier rows that are not in the data: 1." in note for note in later.notes)


def test_equal_rows_in_several_parts_are_test_rows(tmp_path):
    digests = np.zeros((3, 32), dtype=np.uint8)
    np.savez(tmp_path / "parts.npz", digests=digests, parts=np.array([3, 0, 1], dtype=np.uint8))
    assert read_earlier_parts(tmp_path / "parts.npz") == {bytes(32): PARTS.index("test")}


def test_data_without_any_earlier_row_are_refused(tmp_path):
    write_parts(tmp_path / "parts.npz", task_of(write(tmp_path / "old.csv", numbers(200, 0))))
    with pytest.raises(UserError, match="none of the 200 rows of the earlier model is in the data"):
        task_of(write(tmp_path / "other.csv", numbers(200, 1)), parts=str(tmp_path / "parts.npz"))


@pytest.mark.parametrize(
    "arrays",
    [
        {},
        {"digests": np.zeros((2, 31), np.uint8), "parts": np.zeros(2, np.uint8)},
        {"digests": np.zeros((2, 32), np.uint8), "parts": np.zeros(3, np.uint8)},
        {"digests": np.zeros((2, 32), np.uint8), "parts": np.full(2, 4, np.uint8)},
        {"digests": np.zeros((2, 32), np.float32), "parts": np.zeros(2, np.uint8)},
        {"digests": np.zeros((2, 32), np.uint8), "parts": np.zeros((), np.uint8)},
    ],
)
def test_another_file_is_refused(tmp_path, arrays):
    np.savez(tmp_path / "parts.npz", **arrays)
    with pytest.raises(BadFile, match="is not a file of parts"):
        read_earlier_parts(tmp_path / "parts.npz")


def classed(count, seed, classes):
    return [[*row[:2], "p", classes[k % len(classes)]] for k, row in enumerate(numbers(count, seed))]


def test_classes_that_were_chosen_to_be_held_out_are_held_out_again(tmp_path):
    old = classed(300, 0, "bcdefg")
    earlier = task_of(write(tmp_path / "old.csv", old), novel=("auto",))
    (chosen,) = earlier.novel
    write_parts(tmp_path / "parts.npz", earlier)
    more = write(tmp_path / "more.csv", old + classed(400, 1, ["a", "h", "i", "j", *chosen]))
    parts = str(tmp_path / "parts.npz")
    later = task_of(more, novel=("auto",), parts=parts)
    assert later.novel == (chosen,) != task_of(more, novel=("auto",)).novel  # chosen anew, they would be others
    assert chosen not in later.classes
    assert len(later.split("novel")) == sum(row[3] == chosen for row in old) + 80
    assert "The classes held out of training are those of the earlier model." in later.notes
    assert task_of(more, novel=("a",), parts=parts).novel == ("a",)  # a name is a name

    gone = write(tmp_path / "gone.csv", [row for row in old if row[3] != chosen])
    without = task_of(gone, novel=("auto",), parts=parts)
    assert without.novel == ()
    assert any(f"Not in these data: {chosen}." in note for note in without.notes)


def test_files_of_parts_that_do_not_name_held_out_classes_are_read(tmp_path):
    old = classed(300, 0, "bcdefg")
    earlier = task_of(write(tmp_path / "old.csv", old), novel=("auto",))
    write_parts(tmp_path / "parts.npz", earlier)
    arrays = dict(np.load(tmp_path / "parts.npz"))
    del arrays["novel"]
    np.savez(tmp_path / "older.npz", **arrays)
    later = task_of(str(tmp_path / "old.csv"), novel=("auto",), parts=str(tmp_path / "older.npz"))
    assert later.novel == earlier.novel
    assert any("chosen anew" in note for note in later.notes)
    np.savez(tmp_path / "wrong.npz", **arrays, novel=np.zeros((2, 2)))
    with pytest.raises(BadFile, match="not a file of parts"):
        task_of(str(tmp_path / "old.csv"), novel=("auto",), parts=str(tmp_path / "wrong.npz"))
