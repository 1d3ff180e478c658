"""Uncertainties rounded so that ties stay together."""

import numpy as np
import pytest

from dubio.core.predictions import Predictions
from dubio.referral.units import Claim, ClaimEstimate, Units, just_below, rounded, rounded_uncertainty


def test_uncertainties_that_differ_by_rounding_are_equal():
    probs = np.array([0.7, 0.7 + 1e-8, 0.9])
    given = Predictions(np.log(np.stack([probs, 1 - probs], 1))[None].astype(np.float32), np.zeros(3, dtype=np.int64))
    graded = rounded_uncertainty(given, "confidence")
    assert graded[0] == graded[1] != graded[2]
    assert graded == pytest.approx(1 - probs, rel=2**-16)


@pytest.mark.parametrize("value", [1.0, 0.5, 2.0**-1000, 0.3, 1e-9, 7.0])
def test_just_below_is_the_next_graded_number(value):
    (value,) = rounded(np.array([value]))
    below = just_below(value)
    assert below < value
    assert rounded(np.array([below])) == [below]
    between = rounded(np.linspace(below, value, 101))
    assert set(between) == {below, value}


def test_values_are_rounded_to_sixteen_binary_digits():
    step = 2.0**-16  # of numbers from one half to one
    values = np.array([0.5 + step, 0.5 + 0.4 * step, 0.5 + 1.4 * step, 0.25 + step / 2, 0.25 + step / 5])
    assert rounded(values).tolist() == [0.5 + step, 0.5, 0.5 + step, 0.25 + step / 2, 0.25]
    assert just_below(0.75) == 0.75 - step
    assert just_below(0.5) == 0.5 - step / 2
    assert just_below(0.0) < 0


def test_the_loss_of_nothing_retained_is_zero_and_of_units_the_mean_of_theirs():
    units = Units(np.array([0.1, 0.2, 0.3]), np.array([0, 0, 1]), 2, False)
    claim = Claim("error", np.ones(3, dtype=bool), np.array([1.0, 0.0, 1.0]), 0.1)
    everyone = np.ones(2, dtype=bool)
    assert units.estimate(claim, 0.05, everyone) == ClaimEstimate(0.0, 0)
    assert units.estimate(claim, 0.2, everyone) == ClaimEstimate(0.5, 1)
    assert units.estimate(claim, 1.0, everyone) == ClaimEstimate(0.75, 2)
    assert units.estimate(claim, 1.0, np.array([False, True])) == ClaimEstimate(1.0, 1)
