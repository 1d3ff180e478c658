"""The shift test: its sentence by hand, its method by the sizes, its level within (0, 1)."""

import numpy as np
import pytest
from scipy.stats import ks_2samp, mannwhitneyu

from dubio.core.errors import UserError
from dubio.referral import apply_policy, fit_capacity_policy, shift_test
from dubio.referral.shift import SHIFT_LEVEL, Shift
from dubio.referral.units import rounded_uncertainty
from tests.referral.helpers import easy


@pytest.mark.parametrize(
    ("more_uncertain", "said"),
    [(0.7, "more uncertain than a calibration row with probability 0.70"),
     (0.2, "less uncertain than a calibration row with probability 0.80"),
     (0.5, "more uncertain than a calibration row with probability 0.50")],
)  # fmt: skip
def test_the_sentence_names_the_more_probable_direction(more_uncertain, said):
    sentence = Shift(0.3, 0.2, more_uncertain, SHIFT_LEVEL, 50, 60).sentence()
    assert sentence.startswith("No significant shift of the uncertainties at level 0.01")
    assert said in sentence


def test_a_p_value_at_the_level_is_not_below_it():
    assert not Shift(0.3, SHIFT_LEVEL, 0.5, SHIFT_LEVEL, 50, 60).significant
    assert Shift(0.3, SHIFT_LEVEL * 0.999, 0.5, SHIFT_LEVEL, 50, 60).significant


@pytest.mark.parametrize(
    ("rows", "new_rows", "method"), [(80, 60, "exact"), (1000, 1000, "exact"), (1000, 1001, "asymp")]
)
def test_small_sets_have_the_exact_distribution_and_large_ones_the_limit(rows, new_rows, method):
    calibration, new = easy(rows), easy(new_rows, seed=5)
    shift = shift_test(fit_capacity_policy(calibration, capacity=0.3), new)
    old, fresh = rounded_uncertainty(calibration, "confidence"), rounded_uncertainty(new, "confidence")
    expected = ks_2samp(fresh, old, method=method)
    other = ks_2samp(fresh, old, method={"exact": "asymp", "asymp": "exact"}[method])
    assert expected.pvalue != other.pvalue
    assert (shift.statistic, shift.p_value) == (expected.statistic, expected.pvalue)
    assert shift.more_uncertain == pytest.approx(mannwhitneyu(fresh, old).statistic / (rows * new_rows))


@pytest.mark.parametrize("level", [0.0, 1.0, 1.5, -0.1, np.nan])
def test_a_level_lies_between_zero_and_one(level):
    with pytest.raises(UserError, match="--shift-level"):
        shift_test(fit_capacity_policy(easy(), capacity=0.3), easy(seed=1), level=level)


def test_a_policy_that_names_no_model_is_accepted_with_a_warning():
    policy = fit_capacity_policy(easy(80), capacity=0.3)
    new = easy(60, seed=5)
    assert not any("for which model" in text for text in apply_policy(policy, new).warnings)
    warned = apply_policy(policy, new.with_checked(system="a" * 64)).warnings
    assert sum("does not say for which model it was fitted" in text for text in warned) == 1
    own = fit_capacity_policy(easy(80).with_checked(system="a" * 64), capacity=0.3)
    assert not any("model" in text for text in apply_policy(own, new.with_checked(system="a" * 64)).warnings)
