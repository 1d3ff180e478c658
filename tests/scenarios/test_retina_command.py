"""``dubio run retina`` as a user meets it: told its data, from photographs to a report, and mistakes."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from dubio.cli.app import app
from dubio.core.errors import UserError
from dubio.store import Store
from tests.executor_here import training_here

pytest.importorskip("torch")


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """Eyes whose disease is bright, four photographs a patient."""
    path = tmp_path_factory.mktemp("retina")
    rng = np.random.default_rng(0)
    patients, count = 30, 120
    grade = np.arange(count) % 5
    x = rng.integers(0, 100, (count, 64, 64, 3), dtype=np.uint8) + (30 * grade).astype(np.uint8)[:, None, None, None]
    columns = {
        "y": grade,
        "patient": np.repeat(np.arange(patients), 4),
        "quality": (rng.random(count) > 0.3).astype(int),
    }
    np.savez(path / "eyes.npz", x=x, **columns)
    np.savez(path / "elsewhere.npz", x=255 - x[:40], y=grade[:40])
    return path


@pytest.fixture
def dubio(folder, monkeypatch):
    """The command in that folder, with one job, no more than an epoch and a tiny network."""
    monkeypatch.chdir(folder)
    monkeypatch.delenv("DUBIO_DATA", raising=False)

    def call(*words: str) -> str:
        with training_here():
            return CliRunner().invoke(app, ["run", "retina", *words], catch_exceptions=False).stdout

    return call


SHORT = ("--set", "epochs=1", "--set", "mc-dropout.samples=3", "--seeds", "1", "--jobs", "1")
TINY = (*SHORT, "--set", "network.channels=[1]")
TWO = ("--method", "regularised", "--method", "mc-dropout")


def test_from_arrays_to_a_report(dubio, folder):
    said = dubio("--data", "eyes.npz", "--size", "64", "--shift", "quality", *TINY, *TWO, "--json")
    found = json.loads(said)
    assert (found["failures"], found["skipped"]) == ([], [])
    assert {row["method"] for row in found["results"]} >= {"regularised", "mc-dropout", "random-referral"}
    assert {row["split"] for row in found["results"]} >= {"test", "bad-quality"}
    assert (folder / "dubio-report" / "report.html").stat().st_size > 1000
    store = Store.open(folder / "dubio-store", create=False)
    (name,) = store.manifests()
    assert name.startswith("retina-")
    manifest = store.manifest(name)
    assert manifest["tasks"][0]["arguments"] == {"data": "eyes.npz", "size": 64, "shift": "quality"}
    assert len(store.ids("fits")) == 3  # two baselines, and one that both methods are made of
    baselines = {row["name"] for row in manifest["methods"] if row["facts"].get("role") == "baseline"}
    assert baselines == {"prior", "linear"}
    assert len({tuple(run["fits"]) for run in manifest["runs"] if run["method"] not in baselines}) == 1


def test_without_data_the_named_folders_are_searched(dubio, folder, monkeypatch):
    with pytest.raises(UserError, match="no photographs of eyes") as caught:
        dubio("--dry-run")
    assert caught.value.exit_code == 2
    home = folder / "photographs"
    home.mkdir(exist_ok=True)
    (home / "deepdrid_64.npz").write_bytes((folder / "eyes.npz").read_bytes())
    ahead = json.loads(dubio("--data-dir", "photographs", "--dry-run", "--json", *TINY, *TWO))
    assert [task["task"] for task in ahead["tasks"]] == ["retina", "retina-severity"]
    monkeypatch.setenv("DUBIO_DATA", str(home))
    ahead = json.loads(dubio("--shift", "severity", "--dry-run", "--json", *TINY, *TWO))
    assert ([task["task"] for task in ahead["tasks"]], ahead["preset"]) == (["retina-severity"], "small")


def test_another_data_set_is_the_shift(dubio):
    words = ("--data", "eyes.npz", "--shift-data", "elsewhere.npz", "--preset", "64", "--verify", "--dry-run", "--json")
    ahead = json.loads(dubio(*words, *SHORT, "--set", "network.base=1", *TWO))
    assert [task["task"] for task in ahead["tasks"]] == ["retina-elsewhere"]
    assert (ahead["preset"], ahead["trials"], ahead["trainings"]) == ("64", 6, 3)  # two of the trainings are baselines


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--data", "nowhere.npz"), "no such file or folder"),
        (("--data", "eyes.npz", "--shift", "qualty"), "Did you mean 'quality'"),
        (("--data", "eyes.npz", "--shift", "site"), "does not name two sites"),
        (("--data", "eyes.npz", "--size", "65"), "64, 128, 256, 512"),
        (("--data", "eyes.npz", "--size", "128"), "larger than the images"),
        (("--data", "eyes.npz", "--preset", "512"), "larger than the images"),
        (("--data", "eyes.npz", "--preset", "51"), "Did you mean '512'"),
        (("--data", "eyes.npz", "--target", "ordnal"), "Did you mean 'ordinal'"),
        (("--data", "eyes.npz", "--label", "grade"), "has an argument 'label'"),
        (("--data", "eyes.npz", "--shift-data", "eyes.npz"), "another data set"),
        (("--data", "eyes.npz", "--method", "mean-field"), "Did you mean 'mean-field-vi'"),
        (("--data", "eyes.npz", "--set", "network.channel=1"), "Did you mean 'channels'"),
    ],
)
def test_mistakes_are_named(dubio, words, said):
    with pytest.raises(UserError, match=said) as caught:
        dubio(*words, "--dry-run")
    assert caught.value.exit_code == 2


@pytest.mark.parametrize("words", [("--shift", "quality"), ("--shift-data", "eyes.npz"), ("--verify",)])
def test_what_speaks_of_a_benchmark_needs_one(folder, monkeypatch, words):
    monkeypatch.chdir(folder)
    with pytest.raises(UserError, match="option of a benchmark"):
        CliRunner().invoke(app, ["run", "--data", "eyes.npz", *words], catch_exceptions=False)
