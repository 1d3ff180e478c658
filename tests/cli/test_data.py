from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from dubio.cli.data import app, own_arguments
from dubio.errors import UnknownName, UserError


def run(*words: str) -> str:
    result = CliRunner().invoke(app, words, catch_exceptions=False)
    assert result.exit_code == 0
    return result.stdout


@pytest.fixture
def path(tmp_path: Path) -> str:
    lines = [f"text number {i} {i * 7919 % 101},{'abc'[i % 3]}" for i in range(90)]
    file = tmp_path / "my.csv"
    file.write_text("\n".join(["body,topic", *lines]), encoding="utf-8")
    return str(file)


def test_tasks_are_listed_with_their_cards() -> None:
    listed = {item["name"]: item for item in json.loads(run("list", "--json"))}
    assert {"digits", "breast-cancer", "movie-reviews", "own"} <= set(listed)
    assert listed["digits"]["card"]["licence"] == "CC BY 4.0"
    assert listed["own"]["card"] is None
    assert "scikit-learn" in run("list")


def test_checking_prints_splits_and_class_counts(path: str) -> None:
    found = json.loads(run("check", path, "--text", "body", "--label", "topic", "--novel", "c", "--json"))
    assert found["classes"] == ["a", "b"]
    assert {split["name"]: split["examples"] for split in found["splits"]} == {
        "train": 36,
        "val": 6,
        "cal": 9,
        "test": 9,
        "novel": 30,
    }
    assert found["splits"][0]["classes"] == {"a": 18, "b": 18}
    said = run("check", path, "--text", "body", "--label", "topic", "--fractions", "0.5,0.1,0.2,0.2")
    assert "a 15, b 15, c 15" in said
    assert "Split at random" in said


def test_showing_a_task_takes_arguments() -> None:
    pytest.importorskip("sklearn")
    assert "9 classes" in run("show", "digits", "--set", 'novel=["3"]')
    with pytest.raises(UserError, match="KEY=VALUE"):
        run("show", "digits", "--set", "novel")
    with pytest.raises(UnknownName, match="digits"):
        run("show", "digit")


def test_a_wrong_column_is_named_with_the_nearest(path: str) -> None:
    with pytest.raises(UnknownName, match="Did you mean 'body'"):
        run("check", path, "--text", "bodi", "--label", "topic")


def test_lists_are_written_with_commas() -> None:
    given = {"data": Path("x.csv"), "novel": "a, b", "features": "*", "text": None, "fractions": "1,0,0,0"}
    assert own_arguments(given) == {
        "data": "x.csv",
        "novel": ("a", "b"),
        "features": ("*",),
        "fractions": (1.0, 0.0, 0.0, 0.0),
    }
    with pytest.raises(UserError, match="four numbers"):
        own_arguments({"data": "x", "fractions": "half"})
