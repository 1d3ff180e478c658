"""Promises kept: over many calibration sets from a known world, violations at most at the stated rate.

Each test has a case on the boundary, where every policy is a violation, so that it can fail, and the naive way beside
it, which does.
"""

import numpy as np
import pytest
from scipy.stats import beta, binom

from dubio.core.errors import UserError
from dubio.core.predictions import Predictions
from dubio.referral import fit_capacity_policy, fit_risk_policy, fit_screening_policy
from dubio.referral.bounds import binomial_p
from dubio.referral.fixed_sequence import FixedSequences
from dubio.referral.units import rounded_uncertainty
from tests.referral.helpers import draw, of_doubts, true_risk

ALPHA = 0.1
RISK = 0.1
ROUNDING = 1e-9


def at_most(violations, runs, rate):
    """Fewer than a true rate would exceed once in a thousand times."""
    return violations <= binom.ppf(0.999, runs, rate)


def threshold_or_none(fit):
    try:
        return fit().threshold
    except UserError:
        return None


def naive_threshold(predictions: Predictions, risk, alpha):
    """The largest threshold whose own exact bound holds, as if it had been the only one looked at."""
    doubts = predictions.probs.min(axis=1)
    wrong = predictions.probs.argmax(axis=1) != predictions.labels
    order = np.argsort(doubts)
    counts = np.arange(1, len(doubts) + 1)
    good = np.flatnonzero(binom.cdf(np.cumsum(wrong[order]), counts, risk) <= alpha)
    return doubts[order][good[-1]] if len(good) else None


def flat(doubts):
    """The risk is on the boundary at every threshold."""
    return np.full(len(doubts), RISK)


def rising(doubts):
    """The risk crosses the bound at a doubt of 0.2: mean over (0, t) is t / 2."""
    return doubts


def falling(doubts):
    """An uncertainty that misleads: the surest rows are the worst, and the risk is below the bound from 0.4 on."""
    return np.where(doubts < 0.1, 0.25, 0.05)


WORLDS = {
    "flat": (flat, None, 400),
    "flat, tied": (flat, 6, 400),
    "rising": (rising, None, 600),
    "falling": (falling, None, 300),
    "falling, tied": (falling, 9, 300),
}


@pytest.mark.parametrize("world", WORLDS)
def test_risk_policy_breaks_its_bound_at_most_at_the_stated_rate(world):
    error_at, levels, rows = WORLDS[world]
    rng, runs, violations, naive = np.random.default_rng(1), 500, 0, 0
    for _ in range(runs):
        drawn = draw(rng, rows, error_at, levels)
        found = threshold_or_none(lambda drawn=drawn: fit_risk_policy(drawn, max_risk=RISK, confidence=1 - ALPHA))
        violations += found is not None and true_risk(error_at, found, levels) >= RISK - ROUNDING
        looked = naive_threshold(drawn, RISK, ALPHA)
        naive += looked is not None and true_risk(error_at, looked, levels) >= RISK - ROUNDING
    print(f"\nrisk, {world}: {violations} of {runs} violations, naive {naive}")
    assert at_most(violations, runs, ALPHA)
    if world.startswith("flat"):
        assert violations > 0.02 * runs  # the bound is nearly used up: a level twice as lax would be seen
        assert not at_most(naive, runs, ALPHA)


def clusters(rng, groups, size):
    """Rows of a group are right or wrong together, with the risk on the boundary at every threshold."""
    wrong = np.repeat(rng.random(groups) < RISK, size)
    return of_doubts(rng.random(groups * size) / 2, wrong, group=np.repeat(np.arange(groups), size))


def test_grouped_risk_policy_breaks_its_bound_at_most_at_the_stated_rate():
    rng, runs, violations, naive = np.random.default_rng(2), 300, 0, 0
    for run in range(runs):
        drawn = clusters(rng, 80, 5)
        for grouped in (True, False):
            given = drawn if grouped else Predictions(drawn.logits, drawn.labels, kind="cal")
            found = threshold_or_none(
                lambda given=given, run=run: fit_risk_policy(given, max_risk=RISK, confidence=1 - ALPHA, seed=run)
            )
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


def patients(rng, rows, miss, alarm):
    truth = rng.random(rows) < 0.4
    wrong = rng.random(rows) < np.where(truth, miss, alarm)
    return of_doubts(rng.random(rows) / 2, wrong, truth=truth)


@pytest.mark.parametrize(("miss", "alarm"), [(0.15, 0.05), (0.02, 0.2), (0.15, 0.2)])
def test_screening_policy_breaks_its_bounds_at_most_at_the_stated_rate(miss, alarm):
    rng, runs, violations, naive = np.random.default_rng(5), 300, 0, 0
    goals = {"sensitivity": 0.85, "specificity": 0.8}
    for run in range(runs):
        drawn = patients(rng, 400, miss, alarm)
        found = threshold_or_none(
            lambda drawn=drawn, run=run: fit_screening_policy(drawn, **goals, confidence=1 - ALPHA, seed=run)
        )
        violations += found is not None
        naive += naive_screening(drawn, goals)
    print(f"\nscreening, miss {miss}, alarm {alarm}: {violations} of {runs} violations, naive {naive}")
    assert at_most(violations, runs, ALPHA)
    if (miss, alarm) != (0.15, 0.2):
        assert violations > 0
        assert not at_most(naive, runs, ALPHA)


def naive_screening(predictions, goals):
    doubts, truth = predictions.probs.min(axis=1), predictions.labels
    wrong = predictions.probs.argmax(axis=1) != truth
    for threshold in np.quantile(doubts, np.arange(5, 101) / 100):
        sides = [(doubts <= threshold) & (truth == side) for side in (1, 0)]
        bounds = [1 - goals["sensitivity"], 1 - goals["specificity"]]
        if all(binomial_p(wrong[side].mean(), int(side.sum()), bound) <= ALPHA
               for side, bound in zip(sides, bounds, strict=True) if side.any()):  # fmt: skip
            return True
    return False


def test_what_a_refusal_offers_holds_at_the_stated_rate():
    rng, runs, violations = np.random.default_rng(6), 500, 0
    for _ in range(runs):
        rows = draw(rng, 200, flat)
        doubts, wrong = rounded_uncertainty(rows, "confidence"), (rows.probs.argmax(axis=1) != rows.labels) * 1.0
        upper, _ = FixedSequences.over(doubts, wrong, risk=0.01, level=ALPHA).best_bound()
        violations += upper <= RISK
    print(f"\nbest bound: {violations} of {runs} violations")
    assert at_most(violations, runs, ALPHA)
    assert violations > 0.01 * runs
