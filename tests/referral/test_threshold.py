"""Thresholds as probabilities: true of every row, however they are rounded, and inverted against the quantities."""

import re
from dataclasses import replace

import numpy as np
import pytest

from dubio.referral import Policy, apply_policy, fit_capacity_policy
from dubio.referral.threshold import answer_probability, least_probability, percentage, rounded_down, rule
from dubio.referral.units import BITS, rounded, rounded_uncertainty
from tests.referral.helpers import easy, of_doubts

AT_LEAST = re.compile(r"the answer has at least ([\d.]+) %")


def test_the_probability_that_is_stated_divides_the_rows_as_the_policy_does():
    rng = np.random.default_rng(0)
    for run in range(200):
        rows = int(rng.integers(5, 400))
        calibration = of_doubts(rng.random(rows) / 2 * rng.choice([1.0, 0.01]), np.zeros(rows))
        policy = fit_capacity_policy(calibration, capacity=float(rng.uniform(0.2, 0.8)))
        new = of_doubts(rng.random(200) / 2, np.zeros(200))
        applied = apply_policy(policy, new)
        stated = float(AT_LEAST.search(applied.rule)[1]) / 100
        both = np.concatenate([rounded_uncertainty(calibration, "confidence"), applied.uncertainty])
        retained, referred = both[both <= policy.threshold], both[both > policy.threshold]
        assert (1 - retained * (1 - 2.0**-BITS) >= stated).all(), run  # up to the rounding of uncertainties
        assert (1 - referred < stated).all(), run
        least, number = least_probability(policy, applied.uncertainty.tolist())
        assert least == pytest.approx(stated, abs=1e-12)
        if number > 1:  # one decimal less would be untrue of a row
            assert (1 - referred >= rounded_down(least, number - 1)).any()


@pytest.mark.parametrize("quantity", ["predictive_entropy", "total_variance", "expected_entropy", "expected_variance"])
def test_quantities_of_two_classes_are_inverted(quantity):
    new = easy(300, seed=2)
    policy = fit_capacity_policy(easy(), capacity=0.3, quantity=quantity)
    applied = apply_policy(policy, new)
    stated = float(AT_LEAST.search(applied.rule)[1]) / 100
    assert ((new.probs.max(1) >= stated) == applied.retained).all()
    for value, answer in zip(rounded_uncertainty(new, quantity)[:50], new.probs.max(1), strict=False):
        assert answer_probability(policy, float(value)) == pytest.approx(answer, abs=2e-4)
    assert quantity.replace("_", " ") + " up to" in applied.rule
    assert answer_probability(policy, 0.0) == 1.0
    assert answer_probability(policy, 9.0) == 0.5


def test_other_quantities_keep_their_own_threshold():
    policy = fit_capacity_policy(easy(), capacity=0.3, quantity="predictive_entropy")
    for changed in (
        {"class_count": 3},
        {"quantity": "mutual_information"},
        {"quantity": "expected_entropy", "samples": 5},
        {"quantity": "total_variance", "temperature": 2.0},
        {"target": "multilabel"},
    ):
        other = replace(policy, **changed)
        assert answer_probability(other, 0.1) is None
        assert f"up to {policy.threshold:.6g}" in other.rule
        assert "%" not in other.rule
    assert replace(policy, quantity="stated").rule == f"retained with score 'stated' up to {policy.threshold:.6g}"
    tempered = replace(policy, temperature=2.0)
    assert answer_probability(tempered, 0.1) is not None  # the predictive entropy follows the temperature
    multilabel = replace(policy, target="multilabel", quantity="confidence", threshold=0.25)
    assert multilabel.rule == "retained with a mean probability of its labels of at least 0.75"


def test_thresholds_without_a_number():
    policy = fit_capacity_policy(easy(), capacity=0.3)
    every = replace(policy, threshold=float("inf"))
    assert every.rule == "every row is retained, whatever its confidence"
    assert f"rule: {every.rule}" in str(every).splitlines()  # not "confidence: …", as if it were about that
    assert set(apply_policy(every, easy()).reasons) == {every.rule}
    assert "whatever its predictive entropy" in replace(every, quantity="predictive_entropy").rule
    assert replace(every, quantity="stated").rule == "every row is retained, whatever its score 'stated'"
    assert replace(policy, threshold=-1e-9).rule == "no row is retained, whatever its confidence"
    assert isinstance(policy, Policy)
    assert policy.rule in str(policy)


def test_reasons_state_the_probability_of_the_answer():
    policy = replace(
        fit_capacity_policy(easy(), capacity=0.3), threshold=float(rounded(np.array(0.28))), seen=(0.1, 0.3)
    )
    applied = apply_policy(policy, of_doubts([0.1, 0.28, 0.31], [False] * 3))
    assert policy.rule == "retained when the answer has at least 72.0 %"
    assert applied.reasons[0].startswith("the answer has 90.0 %, at least 72.0 %")
    assert applied.reasons[1].startswith("the answer has 72.0 %, at least 72.0 %")
    assert applied.reasons[2].startswith("the answer has 69.0 %, below 72.0 %")
    assert "% of calibration rows are more certain" in applied.reasons[2]
    near = apply_policy(policy, of_doubts([0.2803], [False]))  # 71.97 % would be 72.0 % if rounded up
    assert near.reasons[0].startswith("the answer has 71.9 %, below 72.0 %")


def test_percentages():
    assert rounded_down(0.72199, 1) == 0.721
    assert rounded_down(0.72199, 2) == 0.7219
    assert percentage(0.72199, 1) == "72.2 %"
    assert percentage(1.0, 1) == "100.0 %"


def test_a_threshold_beyond_every_uncertainty_is_a_probability_of_zero():
    policy = fit_capacity_policy(easy(), capacity=0.3)
    for threshold in (1.5, 1e300, 1.7e308):
        beyond = replace(policy, threshold=threshold)
        assert least_probability(beyond) == (0.0, 1)
        assert beyond.rule == "retained when the answer has at least 0.0 %"


def test_thresholds_at_the_ends_of_their_range():
    policy = fit_capacity_policy(easy(), capacity=0.3)
    assert least_probability(replace(policy, threshold=0.0, seen=(0.0, 0.5))) == (1.0, 1)
    assert rule(replace(policy, threshold=0.0, seen=(0.0, 0.5))) == "retained when the answer has at least 100.0 %"
    assert least_probability(replace(policy, threshold=np.inf)) is None
    assert least_probability(replace(policy, threshold=-1.0)) is None


def test_a_referred_row_stays_below_the_stated_probability_and_never_at_it():
    policy = replace(fit_capacity_policy(easy(), capacity=0.3), threshold=0.2498, seen=(0.1,))
    assert least_probability(policy, [0.25]) == (0.7502, 2)  # 75.0 % would retain the row that has just that


def test_rows_that_no_decimal_divides_have_the_limit_itself():
    policy = replace(fit_capacity_policy(easy(), capacity=0.3), threshold=1.5e-11, seen=(1e-12,))
    assert least_probability(policy, [1.6e-11]) == (1 - 1.5e-11 * (1 - 2.0**-16), 9)


def test_a_new_row_at_the_threshold_is_retained_and_changes_no_sentence():
    policy = fit_capacity_policy(easy(50), capacity=0.5)
    assert least_probability(policy, [policy.threshold]) == least_probability(policy)
    assert rule(policy, [policy.threshold]) == rule(policy)
