"""Tables and curves of retained examples."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from dubio.core.predictions import Predictions
from dubio.metrics.quantities import predictive_entropy
from dubio.reporting.build import Report, build_report
from dubio.reporting.charts import Series
from dubio.reporting.measures import referral_name
from dubio.reporting.retention import over_trainings, referral_chart, scale_of_means
from dubio.reporting.score_table import Score
from dubio.reporting.section import Figure
from dubio.reporting.style import Style
from dubio.reporting.tables import Table
from tests.reporting.chart_checks import names_and_expressions, rows_of_chart
from tests.reporting.helpers import EVIL, blocks, of_kind, with_scores, without_shift
from tests.reporting.stored_runs import World, make_world, stored


def test_tables_of_the_retained_judge_the_same_methods_as_that_of_all_examples() -> None:
    store, manifest = make_world((0,))
    kept = [run for run in manifest["runs"] if run["method"] != "mc-dropout" or run["member"] == 0]
    report = build_report(store, without_shift({**manifest, "runs": kept}))
    for task in report.run.tasks:
        section = "two-class-referral" if task.has_positive_side else "referral"
        table = next(
            one for one in of_kind(blocks(report, section, task), Table) if one.caption.startswith("Accuracy of the")
        )
        first = {row.title: row.cells[0].spread for row in table.rows if not row.control}
        judged = report.run.scores.verdicts(task, "test", "accuracy")
        unjudged = {report.run.title(name) for name, verdict in judged.items() if verdict.place == "unjudged"}
        assert {title for title, spread in first.items() if spread.endswith("†")} == unjudged == {"MC dropout"}
        assert "†: not judged" in table.caption


def _scores(values: np.ndarray, method: str, metric: str) -> list[Score]:
    """A value per seed and member, ``[seeds, members]``; of an ensemble, which has one per seed, ``[seeds]``."""
    single = values.ndim == 2
    return [
        Score("screening", "test", "id", method, int(place[0]), int(place[1]) if single else None, metric, float(value))
        for place, value in np.ndenumerate(values)
    ]


def test_the_standard_error_of_a_single_network_is_over_all_its_trainings(report: Report) -> None:
    """Three means of three trainings each agreed by chance: ± 0.001 stood beside nine values with s = 0.011."""
    task = next(one for one in report.tasks if one.key == "screening")
    metric = referral_name("referral_accuracy", 0.7)
    nine = 0.8 + 0.011 * np.array([[-1.0, 0.0, 1.0], [1.0, -1.0, 0.0], [0.0, 1.0, -1.0]])
    uneven = _scores(nine[:, :1] + 0.02, "mc-dropout", metric) + _scores(nine, "mc-dropout", metric)[1:3]
    ensemble = np.array([0.82, 0.83, 0.81])
    scores = [*_scores(nine, "deterministic", metric), *uneven, *_scores(ensemble, "deep-ensemble", metric)]
    errors = over_trainings(with_scores(report.run, scores), task, "test", metric)
    assert errors["deterministic"].mean == pytest.approx(0.8)
    assert errors["deterministic"].error == pytest.approx(stats.sem(nine, axis=None))
    assert errors["mc-dropout"].mean == pytest.approx(np.mean([*nine[:, 0] + 0.02, *nine[0, 1:]]))
    assert errors["deep-ensemble"].error == pytest.approx(stats.sem(ensemble))
    one = over_trainings(with_scores(report.run, _scores(nine[:1, :1], "deterministic", metric)), task, "test", metric)
    assert one["deterministic"].error is None


def test_nine_trainings_estimate_the_error_of_their_mean_better_than_three_means_of_seeds(report: Report) -> None:
    """Simulated: both estimate σ²/9 without bias, on eight degrees of freedom instead of two."""
    task = next(one for one in report.tasks if one.key == "screening")
    metric, generator = referral_name("referral_accuracy", 0.7), np.random.default_rng(0)
    variances = []
    for _ in range(1000):
        values = generator.normal(0.8, 0.01, (3, 3))
        run = with_scores(report.run, _scores(values, "deterministic", metric))
        error = over_trainings(run, task, "test", metric)["deterministic"].error
        assert error is not None
        variances.append((error**2, stats.sem(values.mean(axis=1)) ** 2))
    trainings, seeds = np.array(variances).T / (0.01**2 / 9)
    assert [trainings.mean(), seeds.mean()] == pytest.approx([1.0, 1.0], abs=0.1)
    assert trainings.var() == pytest.approx(2 / 8, rel=0.2)  # of χ²/d on d degrees of freedom
    assert seeds.var() == pytest.approx(2 / 2, rel=0.2)


def _accuracy_of_retained(predictions: Predictions, uncertainty: np.ndarray, fraction: float) -> float:
    certain = np.argsort(uncertainty, kind="stable")[: int(fraction * len(predictions) + 0.5)]
    return float((predictions.probs.argmax(axis=1) == predictions.labels)[certain].mean())


def test_referral_curves_are_the_accuracy_of_the_most_certain(world: World, report: Report) -> None:
    figures = {figure.name: figure for figure in of_kind(blocks(report, "referral", report.tasks[0]), Figure)}
    rows = rows_of_chart(figures["referral"].chart(), "x", "y")
    runs = stored(world, "digits", "mc-dropout", "test")
    curve = {row["x"]: row for row in rows if row.get("method") == "MC dropout"}
    assert len(curve) == 51
    for fraction in (1.0, 0.8, 0.5):
        values = [_accuracy_of_retained(run, predictive_entropy(run), fraction) for run in runs]
        assert curve[fraction]["y"] == pytest.approx(np.mean(values), abs=1e-5)
        assert curve[fraction]["high"] == pytest.approx(np.mean(values) + np.std(values, ddof=1), abs=1e-5)
    control = {row["control"]: row["y"] for row in rows if "control" in row}
    accuracy = report.run.scores.cells["digits", "test", "deterministic", "accuracy"].mean
    assert control == {"random referral (Deterministic)": pytest.approx(accuracy, abs=1e-5)}
    rejected = {row["x"]: row["y"] for row in rows_of_chart(figures["rejection"].chart(), "y")
                if row["method"] == "MC dropout"}  # fmt: skip
    values = [_accuracy_of_retained(run, 1 - run.probs.max(axis=1), 0.7) for run in runs]
    assert rejected[0.3] == pytest.approx(np.mean(values), abs=1e-5)


def test_titles_of_methods_are_values_of_referral_curves_and_never_evaluated() -> None:
    x = np.array([0.5, 1.0])
    series = [Series(Style(EVIL, "#4b5563", "o", False), x, np.array([[0.9, 0.8]]))]
    chart = referral_chart(series, series, reference=0)
    assert {row["method"] for row in rows_of_chart(chart, "method")} == {EVIL}
    assert not [text for text in names_and_expressions(chart) if "script" in text]


def test_tables_and_figures_name_the_shifted_test_set_they_are_about(report: Report) -> None:
    reviews = next(task for task in report.tasks if task.key == "reviews")
    shown = of_kind(blocks(report, "two-class-referral", reviews), Figure)
    assert {figure.name: figure.split for figure in shown} == {
        "referral": "", "roc-test": "", "referral-elsewhere": "elsewhere", "roc-elsewhere": "elsewhere",
    }  # fmt: skip
    tables = of_kind(blocks(report, "two-class-referral", reviews), Table)
    assert [table.split for table in tables] == ["", "", "", "", "elsewhere", "elsewhere", "elsewhere"]
    metrics = {column.metric for column in tables[1].columns}
    assert metrics <= set(report.run.scores.better)
    assert len(metrics) == 6


def test_a_baseline_far_below_all_methods_does_not_squeeze_their_curves() -> None:
    def series(title: str, low: float, high: float, baseline: bool = False) -> Series:
        style = Style(title, "#4b5563", "o", False, baseline=baseline)
        return Series(style, np.array([0.5, 1.0]), np.array([[low, high]]))

    methods = [series("a", 0.9, 0.99), series("b", 0.92, 1.0)]
    for others, bottom, top in (
        ([series("frequencies", 0.1, 0.1, True)], 0.9, 1.0),
        ([series("linear", 0.85, 0.97, True)], 0.85, 1.0),  # near them
        ([series("linear", 1.2, 1.3, True)], 0.9, 1.3),  # better than all of them
    ):
        low, high = scale_of_means([*methods, *others]).domain
        assert (low, high) == pytest.approx((bottom - 0.06 * (top - bottom), top + 0.06 * (top - bottom)))
    low, _ = scale_of_means([series("frequencies", 0.1, 0.2, True)]).domain
    assert low < 0.1  # nothing else to show
