"""The matrix of methods and questions: intervals, spans, the verdict and the next steps."""

from __future__ import annotations

import shlex
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from dubio.reporting.build import Report
from dubio.reporting.measures import RANKED_BY
from dubio.reporting.score_table import Cell
from dubio.reporting.section import Text
from dubio.reporting.sections.overview import (
    matrix,
    next_steps,
    score_rows,
    spans_of,
    verdict,
    with_edges,
    within_range,
)
from dubio.reporting.tables import Table
from dubio.statistics.bootstrap import Interval
from dubio.statistics.limits import intervals
from dubio.statistics.verdicts import Rows
from tests.reporting.helpers import blocks, of_kind


def test_the_interval_of_values_per_example_is_that_of_a_t_test() -> None:
    values = np.random.default_rng(3).normal(2.0, 1.5, 40)
    term = Rows({"a": values}).own_term("a")
    assert term is not None
    own = intervals({"a": (float(values.mean()), [term])})["a"]
    low, high = stats.t.interval(0.95, 39, loc=values.mean(), scale=stats.sem(values))
    assert (own.low, own.high) == pytest.approx((low, high))


def test_an_interval_over_groups_counts_groups() -> None:
    values, group = np.repeat([1.0, 2.0, 4.0, 9.0], 5), np.repeat(["a", "b", "c", "d"], 5)
    term = Rows({"a": values}, group).own_term("a")
    assert term is not None
    assert (np.sqrt(term[0]), term[1]) == pytest.approx((stats.sem([1.0, 2.0, 4.0, 9.0]), 3))


def test_every_question_that_the_test_sets_answer_is_a_column(report: Report) -> None:
    columns = {task.key: [c.title for c in matrix(report.run, task).columns] for task in report.tasks}
    inside = ["Accuracy", "Calibrated NLL", "Calibration", "Referral"]
    assert columns["digits"] == [*inside, "Shift", "OOD", "Training", "Prediction"]
    assert columns["screening"] == [*inside, "Training", "Prediction"]


def test_cells_show_the_mean_within_its_interval_and_zero_width_is_no_interval(report: Report) -> None:
    for task in report.tasks:
        for row in score_rows(report.run, task):
            if row["low"] is not None:
                assert row["low"] <= row["mean"] <= row["high"]  # type: ignore[operator]
                assert row["low"] < row["high"]  # type: ignore[operator]


def test_spans_put_the_better_end_at_the_right() -> None:
    cells = {"a": Cell((0.2,)), "b": Cell((0.6,)), "far": Cell((9.0,))}
    limits = {"a": Interval(0.2, 0.1, 0.3)}
    falling = spans_of(cells, limits, False, ["a", "b"])
    assert falling["a"] == pytest.approx((0.6, 0.8, 1.0))
    assert falling["b"] == (None, 0.0, None)
    assert falling["far"][1] == 0.0  # beyond the range of the others: at its end
    assert spans_of(cells, limits, True, ["a", "b"])["a"] == pytest.approx((0.0, 0.2, 0.4))


def test_intervals_end_where_the_metric_does() -> None:
    own = {"a": Interval(0.01, -0.02, 0.05), "b": Interval(0.99, 0.9, 1.1)}
    cut = within_range(own, "ece")
    assert (cut["a"].low, cut["b"].high) == (0.0, 1.0)
    assert within_range(own, "quadratic_kappa") == own


def test_the_verdict_names_the_lowest_calibrated_nll(report: Report) -> None:
    for task in report.tasks:
        cells = report.run.scores.ranked_row(task, task.in_domain.name, RANKED_BY)
        best = min(cells, key=lambda name: cells[name].mean)
        (text,) = [b for b in of_kind(blocks(report, "overview", task), Text) if b.kind == "verdict"]
        assert str(text.text).startswith(f"{report.run.title(best)} has the lowest calibrated NLL on {task.key}")
        assert of_kind(blocks(report, "overview", task), Table)[0].matrix


def test_a_task_without_ranked_methods_says_so(report: Report) -> None:
    task = report.tasks[0]
    alone = replace(report.run, manifest=replace(report.run.manifest, runs=()))
    alone.scores.not_ranked[RANKED_BY] = "a reason"
    try:
        assert verdict(alone, task).startswith("No method can be ranked")
    finally:
        del alone.scores.not_ranked[RANKED_BY]


def test_a_baseline_far_from_all_methods_stands_at_the_edge() -> None:
    def row(method: str, mean: float) -> dict[str, object]:
        return {"method": method, "mean": mean, "low": mean - 0.01, "high": mean + 0.01}

    rows = [row("a", 0.1), row("b", 0.2), row("far", 2.0), row("near", 0.22), row("below", -1.0)]
    edges = {own["method"]: own["edge"] for own in with_edges(rows, {"far", "near", "below"})}
    assert edges == {"a": "", "b": "", "far": "right", "near": "", "below": "left"}
    assert {own["edge"] for own in with_edges(rows, {"a", "b", "far", "near", "below"})} == {""}


def test_next_steps_are_commands_that_name_this_run(report: Report) -> None:
    task = report.tasks[0]
    steps = dict(next_steps(report.run, task).rows)
    assert steps["Figures for a paper"] == f"dubio report {report.run.manifest.name} --figures figures"
    assert "Fit a referral policy" not in steps  # there is no calibration split
    command = "dubio run 'my run' --seeds 0-2 --jobs 1"
    again = replace(report.run, manifest=replace(report.run.manifest, command=command, name="it's"))
    undecided = not any(own.place == "behind" for own in again.scores.verdicts(task, "test", RANKED_BY).values())
    steps = dict(next_steps(again, task).rows)
    assert steps.get("Decide: more seeds") == ("dubio run 'my run' --jobs 1 --seeds 5" if undecided else None)
    assert steps["Scores in Python"] == """dubio.open_run("it's").to_frame()"""
    assert shlex.split(steps["Figures for a paper"])[2] == "it's"
