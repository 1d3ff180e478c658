"""Policies for rows in groups: violations at most at the stated rate; rows taken as independent exceed it."""

import numpy as np

from dubio.core.predictions import Predictions
from dubio.referral import fit_risk_policy
from tests.referral.helpers import ALPHA, RISK, at_most, of_doubts, threshold_or_none


def clusters(rng, groups, size):
    """Rows of a group are right or wrong together, with the risk on the boundary at every threshold."""
    wrong = np.repeat(rng.random(groups) < RISK, size)
    return of_doubts(rng.random(groups * size) / 2, wrong, group=np.repeat(np.arange(groups), size))


def test_grouped_risk_policy_breaks_its_bound_at_most_at_the_stated_rate():
    rng, runs, violations, naive = np.random.default_rng(2), 300, 0, 0
    for _ in range(runs):
        drawn = clusters(rng, 80, 5)
        for grouped in (True, False):
            given = drawn if grouped else Predictions(drawn.logits, drawn.labels, kind="cal")
            found = threshold_or_none(lambda given=given: fit_risk_policy(given, max_risk=RISK, confidence=1 - ALPHA))
            violations += grouped and found is not None
            naive += not grouped and found is not None
    print(f"\nrisk, groups: {violations} of {runs} violations, rows taken as independent {naive}")
    assert at_most(violations, runs, ALPHA)
    assert not at_most(naive, runs, ALPHA)


def test_grouped_risk_policy_finds_what_is_there():
    rng = np.random.default_rng(3)
    doubts = rng.random(4000) / 2
    group = np.repeat(np.arange(1000), 4)
    policy = fit_risk_policy(of_doubts(doubts, rng.random(4000) < doubts, group), max_risk=RISK, confidence=0.9)
    assert 0.1 < policy.threshold < 0.2
    assert policy.grouped
