"""pyarrow and the standard library read the same table, or refuse it in the same words."""

from __future__ import annotations

import csv
import gzip
import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from dubio.core.errors import BadFile, UserError
from dubio.formats import read_predictions
from dubio.tables import collecting, delimited, read_table

pytest.importorskip("pyarrow")

NUMBERS = st.one_of(
    st.floats().map(repr),
    st.integers().map(str),
    st.sampled_from([
        "", " ", "NA", "na", "N/A", "nan", "-nan", "NaN", "nan(1)", "null", "None", "?", "inf", "-inf", "Infinity",
        "1e400", "-1e400", "1e-400", "5e-324", "1.7976931348623159e308", "1_000", "0x10", "+1", ".5", "5.", ".", "e5",
        "1e", "1e+5", "00012", "1" * 400, "0." + "1" * 400, " 1 ", "\t2", "1 2", "true", "١", "\xa01", "1,5", "1\x00",
        "\x1c1", "abc", "-", "--1",
    ]),
)  # fmt: skip
TEXTS = st.one_of(
    st.text(alphabet=st.sampled_from('ab,;\t"\n\r \ufeffé😀\x00\x0b\u2028'), max_size=6),
    st.text(max_size=5).filter(lambda text: text.isprintable()),
)
NEWLINES = st.sampled_from(["\n", "\r\n", "\n\n", "\r", "\n \n"])
SEPARATORS = st.sampled_from([",", ";", "\t"])


def quoted(cell: str, separator: str, always: bool) -> str:
    if always or any(sign in cell for sign in f'{separator}"\r\n'):
        return '"' + cell.replace('"', '""') + '"'
    return cell


@st.composite
def files(draw: Any) -> bytes:
    """A table as some program may write it; now and then with a row too short, a stray quote or a wrong byte."""
    separator = draw(SEPARATORS)
    width = draw(st.integers(1, 4))
    numeric = draw(st.lists(st.booleans(), min_size=width, max_size=width))
    names = [("n" if is_number else "t") + str(index) for index, is_number in enumerate(numeric)]
    lines = [separator.join(names)]
    usual = draw(st.sampled_from(["\n", "\r\n"]))
    clean = draw(st.booleans())
    for _ in range(draw(st.integers(0, 12))):
        cells = []
        for is_number in numeric:
            plain = st.floats(allow_nan=False, allow_infinity=False).map(repr) if clean else NUMBERS
            cell = draw(plain if is_number else TEXTS)
            cells.append(quoted(cell, separator, draw(st.booleans())) if clean or draw(st.integers(0, 9)) else cell)
        if not clean and not draw(st.integers(0, 9)):
            cells = cells[:-1]
        lines.append(separator.join(cells))
    text = "".join(line + (usual if clean else draw(NEWLINES)) for line in lines)
    raw = text.encode()
    if not clean and not draw(st.integers(0, 9)):
        raw += b"\xff"
    if draw(st.booleans()):
        raw = raw.removesuffix(b"\n")
    return draw(st.sampled_from([b"", b"\xef\xbb\xbf"])) + raw


def outcome(path: Path) -> Any:
    """The table in full, or the words of its refusal."""
    try:
        table = read_table(path, lambda head: [name for name in head if name.startswith("n")])
    except BadFile as refusal:
        return str(refusal)
    columns = {
        name: (
            cells.dtype.str,
            np.ascontiguousarray(cells).view(np.uint64)[~np.isnan(cells)].tolist(),
            np.isnan(cells).tolist(),
        )
        if isinstance(cells, np.ndarray)
        else cells
        for name, cells in table.columns.items()
    }
    return columns, table.row_numbers.tolist(), table.unit


def both(path: Path) -> tuple[Any, Any, int]:
    """What is read with pyarrow in small blocks, what without, and how many blocks pyarrow has read."""
    blocks = []
    original = delimited._Rows.add_block

    def counting(self: Any, block: bytearray, arrow: Any) -> bool:
        blocks.append(original(self, block, arrow))
        return blocks[-1]

    with (
        mock.patch.object(delimited, "BLOCK", 40),
        mock.patch.object(delimited, "HEAD", 1),
        mock.patch.object(delimited._Rows, "add_block", counting),
    ):
        first = outcome(path)
    with mock.patch.object(delimited, "_pyarrow_csv", return_value=None):
        return first, outcome(path), sum(blocks)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    return tmp_path_factory.mktemp("tables")


@settings(max_examples=400, deadline=None)
@given(raw=files())
@example(raw=b"")
@example(raw=b"\xef\xbb\xbf")
@example(raw=b"n0,n1\n")
@example(raw=b"n0,n0\n1,2\n")
@example(raw=b"n0,\n1,2\n")
@example(raw=b"t0,n1\n,0.0\n\xef\xbb\xbf,0.0\n")
@example(raw=b"n0,t1\n1,a\n2,b\n3,nan(7)\n")
@example(raw=b'n0,t1\n1,a\n2,"b"c\n')
@example(raw=b'n0,t1\n1,a\n2,"b\n')
@example(raw=b'n0,t1\n1,a\n2,b"\n3,"c"\n')
@example(raw=b"n0,t1\r1,a\r2,b\r")
@example(raw=b'n0,t1\n1,a\n2,"x\ny"\n3,"\r\n"\n1,2,3\n')
@example(raw=b"n0,t1\n1,a\n2,b\n  \n3,c\n\n\n")
def test_both_ways_to_read_a_file_give_the_same(folder: Path, raw: bytes) -> None:
    path = folder / "t.csv"
    path.write_bytes(raw)
    fast, plain, _ = both(path)
    assert fast == plain
    zipped = folder / "t.csv.gz"
    zipped.write_bytes(gzip.compress(raw, 1))
    assert str(outcome(zipped)).replace("t.csv.gz", "t.csv") == str(plain)


def test_pyarrow_does_read_the_blocks_that_leave_no_doubt(tmp_path: Path) -> None:
    texts = ["a", "b", ",", '"', "\n"] * 10
    values = np.linspace(-1, 1, len(texts)).tolist()
    rows = [["n0", "t1"], *([repr(value), text] for value, text in zip(values, texts, strict=True))]
    written = io.StringIO(newline="")
    csv.writer(written, lineterminator="\n").writerows(rows)
    path = tmp_path / "t.csv"
    path.write_bytes(written.getvalue().encode())
    fast, plain, blocks = both(path)
    assert fast == plain
    assert blocks >= 10
    assert fast[0]["t1"] == [text for _, text in rows[1:]]


@settings(max_examples=150, deadline=None)
@given(values=st.lists(st.floats(-1e308, 1e308), min_size=2, max_size=20), places=st.sampled_from(["r", ".17g", ".3g"]))
def test_numbers_are_rounded_once(folder: Path, values: list[float], places: str) -> None:
    texts = [repr(value) if places == "r" else format(value, places) for value in values]
    path = folder / "n.csv"
    path.write_text("n0,t1\n" + "".join(f"{text},x\n" for text in texts))
    for found in both(path)[:2]:
        expected = np.array([float(text) for text in texts])
        assert found[0]["n0"][1] == expected.view(np.uint64).tolist()


def test_the_separator_is_the_most_frequent_one_outside_quotes(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text('id,"a;b;c;d",p\n1,2,3\n')
    assert list(read_table(path).columns) == ["id", "a;b;c;d", "p"]
    path.write_text("id;p\n1;0,5\n")
    with pytest.raises(BadFile, match="row 2, column 'p' must be a number; given '0,5'"):
        read_table(path, lambda head: ["p"])


def test_endings_are_read_in_any_case(tmp_path: Path) -> None:
    for name in ("T.CSV", "t.Tsv", "t.CSV.GZ"):
        path = tmp_path / name
        raw = b"a\tb\n1\t2\n"
        path.write_bytes(gzip.compress(raw) if name.endswith("GZ") else raw)
        assert read_table(path).columns == {"a": ["1"], "b": ["2"]}


def test_a_cell_that_is_no_number_is_named_wherever_it_stands(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("n0,t1\n" + "1,a\n" * 5000 + "\n" + "1e400,a\n" + "1,a\n" * 10)
    for way in both(path)[:2]:
        assert "row 5003, column 'n0' must be a number; given '1e400'" in way


def test_limits_are_the_same_for_both(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(collecting, "MOST_COLUMNS", 50)
    path = tmp_path / "t.csv"
    path.write_text(",".join(f"n{index}" for index in range(51)) + "\n")
    fast, plain, _ = both(path)
    assert fast == plain
    assert "51 columns; a table may have 50" in fast


@pytest.mark.parametrize("end", [b"\n", b"\r\n"])
def test_blank_lines_are_no_rows(tmp_path, end):
    path = tmp_path / "blank.csv"
    path.write_bytes(end.join([b"label,p0,p1", b"", b"0,0.9,0.1", b"", b"", b"1,0.2,0.8", b"", b""]))
    assert read_predictions(path).labels.tolist() == [0, 1]


@pytest.mark.parametrize("order", ["utf-16-le", "utf-16-be"])
def test_utf_16_is_named(tmp_path: Path, order: str) -> None:
    (tmp_path / "t.csv").write_bytes("\ufeffp0,p1\n0.5,0.5\n".encode(order))
    with pytest.raises(BadFile, match="is UTF-16, as spreadsheets save it; save it as UTF-8"):
        read_table(tmp_path / "t.csv")


def test_decimal_commas_are_named(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("p0;p1\n0,25;0,75\n", encoding="utf-8")
    with pytest.raises(BadFile, match=r"row 2, column 'p0' must be a number; given '0,25'\. Write a decimal point"):
        read_predictions(tmp_path / "t.csv")
    (tmp_path / "t.csv").write_text("ill;well\n0,25;0,75\n", encoding="utf-8")
    with pytest.raises(UserError, match=r"no column of predictions\. The numbers of ill, well have a decimal comma"):
        read_predictions(tmp_path / "t.csv", values="probs")
