"""``dubio check``: what a file registers, rule by rule, with an exit code."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import dubio
from dubio.cli.app import app
from dubio.core.errors import BadFile
from dubio.core.registry import REGISTRIES

EXAMPLE = Path(__file__).resolve().parents[2] / "docs" / "examples" / "plugin.py"

GOOD = '''
from dubio import Predictions, metric


@metric("half", better="higher")
def half(p: Predictions) -> float:
    """Always a half."""
    return 0.5
'''


@pytest.fixture(autouse=True)
def registries_as_they_were(monkeypatch: pytest.MonkeyPatch) -> None:
    for registry in REGISTRIES.values():
        registry.names()
        monkeypatch.setattr(registry, "_entries", dict(registry._entries))


def run(path: Path, *words: str) -> Any:
    return CliRunner().invoke(app, ["check", str(path), *words])


def written(folder: Path, text: str) -> Path:
    path = folder / "mine.py"
    path.write_text(text, encoding="utf-8")
    return path


def test_the_example_plugin_passes() -> None:
    done = run(EXAMPLE)
    assert done.exit_code == 0, done.output
    for heading in ("task two-moons", "network wavy", "method light-dropout", "metric sure-errors"):
        assert heading in done.stdout
    assert "✗" not in done.stdout
    assert "  ✓ every class occurs in training" in done.stdout


def test_a_failing_plugin(tmp_path: Path) -> None:
    done = run(written(tmp_path, GOOD.replace("0.5", "float('nan')")))
    assert done.exit_code == 1
    assert "  ✗ its value is a number" in done.stdout
    assert "multiclass predictions it is NaN" in done.stdout
    assert "→ Give a number" in done.stdout
    assert "more rules were not checked" in done.stdout


def test_a_plugin_that_leaves_is_refused_like_one_that_fails(tmp_path: Path) -> None:
    done = run(written(tmp_path, "raise SystemExit(0)"))
    assert isinstance(done.exception, BadFile)
    assert "mine.py' cannot be imported: SystemExit" in str(done.exception)


def test_json(tmp_path: Path) -> None:
    done = run(written(tmp_path, GOOD), "--json")
    assert done.exit_code == 0
    found = json.loads(done.stdout)
    assert found["ok"] is True
    (checked,) = found["checked"]
    assert (checked["sort"], checked["name"]) == ("metric", "half")
    assert {rule["state"] for rule in checked["rules"]} == {"passed", "skipped"}


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("x = 1", "registers nothing"),
        ("import nosuchmodule", "cannot be imported: ModuleNotFoundError"),
        (GOOD.replace('"half"', '"accuracy"'), "metric 'accuracy' is already registered by dubio.metrics.scoring"),
    ],
)
def test_files_that_cannot_be_checked(tmp_path: Path, text: str, sentence: str) -> None:
    done = run(written(tmp_path, text))
    assert sentence in str(done.exception)
    assert done.exception.exit_code == 2


def test_no_such_file(tmp_path: Path) -> None:
    assert "no such file" in str(run(tmp_path / "none.py").exception)


def test_a_file_of_dubio_itself_is_checked_by_what_it_has_registered() -> None:
    done = run(Path(dubio.__file__).parent / "metrics" / "ordinal.py")
    assert done.exit_code == 0, done.output
    assert "metric rps" in done.stdout
