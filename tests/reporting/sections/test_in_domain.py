"""Scores and temperatures on the in-domain test set."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sklearn import metrics as sk

from dubio.calibration.cross_validation import cross_validate
from dubio.reporting.build import Report
from dubio.reporting.run_view import RunView
from dubio.reporting.sections.in_domain import in_domain_table, temperature
from tests.reporting.helpers import run_ids, sort_values
from tests.reporting.world import METHODS, FakeStore

World = tuple[FakeStore, dict[str, Any]]


def test_in_domain_f1_is_scikit_learns(world: World, run: RunView) -> None:
    store = world[0]
    table = in_domain_table(run, run.tasks[0])
    shown = sort_values(table, "Macro F1")
    assert "Micro F1" not in [head.title for head in table.columns]  # one label an example: nothing but accuracy
    for name, title, *_ in METHODS:
        found = [store.predictions[made, "test"] for made in run_ids(world[1], "digits", name)]
        values = [sk.f1_score(p.labels, p.probs.argmax(1), average="macro") for p in found]
        assert float(shown[title]) == pytest.approx(np.mean(values), abs=1e-9)


def test_temperatures_shown_are_the_medians_of_those_cross_validated(world: World, report: Report) -> None:
    store, manifest = world
    task = next(task for task in report.run.manifest.tasks if task.key == "screening")
    figure = next(temperature(report.run, task))
    for row, method in zip(figure.draw.args[0], report.run.manifest.methods, strict=True):  # type: ignore[attr-defined]
        runs = [r["id"] for r in manifest["runs"] if (r["task"], r["method"]) == ("screening", method.name)]
        every = [t for run in runs for t in cross_validate(store.predictions[run, "test"]).temperatures]
        assert row[-1] == pytest.approx(np.median(every))
