"""A policy for a capacity, without labels and with ties."""

import dataclasses

import numpy as np
import pytest
from scipy.stats import beta

from dubio.core.errors import UserError
from dubio.referral import fit_capacity_policy
from tests.referral.helpers import ALPHA, at_most, draw, easy, flat, of_doubts, without_labels


def test_capacity_needs_no_labels_and_ties_are_told():
    plain = fit_capacity_policy(without_labels(easy()), capacity=0.2)
    assert plain.evidence["referred"] == pytest.approx(0.2, abs=0.01)
    tied = of_doubts(np.repeat([0.1, 0.3], [50, 150]), np.zeros(200))
    policy = fit_capacity_policy(tied, capacity=0.2)
    assert policy.evidence["referred"] == 0
    assert "150 calibration rows" in policy.notes[-1]


def test_capacity_keeps_its_expectation_and_its_bounds():
    rng, runs, rows = np.random.default_rng(4), 600, 60
    shares, above, batches = [], 0, 0
    for _ in range(runs):
        policy = fit_capacity_policy(draw(rng, rows, flat), capacity=0.2, confidence=1 - ALPHA)
        share = 1 - 2 * policy.threshold
        shares.append(share)
        above += share > policy.evidence["upper_referral"]
        batches += rng.binomial(100, share) > policy.evidence["of_next_hundred"]
    print(f"\ncapacity: mean {np.mean(shares):.4f}; {above} and {batches} of {runs} above the bounds")
    # The share is Beta(n + 1 - k, k) with k = ceil(61 * 0.8) = 49: the mean is 12/61.
    law = beta(12, 49)
    assert np.mean(shares) == pytest.approx(12 / 61, abs=4 * law.std() / np.sqrt(runs) + 2e-5)
    assert at_most(above, runs, ALPHA)
    assert at_most(batches, runs, ALPHA)
    assert above > 0.05 * runs
    # "at most the capacity in every run" would be wrong about half of the time
    assert np.mean(np.array(shares) > 0.2) > 0.3


def test_too_few_groups_are_counted_as_groups():
    one = dataclasses.replace(easy(), group=np.full(len(easy()), "a"))
    with pytest.raises(UserError, match=r"needs at least 3 independent calibration groups; given 1"):
        fit_capacity_policy(one, capacity=0.3)
