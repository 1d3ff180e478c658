"""JSON Lines and Parquet: what their types allow and a table cannot hold is refused by name."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest

from dubio.core.errors import BadFile, UserError
from dubio.formats import read_predictions
from dubio.tables import read_table
from dubio.tasks.own.reading import label_lists


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ('{"p0": 1e400, "p1": 0}', "line 2: the number 1e400 is not finite"),
        ('{"p0": Infinity, "p1": 0}', "line 2: Infinity is not a JSON number"),
        ('{"p0": ' + "9" * 400 + ', "p1": 0}', "line 2: the whole number 9.* needs more than 64 bits"),
        ('{"p0": 1, "p1": 0, "id": "\\ud800"}', "line 2: .* half of a surrogate pair"),
        ('{"p0": 1, "p0": 0}', "line 2: the key 'p0' is there twice"),
        ('{"p0": [1], "p1": 0}', r"line 2, column 'p0' must be a number; given \[1\]"),
        ('{"p0": "x", "p1": 0}', "line 2, column 'p0' must be a number; given 'x'"),
        ('{"p1": 0}', "line 2, column 'p0' must be a number, and is missing"),
        ('{"": 1}', "has no name"),
        ("[1]", "line 2 is not a JSON object"),
    ],
)
def test_lines_that_no_table_can_hold_are_refused(tmp_path: Path, line: str, words: str) -> None:
    path = tmp_path / "t.jsonl"
    path.write_text('{"p0": 0.5, "p1": 0.5}\n' + line + "\n")
    with pytest.raises(UserError, match=words):
        read_predictions(path)


def test_predictions_may_be_json_lines_and_gzipped(tmp_path: Path) -> None:
    lines = '{"p0": 0.25, "p1": 0.75, "label": 1, "id": 7}\n\n{"p0": 1, "p1": 0, "id": "b"}\n'
    path = tmp_path / "t.JSONL.gz"
    path.write_bytes(gzip.compress(lines.encode()))
    found = read_predictions(path)
    assert found.probs == pytest.approx(np.array([[0.25, 0.75], [1, 0]]))
    assert found.labels.tolist() == [1, -1]
    assert found.ids is not None
    assert found.ids.tolist() == ["7", "b"]


def write_parquet(path: Path, **columns: object) -> Path:
    arrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    parquet.write_table(arrow.table(columns), path)
    return path


def test_texts_that_are_not_utf8_are_refused_with_their_place(tmp_path: Path) -> None:
    arrow = pytest.importorskip("pyarrow")
    texts = arrow.array([b"a", b"\xff\xfe", b"c"]).view(arrow.string())
    path = write_parquet(tmp_path / "t.parquet", p0=[1.0] * 3, p1=[0.0] * 3, id=texts)
    with pytest.raises(BadFile, match="row 2, column 'id': not UTF-8"):
        read_predictions(path)
    raw = write_parquet(tmp_path / "n.parquet", p0=[1.0], nameXX=[1]).read_bytes()
    damaged = tmp_path / "d.parquet"
    damaged.write_bytes(raw.replace(b"nameXX", b"name\xff\xff"))
    with pytest.raises(BadFile, match=r"d\.parquet"):
        read_predictions(damaged)


def test_columns_that_have_no_single_values_are_not_read_and_are_named_where_used(tmp_path: Path) -> None:
    path = write_parquet(tmp_path / "t.parquet", y=["a", "b"], facts=[{"k": 1}, {"k": 2}], lists=[[[1]], [[2]]])
    table = read_table(path)
    assert table.columns == {"y": ["a", "b"], "facts": None, "lists": None}
    with pytest.raises(UserError, match="column 'facts' for label has cells that are records"):
        label_lists(table, "facts", None)


def test_types_of_parquet_are_kept(tmp_path: Path) -> None:
    path = write_parquet(tmp_path / "t.parquet", whole=[2**53 + 1, 7], gap=[2**53 + 1, None], flag=[True, None],
                         fraction=[0.5, None], lists=[["a", "b"], []])  # fmt: skip
    columns = read_table(path).columns
    assert columns["whole"].tolist() == [2**53 + 1, 7]
    assert columns["gap"] == [2**53 + 1, None]
    assert columns["flag"] == [True, None]
    np.testing.assert_array_equal(columns["fraction"], [0.5, np.nan])
    assert columns["lists"] == [["a", "b"], []]


def test_dates_beyond_the_calendar_are_refused_by_column(tmp_path: Path) -> None:
    arrow = pytest.importorskip("pyarrow")
    path = write_parquet(tmp_path / "t.parquet", when=arrow.array([2**62], arrow.timestamp("us")), y=["a"])
    with pytest.raises(BadFile, match="column 'when' cannot be read"):
        read_table(path)
