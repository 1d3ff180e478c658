"""CSV files that a spreadsheet opens without running anything, and that dubio reads back exactly."""

from __future__ import annotations

import ast
import csv
import io
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import dubio
from dubio.core.csv_files import ESCAPE, MARK, CsvTable, restored
from dubio.statistics.result_files import read_results
from dubio.tables import read_table

DANGEROUS = "=+-@\t\r\n＝＋－＠"
TEXTS = st.text(
    st.one_of(st.sampled_from("=+-@'\"\t\r\n ,;a1＝－\ufeff\u200b\x00\x85\u2028"), st.characters(codec="utf-8"))
)
NUMBERS = st.one_of(st.none(), st.integers(), st.floats())


def read(text: str) -> list[list[str]]:
    return list(csv.reader(io.StringIO(text, newline=""), strict=True))


@st.composite
def tables(draw: st.DrawFn) -> CsvTable:
    width = draw(st.integers(1, 4))
    header = draw(st.lists(st.one_of(TEXTS, st.just(MARK)), min_size=width, max_size=width))
    row = st.lists(st.one_of(TEXTS, st.just(ESCAPE), NUMBERS), min_size=width, max_size=width)
    return CsvTable(header, draw(st.lists(row, max_size=5)))


@given(tables())
def test_what_is_read_back_is_what_was_written(table: CsvTable) -> None:
    texts = [list(table.header), *(["" if cell is None else str(cell) for cell in row] for row in table.rows)]
    assert restored(read(table.escaped())) == texts
    assert read(table.raw()) == texts  # also a bare carriage return, which Python's own writer lets end the row


@given(tables())
def test_no_text_cell_of_an_output_begins_like_a_formula(table: CsvTable) -> None:
    header, *rows = read(table.escaped())
    assert not any(name.lstrip(' "\ufeff\u200b\x00').startswith(tuple(DANGEROUS)) for name in header)
    for row, original in zip(rows, table.rows, strict=True):
        for cell, source in zip(row, original, strict=False):
            if isinstance(source, str):
                assert not cell.lstrip(' "\ufeff\u200b\x00').startswith(tuple(DANGEROUS))
            else:  # numbers stay numbers
                assert cell == ("" if source is None else str(source))


@pytest.mark.parametrize(
    "text",
    ["=1+1", "+1", "-1", "@SUM(A1)", "\t=1", "\r=1", "\n=1", "'", "' =1", " =1", '"=1', "\ufeff=1", "＝1", "\u3000－1"],
)
def test_each_way_to_begin_a_formula_is_escaped_and_marked(text: str) -> None:
    table = CsvTable(["class", text], [[text, -0.5]])
    assert read(table.escaped()) == [["class", f"'{text}", MARK], [f"'{text}", "-0.5", ESCAPE]]
    assert read(table.raw()) == [["class", text], [text, "-0.5"]]


def test_a_file_without_formulas_carries_no_mark_and_keeps_negative_numbers() -> None:
    assert (
        CsvTable(["id", "score"], [["a", -0.5], ["it's", -3], ["b", None]]).escaped()
        == "id,score\na,-0.5\nit's,-3\nb,\n"
    )


def test_rows_added_to_a_marked_file_by_hand_and_files_of_others_stay_as_they_are() -> None:
    marked = [["class", MARK], ["'=1", ESCAPE], ["'mine", ""], ["short"]]
    assert restored(marked) == [["class"], ["=1"], ["'mine"], ["short"]]
    others = [["class", "note"], ["'=1", ESCAPE], ["'mine", ""]]
    assert restored(others) == others
    assert restored([]) == []


HEADER = "task,split,kind,method,seed,member,metric,value\n"


def test_a_marked_table_of_results_gives_the_names_that_were_written(tmp_path: Path) -> None:
    rows = [[f"{d}", "test", "id", m, 0, None, "accuracy", v] for d, m, v in (("=d", "-m", 0.5), ("b", "'n", 0.25))]
    path = tmp_path / "results.csv"
    path.write_text(CsvTable(HEADER.strip().split(","), rows).escaped(), newline="")
    table = read_results(path)
    assert [(item.dataset, item.method, float(item.value)) for item in table.results] == [
        ("=d", "-m", 0.5),
        ("b", "'n", 0.25),
    ]
    assert not any(MARK in note for note in table.notes)


def test_a_table_of_version_0_1_or_of_a_user_is_read_as_it_stands(tmp_path: Path) -> None:
    path = tmp_path / "results.csv"
    path.write_text(HEADER + "'d,test,id,'=m,0,,accuracy,0.5\n'd,test,id,-n,0,,accuracy,-0.25\n")
    assert [(item.dataset, item.method) for item in read_results(path).results] == [("'d", "'=m"), ("'d", "-n")]


def test_a_marked_table_of_data_gives_the_cells_that_were_written(tmp_path: Path) -> None:
    """The reader of tables undoes it too, before it looks for numbers; with enough rows for more than one batch."""
    path, count = tmp_path / "decisions.csv", 3000
    rows = [[f"={n}", f"-{n}", "'kept", -0.5, "plain"] for n in range(count)]
    path.write_text(CsvTable(["id", "-1", "'note", "score", "=text"], rows).escaped(), "utf-8", newline="")
    table = read_table(path, lambda head: ["-1", "score"])
    assert list(table.columns) == ["id", "-1", "'note", "score", "=text"]
    assert table.columns["id"] == [f"={n}" for n in range(count)]
    assert [float(cell) for cell in table.columns["-1"]] == [-n for n in range(count)]
    assert set(table.columns["'note"]) == {"'kept"}
    assert {float(cell) for cell in table.columns["score"]} == {-0.5}
    path.write_text("id,note\n'a,'=b\n", "utf-8")
    assert read_table(path).columns == {"id": ["'a"], "note": ["'=b"]}  # a table of somebody else


def test_nothing_else_writes_csv() -> None:
    """Every table goes through the one writer; a second one would have to escape again."""
    writers = {"writer", "DictWriter", "to_csv", "savetxt"}
    calls = [
        f"{path.name}:{node.lineno}"
        for path in Path(dubio.__file__).parent.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in writers
        and not (node.func.attr == "to_csv" and "applied" in ast.unparse(node.func.value))
    ]  # fmt: skip
    assert calls == []
