"""``dubio show`` on a real store."""

from __future__ import annotations

import json

import pytest

from dubio.cli.show import show
from tests.cli.helpers import StoredRun, run_command


def test_show_tells_a_fit_by_the_beginning_of_its_id(stored_run: StoredRun) -> None:
    found = json.loads(run_command(show, stored_run.fit[:12], "--store", stored_run.path, "--json"))
    assert found["kind"] == "fit"
    assert found["id"] == stored_run.fit
    assert found["spec"]["kind"] == "fit"
    assert found["record"]["seconds"] == 2.5
    assert "spec" in run_command(show, stored_run.fit, "--store", stored_run.path)


@pytest.mark.parametrize("which", ["single", "ensemble"])
def test_show_scores_a_prediction_on_its_splits(stored_run: StoredRun, which: str) -> None:
    identifier = getattr(stored_run, which)
    found = json.loads(run_command(show, identifier, "--store", stored_run.path, "--json"))
    assert found["kind"] == "prediction"
    assert 0.5 < found["scores"]["test"]["accuracy"] <= 1.0
    assert "calibrated_nll" in run_command(show, identifier, "--store", stored_run.path)


def test_show_tells_a_run_by_its_name(stored_run: StoredRun) -> None:
    found = json.loads(run_command(show, "small", "--store", stored_run.path, "--json"))
    assert found["kind"] == "run"
    assert found["methods"] == ["deterministic", "deep-ensemble"]
    assert len(found["predictions"]) == 6
    said = run_command(show, stored_run.run, "--store", stored_run.path)
    assert "accuracy" in said
    assert "…" not in said  # which metric it is must be readable at any width
