from __future__ import annotations

import copy
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from dubio.metrics.decisions import correct
from dubio.metrics.referral_curve import FRACTIONS, retained_roc, sensitivity_at_specificity
from dubio.metrics.selective import referral_gain
from dubio.referral.units import rounded_uncertainty
from dubio.reporting import Report, build_report
from dubio.reporting.measures import referral_name
from dubio.reporting.retention import over_trainings
from dubio.reporting.section import Figure
from dubio.reporting.sections.in_domain import in_domain_table
from dubio.reporting.sections.two_class_referral import (
    FALSE_POSITIVE_RATES,
    TwoClassReferral,
    gain_statistics,
    on_grid,
    operating_point_cell,
)
from dubio.statistics.bootstrap import RunIntervals, replicates_for, units_of
from tests.reporting.chart_checks import rows_of_chart
from tests.reporting.helpers import blocks, of_kind, section_of, texts, with_scores
from tests.reporting.sections.helpers import SEEDS, World, runs_of
from tests.reporting.stored_runs import FakeStore

ENTROPY = "predictive_entropy"


def test_a_gain_is_the_mean_over_runs_and_its_draws_resample_patients(eyes_world: World, eyes: Report) -> None:
    runs = runs_of(eyes_world, "mc-dropout", "poor")
    intervals = RunIntervals()
    for run in runs:
        intervals.add(("gain", "eyes", "poor", "mc-dropout"), run, gain_statistics(run))
    (weights,) = units_of(runs[0]).weights(1000, 0)
    resamples = list(weights.replicates())[:12]
    expected = [np.mean([referral_gain(run.take(rows), quantity=ENTROPY) for run in runs]) for rows in resamples]
    sums = intervals.sums["gain", "eyes", "poor", "mc-dropout", "gain"]
    assert sums.draws[:12] / 2 == pytest.approx(expected)
    for rows in resamples:
        assert len({runs[0].group[row] for row in rows}) < 40  # type: ignore[index]
        assert all((rows == row).sum() == (rows == row + 1).sum() for row in range(0, 80, 2))
    gain = section_of(eyes, TwoClassReferral).gains(eyes.tasks[0])["poor"]["mc-dropout"]
    assert gain.gain.value == pytest.approx(np.mean([referral_gain(run, quantity=ENTROPY) for run in runs]))
    errors = min(len({run.group[row] for row in np.flatnonzero(~correct(run))}) for run in runs)  # type: ignore[index]
    share = stats.norm.cdf(-np.sqrt(errors / (errors - 1)) * stats.t.ppf(0.975, errors - 1))
    assert (gain.gain.low, gain.gain.high) == pytest.approx(
        tuple(np.quantile(sums.draws / 2, [share, 1 - share])), abs=1e-3
    )
    assert gain.units == 40
    assert gain.excludes_zero == (gain.gain.low > 0 or gain.gain.high < 0)
    assert replicates_for(120) == 1000
    assert replicates_for(10**6) == 200


def test_significance_of_the_gain_is_reported_for_every_method(eyes: Report) -> None:
    report = " ".join(texts(blocks(eyes, "two-class-referral", eyes.tasks[0])))
    for split in ("test", "poor", "severe"):
        assert f"On “{split}” " in report
    assert "20 groups, fewer than 50: underpowered" in report
    assert report.count("Deterministic") == report.count("MC dropout") == 3


def test_referral_scores_of_a_shift_are_those_of_its_own_rows(eyes_world: World, eyes: Report) -> None:
    run, cells = runs_of(eyes_world, "deterministic", "poor")[0], eyes.run.scores.cells
    order = np.argsort(rounded_uncertainty(run, ENTROPY))
    value = cells["eyes", "poor", "deterministic", referral_name("referral_accuracy", 0.5)].values[0]
    assert value == pytest.approx(correct(run)[order[:40]].mean())
    control = cells["eyes", "poor", "random-referral", referral_name("referral_accuracy", 0.5)]
    assert control.mean == cells["eyes", "poor", "deterministic", "accuracy"].mean


def test_errors_in_the_table_are_standard_errors_over_trainings(eyes: Report) -> None:
    task, name = eyes.tasks[0], referral_name("referral_accuracy", 0.7)
    values = eyes.run.scores.cells["eyes", "test", "mc-dropout", name].values
    trainings = over_trainings(eyes.run, task, "test", name)["mc-dropout"]
    assert len(values) == len(SEEDS)
    assert trainings.mean == pytest.approx(np.mean(values))
    assert trainings.error == pytest.approx(np.std(values, ddof=1) / np.sqrt(2))
    scores = eyes.run.scores.scores
    members = [replace(score, member=1, value=score.value + 0.02) for score in scores]
    twice = with_scores(eyes.run, [*scores, *members])
    section, four = section_of(eyes, TwoClassReferral), [*values, *(value + 0.02 for value in values)]
    table = section.retention_table(twice, task, "test", "referral_accuracy")
    assert [column.title for column in table.columns] == ["100%", "90%", "80%", "70%", "60%", "50%"]
    assert table.rows[1].cells[3].plain == f"{np.mean(four):.3f} ± {stats.sem(four):.3f}"
    everything = eyes.run.scores.cells["eyes", "test", "deterministic", "accuracy"].values
    four = [*everything, *(value + 0.02 for value in everything)]
    assert table.rows[-1].control
    assert {cell.plain for cell in table.rows[-1].cells} == {f"{np.mean(four):.3f} ± {stats.sem(four):.3f}"}


def test_a_split_of_one_class_has_no_auc_and_reports_why(eyes: Report) -> None:
    assert section_of(eyes, TwoClassReferral).undefined(eyes.run, eyes.tasks[0], "severe") == "every row is class 'ill'"
    for fraction in FRACTIONS:
        cells = eyes.run.scores.cells
        assert cells["eyes", "severe", "deterministic", referral_name("referral_auc", fraction)].n == 0
    shown = blocks(eyes, "two-class-referral", eyes.tasks[0])
    assert "AUC and ROC curve are undefined on “severe”: every row is class 'ill'." in texts(shown)
    names = {figure.name for figure in of_kind(shown, Figure)}
    assert {"referral-severe", "roc-poor"} <= names
    assert "roc-severe" not in names


def test_the_operating_point_by_hand() -> None:
    def cell(*rates: float) -> str:
        return operating_point_cell(np.array(rates)).plain

    assert cell(0.85, 0.95) == "yes 0.900"
    assert cell(0.84, 0.80) == "no 0.820"
    assert cell(0.84, 0.90) == "1 of 2 0.870"
    assert cell(np.nan, 0.86) == "yes 0.860"
    assert cell(np.nan) == "undefined"


def test_roc_curves_and_sensitivities_are_those_of_the_metrics(eyes_world: World, eyes: Report) -> None:
    run = runs_of(eyes_world, "deterministic", "test")[0]
    scores = section_of(eyes, TwoClassReferral).scores.runs["eyes", "test", "deterministic"][0]
    for fraction in (0.6, 0.9):
        curve = retained_roc(run, fraction=fraction, quantity=ENTROPY)
        allowed = [curve.false_positive_rate <= rate + 1e-12 for rate in FALSE_POSITIVE_RATES]
        expected = [curve.true_positive_rate[points].max() for points in allowed]
        assert scores.roc[fraction] == pytest.approx(expected)
        assert on_grid(curve) == pytest.approx(expected)
        assert scores.sensitivity[FRACTIONS.index(fraction)] == pytest.approx(
            sensitivity_at_specificity(run, specificity=0.8, retained=fraction, quantity=ENTROPY)
        )


def test_the_figure_has_mean_curves_and_the_screening_target(eyes_world: World, eyes: Report) -> None:
    figures = {figure.name: figure for figure in of_kind(blocks(eyes, "two-class-referral", eyes.tasks[0]), Figure)}
    rows = rows_of_chart(figures["roc-poor"].chart())
    (target,) = {(row["rate"], row["sensitivity"]) for row in rows if "rate" in row}
    assert target == (pytest.approx(0.2), 0.85)  # sensitivity 85 %, specificity 80 %
    curves = [retained_roc(run, fraction=0.9, quantity=ENTROPY) for run in runs_of(eyes_world, "mc-dropout", "poor")]
    highest = [c.true_positive_rate[c.false_positive_rate <= 0.25 + 1e-12].max() for c in curves]
    values = [row["y"] for row in rows if row.get("method") == "MC dropout" and row["x"] == 0.25]
    assert pytest.approx(np.mean(highest), abs=1e-5) in values


def test_the_document_has_the_gains_and_the_operating_point(eyes: Report) -> None:
    section = section_of(eyes, TwoClassReferral)
    rows = {(row["split"], row["method"]): row for row in section.document(eyes.run)["referral_gains"]}
    gains = section.gains(eyes.tasks[0])
    assert rows.keys() == {(split, method) for split, methods in gains.items() for method in methods}
    row = rows["severe", "mc-dropout"]
    assert (row["resampled"], row["replicates"], row["nhs"]["0.5"]) == (20, 1000, "undefined")
    assert row["gain"]["value"] == gains["severe"]["mc-dropout"].gain.value


def test_grades_have_their_own_metrics_and_a_positive_side(eyes_world: World) -> None:
    store, manifest = FakeStore(eyes_world[1]), copy.deepcopy(eyes_world[1])
    manifest["tasks"][0] |= {"target": "ordinal", "classes": ["none", "mild", "severe"], "facts": {}}
    for (made, split), run in eyes_world[0].predictions.items():
        grades = np.where(run.labels == 1, 2, np.arange(len(run)) % 2)
        logits = np.concatenate([run.logits, run.logits[..., 1:]], axis=-1)
        store.predictions[made, split] = replace(run, logits=logits, labels=grades, target="ordinal", classes=None)
    store.records = eyes_world[0].records
    report = build_report(store, manifest)
    table = in_domain_table(report.run, report.tasks[0])
    assert {"Kappa", "RPS", "AUC"} <= {column.title for column in table.columns}
    assert "deterministic" in section_of(report, TwoClassReferral).gains(report.tasks[0])["test"]
    assert report.run.scores.cells["eyes", "test", "deterministic", referral_name("referral_auc", 1.0)].n == len(SEEDS)
