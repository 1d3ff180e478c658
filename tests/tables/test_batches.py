from __future__ import annotations

import pytest

from dubio.core.errors import BadFile
from dubio.tables import collecting, listed, read_batches, read_table


@pytest.mark.parametrize("name", ["rows.csv", "rows.jsonl"])
def test_batches_are_the_rows_of_the_table_in_order(name, tmp_path, monkeypatch):
    lines = [f"{row},text {row}" for row in range(1000)]
    if name.endswith("csv"):
        content = "\n".join(["number,text", *lines]) + "\n"
    else:
        content = "".join('{"number": "%s", "text": "%s"}\n' % tuple(line.split(",")) for line in lines)  # noqa: UP031
    path = tmp_path / name
    path.write_text(content)
    for module in ("json_lines", "delimited"):
        monkeypatch.setattr(f"dubio.tables.{module}.BATCH", 300)
    batches = []
    read_batches(path, batches.append)
    whole = read_table(path)
    for column in ("number", "text"):
        assert [cell for batch in batches for cell in listed(batch.columns[column])] == listed(whole.columns[column])
    assert [reference for batch in batches for reference in batch.references] == whole.references
    assert collecting.BATCH == 250_000


def test_a_parquet_file_comes_in_batches_too(tmp_path, monkeypatch):
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    columns = {"number": [row / 2 for row in range(1000)], "text": [f"text {row % 7}" for row in range(1000)],
               "whole": [row if row % 3 else None for row in range(1000)]}  # fmt: skip
    path = tmp_path / "rows.parquet"
    parquet.write_table(arrow.table(columns), path, row_group_size=450)
    monkeypatch.setattr("dubio.tables.parquet.BATCH", 300)
    batches = []
    read_batches(path, batches.append)
    assert max(map(len, batches)) <= 100
    whole = read_table(path)
    for column in columns:
        assert [cell for batch in batches for cell in listed(batch.columns[column])] == listed(whole.columns[column])
    assert [reference for batch in batches for reference in batch.references] == whole.references


def test_a_file_without_rows_is_refused(tmp_path):
    (tmp_path / "empty.csv").write_text("a,b\n")
    with pytest.raises(BadFile, match="no rows"):
        read_batches(tmp_path / "empty.csv", print)
