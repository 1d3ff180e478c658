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


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> dubio.Run:
    store = tmp_path_factory.mktemp("run") / "store"
    return dubio.run(
        "quick", tasks=["breast-cancer"], methods=["deterministic", "mc-dropout"], seeds=1, settings={"epochs": 1},
        store=store, jobs=1, progress=False,
    )  # fmt: skip


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
    assert {path.suffix for path in figures} == {".svg"}
    assert all(path.is_file() for path in figures)


def test_one_of_several_runs_is_asked_for_where_only_one_can_be_named(tmp_path: Path) -> None:
    with Store.open(tmp_path / "store") as store:
        for name in "ab":
            store.write_manifest({"schema": 1, "name": name}, "0" * 64)
    with pytest.raises(UserError, match=r"2 runs.*a-0.*, b-0"):
        open_run(store=tmp_path / "store")
