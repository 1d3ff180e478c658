"""The section on referral policies: targets, first runs, tables, sentences, the document."""

from __future__ import annotations

from dataclasses import replace
from math import ceil
from typing import Any

import pytest
from scipy.stats import beta, binomtest, ks_2samp

from dubio.metrics.quantities import predictive_entropy
from dubio.referral import NoGuarantee, fit_risk_policy
from dubio.referral.assessment import Observation, Share, outcome_of
from dubio.referral.sample_size import SampleSize, units_needed
from dubio.referral.units import independent_uncertainties, rounded_uncertainty
from dubio.reporting.build import Report, build_report
from dubio.reporting.section import Figure, Table, Text
from dubio.reporting.sections.policies import (
    CAPACITY,
    CapacityResult,
    Policies,
    calibration_size_sentence,
    capacity_sentence,
    capacity_table,
    fit_capacity,
    missing_policies,
    risk_cells,
    risk_table,
    shift_blocks,
    shift_sentence,
)
from tests.reporting.chart_checks import names_and_expressions, rows_of_chart
from tests.reporting.helpers import without_shift
from tests.reporting.sections.helpers import screening_world
from tests.reporting.stored_runs import FakeStore, make_world

ENTROPY = "predictive_entropy"
World = tuple[FakeStore, dict[str, Any]]


def policies_of(report: Report) -> Policies:
    section = next(placed.section for placed in report.sections if placed.name == "policies")
    assert isinstance(section, Policies)
    return section


@pytest.fixture(scope="module")
def eyes() -> World:
    return screening_world()


@pytest.fixture(scope="module")
def eyes_report(eyes: World) -> Report:
    return build_report(*eyes)


@pytest.fixture(scope="module")
def calibrated() -> World:
    return make_world(kept_aside=400)


@pytest.fixture(scope="module")
def report(calibrated: World) -> Report:
    return build_report(*calibrated)


@pytest.fixture(scope="module")
def small_report() -> Report:
    """Too few calibration examples for any guarantee on the error."""
    return build_report(*make_world((0,), kept_aside=12))


def task_of(report: Report, key: str) -> Any:
    return next(task for task in report.run.tasks if task.key == key)


def first_run(manifest: dict[str, Any], task: str, method: str) -> str:
    return str(next(run["id"] for run in manifest["runs"] if (run["task"], run["method"]) == (task, method)))


def test_the_target_is_half_the_reference_methods_error_on_the_test_set(report: Report) -> None:
    for task in report.run.tasks:
        accuracy = report.run.scores.cell(task, "test", "deterministic", "accuracy")
        assert accuracy is not None
        policies = policies_of(report).risk[task.key].values()
        assert {policy.target for policy in policies} == {float(f"{(1 - accuracy.mean) / 2:.2g}")}


def test_a_policy_and_its_operating_point_are_those_of_the_first_run(calibrated: World, report: Report) -> None:
    store, manifest = calibrated
    fitted = 0
    for method, risk in policies_of(report).risk["digits"].items():
        run = first_run(manifest, "digits", method)
        calibration, test = store.predictions[run, "cal"], store.predictions[run, "test"]
        assert risk.run.id == run
        if risk.policy is None:
            with pytest.raises(NoGuarantee) as refusal:
                fit_risk_policy(calibration, max_risk=risk.target, confidence=0.9, quantity=ENTROPY)
            assert risk.best == (refusal.value.upper, refusal.value.coverage)
            continue
        fitted += 1
        policy = fit_risk_policy(calibration, max_risk=risk.target, confidence=0.9, quantity=ENTROPY)
        retained = rounded_uncertainty(test, ENTROPY) <= policy.threshold
        wrong = test.probs.argmax(axis=1) != test.labels
        assert risk.in_domain is not None
        assert risk.in_domain.retained == pytest.approx(retained.mean())
        assert risk.in_domain.error == pytest.approx(wrong[retained].mean())
        exact = binomtest(int(wrong[retained].sum()), int(retained.sum())).proportion_ci(0.95)
        assert risk.in_domain.interval == pytest.approx((exact.low, exact.high))
    assert fitted > 0


def test_shift_is_tested_on_the_highest_severity_of_each_corruption(calibrated: World, report: Report) -> None:
    store, manifest = calibrated
    policies = policies_of(report).risk["digits"]
    method, risk = next((name, policy) for name, policy in policies.items() if policy.policy is not None)
    run = first_run(manifest, "digits", method)
    assert [observation.split for observation in risk.shifted] == ["novel", "blur-3", "noise-3"]
    calibration = predictive_entropy(store.predictions[run, "cal"])
    for observation in risk.shifted:
        reference = ks_2samp(predictive_entropy(store.predictions[run, observation.split]), calibration)
        assert observation.shift == pytest.approx(reference.pvalue, rel=0.2)
        assert (observation.error is None) == (observation.split == "novel")
    table = risk_table(report.run, report.run.tasks[0], policies)
    columns = [column.sub for column in table.columns[-3:]]
    assert columns == ["novel", "blur, highest severity", "noise, highest severity"]
    assert "Risk" not in table.columns[-3].title


def test_a_method_without_a_policy_shows_its_best_guarantee(small_report: Report) -> None:
    risk = policies_of(small_report).risk["screening"]["deterministic"]
    assert risk.policy is None
    assert risk.best is not None
    cells = risk_cells(risk)
    assert cells[".threshold"].text == "none"
    assert f"below {risk.best[0]:.2g}" in cells[".outcome"].plain or "none possible" in cells[".outcome"].plain
    task = task_of(small_report, "screening")
    blocks = list(policies_of(small_report).blocks(small_report.run, task))
    assert not [block for block in blocks if isinstance(block, Figure)]
    tables = [block for block in blocks if isinstance(block, Table)]
    assert [column.title for column in tables[0].columns] == ["Threshold", "Guarantee", "Would need"]


def test_a_task_without_a_calibration_split_says_so(world: World) -> None:
    store, manifest = world
    report = build_report(store, without_shift(manifest))
    section = policies_of(report)
    for task in report.run.tasks:
        assert not section.risk[task.key]
        assert not section.capacity[task.key]
        blocks = list(section.blocks(report.run, task))
        assert len(blocks) == 1
        assert isinstance(blocks[0], Text)
        assert "no calibration split" in str(blocks[0].text)


def test_targets_and_operating_points_are_shown(report: Report) -> None:
    section, task = policies_of(report), report.run.tasks[0]
    shown = list(section.blocks(report.run, task))
    (figure,) = (block for block in shown if isinstance(block, Figure))
    policies = {report.run.title(name): policy for name, policy in section.risk["digits"].items()}
    target = next(iter(policies.values())).target
    assert any(f"below {target:g}" in block.caption for block in shown if isinstance(block, Table))
    rows = rows_of_chart(figure.chart(), "method")
    assert [row["target"] for row in rows if "target" in row] == pytest.approx([target] * len(policies), rel=1e-5)
    points = {row["method"]: (row["share"], row["risk"], row["low"], row["high"]) for row in rows if "share" in row}
    for title, policy in policies.items():
        observed = policy.in_domain
        assert (title in points) == (observed is not None and observed.error is not None)
        if observed is not None and observed.error is not None and observed.interval is not None:
            assert points[title] == pytest.approx((observed.retained, observed.error, *observed.interval), rel=1e-4)
    curves = {(row["method"], row["retained"]): row["error"] for row in rows if "error" in row}
    for title, policy in policies.items():
        accuracy = report.run.scores.cells["digits", "test", policy.run.method, "accuracy"].values[0]
        assert curves[title, 1.0] == pytest.approx(1 - accuracy, abs=1e-5)
    assert not [text for text in names_and_expressions(figure.chart()) if "MC dropout" in text]
    assert {block.split for block in shown if isinstance(block, Table)} == {"", "blur-3", "noise-3"}


def test_the_threshold_of_a_capacity_is_the_order_statistic_of_one_example_per_patient(
    eyes: World, eyes_report: Report
) -> None:
    for capacity in policies_of(eyes_report).capacity["eyes"].values():
        values = independent_uncertainties(eyes[0].predictions[capacity.run.id, "cal"], ENTROPY, seed=0)
        assert len(values) == 120  # two eyes per patient
        rank = ceil(121 * (1 - CAPACITY))
        assert capacity.policy.threshold == values[rank - 1]
        assert capacity.upper == pytest.approx(beta.ppf(0.9, 121 - rank, rank))
        assert list(capacity.results) == ["test", "poor", "severe"]


def test_the_table_and_the_sentence_of_a_capacity_on_a_split(eyes_report: Report) -> None:
    run, task = eyes_report.run, eyes_report.run.tasks[0]
    policy = policies_of(eyes_report).capacity["eyes"]["deterministic"]
    referred, observation = Share(0.62, (0.55, 0.7), 100), Observation("poor", 0.4, 0.11, (0.06, 0.19), 1e-5)
    result = CapacityResult(referred, observation, outcome_of(referred.interval, policy.upper))
    policies = {"deterministic": replace(policy, results={"poor": result})}
    table = capacity_table(run, task, policies, "poor")
    assert [cell.plain for cell in table.rows[0].cells] == [
        "62.0% [55%, 70%]", "violated", "warns p < 0.001", "0.110 [0.060, 0.190]",
    ]  # fmt: skip
    sentence = capacity_sentence(policies, "poor")
    assert "62%" in sentence
    assert "1 violated" in sentence
    assert "warns for 1 of 1" in sentence


def test_the_document_lists_both_policies(eyes_report: Report) -> None:
    capacities = eyes_report.document()["capacity_policies"]
    assert {(row["task"], row["method"]) for row in capacities} == {("eyes", "deterministic"), ("eyes", "mc-dropout")}
    assert [result["split"] for result in capacities[0]["results"]] == ["test", "poor", "severe"]
    assert {row["method"] for row in eyes_report.document()["risk_policies"]} == {"deterministic", "mc-dropout"}


def test_a_capacity_is_fitted_where_no_error_can_be_guaranteed(small_report: Report) -> None:
    section, task = policies_of(small_report), task_of(small_report, "reviews")
    assert all(policy.policy is None for policy in section.risk["reviews"].values())
    assert set(section.capacity["reviews"]) == set(section.risk["reviews"])
    sentence = calibration_size_sentence(small_report.run, task, section.risk["reviews"])
    methods = len(section.risk["reviews"])
    assert sentence.startswith(f"{methods} of ")
    assert "the 12 examples of “cal”" in sentence


def test_splits_without_labels_have_no_capacity_result(small_report: Report) -> None:
    capacity = policies_of(small_report).capacity["digits"]["deterministic"]
    assert list(capacity.results) == ["test", "blur-3", "noise-3"]


def test_the_needed_calibration_size_is_estimated_from_the_test_set(small_report: Report) -> None:
    store, _ = make_world((0,), kept_aside=12)
    for risk in policies_of(small_report).risk["reviews"].values():
        test = store.predictions[risk.run.id, "test"]
        needed = units_needed(test, max_risk=risk.target, confidence=0.9, quantity=ENTROPY)
        assert risk.needed == needed
        assert (risk.rows, risk.units) == (12, 12)
        if needed is not None:
            assert risk_cells(risk)[".needed"].plain == f"{needed.units:,} examples"


def test_the_sentence_names_the_least_and_the_most_and_those_that_data_cannot_help(eyes_report: Report) -> None:
    run, task = eyes_report.run, eyes_report.run.tasks[0]
    some = next(iter(policies_of(eyes_report).risk["eyes"].values()))
    some = replace(some, policy=None, in_domain=None, best=(0.4, 0.5), target=0.11)
    first = replace(some, needed=SampleSize(100, 0.4, 0.02), rows=83, units=40)
    second = replace(first, needed=SampleSize(144, 0.3, 0.02))
    sentence = calibration_size_sentence(run, task, {"deterministic": first, "mc-dropout": second})
    for phrase in (
        "83 examples (40 groups) of “cal”", "210 examples (100 groups) are needed for Deterministic",
        "300 examples (144 groups) for MC dropout",
    ):  # fmt: skip
        assert phrase in sentence
    like_test = replace(first, needed=SampleSize(41, 0.3, 0.02))
    sentence = calibration_size_sentence(run, task, {"deterministic": like_test, "mc-dropout": second})
    assert "like the test set, more than these are needed for Deterministic, 300 examples (144 groups) for" in sentence
    assert risk_cells(like_test)[".needed"].text == "more than these"
    hopeless = replace(first, needed=None)
    sentence = calibration_size_sentence(run, task, {"deterministic": first, "mc-dropout": hopeless})
    assert "would not help MC dropout" in sentence
    assert risk_cells(hopeless)[".needed"].text == "more data would not help"
    tiny = {"deterministic": replace(first, rows=20, units=10)}
    assert "needs 50 examples (25 groups)." in calibration_size_sentence(run, task, tiny)
    assert calibration_size_sentence(run, task, {}) == ""


def test_outcomes_under_shift_are_counted_with_their_warnings(eyes_report: Report) -> None:
    run, task = eyes_report.run, eyes_report.run.tasks[0]
    policies = policies_of(eyes_report).risk["eyes"]
    method, risk = next((name, policy) for name, policy in policies.items() if policy.policy is not None)
    observation = Observation("poor", 0.5, 0.09, (0.06, 0.13), 0.2)
    quiet = replace(risk, target=0.05, shifted=(observation,))
    table = next(block for block in shift_blocks(run, task, {method: quiet}) if isinstance(block, Table))
    assert [cell.plain for cell in table.rows[0].cells] == ["0.090 [0.060, 0.130]", "violated (no warning)"]
    assert "1 violated. The shift test warns for 0 of 1, among them 0 of the 1 violated." in shift_sentence(
        "poor", [(quiet, observation)]
    )
    loud = replace(observation, shift=1e-4)
    assert "warns for 1 of 1, among them 1 of the 1" in shift_sentence("poor", [(quiet, loud)])


def test_missing_policies_are_explained(eyes: World, eyes_report: Report) -> None:
    store, _ = eyes
    task = eyes_report.run.tasks[0]
    capacity = policies_of(eyes_report).capacity["eyes"]
    run = capacity["deterministic"].run
    calibration = store.predictions[run.id, "cal"].take([0, 1])
    assert fit_capacity(run, calibration, {"test": store.predictions[run.id, "test"]}) is None
    assert "No policy can be fitted" in missing_policies(task, {}, {})
    assert missing_policies(task, {}, capacity).startswith("No error is guaranteed")
