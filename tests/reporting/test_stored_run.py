"""A run is opened by its name, prints its tables, and gives a data frame and a report."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

import dubio
from dubio.core.errors import StoreError, UnknownName, UserError
from dubio.reporting.stored_run import open_run
from dubio.store import Store
from dubio.store.records import with_defaults

pytest.importorskip("torch")


@pytest.fixture
def run(trained_run: dubio.Run) -> dubio.Run:
    return trained_run


def test_a_run_holds_its_scores_and_prints_them(run: dubio.Run) -> None:
    assert run.failures == run.skipped == ()
    assert {score.method for score in run.results.scores} >= {"deterministic", "mc-dropout"}
    assert "MC dropout" in str(run)
    assert "MC dropout" in run._repr_html_()
    assert run.name in repr(run)


def test_a_run_is_opened_again_by_its_name(run: dubio.Run, tmp_path: Path) -> None:
    again = dubio.open_run(store=run.store)
    assert with_defaults(json.loads(json.dumps(run.manifest))) == again.manifest
    assert dubio.open_run("quick", store=run.store).manifest == again.manifest
    with pytest.raises(UnknownName, match="quick"):
        dubio.open_run("quik", store=run.store)
    with pytest.raises(StoreError):
        dubio.open_run(store=tmp_path / "nothing")
    dubio.open_store(tmp_path / "empty", create=True)
    with pytest.raises(UserError, match="no benchmark run"):
        dubio.open_run(store=tmp_path / "empty")


def test_the_data_frame_has_one_row_per_score(run: dubio.Run, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pandas")
    frame = run.to_frame()
    assert list(frame.columns) == ["task", "split", "kind", "method", "seed", "member", "metric", "value"]
    assert len(frame) == len(run.results.scores)
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(UserError, match="pip install pandas"):
        run.to_frame()


def test_a_report_is_written(run: dubio.Run, tmp_path: Path) -> None:
    written = dubio.report(store=run.store, out=tmp_path / "out")
    assert written.page == tmp_path / "out" / "report.html"
    assert written.page.stat().st_size > 1000
    assert written.table.read_text().startswith("task,split")
    figures = dubio.report(run, out=tmp_path / "out", figures=tmp_path / "figures", formats=["svg"]).figures
    assert {path.suffix for path in figures} == {".svg", ".csv", ".json"}
    assert all(path.is_file() for path in figures)


def test_a_run_stores_examples_by_the_names_of_their_columns_and_a_report_may_show_none(
    run: dubio.Run, tmp_path: Path
) -> None:
    split = next(split for split in run.manifest["tasks"][0]["splits"] if split["kind"] == "id")
    stored = Store.open(run.store, create=False).read_examples(split["fingerprint"])
    assert 100 < len(stored) <= 300
    assert all(list(cells)[:2] == ["mean radius", "mean texture"] for cells in stored.values())
    assert "mean texture" in run.report(tmp_path / "some").page.read_text(encoding="utf-8")
    assert "mean texture" not in run.report(tmp_path / "none", examples=0).page.read_text(encoding="utf-8")
    with pytest.raises(UserError, match="examples"):
        run.report(tmp_path / "bad", examples=-1)
    assert not (tmp_path / "bad").exists()


def test_one_of_several_runs_is_asked_for_where_only_one_can_be_named(tmp_path: Path) -> None:
    with Store.open(tmp_path / "store") as store:
        for name in "ab":
            store.write_manifest({"schema": 1, "name": name}, "0" * 64)
    with pytest.raises(UserError, match=r"2 runs.*a-0.*, b-0"):
        open_run(store=tmp_path / "store")


def test_stored_predictions_are_read_by_name(run: dubio.Run) -> None:
    entry = next(entry for entry in run.manifest["runs"] if entry["method"] == "mc-dropout")
    cal = next(split for split in run.manifest["tasks"][0]["splits"] if split["kind"] == "cal")
    expected = run.source.read_predictions(entry["id"], cal["name"], cal["fingerprint"])
    read = run.predictions("breast-cancer", "mc-dropout", cal["name"])
    assert (read.logits == expected.logits).all()
    assert read.kind == "cal"
    assert len(run.predictions("breast-cancer", "mc-dropout", seed=0)) > 0
    for names, message in (
        (("breast-cancr", "mc-dropout"), "breast-cancer"), (("breast-cancer", "mc-droput"), "mc-dropout"),
        (("breast-cancer", "mc-dropout", "train"), "split"),
    ):  # fmt: skip
        with pytest.raises(UnknownName, match=message):
            run.predictions(*names)
    with pytest.raises(UnknownName, match="seed"):
        run.predictions("breast-cancer", "mc-dropout", seed=7)
