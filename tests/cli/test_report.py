"""``dubio report`` on a real store."""

from __future__ import annotations

import json
import shlex
import shutil
from pathlib import Path

import pytest
import typer

from dubio.cli import refer
from dubio.cli.evaluate import evaluate
from dubio.cli.options import EXAMPLES, MARGIN
from dubio.cli.report import report
from dubio.cli.show import show
from dubio.core.errors import DubioError, UnknownName, UserError
from dubio.core.registry import METRICS
from dubio.formats import read_predictions
from dubio.referral import Policy, apply_policy
from dubio.reporting import reported, run_view
from dubio.reporting.prediction_files import open_systems
from dubio.reporting.section import Widget
from dubio.reporting.stored_run import Run
from dubio.store import Store
from tests.cli.helpers import StoredRun, invoke, run_command
from tests.reporting.systems import named_rows, systems, write_npz


def test_report_writes_page_table_and_figures(stored_run: StoredRun, tmp_path: Path) -> None:
    out, figures = tmp_path / "out", tmp_path / "figures"
    text = run_command(report, "--store", stored_run.path, "--out", out, "--figures", figures, "--format", "png,svg")
    assert "Deep ensemble" in text
    assert (out / "report.html").stat().st_size > 50_000
    assert (out / "results.csv").read_text().startswith("task,split,kind,method,seed,member,metric,value\n")
    assert {path.suffix for path in figures.iterdir()} == {".png", ".svg", ".csv", ".json"}
    assert len(list(figures.glob("screening-*.png"))) == 14


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


def test_the_number_of_examples_can_be_set_and_none_is_shown_on_request(
    stored_run: StoredRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(run: Run, out: Path, *, examples: int, **others: object) -> None:
        raise UserError(f"{examples} examples")

    monkeypatch.setattr(Run, "report", refuse)
    calls = {(): EXAMPLES, ("--examples", "7"): 7, ("--examples", "0"): 0, ("--examples", "7", "--no-examples"): 0}
    for words, number in calls.items():
        with pytest.raises(UserError, match=f"^{number} examples"):
            run_command(report, "small", "--store", stored_run.path, "--out", tmp_path, *words)
    assert EXAMPLES == run_view.EXAMPLES


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


# -- files of predictions


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two systems on a test set, a calibration set, rain and novel examples; the page itself is not drawn."""

    monkeypatch.setattr(reported, "report_texts", lambda report, raw_csv: {"report.html": "page"})
    for prefix, rows, harder in (("test", 120, 0.0), ("cal", 100, 0.0), ("rain", 80, 0.7), ("novel", 60, 1.5)):
        for name, own in systems(rows, harder=harder, **named_rows(rows, prefix)).items():
            write_npz(tmp_path / f"{name}_{prefix}.npz", own)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_files_of_predictions_are_reported_side_by_side(files: Path) -> None:
    options = {"--cal": "cal", "--shift": "rain", "--ood": "novel"}.items()
    further = [f"{option}={name}={name}_{prefix}.npz" for option, prefix in options for name in "ab"]
    document = json.loads(run_command(report, "a=a_test.npz", "b=b_test.npz", *further, "--title", "weather", "--json"))
    assert document["run"] == "weather"
    assert {score["method"] for score in document["scores"]} == {"a", "b", "random-referral"}
    assert {score["split"] for score in document["scores"]} == {"test", "rain", "novel"}
    assert len(document["risk_policies"]) == 2
    assert {row["fact"] for row in document["subgroups"]} == {"site"}
    evaluated = json.loads(run_command(evaluate, "a=a_test.npz", "b=b_test.npz", "--json", "--replicates", "0"))
    ours = {(s["method"], s["metric"]): s["mean"] for s in document["scores"] if s["split"] == "test"}
    for name, own in evaluated["systems"].items():
        for metric in ("accuracy", "nll", "brier", "calibrated_nll", "aurc", "ece", "macro_f1"):
            assert ours[name, metric] == pytest.approx(own["scores"][metric]["value"], rel=1e-12)


def test_the_table_of_files_is_printed_and_notes_go_to_standard_error(files: Path) -> None:
    app = typer.Typer()
    app.command()(report)
    done = invoke(app, "a_test.npz", "b_test.npz", "--margin", "0.5", "--out", files / "out")
    assert "a_test" in done.stdout
    assert "system" in done.stdout
    assert "--margin: not used" in done.stderr
    assert str(files / "out" / "report.html") in done.stderr.replace("\n", "")


def test_a_missing_file_is_named_and_not_taken_for_a_run(files: Path) -> None:
    with pytest.raises(UserError, match=r"gone\.parquet': no such file"):
        run_command(report, "a_test.npz", "gone.parquet")


def test_runs_and_files_are_not_mixed(files: Path, stored_run: StoredRun) -> None:
    with pytest.raises(UserError, match=r"'a_test.npz' is a file, and 'small' is not"):
        run_command(report, "small", "a_test.npz")
    with pytest.raises(UserError, match="--run and --store are for benchmark runs"):
        run_command(report, "a_test.npz", "--store", stored_run.path)
    with pytest.raises(UserError, match="--cal, --group: for files of predictions"):
        run_command(report, "small", "--store", stored_run.path, "--cal", "a_cal.npz", "--group", "x")
    with pytest.raises(UserError, match="name one run, or each with --run; given one, two"):
        run_command(report, "one", "two", "--store", stored_run.path)


def test_further_files_name_their_system(files: Path) -> None:
    with pytest.raises(UserError, match=r"--shift 'a_rain.npz': with several systems, name one of them"):
        run_command(report, "a_test.npz", "b_test.npz", "--shift", "a_rain.npz")
    with pytest.raises(UserError, match="--shift: every system needs the same number of files"):
        run_command(report, "a=a_test.npz", "b=b_test.npz", "--shift", "a=a_rain.npz")
    with pytest.raises(UserError, match="--cal: every system has one calibration set; given 2"):
        run_command(report, "a_test.npz", "--cal", "a_cal.npz", "--cal", "a_rain.npz")


def test_evaluate_writes_the_page_too(files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reported, "render", lambda built: ", ".join(built.run.titles))
    printed = run_command(evaluate, "a_test.npz", "b_test.npz", "--report", "page.html", "--metric", "nll", "--json")
    document = json.loads(printed)
    assert (files / "page.html").read_text() == "a_test, b_test"
    assert document["report"] == "page.html"
    assert "--metric: not on the page, which has metrics of its own." in document["notes"]
    with pytest.raises(UserError, match=r"--report 'a_test.npz' is the input"):
        run_command(evaluate, "a_test.npz", "--report", "a_test.npz")


def test_the_policies_of_the_page_are_the_files_of_the_command(files: Path) -> None:
    """Every file that the page offers is, byte for byte, what ``refer fit --targets`` writes for the same systems."""
    calibration = {name: f"{name}_cal.npz" for name in "ab"}
    opened = open_systems({"a": "a_test.npz", "b": "b_test.npz"}, cal=calibration)
    block = next(
        block
        for placed in opened.built.of_part("task") if placed.name == "cockpit"
        for block in opened.built.blocks(placed, opened.built.tasks[0]) if isinstance(block, Widget)
    )  # fmt: skip
    widget = json.loads(json.dumps(block.data))
    offered = {
        name: before + own["files"]["uncertainties"] + after
        for own in widget["systems"] if own["files"] for name, (before, after) in own["files"]["files"].items()
    }  # fmt: skip
    words = shlex.split(widget["command"])
    assert words[:3] == ["dubio", "refer", "fit"]
    paths = [f"{name}={name}_cal.npz" for name in "ab"]
    assert words[3:5] == ["a=cal-a.npz", "b=cal-b.npz"]
    assert invoke(refer.app, "fit", *paths, *words[5:]).exit_code == 0
    written = {path.name: path.read_text(encoding="utf-8") for path in (files / "policies").iterdir()}
    assert offered == written
    assert {stop["file"] for own in widget["systems"] for stop in own["stops"]} - {None} == written.keys()
    (files / "downloaded.json").write_text(offered[max(offered)], encoding="utf-8")
    applied = invoke(refer.app, "apply", "downloaded.json", f"{max(offered)[-6]}_test.npz", "-o", "d.csv", "--json")
    policy = Policy.from_json(written[max(written)])
    decided = apply_policy(policy, read_predictions(f"{max(offered)[-6]}_test.npz"))
    assert json.loads(applied.stdout)["retained"] == int(decided.retained.sum())
