from __future__ import annotations

from dataclasses import replace

import numpy as np

from dubio.referral import apply_policy, fit_capacity_policy
from dubio.referral.reasons import Reasons
from tests.serving.helpers import calibration


def test_reasons_are_put_into_words_row_by_row_with_an_ending_where_one_is_marked():
    policy = fit_capacity_policy(calibration(400), capacity=0.3)
    applied = apply_policy(policy, calibration(50))
    marked = np.arange(50) % 2 == 0
    reasons = Reasons(policy, applied.uncertainty, applied.retained).with_ending(marked, "; near")
    assert len(reasons) == 50
    for row, (plain, own) in enumerate(zip(applied.reasons, reasons, strict=True)):
        word = "is at most" if applied.retained[row] else "is above"
        assert f"{word} the threshold {policy.threshold:.6g}" in plain
        assert f"{applied.uncertainty[row]:.6g}" in plain
        assert own == (f"{plain}; near" if marked[row] else plain)
    assert list(reasons[3:6]) == [reasons[3], reasons[4], reasons[5]]


def test_the_stated_probability_divides_the_nearest_referred_row_and_none_is_stated_where_all_are_referred():
    fitted = fit_capacity_policy(calibration(400), capacity=0.3)
    policy = replace(fitted, threshold=0.2137, seen=(0.01, 0.49))
    reasons = Reasons(policy, np.array([0.2137, 0.21373, 0.4]), np.array([True, False, False]))
    assert "at least 78.63 %" in reasons[0]  # of 78.6 % the second row would not be below
    assert "below 78.63 %" in reasons[1]
    none = Reasons(replace(policy, threshold=-1.0), np.array([0.2]), np.array([False]))
    assert none[0].startswith("1 − confidence 0.2 is above the threshold -1")
