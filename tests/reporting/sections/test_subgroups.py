from __future__ import annotations

import copy

import numpy as np
import pytest

from dubio.core.errors import BadFile
from dubio.metrics.calibration_error import ece
from dubio.metrics.decisions import correct
from dubio.reporting import Report
from dubio.reporting.manifest_view import read_manifest
from dubio.reporting.section import Figure
from dubio.reporting.sections.subgroups import Subgroups
from dubio.reporting.tables import Table
from dubio.statistics.subgroups import OTHERS, parts_of
from tests.reporting.helpers import blocks, of_kind, section_of, texts
from tests.reporting.sections.helpers import World, rows_of, runs_of


def test_subgroups_are_calibrated_on_their_own_rows(eyes_world: World, eyes: Report) -> None:
    subgroup = section_of(eyes, Subgroups).parts(eyes.tasks[0])["site"]["test", "main"]["mc-dropout"]
    rows = np.flatnonzero(np.arange(120) % 10 != 0)
    runs = [run.take(rows) for run in runs_of(eyes_world, "mc-dropout", "test")]
    assert subgroup.ece.value == pytest.approx(np.mean([ece(run) for run in runs]))
    assert subgroup.accuracy.value == pytest.approx(np.mean([correct(run).mean() for run in runs]))
    excess = [run.probs.max(1).mean() - correct(run).mean() for run in runs]
    assert subgroup.excess.value == pytest.approx(np.mean(excess))
    assert (subgroup.examples, subgroup.units, subgroup.underpowered) == (108, 60, False)
    assert subgroup.ece.low <= subgroup.ece.value <= subgroup.ece.high


def test_small_subgroups_are_marked_and_in_the_table_alone(eyes: Report) -> None:
    task = eyes.tasks[0]
    assert section_of(eyes, Subgroups).parts(task)["site"]["test", "other"]["mc-dropout"].underpowered
    shown = blocks(eyes, "subgroups", task)
    table, accuracy = of_kind(shown, Table)
    assert (table.first, accuracy.title) == ("Site", "Accuracy by site")
    assert table.rows[1].title == "other, in “test” (underpowered)"
    assert table.rows[1].cells[2].place == "unranked"
    assert "other in “test” (12)" in " ".join(texts(shown))
    (figure,) = of_kind(shown, Figure)
    rows = [row for row in rows_of(figure) if "subset" in row]
    assert {row["subset"] for row in rows} == {"main, in “test”"}
    excess = section_of(eyes, Subgroups).parts(task)["site"]["test", "main"]["mc-dropout"].excess
    (row,) = (row for row in rows if row["method"] == "MC dropout")
    assert [row["low"], row["value"], row["high"]] == pytest.approx([excess.low, excess.value, excess.high], rel=1e-5)


def test_the_document_has_every_subgroup(eyes: Report) -> None:
    rows = section_of(eyes, Subgroups).document(eyes.run)["subgroups"]
    assert {(row["split"], row["fact"], row["value"], row["method"]) for row in rows} == {
        (split, "site", value, method)
        for split in ("test", "poor", "severe")
        for value in ("main", "other")
        for method in ("deterministic", "mc-dropout")
    }
    assert {row["value"] for row in rows if row["underpowered"]} >= {"other"}


def test_columns_that_do_not_fit_are_refused_and_rare_values_are_taken_together(eyes_world: World) -> None:
    for rows in ("0 1", "0 " * 119 + "2", "0 " * 119 + "-1"):
        manifest = copy.deepcopy(eyes_world[1])
        manifest["tasks"][0]["facts"]["test"]["site"]["rows"] = rows
        with pytest.raises(BadFile, match="fact 'site' of split 'test'"):
            read_manifest(manifest)
    column = np.array([f"site {number}" for number in range(20) for _ in range(20 - number)])
    parts = parts_of(column)
    assert len(parts) == 12
    assert parts[OTHERS].sum() == sum(range(1, 10))
    assert np.sum(list(parts.values()), axis=0).tolist() == [1] * len(column)
