"""``dubio report`` and ``dubio show`` on a real store."""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import typer
from typer.testing import CliRunner

from dubio.cli.dee import dee
from dubio.cli.report import report
from dubio.cli.show import show
from dubio.core.errors import DubioError, UnknownName, UserError
from dubio.core.registry import METRICS
from dubio.core.types import Examples, Split
from dubio.statistics.ensemble_equivalent import growth_curve
from dubio.store import Store
from tests.reporting.world import make_world

ENVIRONMENT = {"python": "3.11", "torch": "2.6"}


@dataclass(frozen=True)
class Kept:
    path: Path
    run: str
    fit: str
    single: str
    ensemble: str


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Kept:
    """One task and two methods of the invented world, put into a real store."""
    path = tmp_path_factory.mktemp("store") / "s"
    source, manifest = make_world((0, 1))
    task = manifest["tasks"][1]
    split = _split(task)
    task["splits"] = [{"name": split.name, "kind": "id", "fingerprint": split.fingerprint, "examples": len(split)}]
    runs = []
    with Store.open(path) as store:
        for old in manifest["runs"]:
            if old["task"] != task["name"] or old["method"] != "deterministic":
                continue
            spec = {"kind": "fit", "seed": old["seed"], "member": old["member"]}
            fit = store.write_fit(spec, {"w": np.zeros(3, np.float32)}, {}, {"seconds": 2.5, "parameters": 3})
            made = {"kind": "prediction", "fit": fit}
            with store.prediction_writer(made, ENVIRONMENT) as writer:
                writer.add(split, source.predictions[old["id"], "test"], 0.5)
            runs.append(
                {**old, "id": next(i for i in store.ids("predictions") if _fit_of(store, i) == fit), "fits": [fit]}
            )
        for seed in (0, 1):
            members = [run for run in runs if run["seed"] == seed and run["member"] is not None]
            pooled = store.write_ensemble({"kind": "prediction", "members": [run["id"] for run in members]})
            fits = [fit for run in members for fit in run["fits"]]
            runs.append({**members[0], "id": pooled, "method": "deep-ensemble", "member": None, "fits": fits})
        methods = [method for method in manifest["methods"] if method["name"] in ("deterministic", "deep-ensemble")]
        whole = {**manifest, "name": "small", "tasks": [task], "methods": methods, "runs": runs, "failures": []}
        name = store.write_manifest(whole, "0123456789abcdef").stem
    return Kept(path, name, runs[0]["fits"][0], runs[0]["id"], runs[-1]["id"])


def _split(task: dict[str, Any]) -> Split:
    examples = next(split["examples"] for split in task["splits"] if split["kind"] == "id")
    return Split.of("test", "id", Examples(np.zeros((examples, 2)), np.zeros(examples, dtype=np.int64)))


def _fit_of(store: Store, identifier: str) -> Any:
    return store.spec("predictions", identifier).get("fit")


def command(function: Any, *arguments: object) -> str:
    app = typer.Typer()
    app.command()(function)
    done = CliRunner().invoke(app, [str(argument) for argument in arguments])
    if done.exception is not None:
        raise done.exception
    return done.stdout


def test_report_writes_page_table_and_figures(kept: Kept, tmp_path: Path) -> None:
    out, figures = tmp_path / "out", tmp_path / "figures"
    text = command(report, "--store", kept.path, "--out", out, "--figures", figures, "--format", "png,svg")
    assert "Deep ensemble" in text
    assert (out / "report.html").stat().st_size > 50_000
    assert (out / "results.csv").read_text().startswith("task,split,kind,method,seed,member,metric,value\n")
    assert {path.suffix for path in figures.iterdir()} == {".png", ".svg"}
    assert len(list(figures.glob("screening-*.png"))) == 11


def test_report_as_json_holds_means_spreads_and_costs(kept: Kept, tmp_path: Path) -> None:
    found = json.loads(command(report, "small", "--store", kept.path, "--out", tmp_path, "--json"))
    assert Path(found["report"]).is_file()
    cell = next(c for c in found["scores"] if c["method"] == "deterministic" and c["metric"] == "accuracy")
    assert cell["runs"] == 4
    assert cell["std"] > 0
    cost = next(c for c in found["costs"] if c["method"] == "deep-ensemble")
    assert cost["training_seconds"]["mean"] == pytest.approx(5.0)
    assert cost["examples_per_second"]["mean"] == pytest.approx(200.0)
    assert {place["place"] for place in found["standing"]} <= {"best", "tied", "behind"}


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


def test_a_plugin_s_metric_stands_in_the_report(kept: Kept, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    METRICS.names()
    monkeypatch.setattr(METRICS, "_entries", dict(METRICS._entries))
    (tmp_path / "mine.py").write_text(HALF)
    words = ("--store", kept.path, "--out", tmp_path, "--plugin", tmp_path / "mine.py")
    found = json.loads(command(report, *words, "--json"))
    assert {cell["mean"] for cell in found["scores"] if cell["metric"] == "half"} == {0.5}
    assert ">half" in (tmp_path / "report.html").read_text()
    assert ",half,0.5" in (tmp_path / "results.csv").read_text()


def test_show_tells_a_fit_by_the_beginning_of_its_id(kept: Kept) -> None:
    found = json.loads(command(show, kept.fit[:12], "--store", kept.path, "--json"))
    assert found["kind"] == "fit"
    assert found["id"] == kept.fit
    assert found["spec"]["kind"] == "fit"
    assert found["record"]["seconds"] == 2.5
    assert "spec" in command(show, kept.fit, "--store", kept.path)


@pytest.mark.parametrize("which", ["single", "ensemble"])
def test_show_scores_a_prediction_on_its_splits(kept: Kept, which: str) -> None:
    identifier = getattr(kept, which)
    found = json.loads(command(show, identifier, "--store", kept.path, "--json"))
    assert found["kind"] == "prediction"
    assert 0.5 < found["scores"]["test"]["accuracy"] <= 1.0
    assert "calibrated_nll" in command(show, identifier, "--store", kept.path)


def test_show_tells_a_run_by_its_name(kept: Kept) -> None:
    found = json.loads(command(show, "small", "--store", kept.path, "--json"))
    assert found["kind"] == "run"
    assert found["methods"] == ["deterministic", "deep-ensemble"]
    assert len(found["predictions"]) == 6
    said = command(show, kept.run, "--store", kept.path)
    assert "accuracy" in said
    assert "…" not in said  # which metric it is must be readable at any width


def test_what_is_not_there_is_refused_in_words(kept: Kept, tmp_path: Path) -> None:
    with pytest.raises(UnknownName, match=r"smoll.*small"):
        command(report, "smoll", "--store", kept.path, "--out", tmp_path)
    with pytest.raises(UnknownName, match="nothing"):
        command(show, "nothing", "--store", kept.path)
    with pytest.raises(UserError, match="no fit or prediction"):
        command(show, "0" * 64, "--store", kept.path)
    with pytest.raises(DubioError, match="no dubio store"):
        command(report, "--store", tmp_path / "void", "--out", tmp_path)
    with Store.open(tmp_path / "empty"), pytest.raises(UserError, match="dubio run quick"):
        command(report, "--store", tmp_path / "empty", "--out", tmp_path)


def test_several_runs_are_reported_together(kept: Kept, tmp_path: Path) -> None:
    path = tmp_path / "copy"
    shutil.copytree(kept.path, path)
    with Store.open(path) as store:
        first = store.manifest(kept.run)
        second = {**first, "name": "again", "benchmark": {"name": "again", "preset": "paper"}}
        store.write_manifest(second, "fedcba9876543210")
        names = store.manifests()
    with pytest.raises(UserError, match="2 runs"):
        command(report, "--store", path, "--out", tmp_path)
    options = [word for name in names for word in ("--run", name)]
    found = json.loads(command(report, *options, "--store", path, "--out", tmp_path, "--as-published", "--json"))
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


def test_deep_ensemble_equivalents_of_a_stored_run(kept: Kept) -> None:
    found = json.loads(command(dee, "--store", kept.path, "--orders", 2, "--json"))["tasks"]["screening"]
    assert found["longest"] == 4
    curve = found["methods"]["deep-ensemble"]
    with Store.open(kept.path, create=False) as store:
        manifest = store.manifest(kept.run)
        (split,) = manifest["tasks"][0]["splits"]
        pooled = next(run["id"] for run in manifest["runs"] if run["method"] == "deep-ensemble")
        wanted = growth_curve(store.read_predictions(pooled, split["name"], split["fingerprint"]), orders=2)
    assert curve["mean"] == pytest.approx(wanted.mean["nll"].tolist())
    assert [each["samples"] for each in curve["dee"]] == [1, 2]
    assert "deterministic" not in found["methods"]
    with pytest.raises(UnknownName, match="deep-ensemble"):
        command(dee, "deep-ensembel", "--store", kept.path)
    with pytest.raises(UserError, match="does not go with --store"):
        command(dee, "--store", kept.path, "--ensemble", "x.npz")
    with pytest.raises(UserError, match="or --store"):
        command(dee)
