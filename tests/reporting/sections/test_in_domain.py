"""Scores and temperatures on the in-domain test set."""

from __future__ import annotations

from itertools import islice

import numpy as np
import pytest
from sklearn import metrics as sk

from dubio.calibration.cross_validation import BY_POSITION, cross_validate
from dubio.core.predictions import Predictions
from dubio.reporting.build import Report
from dubio.reporting.run_view import RunView
from dubio.reporting.section import Visit
from dubio.reporting.sections.in_domain import InDomainScores, in_domain_table, temperature, variance_parts
from tests.reporting.helpers import run_ids, sort_values
from tests.reporting.stored_runs import METHODS, World


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


def test_parts_of_the_variance_are_those_of_the_predictions(world: World) -> None:
    store, manifest = world
    for run in manifest["runs"]:
        predictions = store.predictions[run["id"], "test"]
        parts = variance_parts(predictions)
        assert parts.sum() == pytest.approx((predictions.probs * (1 - predictions.probs)).mean(), abs=1e-6)
        assert (parts[2] > 0) == ("ensemble" in run["method"])


def test_tasks_whose_examples_have_no_ids_say_that_halves_go_by_position(run: RunView) -> None:
    task = run.tasks[0]

    def texts(**names: np.ndarray) -> str:
        section = InDomainScores()
        rows = Predictions(np.zeros((1, 4, 2), dtype=np.float32), np.zeros(4, dtype=np.int64), **names)  # type: ignore[arg-type]
        section.visit(Visit(run, task, task.in_domain, run.manifest.runs_of(task.key)[0], rows))
        return str(list(islice(section.task_blocks(run, task), 2)))

    assert BY_POSITION in texts()
    assert BY_POSITION not in texts(ids=np.array(list("abcd")))
