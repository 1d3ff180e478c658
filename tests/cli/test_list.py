"""``dubio list``: what is registered, by us or by a plugin, with its arguments."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from dubio.cli.app import app
from dubio.core.errors import UserError
from dubio.core.registry import REGISTRIES

PLUGIN = '''
from dubio import Predictions, metric


@metric("always-half", better="higher")
def always_half(p: Predictions, *, value: float = 0.5, needed: int) -> float:
    """A metric that is always the same.

    More words.
    """
    return value
'''


def listed(*words: str) -> list[dict[str, Any]]:
    done = CliRunner().invoke(app, ["list", *words, "--json"], catch_exceptions=False)
    assert done.exit_code == 0
    found: list[dict[str, Any]] = json.loads(done.stdout)
    return found


@pytest.mark.parametrize("sort", sorted(REGISTRIES))
def test_lists_everything_registered_with_a_summary(sort: str) -> None:
    found = listed(sort)
    assert [item["name"] for item in found] == list(REGISTRIES[sort].names())
    for item in found:
        assert item["summary"], item["name"]
        assert item["origin"]


def test_lists_the_benchmarks_that_come_with_dubio() -> None:
    found = {item["name"]: item for item in listed("benchmarks")}
    assert found["quick"]["summary"]
    for item in found.values():  # a first run, and whether it runs at all, for every benchmark; each says what it costs
        for name in ("start", "smoke"):
            assert re.search("minute|hour", item["presets"][name])
    assert found["text"]["default_preset"] == "start"


def test_lists_the_eighteen_set_ups() -> None:
    names = {item["name"] for item in listed("methods")}
    single = {
        "deterministic", "regularised", "mc-dropout", "heteroscedastic", "mc-heteroscedastic", "concrete-dropout",
        "mc-concrete-dropout", "heteroscedastic-concrete-dropout", "mc-heteroscedastic-concrete-dropout",
    }  # fmt: skip
    ensembles = {
        "deep-ensemble", "deep-ensemble-regularised", "mc-dropout-ensemble", "concrete-dropout-ensemble",
        "mc-concrete-dropout-ensemble", "heteroscedastic-ensemble", "mc-heteroscedastic-ensemble",
        "heteroscedastic-concrete-dropout-ensemble", "mc-heteroscedastic-concrete-dropout-ensemble",
    }  # fmt: skip
    assert len(single | ensembles) == 18
    assert single | ensembles <= names


def test_a_plugin_is_listed_with_its_arguments(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "mine.py"
    path.write_text(PLUGIN)
    registry = REGISTRIES["metrics"]
    registry.names()
    monkeypatch.setattr(registry, "_entries", dict(registry._entries))
    found = {item["name"]: item for item in listed("metrics", "--plugin", str(path))}
    assert found["always-half"]["summary"] == "A metric that is always the same."
    assert found["always-half"]["arguments"] == [
        {"name": "value", "type": "float", "required": False, "default": 0.5},
        {"name": "needed", "type": "int", "required": True},
    ]


def test_text_output_names_arguments_and_defaults(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "mine.py"
    path.write_text(PLUGIN)
    registry = REGISTRIES["metrics"]
    registry.names()
    monkeypatch.setattr(registry, "_entries", dict(registry._entries))
    done = CliRunner().invoke(app, ["list", "metrics", "--plugin", str(path)], catch_exceptions=False)
    assert "always-half" in done.stdout
    assert "(value=0.5, needed)" in done.stdout


def test_a_kind_that_is_none_is_refused_with_the_nearest_one() -> None:
    """It read "Value error, 'method' is not one of …"."""
    with pytest.raises(UserError, match=r"unknown value of kind 'method'\. Did you mean 'methods'\? Known: "):
        CliRunner().invoke(app, ["list", "method"], catch_exceptions=False)


def test_one_name_is_shown_alone_with_its_arguments() -> None:
    (item,) = listed("methods", "packed-ensemble")
    assert item["name"] == "packed-ensemble"
    assert {"size", "alpha"} <= {argument["name"] for argument in item["arguments"]}
    (quick,) = listed("benchmarks", "quick")
    assert quick["presets"]
    with pytest.raises(UserError, match=r"unknown method 'packed'\. Did you mean 'packed-ensemble'\?"):
        CliRunner().invoke(app, ["list", "methods", "packed"], catch_exceptions=False)
