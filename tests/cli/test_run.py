"""``dubio run`` as a user meets it: own data from a file to a report, forecasts, mistakes, interrupts."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from dubio.cli.app import app
from dubio.cli.run import _load_report
from dubio.core.errors import UserError
from dubio.store import Store
from dubio.store.verification import verify
from tests.cli.helpers import run_here
from tests.executor_here import training_here

pytest.importorskip("torch")


ENVIRONMENT = {**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parents[2] / "src")}


def test_a_report_that_cannot_be_loaded_early_is_left_to_its_writing(monkeypatch, capsys) -> None:
    monkeypatch.setitem(sys.modules, "dubio.reporting.reported", None)  # an import of it fails
    _load_report()
    assert capsys.readouterr() == ("", "")


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """A table of two numbers and three classes, one of which will be held out."""
    path = tmp_path_factory.mktemp("own")
    generator = np.random.default_rng(0)
    labels = np.repeat(["a", "b", "c"], 40)
    centres = {"a": (0, 0), "b": (3, 0), "c": (0, 3)}
    lines = ["x,y,class"]
    for label in labels:
        x, y = generator.normal(centres[label])
        lines.append(f"{x:.4f},{y:.4f},{label}")
    lines.append(lines[1])
    (path / "my points.csv").write_text("\n".join(lines) + "\n")
    return path


OWN = ("run", "--data", "my points.csv", "--features", "*", "--label", "class", "--set", "epochs=2", "--jobs", "1")
SMALL = (*OWN, "--novel", "c", "--seeds", "1", "--method", "deterministic", "--method", "mc-dropout")


@pytest.fixture(scope="module")
def done(folder) -> subprocess.CompletedProcess[str]:
    """The whole way of a user: the command as a process of its own; the other tests run theirs in this one."""
    command = [sys.executable, "-m", "dubio", *SMALL]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=120, env=ENVIRONMENT)


def test_data_that_must_not_leave_is_neither_stored_nor_shown(folder):
    with training_here():
        result = run_here(folder, *SMALL[:-2], "--no-examples", "--store", "private", "--out", "private/report")
    assert result.returncode == 0, result.stderr
    cells = {cell for line in (folder / "my points.csv").read_text().splitlines()[1:] for cell in line.split(",")[:2]}
    for path in [*(folder / "private").rglob("*.json"), *(folder / "private" / "report").rglob("*.html")]:
        text = path.read_text(encoding="utf-8")
        assert not [cell for cell in cells if len(cell) > 6 and cell in text], path
    assert not (folder / "private" / "examples").exists()
    assert "--no-examples" in (folder / "private" / "report" / "report.html").read_text(encoding="utf-8")
    manifest = next((folder / "private" / "runs").glob("*.json")).read_text(encoding="utf-8")
    assert "--no-examples" in manifest


def test_own_data_from_a_file_to_a_report(folder, done):
    assert done.returncode == 0, done.stderr
    assert "Deterministic" in done.stdout
    assert "MC dropout" in done.stdout
    assert (folder / "dubio-report" / "report.html").stat().st_size > 1000
    assert (folder / "dubio-report" / "results.csv").read_text().startswith("task,split")
    store = Store.open(folder / "dubio-store", create=False)
    assert verify(store) == ()
    (name,) = store.manifests()
    manifest = store.manifest(name)
    assert name.startswith("my-points-")
    assert [task["name"] for task in manifest["tasks"]] == ["my-points"]
    assert {split["kind"] for split in manifest["tasks"][0]["splits"]} == {"train", "val", "cal", "id", "ood"}
    assert len(store.ids("fits")) == 5  # three baselines; without dropout and with
    methods = [run["method"] for run in manifest["runs"]]
    assert methods == ["prior", "linear", "boosting", "deterministic", "mc-dropout"]
    assert [row["name"] for row in manifest["methods"]] == methods
    titles = ("Class frequencies", "Linear", "Boosted trees", "Deterministic", "MC dropout")
    lines = done.stdout.splitlines()
    rows = [next(row for row, line in enumerate(lines) if line.startswith(title)) for title in titles]
    assert rows == sorted(rows)  # baselines are the first rows


def test_a_damaged_data_file_is_named_and_no_task_is_left_out_for_it(tmp_path):
    (tmp_path / "cifar10_cut.npz").write_bytes(b"PK\x03\x04 and no more")
    done = run_here(tmp_path, "run", "ensembles", "--task", "cifar10", "--data-dir", ".", "--dry-run")
    assert done.returncode == 2
    assert "cifar10_cut.npz' is not an npz file" in done.stderr
    assert "skipped" not in done.stderr


def test_the_same_command_again_trains_nothing(folder, done):
    before = (folder / "dubio-store" / "index.sqlite").read_bytes()
    again = run_here(folder, *SMALL, "--json")
    assert again.returncode == 0, again.stderr
    assert "done in" not in again.stderr
    found = json.loads(again.stdout)
    assert found["failures"] == []
    assert {row["method"] for row in found["results"]} >= {"deterministic", "mc-dropout"}
    assert (folder / "dubio-store" / "index.sqlite").read_bytes() == before


def test_a_dry_run_counts_and_changes_nothing(folder, done):
    ahead = run_here(folder, *OWN, "--seeds", "0,1", "--dry-run", "--json", "--store", "elsewhere")
    assert ahead.returncode == 0, ahead.stderr
    plan = json.loads(ahead.stdout)
    # three families of three members in two seeds, where 5 + 3 × 3 were asked for, and three baselines once
    assert (plan["trainings"], plan["asked"], plan["shared"], plan["trainings_left"]) == (21, 31, 10, 21)
    assert plan["bytes"] > 0
    assert not (folder / "elsewhere").exists()


def test_a_shard_makes_its_part_and_says_what_comes_next(folder, tmp_path):
    """One shard of more than there are trainings has nothing to do, which is quick and no failure."""
    ahead = run_here(folder, *SMALL, "--shard", "1/2", "--dry-run", "--json")
    assert json.loads(ahead.stdout)["shard"] == "1/2"
    store, out = tmp_path / "part", tmp_path / "report"
    ended = run_here(folder, *SMALL, "--shard", "9/9", "--store", str(store), "--out", str(out))
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.startswith("shard 9/9 of my-points-")
    assert "0 trainings, 0 predictions" in ended.stdout
    assert "dubio store merge STORE STORE … --into MERGED" in ended.stdout
    assert not out.exists()
    assert Store.open(store, create=False).manifests() == ()


def test_one_training_is_spoken_of_as_one(folder, monkeypatch):
    monkeypatch.chdir(folder)
    one = (*OWN, "--seeds", "1", "--method", "deterministic", "--no-baselines", "--dry-run", "--store", "elsewhere")
    said = CliRunner().invoke(app, list(one), catch_exceptions=False).stdout
    assert "to be made    1 training, 1 prediction\n" in said


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("run",), "a benchmark .*--data"),
        (("run", "quick", "--data", "my points.csv"), "--data"),
        (("run", "quick", "--label", "class"), "--label.*your own data"),
        (("run", "quik"), "Did you mean 'quick'"),
        (("run", "quick", "--task", "digit"), "Did you mean 'digits'"),
        (("run", "quick", "--method", "mcdropout"), "Did you mean 'mc-dropout'"),
        (("run", "quick", "--set", "epoch=2"), "Did you mean 'epochs'"),
        (("run", "quick", "--set", "epochs=many"), "epochs must be a whole number"),
        ((*SMALL, "--set", "mc-dropout.p=2", "--dry-run"), "--set mc-dropout.*p must be .* at least 0"),
        (("run", "quick", "--network", "mlp", "--task", "digits"), "mlp"),
        ((*OWN[:5], "--label", "klass"), "Did you mean 'class'"),
        ((*SMALL, "--executor", "remote"), "local"),
        ((*SMALL, "--shard", "4/3"), "--shard must be I/N with I from 1 to N, such as 2/3"),
        (("run", "quick", "--preset", "paper"), "unknown preset .* Known: smoke, start"),
        (("run", "text", "--preset", "papr"), "Did you mean 'paper'"),
        (("run", "text", "--task", "amazon-book"), "Did you mean 'amazon-books'"),
        (("run", "quick", "--seeds", "0"), "0-0"),
        (("run", "quick", "--margin", "-1"), "margin must be .* at least 0; given -1"),
        (("run", "quick", "--margin", "nan"), "margin must be .* at least 0; given nan"),
        (("run", "quick", "--data-dir", "nowhere"), "no such folder"),
        (("run", "quick", "--data-dir", "."), "no task of benchmark 'quick'"),
        ((*SMALL, "--preset", "paper"), "unknown preset .*'paper'.* start"),  # own data has presets of its own
        (
            ("run", "text", "--preset", "small", "--task", "aapd", "--network", "textcnn", "--data-dir", "."),
            "does not hold .* 'aapd'",
        ),
        ((*SMALL, "--store", "my points.csv"), "cannot write"),
        ((*SMALL, "--plugin", "none.py"), "no such file"),
        ((*SMALL, "--out", "my points.csv"), "--out"),
    ],
)
def test_mistakes_are_named(folder, monkeypatch, words, said):
    monkeypatch.chdir(folder)
    with pytest.raises(UserError, match=said) as caught:
        CliRunner().invoke(app, list(words), catch_exceptions=False)
    assert caught.value.exit_code == 2


def test_a_failing_training_ends_with_1_and_leaves_the_others(folder, done):
    """A learning rate beyond all bounds gives a loss that is not a number."""
    beyond = ("--set", "mc-dropout.lr=1e38", "--set", "mc-dropout.clip=1e38")
    with training_here():
        found = run_here(folder, *SMALL, *beyond, "--out", "failed")
    assert found.returncode == 1, found.stderr
    assert "loss is" in found.stderr
    assert "Deterministic" in found.stdout
    assert (folder / "failed" / "report.html").exists()


def test_an_interrupt_says_how_to_go_on(folder):
    endless = ("--set", "epochs=100000", "--set", "patience=0", "--store", "stopped")
    command = [sys.executable, "-m", "dubio", *SMALL, *endless]
    process = subprocess.Popen(command, cwd=folder, stderr=subprocess.PIPE, text=True, env=ENVIRONMENT)
    deadline = time.monotonic() + 60
    while not list(folder.glob("stopped/locks/*.lock")) and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.05)
    time.sleep(0.5)
    process.send_signal(signal.SIGINT)
    _, words = process.communicate(timeout=20)
    assert process.returncode == 130, words
    assert "run the same command again" in words
    assert "Traceback" not in words
    assert list((folder / "stopped" / "tmp").iterdir()) == []
