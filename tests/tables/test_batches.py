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


def test_a_file_without_rows_is_refused(tmp_path):
    (tmp_path / "empty.csv").write_text("a,b\n")
    with pytest.raises(BadFile, match="no rows"):
        read_batches(tmp_path / "empty.csv", print)
