"""A policy for a capacity, without labels and with ties."""

import dataclasses
import math

import numpy as np
import pytest
from scipy.stats import beta, betabinom

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


@pytest.mark.parametrize(("rows", "capacity"), [(60, 0.2), (4, 0.2), (9, 0.1), (200, 0.25), (33, 0.5)])
def test_the_threshold_and_its_bounds_by_their_formulas(rows, capacity):
    doubts = (np.arange(rows) + 1) / 1024
    policy = fit_capacity_policy(of_doubts(doubts, np.zeros(rows)), capacity=capacity)
    rank = math.ceil(round((rows + 1) * (1 - capacity), 9))
    assert policy.threshold == pytest.approx(doubts[rank - 1], rel=1e-4)
    above = rows + 1 - rank
    assert policy.evidence["referred"] == pytest.approx((rows - rank) / rows)
    assert policy.evidence["expected_referral"] == pytest.approx(above / (rows + 1))
    assert policy.evidence["upper_referral"] == pytest.approx(beta.ppf(0.95, above, rank))
    assert policy.evidence["of_next_hundred"] == betabinom.ppf(0.95, 100, above, rank)
    assert f"on average at most {above / (rows + 1):.4g} of new rows are referred" in policy.guarantee.lower()
    assert policy.notes[1:] == ()  # nothing about ties
    if rank == rows:
        with pytest.raises(UserError, match=f"at least {rows} independent calibration rows; given {rows - 1}"):
            fit_capacity_policy(of_doubts(doubts[1:], np.zeros(rows - 1)), capacity=capacity)


def test_with_groups_the_guarantee_is_about_a_new_group():
    grouped = dataclasses.replace(easy(), group=np.arange(len(easy())).astype(str))
    assert "of the rows of a new group are referred" in fit_capacity_policy(grouped, capacity=0.3).guarantee
    assert "group" not in fit_capacity_policy(easy(), capacity=0.3).guarantee


@pytest.mark.parametrize(("tied", "told"), [(1, False), (2, False), (3, False), (4, True), (8, True)])
def test_ties_are_told_where_they_leave_a_tenth_of_the_capacity_and_a_row_unused(tied, told):
    # 99 rows, a capacity of 0.2: the threshold is the 80th, so 19 rows are above it unless they equal it.
    doubts = (np.arange(99) + 1) / 1024
    doubts[79 : 79 + tied] = doubts[79]
    policy = fit_capacity_policy(of_doubts(doubts, np.zeros(99)), capacity=0.2)
    used = (20 - tied) / 99
    assert policy.evidence["referred"] == pytest.approx(used)
    assert told == (used <= 0.9 * 0.2 - 1 / 99)
    assert any("have exactly the uncertainty of the threshold" in note for note in policy.notes) == told
    assert not told or f"only {used:.4g} of the rows are referred" in policy.notes[-1]


def test_the_default_seed_is_zero():
    grouped = dataclasses.replace(easy(), group=np.repeat(np.arange(80), 5).astype(str))
    thresholds = [fit_capacity_policy(grouped, capacity=0.3, seed=seed).threshold for seed in range(4)]
    assert len(set(thresholds)) > 1
    assert fit_capacity_policy(grouped, capacity=0.3).threshold == thresholds[0]
