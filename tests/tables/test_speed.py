"""Reading a table of 50,000 × 100 numbers takes little more than pyarrow's own reading of it, in time and in memory."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from bench.table_reading import COLUMNS, ROWS, measured, write_tables

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="peak memory is read from /proc"),
]

NOISE = 1.25
"""Times are the least of several rounds in turns, in seconds of CPU; on a busy machine they still differ by this."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    pytest.importorskip("pyarrow")
    path = tmp_path_factory.mktemp("speed")
    write_tables(path)
    return path


@pytest.mark.parametrize(("way", "most"), [("table", 1.5), ("features", 1.5), ("predictions", 1.5)])
def test_csv_takes_little_longer_than_pyarrow_alone(folder: Path, way: str, most: float) -> None:
    facts = measured(folder, "csv", way)
    assert facts["seconds"] < NOISE * most * facts["pyarrow"]


def test_a_parquet_table_takes_little_longer_than_pyarrow_alone(folder: Path) -> None:
    facts = measured(folder, "parquet", "table")
    assert facts["seconds"] < NOISE * 1.2 * facts["pyarrow"]


@pytest.mark.parametrize("ending", ["csv", "parquet"])
@pytest.mark.parametrize("way", ["features", "predictions"])
def test_peak_memory_is_at_most_five_times_the_array(folder: Path, ending: str, way: str) -> None:
    assert measured(folder, ending, way, rounds=0)["memory"] < 5 * 8 * ROWS * COLUMNS
