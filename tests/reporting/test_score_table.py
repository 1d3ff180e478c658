"""Cells of the long table: means, spreads, and how they are written."""

from __future__ import annotations

import csv
import io

import pytest

from dubio.reporting.build import Report
from dubio.reporting.score_table import Cell, Score, aggregate, average_over, cell_text, decimals, results_csv


def test_an_undefined_value_is_counted_not_averaged() -> None:
    rows = [Score("t", "s", "id", "m", seed, None, "auc", value) for seed, value in enumerate((0.5, float("nan"), 0.7))]
    cell = aggregate(rows)["t", "s", "m", "auc"]
    assert (cell.n, cell.undefined, cell.mean) == (2, 1, pytest.approx(0.6))


def test_severities_average_within_a_run_before_runs_are_averaged() -> None:
    both = average_over([Cell((0.9, 0.7)), Cell((0.5, 0.7))])
    assert both is not None
    assert both.values == pytest.approx((0.7, 0.7))
    assert both.std == pytest.approx(0)
    assert average_over([Cell((0.9, 0.7)), None]) is None
    assert average_over([Cell((0.9, 0.7)), Cell((0.5,))]) is None
    assert average_over([Cell((0.9, 0.7)), Cell((0.5, 0.7), undefined=1)]) is None


def test_no_bare_number_where_there_is_a_spread_and_one_run_says_so() -> None:
    assert cell_text(Cell((0.5, 0.7))).replace("\N{NO-BREAK SPACE}", " ") == "0.600 ± 0.141"
    assert cell_text(Cell((0.5,))).replace("\N{NO-BREAK SPACE}", " ") == "0.500 (1 run)"
    assert cell_text(Cell((), undefined=2)) == "undefined"
    assert cell_text(Cell((float("inf"), 0.2))) == "∞ (1 of 2 runs)"
    assert cell_text(None) == "–"


@pytest.mark.parametrize(("std", "places"), [(0.05, 3), (0.002, 3), (0.0002, 4), (0.00002, 5), (1e-9, 5), (7.0, 3)])
def test_decimals_show_at_least_a_digit_of_the_spread(std: float, places: int) -> None:
    half = std / 2**0.5
    assert decimals([Cell((1 - half, 1 + half))]) == places


def test_the_long_table_reads_back(report: Report) -> None:
    rows = list(csv.DictReader(io.StringIO(results_csv(report.scores))))
    assert len(rows) == len(report.scores)
    for row, score in zip(rows, report.scores, strict=True):
        assert (row["task"], row["metric"]) == (score.task, score.metric)
        assert float(row["value"]) == score.value
    undefined = [Score("t", "s", "id", "m", 0, None, "auc", float("nan"))]
    assert results_csv(undefined).splitlines()[1] == "t,s,id,m,0,,auc,"
