"""The long table: exact values, rounding, reading, and Table 3 of the text paper."""

import csv
import decimal
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dubio.core.errors import BadFile, UnknownName, UserError
from dubio.statistics.ranks import compare
from dubio.statistics.result_files import read_results
from dubio.statistics.result_table import Columns, exact, grid, rounded, table_of

REFERENCE = Path(__file__).resolve().parents[3] / "shared" / "reference"
needs_reference = pytest.mark.skipif(not REFERENCE.is_dir(), reason="the published tables are not here")


def published(side):
    records = {}
    with (REFERENCE / "published_tables.csv").open() as stream:
        for row in csv.DictReader(stream):
            if row["setting"].startswith(f"Table3-{side}"):
                records.setdefault(row["method"], {})[row["metric"]] = int(float(row["value"]))
    return {method: (found["wins"], found["draws"], found["losses"]) for method, found in records.items()}


@needs_reference
@pytest.mark.parametrize(("side", "metrics"), [("left", ("NLL", "Brier")), ("right", ("ECE",))])
def test_table_3_of_the_text_paper(side, metrics):
    table = read_results(REFERENCE / "text_in_domain.csv")
    found = compare(table, dict.fromkeys(metrics, "lower"), digits=3)
    expected = published(side)
    assert len(expected) == 18
    assert {name: tuple(record) for name, record in found.win_draw_loss.items()} == expected
    assert found.critical_difference == pytest.approx(11.779, abs=5e-4)
    assert set(found.by_metric) == (set(metrics) if len(metrics) > 1 else set())


@given(st.decimals(min_value=-1000, max_value=1000, places=5), st.integers(0, 4))
def test_rounding_is_half_even_as_in_decimal_arithmetic(value, digits):
    expected = value.quantize(decimal.Decimal(1).scaleb(-digits), rounding=decimal.ROUND_HALF_EVEN)
    assert rounded(exact(str(value)), digits) == Fraction(expected)


def test_averages_are_exact_where_floats_are_not():
    rows = [{"dataset": "d", "method": "m", "metric": "x", "value": value} for value in ("0.1", "0.2", "0.3")]
    assert table_of(rows).means("x")["d", "m"] == Fraction(1, 5)
    assert sum((0.1, 0.2, 0.3)) / 3 != 0.2
    # 2.0005 lies on the tie in decimal and below it in binary
    tied = [{"dataset": "d", "method": "m", "metric": "x", "value": value} for value in ("1.001", "3.000")]
    assert grid(table_of(tied), "x", "lower", digits=3).values == ((Fraction("2.000"),),)


@pytest.mark.parametrize("text", ["nan", "inf", "abc", "", "1/3", "1e999999999", "0x10", "1e301", "1e-301"])
def test_what_is_no_number_is_refused(text):
    with pytest.raises(ValueError, match=r"is not|too large"):
        exact(text)


def test_three_hundred_powers_of_ten_are_read():
    assert (exact("1e300"), exact("-1e-300")) == (Fraction(10**300), Fraction(-1, 10**300))


def write(path, text):
    path.write_text(text, encoding="utf-8")
    return path


def test_reading_with_other_columns(tmp_path):
    path = write(tmp_path / "t.tsv", "data\tsystem\twhat\tscore\trep\nA\tx\tacc\t0.5\t0\n\nA\tx\tacc\t0.7\t1\n")
    table = read_results(path, Columns("data", "system", "what", "score", "rep"))
    assert table.means("acc") == {("A", "x"): Fraction(3, 5)}
    assert [result.seed for result in table.results] == ["0", "1"]


def test_bad_files(tmp_path):
    header = "dataset,method,metric,value\n"
    cases = {
        "dataset,who,metric,value\nA,x,m,1\n": r"no column names the method.*--method-col.*columns are dataset, who",
        header + "A,x,m,1\nA,y,m,good\n": r"row 3: value 'good'",
        header + "A,x,m,nan\n": r"row 2: value 'nan'",
        header + "A,x\n": r"row 2 has 2 columns",
        header: "no rows",
        "": "empty",
        "dataset,method,metric,value,value\nA,x,m,1,2\n": "2 times",
    }
    for text, message in cases.items():
        with pytest.raises(BadFile, match=message):
            read_results(write(tmp_path / "t.csv", text))
    with pytest.raises(BadFile, match="no such file"):
        read_results(tmp_path / "absent.csv")
    (tmp_path / "b.csv").write_bytes(b"dataset,method\xff\xfe\n")
    with pytest.raises(BadFile, match="UTF-8"):
        read_results(tmp_path / "b.csv")


def test_gaps_and_unknown_metrics_are_named():
    rows = [{"dataset": d, "method": m, "metric": "nll", "value": 1} for d, m in (("A", "x"), ("A", "y"), ("B", "x"))]
    with pytest.raises(UserError, match="'y' has no nll on dataset 'B'; ranks need"):
        grid(table_of(rows), "nll", "lower")
    more = {"dataset": "C", "method": "x", "metric": "nll", "value": 1}
    with pytest.raises(UserError, match=r"'B' \(1 more such gaps\); ranks need"):
        grid(table_of([*rows, more]), "nll", "lower")
    with pytest.raises(UnknownName, match="nll"):
        grid(table_of(rows), "nl", "lower")
    with pytest.raises(UserError, match="at least one metric"):
        compare(table_of(rows), {})
