"""Cells of the long table: means, spreads, and how they are written."""

from __future__ import annotations

import csv
import io

import numpy as np
import pytest

from dubio.core.predictions import Predictions
from dubio.reporting.build import MOST_PARTS, Report, build_report, parts_left_out
from dubio.reporting.score_table import (
    Cell,
    Score,
    aggregate,
    average_over,
    average_rows,
    cell_text,
    decimals,
    results_table,
)
from dubio.statistics.trainings import own_terms, pair_terms
from dubio.statistics.verdicts import Rows
from tests.reporting.helpers import part_of_run
from tests.reporting.stored_runs import make_world


def test_an_undefined_value_is_counted_not_averaged() -> None:
    rows = [Score("t", "s", "id", "m", seed, None, "auc", value) for seed, value in enumerate((0.5, float("nan"), 0.7))]
    cell = aggregate(rows)["t", "s", "m", "auc"]
    assert (cell.n, cell.undefined, cell.mean) == (2, 1, pytest.approx(0.6))


def test_severities_average_within_a_run_before_runs_are_averaged() -> None:
    both = average_over([Cell((0.9, 0.7)), Cell((0.5, 0.7))])
    assert both is not None
    assert both.values == pytest.approx((0.7, 0.7))
    assert both.std == pytest.approx(0)
    assert average_over([Cell((0.9, 0.7)), None]) is None
    assert average_over([Cell((0.9, 0.7)), Cell((0.5,))]) is None
    assert average_over([Cell((0.9, 0.7)), Cell((0.5, 0.7), undefined=1)]) is None


def test_no_bare_number_where_there_is_a_spread_and_one_run_says_so() -> None:
    assert cell_text(Cell((0.5, 0.7))).replace("\N{NO-BREAK SPACE}", " ") == "0.600 ± 0.141"
    assert cell_text(Cell((0.5,))).replace("\N{NO-BREAK SPACE}", " ") == "0.500 (1 run)"
    assert cell_text(Cell((), undefined=2)) == "undefined"
    assert cell_text(Cell((float("inf"), 0.2))) == "∞ (1 of 2 runs)"
    assert cell_text(None) == "–"


@pytest.mark.parametrize(("std", "places"), [(0.05, 3), (0.002, 3), (0.0002, 4), (0.00002, 5), (1e-9, 5), (7.0, 3)])
def test_decimals_show_at_least_a_digit_of_the_spread(std: float, places: int) -> None:
    half = std / 2**0.5
    assert decimals([Cell((1 - half, 1 + half))]) == places


def test_the_long_table_reads_back(report: Report) -> None:
    rows = list(csv.DictReader(io.StringIO(results_table(report.scores).escaped())))
    assert len(rows) == len(report.scores)
    for row, score in zip(rows, report.scores, strict=True):
        assert (row["task"], row["metric"]) == (score.task, score.metric)
        assert float(row["value"]) == score.value
    undefined = [Score("t", "s", "id", "m", 0, None, "auc", float("nan"))]
    assert results_table(undefined).escaped().splitlines()[1] == "t,s,id,m,0,,auc,"


def test_rows_of_several_splits_have_the_variance_of_the_mean_over_splits() -> None:
    rng = np.random.default_rng(0)
    first = rng.normal(0, 1, 60)
    second = first + rng.normal(3, 0.5, 60)  # another severity of the same examples
    values, group = average_rows([first, second], [None, None])
    variance, freedom = Rows({"a": values, "b": np.zeros(60)}, group).term("a", "b")  # type: ignore[misc]
    assert (variance, freedom) == pytest.approx((((first + second) / 2).var(ddof=1) / 60, 59))
    other = rng.normal(1, 2, 40)  # other examples
    values, group = average_rows([first, other], [None, None])
    assert values.mean() == pytest.approx((first.mean() + other.mean()) / 2)
    variance, _ = Rows({"a": values, "b": np.zeros(100)}, group).term("a", "b")  # type: ignore[misc]
    assert variance == pytest.approx((first.var() / 60 + other.var() / 40) / 4 * 100 / 99)
    patients = [np.repeat([f"p{k}" for k in range(20)], size) for size in (3, 2)]
    values, group = average_rows([first, other], patients)
    assert group is not None
    assert len(np.unique(group)) == 20


def test_a_mean_over_severities_counts_the_variance_over_examples(report: Report) -> None:
    task, scores = report.run.tasks[0], report.run.scores
    splits = [f"noise-{level}" for level in range(1, 6)]
    trainings = scores.trainings(task, splits, "accuracy")
    terms = own_terms(trainings, scores.variance_groups)
    for test in scores.pairs(task, splits, "accuracy").tests:
        over_trainings = sum(term for term, _ in pair_terms(test.first, test.second, trainings, terms))
        assert test.error**2 > over_trainings * 1.01


def test_an_ensemble_that_ran_once_is_judged_by_leaving_out_its_fits() -> None:
    store, manifest = make_world((0,))
    report = build_report(store, part_of_run(manifest, "screening"))
    task, scores = report.run.tasks[0], report.run.scores
    trainings = scores.trainings(task, ["test"], "calibrated_nll")
    (run,) = report.run.manifest.runs_of(task.key, "deep-ensemble")
    assert scores.row(task, "test", "calibrated_nll")["deep-ensemble"].n == 1
    assert trainings["deep-ensemble"].shares.keys() == {(fit,) for fit in run.fits}
    singles = scores.row(task, "test", "calibrated_nll")["deterministic"].values
    # Without one of two networks the other is left: the jackknife of two is a quarter of their squared difference.
    assert trainings["deep-ensemble"].variance == pytest.approx((singles[0] - singles[1]) ** 2 / 4)


def test_samples_of_one_fit_are_one_training() -> None:
    rng = np.random.default_rng(1)
    logits = rng.normal(size=(24, 5, 3)).astype(np.float32)
    labels = np.zeros(5, dtype=np.int64)
    snapshots = Predictions(logits, labels)
    assert list(parts_left_out(snapshots, ("a",))) == []
    assert list(parts_left_out(Predictions(logits, labels, member=np.arange(24)), ("a",))) == []
    fits = tuple(map(str, range(12)))
    parts = list(parts_left_out(Predictions(logits, labels, member=np.repeat(np.arange(12), 2)), fits))
    assert len(parts) == MOST_PARTS
    assert sum((left_out for left_out, _ in parts), ()) == fits
    for left_out, predictions in parts:
        samples = [2 * int(fit) + k for fit in fits if fit not in left_out for k in (0, 1)]
        assert np.array_equal(predictions.logits, logits[samples])
