from __future__ import annotations

import gzip
import json
from pathlib import Path

import numpy as np
import pytest

from dubio.core.errors import BadFile, UnknownName, UserError
from dubio.tables import Table, read_table
from dubio.tasks.own.reading import label_lists, times, unique_names


def write(tmp_path: Path, name: str, content: str | bytes) -> Path:
    path = tmp_path / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def table(**values: list[object]) -> Table:
    length = len(next(iter(values.values())))
    return Table(Path("t.csv"), dict(values), np.arange(2, length + 2))


def test_the_same_rows_from_every_sort_of_file(tmp_path: Path) -> None:
    arrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    rows = {"body": ["a, b", "line\nbreak", 'a "quote"'], "topic": ["x", "y", "x"]}
    quoted = 'body,topic\n"a, b",x\n"line\nbreak",y\n"a ""quote""",x\n'
    lines = "".join(json.dumps({"body": b, "topic": t}) + "\n" for b, t in zip(*rows.values(), strict=True))
    parquet.write_table(arrow.table(rows), tmp_path / "t.parquet")
    paths = [
        write(tmp_path, "t.csv", quoted),
        write(tmp_path, "windows.csv", quoted.replace("\n", "\r\n").replace("line\r\nbreak", "line\nbreak")),
        write(tmp_path, "mark.csv", "\ufeff" + quoted),
        write(tmp_path, "semicolon.csv", quoted.replace("body,topic", "body;topic").replace('",', '";')),
        write(tmp_path, "t.tsv", quoted.replace("body,topic", "body\ttopic").replace('",', '"\t')),
        write(tmp_path, "t.csv.gz", gzip.compress(quoted.encode())),
        write(tmp_path, "t.jsonl", lines),
        write(tmp_path, "t.jsonl.gz", gzip.compress(("\ufeff" + lines).encode())),
        tmp_path / "t.parquet",
    ]
    for path in paths:
        assert read_table(path).columns == rows, path.name


def test_only_the_ending_makes_tabs_the_separator(tmp_path: Path) -> None:
    for name in ("of.tsv.csv", "model.tsv-2.csv.gz", "plain.CSV"):
        content = b"a,b\n1,2\n"
        (tmp_path / name).write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
        assert list(read_table(tmp_path / name).columns) == ["a", "b"]
    for name in ("of.csv.tsv", "b.TSV.gz"):
        content = b"a,b\tc\n1\t2\n"
        (tmp_path / name).write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
        assert list(read_table(tmp_path / name).columns) == ["a,b", "c"]


def test_rows_are_counted_as_in_a_spreadsheet(tmp_path: Path) -> None:
    found = read_table(write(tmp_path, "t.csv", 'a,b\n1,2\n\n"x\ny",3\n'))
    assert found.row_numbers.tolist() == [2, 4]
    assert found.references[1] == "row 4"
    assert read_table(write(tmp_path, "t.jsonl", '\n{"a": 1}\n')).references[0] == "line 2"


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("ragged.csv", "a,b\n1,2\n1,2,3\n", "line 3 has 3 fields, the header has 2"),
        ("short.csv", "a,b\n1\n", "line 2 has 1 fields"),
        ("open.csv", 'a,b\n"1,2\n', "quote"),
        ("twice.csv", "a,a\n1,2\n", "'a' twice"),
        ("empty.csv", "", "no rows"),
        ("header.csv", "a,b\n", "no rows"),
        ("latin.csv", "a,b\n1,caf\xe9\n".encode("latin-1"), "not UTF-8: byte 0xe9 in line 2"),
        ("bad.jsonl", '{"a": 1}\n{"a": \n', "line 2 is not JSON"),
        ("list.jsonl", "[1, 2]\n", "line 1 is not a JSON object"),
        ("cut.csv.gz", gzip.compress(b"a,b\n1,2\n" * 100, mtime=0)[:-20], "cannot be unpacked"),
        ("not.csv.gz", b"a,b\n1,2\n", "cannot be unpacked"),
        ("bad.parquet", b"nothing", "is not a readable Parquet file"),
        ("t.xlsx", b"", "unknown ending"),
    ],
)
def test_a_bad_file_is_refused_with_its_place(tmp_path: Path, name: str, content: str | bytes, message: str) -> None:
    with pytest.raises(BadFile, match=message):
        read_table(write(tmp_path, name, content))


def test_a_missing_file_and_a_missing_column_are_named(tmp_path: Path) -> None:
    with pytest.raises(BadFile, match="no such file"):
        read_table(tmp_path / "none.csv")
    with pytest.raises(UnknownName, match=r"column for text in t\.csv: 'bodi'\. Did you mean 'body'"):
        table(body=["x"], topic=["y"]).texts("bodi")


def test_labels_are_names_without_decoration() -> None:
    found, listed = label_lists(table(y=[" a ", 1, 2.0, True]), "y", None)
    assert found == [("a",), ("1",), ("2",), ("True",)]
    assert not listed
    found, listed = label_lists(table(y=["a|b", "", "b | b"]), "y", "|")
    assert found == [("a", "b"), (), ("b",)]
    assert listed
    found, listed = label_lists(table(y=[["a", "b c"], "one two", []]), "y", None)
    assert found == [("a", "b c"), ("one two",), ()]
    assert listed
    with pytest.raises(UserError, match="label is empty in row 3"):
        label_lists(table(y=["a", None]), "y", None)


def test_numbers_may_be_missing_but_not_words() -> None:
    found = table(a=["1", " 2.5e1 ", "", "NA", None], b=[1, 2, 3, 4, float("nan")]).features(["a", "b"])
    np.testing.assert_array_equal(found[:, 0], [1, 25, np.nan, np.nan, np.nan])
    np.testing.assert_array_equal(found[:, 1], [1, 2, 3, 4, np.nan])
    for bad in ("12 kg", "inf", [1]):
        with pytest.raises(UserError, match=r"row 3, column 'a'.* must be a"):
            table(a=["1", bad]).features(["a"])


def test_times_are_numbers_or_iso_dates() -> None:
    dates = times(table(t=["2024-05-31", "2024-05-31T09:30", "2024-05-31T00:00+02:00", "2023-12-31"]), "t")
    assert np.argsort(dates).tolist() == [3, 2, 0, 1]
    assert dates[1] - dates[0] == 9.5 * 3600
    assert times(table(t=["3", 1.5]), "t").tolist() == [3.0, 1.5]
    with pytest.raises(UserError, match="row 3 is '31/05/2024'"):
        times(table(t=["2024-05-31", "31/05/2024"]), "t")
    with pytest.raises(UserError, match="mixes numbers and dates"):
        times(table(t=["2024-05-31", "7"]), "t")


def test_ids_are_unique_and_names_not_missing() -> None:
    with pytest.raises(UserError, match="'7' twice: row 2 and row 4"):
        unique_names(table(k=[7, 8, 7.0]), "k")
    with pytest.raises(UserError, match="for group is empty in row 3"):
        table(g=["a", " "]).names("g", "group")
