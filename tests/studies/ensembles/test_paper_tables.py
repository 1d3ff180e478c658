from __future__ import annotations

import csv
import io

import pytest

from dubio.statistics.sample_curves import MEASURES
from dubio.studies.ensembles.paper_tables import augmentation_tables, sample_tables, table_files
from dubio.studies.ensembles.study import Study


def test_tables_have_the_papers_layout(study: Study) -> None:
    (tables,) = sample_tables([study]).values()
    assert [table.title.partition(" on ")[0].split(" (")[0] for table in tables] == [
        "Error", "Calibrated NLL", "Calibrated Brier", "Calibrated AURC",
    ]  # fmt: skip
    table = tables[1]
    assert [column.title for column in table.columns][:2] == ["Single network", "Deep ensemble"]
    assert [row.title for row in table.rows][:2] == ["vgg-small (1 sample)", "vgg-small (2 samples)"]
    assert "SWA (1 sample)" in [column.title for column in table.columns]
    swag = [column.title for column in table.columns].index("SWAG")
    cell = study.by_name["swag"].at("calibrated_nll", 5)
    assert cell is not None
    row = next(row for row in table.rows if row.title == "vgg-small (5 samples)")
    assert float(row.cells[swag].text) == pytest.approx(cell.mean, abs=6e-4)
    versus = augmentation_tables([study])["pictures"][1]
    assert {column.title for column in versus.columns} == {
        "Single network", "Deep ensemble", "SWA (1 sample)", "SWAG", "Laplace, last layer",
    }  # fmt: skip
    assert all(cell.text[-1] in "↓↑≈" for row in versus.rows for cell in row.cells if " vs " in cell.text)


def test_files_hold_every_curve(study: Study) -> None:
    files = table_files([study])
    assert {"pictures-by-samples.md", "pictures-by-samples.csv", "pictures-by-augmentation.md"} < set(files)
    rows = list(csv.DictReader(io.StringIO(files["ensembles-curves.csv"].escaped())))
    assert len(rows) == sum(curve.values.size for curve in study.curves)
    own = [r for r in rows if (r["method"], r["samples"], r["measure"]) == ("swag", "3", "calibrated_nll")]
    index = MEASURES.index("calibrated_nll")
    assert [float(r["value"]) for r in own] == [float(run[2, index]) for run in study.by_name["swag"].values]
    widths = {line.count("|") for line in files["pictures-by-samples.md"].splitlines() if line.startswith("|")}
    assert len(widths) == 1
    assert table_files([]) == {}
