"""``dubio report`` on a real store."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from dubio.cli.options import MARGIN
from dubio.cli.report import report
from dubio.cli.show import show
from dubio.core.errors import DubioError, UnknownName, UserError
from dubio.core.registry import METRICS
from dubio.reporting import run_view
from dubio.store import Store
from tests.cli.helpers import StoredRun, run_command


def test_report_writes_page_table_and_figures(stored_run: StoredRun, tmp_path: Path) -> None:
    out, figures = tmp_path / "out", tmp_path / "figures"
    text = run_command(report, "--store", stored_run.path, "--out", out, "--figures", figures, "--format", "png,svg")
    assert "Deep ensemble" in text
    assert (out / "report.html").stat().st_size > 50_000
    assert (out / "results.csv").read_text().startswith("task,split,kind,method,seed,member,metric,value\n")
    assert {path.suffix for path in figures.iterdir()} == {".png", ".svg"}
    assert len(list(figures.glob("screening-*.png"))) == 11


def test_report_as_json_holds_means_spreads_and_costs(stored_run: StoredRun, tmp_path: Path) -> None:
    found = json.loads(run_command(report, "small", "--store", stored_run.path, "--out", tmp_path, "--json"))
    assert Path(found["report"]).is_file()
    cell = next(c for c in found["scores"] if c["method"] == "deterministic" and c["metric"] == "accuracy")
    assert cell["runs"] == 4
    assert cell["std"] > 0
    cost = next(c for c in found["costs"] if c["method"] == "deep-ensemble")
    assert cost["training_seconds"]["mean"] == pytest.approx(5.0)
    assert cost["examples_per_second"]["mean"] == pytest.approx(200.0)
    assert {place["place"] for place in found["standing"]} <= {"best", "tied", "behind"}


def test_the_margin_can_be_set_and_is_shown(stored_run: StoredRun, tmp_path: Path) -> None:
    found = json.loads(
        run_command(report, "small", "--store", stored_run.path, "--out", tmp_path, "--margin", "0.25", "--json")
    )
    assert found["margin"] == 0.25
    assert "at most 0.25 worse (--margin)" in (tmp_path / "report.html").read_text(encoding="utf-8")
    assert all(place["limit"] is None or place["limit"] >= 0 for place in found["standing"])
    with pytest.raises(UserError, match="margin must be a finite number of at least 0; given -1"):
        run_command(report, "small", "--store", stored_run.path, "--out", tmp_path, "--margin", "-1")
    assert MARGIN == run_view.MARGIN


HALF = '''
from dubio import Predictions, metric


@metric("half", better="higher")
def half(p: Predictions, *, value: float = 0.5) -> float:
    """Always a half."""
    return value


@metric("needy", better="higher")
def needy(p: Predictions, *, value: float) -> float:
    """Cannot be made without an argument."""
    return value
'''


def test_a_plugin_s_metric_stands_in_the_report(
    stored_run: StoredRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    METRICS.names()
    monkeypatch.setattr(METRICS, "_entries", dict(METRICS._entries))
    (tmp_path / "mine.py").write_text(HALF)
    words = ("--store", stored_run.path, "--out", tmp_path, "--plugin", tmp_path / "mine.py")
    found = json.loads(run_command(report, *words, "--json"))
    assert {cell["mean"] for cell in found["scores"] if cell["metric"] == "half"} == {0.5}
    assert ">half" in (tmp_path / "report.html").read_text()
    assert ",half,0.5" in (tmp_path / "results.csv").read_text()


def test_what_is_not_there_is_refused_in_words(stored_run: StoredRun, tmp_path: Path) -> None:
    with pytest.raises(UnknownName, match=r"smoll.*small"):
        run_command(report, "smoll", "--store", stored_run.path, "--out", tmp_path)
    with pytest.raises(UnknownName, match="nothing"):
        run_command(show, "nothing", "--store", stored_run.path)
    with pytest.raises(UserError, match="no fit or prediction"):
        run_command(show, "0" * 64, "--store", stored_run.path)
    with pytest.raises(DubioError, match="no dubio store"):
        run_command(report, "--store", tmp_path / "void", "--out", tmp_path)
    with Store.open(tmp_path / "empty"), pytest.raises(UserError, match="dubio run quick"):
        run_command(report, "--store", tmp_path / "empty", "--out", tmp_path)


def test_several_runs_are_reported_together(stored_run: StoredRun, tmp_path: Path) -> None:
    path = tmp_path / "copy"
    shutil.copytree(stored_run.path, path)
    with Store.open(path) as store:
        first = store.manifest(stored_run.run)
        second = {**first, "name": "again", "benchmark": {"name": "again", "preset": "paper"}}
        store.write_manifest(second, "fedcba9876543210")
        names = store.manifests()
    with pytest.raises(UserError, match="2 runs"):
        run_command(report, "--store", path, "--out", tmp_path)
    options = [word for name in names for word in ("--run", name)]
    found = json.loads(run_command(report, *options, "--store", path, "--out", tmp_path, "--as-published", "--json"))
    assert {part["preset"] for part in found["parts"]} == {"", "paper"}
    cell = next(c for c in found["scores"] if c["method"] == "deterministic" and c["metric"] == "accuracy")
    assert cell["runs"] == 4  # the same runs, counted once
    assert {score["metric"] for score in found["as_published"]} >= {"ece_as_published", "ece"}
    worth = {each["method"]: each for each in found["deep_ensemble_equivalents"]}
    assert worth["deep-ensemble"]["longest"] == 4
    assert 1 < worth["deep-ensemble"]["central"] <= 4
    assert any(each["circumstance"].startswith("Few classes") for each in found["advice"])
    page = (tmp_path / "report.html").read_text()
    assert "Runs reported together" in page
    assert 'id="as-published"' in page
    assert ",ece_as_published," in (tmp_path / "results.csv").read_text()
