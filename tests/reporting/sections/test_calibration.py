"""Reliability diagrams and temperatures on the in-domain test set."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.calibration import calibration_curve

from dubio.calibration.cross_validation import cross_validate
from dubio.reporting.build import Report
from dubio.reporting.section import Figure
from dubio.reporting.sections.calibration import temperature
from tests.reporting.helpers import blocks, of_kind, run_ids
from tests.reporting.sections.helpers import rows_of
from tests.reporting.stored_runs import METHODS, World, stored, task_of


def shown(report: Report, task: str) -> dict[str, Figure]:
    return {figure.name: figure for figure in of_kind(blocks(report, "calibration", task_of(report.run, task)), Figure)}


def test_dots_are_the_bins_of_all_runs_together(world: World, report: Report) -> None:
    rows = rows_of(shown(report, "digits")["reliability"])
    for name, title, *_ in METHODS:
        runs = stored(world, "digits", name, "test")
        confidence = np.concatenate([run.probs.max(axis=1) for run in runs])
        right = np.concatenate([run.probs.argmax(axis=1) == run.labels for run in runs])
        accuracy, mean = calibration_curve(right, confidence, n_bins=15)
        own = [row for row in rows if row["method"] == title]
        assert [row["y"] for row in own] == pytest.approx(accuracy, rel=1e-5)
        assert [row["x"] for row in own] == pytest.approx(mean, rel=1e-5)
        assert sum(row["share"] for row in own) == pytest.approx(1, abs=1e-5)
        assert all(row["low"] - 1e-6 <= row["x"] <= row["high"] + 1e-6 for row in own if row["share"] > 0.05)


def test_two_classes_have_the_curve_of_the_second_class_and_it_rises(world: World, report: Report) -> None:
    figures = shown(report, "screening")
    figure = figures["reliability-corp"]
    assert (figure.folded, figures["reliability"].folded) == (True, False)
    assert "Of the class “ill”" in figure.caption
    assert "90 % of cases" in figure.caption
    rows = [row for row in rows_of(figure) if row["method"] == "Deterministic"]
    assert rows[0]["x"] < 0.1  # of the top label it could not be below one half
    values = [row["y"] for row in rows]
    assert values == sorted(values)
    assert all(row["low"] <= row["high"] for row in rows)
    labels = stored(world, "screening", "deterministic", "test")[0].labels
    assert values[0] < labels.mean() < values[-1]


def test_temperatures_shown_are_the_medians_of_those_cross_validated(world: World, report: Report) -> None:
    store, manifest = world
    rows = {row["method"]: row for row in rows_of(next(temperature(report.run, task_of(report.run, "screening"))))}
    for name, title, *_ in METHODS:
        runs = [store.predictions[run, "test"] for run in run_ids(manifest, "screening", name)]
        every = [t for run in runs for t in cross_validate(run).temperatures]
        assert rows[title]["temperature"] == pytest.approx(np.median(every), rel=1e-5)
        plain = np.mean([-np.log(run.probs[np.arange(len(run)), run.labels]).mean() for run in runs])
        assert rows[title]["plain"] == pytest.approx(plain, rel=1e-4)
