"""Scores on the in-domain test set, and the figures of ranking and variance."""

from __future__ import annotations

from itertools import islice

import numpy as np
import pytest
from sklearn import metrics as sk

from dubio.calibration.cross_validation import BY_POSITION
from dubio.core.predictions import Predictions
from dubio.reporting.build import Report
from dubio.reporting.run_view import RunView
from dubio.reporting.section import Figure, Visit
from dubio.reporting.sections.in_domain import InDomainScores, in_domain_table, ranking, variance_parts
from tests.reporting.helpers import blocks, run_ids, sort_values
from tests.reporting.sections.helpers import rows_of
from tests.reporting.stored_runs import METHODS, World, stored, task_of


def test_in_domain_f1_is_scikit_learns(world: World, run: RunView) -> None:
    store = world[0]
    table = in_domain_table(run, run.tasks[0])
    shown = sort_values(table, "Macro F1")
    assert "Micro F1" not in [head.title for head in table.columns]  # one label an example: nothing but accuracy
    for name, title, *_ in METHODS:
        found = [store.predictions[made, "test"] for made in run_ids(world[1], "digits", name)]
        values = [sk.f1_score(p.labels, p.probs.argmax(1), average="macro") for p in found]
        assert float(shown[title]) == pytest.approx(np.mean(values), abs=1e-9)


def test_the_ranking_shows_every_run_and_the_mean_with_one_standard_deviation(report: Report) -> None:
    task = task_of(report.run, "digits")
    figure = next(ranking(report.run, task))
    rows = rows_of(figure)
    cells = report.run.scores.row(task, "test", "calibrated_nll")
    for name, cell in cells.items():
        own = [row for row in rows if row["method"] == report.run.title(name)]
        assert sorted(row["value"] for row in own if "value" in row) == pytest.approx(sorted(cell.values), rel=1e-5)
        (mean,) = (row for row in own if "mean" in row)
        assert mean["mean"] == pytest.approx(np.mean(cell.values), rel=1e-5)
        spread = np.std(cell.values, ddof=1)
        assert [mean["low"], mean["high"]] == pytest.approx([mean["mean"] - spread, mean["mean"] + spread], rel=1e-4)
    best = [row["method"] for row in rows if row.get("note") == "best"]
    assert best == [report.run.title(min(cells, key=lambda name: cells[name].mean))]


def test_bars_of_the_variance_add_up_to_that_of_the_predictions(world: World, report: Report) -> None:
    task = task_of(report.run, "reviews")
    shown = next(block for block in blocks(report, "in-domain", task) if getattr(block, "name", "") == "variance")
    assert isinstance(shown, Figure)
    rows = rows_of(shown)
    for name, title, *_ in METHODS:
        totals = [(p.probs * (1 - p.probs)).mean() for p in stored(world, "reviews", name, "test")]
        assert sum(row["value"] for row in rows if row["method"] == title) == pytest.approx(np.mean(totals), rel=1e-4)


def test_columns_name_their_metrics(run: RunView) -> None:
    columns = in_domain_table(run, run.tasks[0]).columns
    metrics = {column.title: column.metric for column in columns}
    assert (metrics["ECE"], metrics["Calibrated NLL"], metrics["Runs"]) == ("ece", "calibrated_nll", "")


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
