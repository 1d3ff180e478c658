"""A policy applied to new predictions: decisions, the operating point, and the shift test against scipy's."""

import csv
import io
import sys
from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import binomtest, ks_2samp

from dubio.core.errors import MissingExtra, UserError
from dubio.core.predictions import Predictions
from dubio.referral import (
    apply_policy,
    fit_capacity_policy,
    fit_risk_policy,
    fit_screening_policy,
    shift_test,
)
from dubio.referral.application import decide_each
from dubio.referral.assessment import observe
from dubio.referral.units import rounded_uncertainty
from tests.referral.helpers import easy, of_doubts, without_labels


def test_decisions_by_the_definition_and_ties_at_the_threshold_are_kept():
    policy = fit_capacity_policy(easy(), capacity=0.3, quantity="predictive_entropy")
    new = without_labels(easy(300, seed=9, ids=np.array([f"r{k}" for k in range(300)])))
    applied = apply_policy(policy, new)
    entropy = -(new.probs * np.log(new.probs)).sum(axis=1)
    assert applied.uncertainty == pytest.approx(entropy, rel=2**-15)
    assert (applied.retained == (applied.uncertainty <= policy.threshold)).all()
    assert applied.retained_error is None
    assert applied.probability == pytest.approx(new.probs.max(axis=1))
    assert set(applied.predicted) == {"0", "1"}
    assert "is above the threshold" in applied.reasons[int(np.argmin(applied.retained))]
    at = replace(policy, threshold=float(applied.uncertainty[5]))
    assert apply_policy(at, new).retained[5]


def test_the_observed_error_is_that_of_the_retained_rows():
    policy, new = fit_capacity_policy(easy(), capacity=0.3), easy(300, seed=9)
    keep = apply_policy(policy, new).retained
    observation = observe(policy, "new", new)
    assert observation.retained == pytest.approx(keep.sum() / 300)
    assert observation.error == pytest.approx((new.probs.argmax(1) != new.labels)[keep].mean())
    assert apply_policy(policy, new).retained_error == pytest.approx(observation.error)


def test_other_systems_are_refused():
    policy = fit_capacity_policy(easy(classes=("no", "yes")), capacity=0.2)
    three = Predictions(np.zeros((1, 5, 3), dtype=np.float32), np.zeros(5, dtype=np.int64))
    with pytest.raises(UserError, match="number of classes is 3, the policy's is 2"):
        apply_policy(policy, three)
    with pytest.raises(UserError, match="class 0 is 'yes', the policy's is 'no'"):
        apply_policy(policy, easy(classes=("yes", "no")))
    with pytest.raises(UserError, match="temperature is 2"):
        apply_policy(policy, easy(temperature=2.0))
    with pytest.raises(UserError, match="target is ordinal"):
        apply_policy(policy, easy(target="ordinal"))
    twice = easy(classes=("no", "yes"))
    twice = replace(twice, logits=np.concatenate([twice.logits, twice.logits]), member=None)
    assert "2 samples" in apply_policy(policy, twice).warnings[0]


def test_class_names_of_one_alone_are_refused_unless_allowed():
    named, bare = easy(classes=("no", "yes")), easy()
    for calibration, new, first in ((named, bare, "The policy names"), (bare, named, "These predictions name")):
        policy = fit_capacity_policy(calibration, capacity=0.2)
        with pytest.raises(UserError, match=rf"{first} the classes \(no, yes\).*allow_unnamed=True \(--force\)"):
            apply_policy(policy, new)
        allowed = apply_policy(policy, new, allow_unnamed=True)
        assert allowed.warnings[0].startswith(first)
        assert set(allowed.predicted) == {"no", "yes"}
    assert not apply_policy(fit_capacity_policy(named, capacity=0.2), named).warnings


def test_one_row_and_one_group_are_counted_in_the_singular():
    policy = replace(fit_risk_policy(easy(400), max_risk=0.4), threshold=float("inf"))
    one = easy(1, seed=9, group=np.array(["p"]))
    text = str(apply_policy(policy, one, per="group"))
    for said in ("1 row: 1 retained", "1 group: 1 retained whole", "the 1 retained row with", "(mean of 1 group)"):
        assert said in text
    assert "(1 row)" in str(apply_policy(policy, replace(one, group=None)))
    several = str(apply_policy(policy, easy(2, seed=9, group=np.array(["p", "q"])), per="group"))
    assert "2 rows: 2 retained" in several
    assert "mean of 2 groups)" in several


def labelled_world(rows, seed, error):
    """Rows with doubts below 0.2, wrong with this probability whatever their doubt."""
    rng = np.random.default_rng(seed)
    return of_doubts(rng.random(rows) / 5, rng.random(rows) < error, truth=rng.integers(0, 2, rows))


def test_a_bound_is_met_violated_or_undecided_by_its_whole_interval():
    policy = fit_risk_policy(labelled_world(2000, 0, 0.02), max_risk=0.05)
    outcomes = {}
    for error, rows in ((0.02, 2000), (0.15, 2000), (0.05, 100), (0.0, 3)):
        applied = apply_policy(policy, labelled_world(rows, 1, error))
        (rate,) = applied.rates
        exact = binomtest(round(rate.value * rate.units), rate.units).proportion_ci(0.95)
        assert rate.interval == pytest.approx((exact.low, exact.high))
        assert rate.value == pytest.approx(applied.retained_error)
        assert rate.sentence() in str(applied)
        assert applied.as_dict()["rates"][0]["outcome"] == rate.outcome == applied.outcome
        outcomes[error, rows] = applied.outcome
    assert outcomes == {(0.02, 2000): "met", (0.15, 2000): "violated", (0.05, 100): "undecided", (0.0, 3): "undecided"}
    unlabelled = apply_policy(policy, without_labels(labelled_world(50, 1, 0.0)))
    assert (unlabelled.rates, unlabelled.outcome) == ((), None)
    doubtful = of_doubts([0.45] * 20, [False] * 20)
    assert apply_policy(replace(policy, threshold=0.2), doubtful).outcome == "nothing retained"


def test_a_capacity_is_judged_without_labels_by_the_share_that_the_policy_states():
    policy = fit_capacity_policy(easy(2000), capacity=0.3)
    calm = apply_policy(policy, without_labels(easy(4000, seed=3)))
    assert [rate.name for rate in calm.rates] == ["referred"]
    assert calm.rates[0].bound == policy.evidence["upper_referral"]
    assert calm.rates[0].value == pytest.approx(1 - calm.retained.mean())
    assert calm.outcome in ("met", "undecided")
    doubtful = of_doubts(np.linspace(0.3, 0.49, 500), np.zeros(500))
    assert apply_policy(policy, doubtful).outcome == "violated"


def test_screening_reports_both_rates_and_the_positives_that_were_referred():
    policy = fit_screening_policy(labelled_world(3000, 0, 0.03), sensitivity=0.9)
    policy = replace(policy, threshold=0.15)
    new = labelled_world(1000, 1, 0.03)
    applied = apply_policy(policy, new)
    right, positive = new.probs.argmax(1) == new.labels, new.labels == 1
    values = {rate.name: rate for rate in applied.rates}
    assert values["sensitivity"].value == pytest.approx(right[positive & applied.retained].mean())
    assert values["specificity"].value == pytest.approx(right[~positive & applied.retained].mean())
    assert values["sensitivity"].outcome == "met"
    assert values["specificity"].outcome is None  # no goal was set for it
    assert applied.positives == (positive.sum(), (positive & ~applied.retained).sum())
    said = f"Positives referred, not counted as missed: {applied.positives[1]} of {applied.positives[0]}."
    assert said in str(applied)
    assert applied.as_dict()["positives"] == {"positives": applied.positives[0], "referred": applied.positives[1]}


def test_screening_without_a_retained_positive_is_undecided_and_nothing_retained_is_said():
    policy = fit_screening_policy(labelled_world(3000, 0, 0.03), sensitivity=0.9, specificity=0.9)
    new = labelled_world(1000, 1, 0.03)
    applied = apply_policy(policy, new.take(np.flatnonzero(new.labels == 0)))
    assert [(rate.name, rate.outcome) for rate in applied.rates] == [("specificity", "met")]
    assert applied.outcome == "undecided"
    assert applied.as_dict()["unchecked"] == ["sensitivity"]
    assert "Sensitivity among the retained: no labelled row of its class is retained; undecided." in str(applied)
    assert "ositives" not in str(applied)  # there are none, so none were referred or missed
    nothing = apply_policy(replace(policy, threshold=-1.0), new)
    assert nothing.outcome == "nothing retained"
    assert "No row is retained: the guarantee cannot be checked." in str(nothing)


def test_decisions_carry_groups_subgroups_and_the_shift_and_a_decision_per_group():
    group = np.repeat([f"P{k}" for k in range(100)], 3)
    columns = {"site": np.array(["a", "b", "b"] * 100), "reason": np.full(300, "x")}
    new = easy(300, seed=4, group=group, columns=columns)
    policy = fit_capacity_policy(easy(600, seed=1, group=np.repeat(np.arange(200), 3).astype(str)), capacity=0.3)
    applied = apply_policy(policy, new, by=["site", "reason"], per="group")
    rows = list(csv.DictReader(io.StringIO(applied.to_csv())))
    assert list(rows[0]) == [
        "id", "group", "site", "column.reason", "decision", "group_decision", "predicted", "probability", "uncertainty",
        "shift", "reason",
    ]  # fmt: skip
    for name in np.unique(group):
        own = [row for row in rows if row["group"] == name]
        whole = all(row["decision"] == "retain" for row in own)
        assert {row["group_decision"] for row in own} == {"retain" if whole else "refer"}
    assert {row["shift"] for row in rows} == {"no"}
    counts = applied.as_dict()["groups"]
    whole = {row["group"] for row in rows if row["group_decision"] == "retain"}
    assert counts == {"groups": 100, "retained": len(whole), "referred": 100 - len(whole)}
    assert any("not about groups that are retained whole" in warning for warning in applied.warnings)
    site = applied.subgroups["site"]["b"]
    chosen = columns["site"] == "b"
    assert (site.rows, site.units, site.retained) == (200, 100, applied.retained[chosen].sum())
    assert {rate.name for rate in site.rates} == {"referred", "error"}
    assert all(rate.outcome is None for rate in site.rates)  # nothing is guaranteed for a subgroup
    wrong = new.probs.argmax(1) != new.labels
    kept = chosen & applied.retained
    expected = np.mean([wrong[kept & (group == name)].mean() for name in np.unique(group[kept])])
    assert {rate.name: rate.value for rate in site.rates}["error"] == pytest.approx(expected)
    with pytest.raises(UserError, match=r"'sit'.*Did you mean 'site'"):
        apply_policy(policy, new, by=["sit"])
    with pytest.raises(UserError, match="needs groups"):
        apply_policy(policy, easy(), per="group")
    with pytest.raises(UserError, match="Did you mean 'group'"):
        apply_policy(policy, new, per="groups")
    shifted = apply_policy(policy, of_doubts(np.full(200, 0.45), np.zeros(200)))
    assert ",yes," in shifted.to_csv().splitlines()[1]


def test_shift_is_scipys_test_and_says_which_way():
    policy = fit_capacity_policy(easy(), capacity=0.2)
    same, other = shift_test(policy, easy(seed=5)), of_doubts(0.3 + 0.2 * np.random.default_rng(0).random(80), [0] * 80)
    assert not same.significant
    assert 0.4 < same.more_uncertain < 0.6
    found = shift_test(policy, other)
    reference = ks_2samp(rounded_uncertainty(other, "confidence"), policy.seen)
    assert (found.statistic, found.p_value) == pytest.approx((reference.statistic, reference.pvalue))
    assert found.significant
    assert found.more_uncertain > 0.75
    assert "more uncertain" in found.sentence()
    assert found.sentence() in apply_policy(policy, other).warnings
    with pytest.raises(UserError, match="shift-level"):
        shift_test(policy, other, level=0)


def test_a_policy_applied_prints_its_warnings_and_the_shift_once():
    policy = fit_capacity_policy(easy(), capacity=0.2)
    for new in (easy(300, seed=9), of_doubts(np.full(300, 0.49), np.zeros(300))):
        applied = apply_policy(policy, replace(new, group=np.arange(300).astype(str)))
        assert applied.shift.significant == (new.probs.max() < 0.6)
        assert str(applied).count(applied.shift.sentence()) == 1
        assert all(warning in str(applied) for warning in applied.warnings)


def test_the_shift_test_is_the_same_with_and_without_labels():
    group = np.repeat(np.arange(100), 4)
    policy = fit_capacity_policy(easy(), capacity=0.2)
    new = easy(400, seed=9, group=group.astype(str), ids=np.arange(400).astype(str))
    results = [shift_test(policy, rows) for rows in (new, without_labels(new), replace(new, labels=1 - new.labels))]
    assert results[0].rows == 100
    assert results == [results[0]] * 3
    assert shift_test(policy, new, seed=1) != results[0]
    tags = Predictions(new.logits, np.eye(2, dtype=np.int64)[new.labels], target="multilabel", group=new.group)
    of_tags = fit_capacity_policy(tags, capacity=0.2)
    assert shift_test(of_tags, tags) == shift_test(of_tags, replace(tags, labels=1 - tags.labels))


def test_shift_test_rejects_at_most_at_its_level_also_with_groups():
    rng, rejected = np.random.default_rng(0), 0
    for run in range(200):
        base = np.repeat(rng.random(120) / 2, 4)
        group = np.repeat(np.arange(120), 4)
        both = of_doubts(base, np.zeros(480), group)
        policy = fit_capacity_policy(both.take(group < 60), capacity=0.2, seed=run)
        rejected += shift_test(policy, both.take(group >= 60), level=0.05, seed=run).significant
    assert rejected <= 20  # 0.05 of 200, and chance


def test_every_number_of_the_summary_is_a_count_of_the_rows():
    calibration = easy(400)
    applied = apply_policy(fit_capacity_policy(calibration, capacity=0.25), easy(200, seed=3))
    retained = int((applied.uncertainty <= fit_capacity_policy(calibration, capacity=0.25).threshold).sum())
    assert 0 < retained < 200
    summary = applied.as_dict()
    assert (summary["rows"], summary["retained"], summary["referred"]) == (200, retained, 200 - retained)
    first = applied.lines[0]
    assert first.startswith(f"200 rows: {retained} retained, {200 - retained} referred ({(200 - retained) / 200:.1%});")
    assert summary["groups"] is None


def test_an_error_with_a_bound_is_judged_and_one_without_is_stated_once():
    applied = apply_policy(fit_risk_policy(easy(2000), max_risk=0.3), easy(500, seed=1))
    assert [rate.name for rate in applied.rates if rate.bound is not None] == ["error"]
    assert any(line == applied.rates[0].sentence() for line in applied.lines)
    capacity = apply_policy(fit_capacity_policy(easy(2000), capacity=0.3), easy(500, seed=1))
    assert [rate.name for rate in capacity.rates if rate.bound is None] == ["error"]
    assert sum("error" in line.lower() for line in capacity.lines) == 1  # an error without a bound is not repeated


@pytest.mark.parametrize("positives", [0, 1])
def test_positives_are_counted_where_there_are_any(positives):
    truth = np.repeat([0, 1], [150, 50])
    calibration = of_doubts(np.linspace(0.01, 0.4, 200), np.zeros(200), truth=truth)
    policy = fit_screening_policy(calibration, specificity=0.6, sensitivity=0.6)
    new = of_doubts([0.45] * 10, np.zeros(10), truth=[1] * positives + [0] * (10 - positives))
    said = any(line.startswith("Positives referred") for line in apply_policy(policy, new).lines)
    assert said == bool(positives)


def test_groups_of_one_side_alone_are_warned_of():
    groups = np.arange(400).astype(str)
    plain, grouped = easy(400), easy(400, group=groups)
    by_rows, by_groups = fit_capacity_policy(plain, capacity=0.3), fit_capacity_policy(grouped, capacity=0.3)

    def about_groups(policy, predictions):
        return [text for text in apply_policy(policy, predictions).warnings if "groups" in text]

    assert about_groups(by_rows, plain) == about_groups(by_groups, grouped) == []
    assert [text.split(":")[0] for text in about_groups(by_groups, plain)] == [
        "The policy was fitted on groups and these rows have none"
    ]
    assert [text.split(":")[0] for text in about_groups(by_rows, grouped)] == [
        "The policy was fitted on rows without groups and these have some"
    ]


def test_a_reason_states_the_share_of_calibration_rows_that_are_more_certain():
    doubts = (np.arange(100) + 0.5) / 256
    policy = fit_capacity_policy(of_doubts(doubts, np.zeros(100)), capacity=0.5)
    applied = apply_policy(policy, of_doubts([doubts[60], doubts[99]], [0, 0]))
    assert [reason.rsplit("; ", 1)[1] for reason in applied.reasons] == [
        "60 % of calibration rows are more certain", "99 % of calibration rows are more certain"
    ]  # fmt: skip


def test_predictions_of_another_type_are_refused():
    with pytest.raises(UserError, match="predictions"):
        apply_policy(fit_capacity_policy(easy(), capacity=0.3), np.ones((3, 2)) / 2)


def test_an_error_free_set_where_all_is_retained_is_no_empty_one():
    doubts = np.repeat([0.1, 0.4], 400)
    policy = fit_risk_policy(of_doubts(doubts, doubts > 0.2), max_risk=0.05)
    applied = apply_policy(policy, of_doubts([0.1] * 3, [0, 0, 0]))
    assert applied.outcome in ("undecided", "met")
    unlabelled = apply_policy(policy, without_labels(of_doubts([0.4] * 3, [0, 0, 0])))
    assert not unlabelled.retained.any()
    assert unlabelled.outcome is None  # without labels there is nothing to check
    assert unlabelled.retained_labelled == 0
    some = replace(of_doubts([0.1, 0.4], [0, 0]), labels=np.array([-1, 0]))
    assert apply_policy(policy, some).outcome is None  # a row is retained, and none that could be checked


def test_a_referred_answer_is_shown_rounded_unless_that_is_the_stated_limit():
    calibration = of_doubts((np.arange(100) + 0.5) / 256, np.zeros(100))
    policy = replace(fit_capacity_policy(calibration, capacity=0.5), threshold=0.2)
    reasons = apply_policy(policy, of_doubts([0.3522, 0.19], [0, 0])).reasons
    assert reasons[0].startswith("the answer has 64.8 %, below 80.0 %")
    assert reasons[1].startswith("the answer has 81.0 %, at least 80.0 %")


def test_the_default_seed_of_an_application_is_zero():
    policy = fit_capacity_policy(easy(), capacity=0.3)
    grouped = easy(300, seed=7, group=np.repeat(np.arange(60), 5).astype(str))
    p_values = {apply_policy(policy, grouped, seed=seed).shift.p_value for seed in range(4)}
    assert len(p_values) > 1
    assert apply_policy(policy, grouped).shift == apply_policy(policy, grouped, seed=0).shift


@pytest.mark.parametrize("quantity", ["confidence", "predictive_entropy"])
def test_each_row_is_decided_as_if_it_were_alone(quantity):
    policy = fit_capacity_policy(easy(300), capacity=0.3, quantity=quantity)
    new = easy(40, seed=5)
    decisions = decide_each(policy, new)
    assert {decision.retained for decision in decisions} == {True, False}
    for index, decision in enumerate(decisions):
        alone = apply_policy(policy, new.take(np.array([index])))
        assert decision.retained == alone.retained[0]
        assert (decision.predicted, decision.reason) == (alone.predicted[0], alone.reasons[0])
        assert (decision.probability, decision.uncertainty) == (alone.probability[0], alone.uncertainty[0])
    with pytest.raises(UserError, match="cannot be of the system"):
        decide_each(policy, replace(new, temperature=2.0))
    at = replace(policy, threshold=decisions[3].uncertainty)
    assert decide_each(at, new)[3].retained  # a tie is kept


def test_another_model_is_refused_unless_allowed():
    policy = replace(fit_capacity_policy(easy(), capacity=0.3), system="a" * 64)
    new = replace(easy(20, seed=5), system="b" * 64)
    for decide in (apply_policy, decide_each):
        with pytest.raises(UserError, match="force"):
            decide(policy, new)
        decide(policy, new, allow_other=True)


def test_a_table_of_decisions_cannot_hold_formulas_unless_asked():
    new = easy(3, seed=5, ids=np.array(["=1+1", "b", "c"]))
    applied = apply_policy(fit_capacity_policy(easy(), capacity=0.3), new)
    assert applied.to_csv().splitlines()[1].startswith("'=1+1,")
    assert applied.to_csv() == "".join(applied.csv_lines())
    assert applied.to_csv(raw=True).splitlines()[1].startswith("=1+1,")
    assert applied != apply_policy(fit_capacity_policy(easy(), capacity=0.3), new)  # arrays have no one equality


def test_a_table_in_parquet_needs_pyarrow_and_says_so(monkeypatch):
    applied = apply_policy(fit_capacity_policy(easy(), capacity=0.3), easy(3, seed=5))
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(MissingExtra, match="parquet"):
        applied.to_parquet()


def test_a_row_at_the_threshold_is_retained_alone_as_among_others():
    calibration = easy(200)
    policy = fit_capacity_policy(calibration, capacity=0.2)
    uncertainties = rounded_uncertainty(calibration, "confidence")
    assert (uncertainties == policy.threshold).any()
    assert [row.retained for row in decide_each(policy, calibration)] == (uncertainties <= policy.threshold).tolist()
