"""A policy with a bound on the error: what is retained, and what a refusal offers."""

import json
from dataclasses import replace
from math import inf

import numpy as np
import pytest
from scipy.stats import binom

from dubio.core.errors import UserError
from dubio.core.predictions import Predictions
from dubio.referral import (
    NoGuarantee,
    apply_policy,
    fit_capacity_policy,
    fit_risk_policy,
    fit_screening_policy,
)
from tests.referral.helpers import (
    ALPHA,
    RISK,
    ROUNDING,
    at_most,
    draw,
    easy,
    flat,
    of_doubts,
    threshold_or_none,
    true_risk,
)


def test_the_whole_is_kept_where_the_whole_is_good_enough():
    policy = fit_risk_policy(draw(np.random.default_rng(0), 500, lambda doubts: 0 * doubts), max_risk=0.05)
    assert policy.threshold == inf
    assert policy.evidence["coverage"] == 1.0
    assert json.loads(policy.to_json())["threshold"] is None
    assert apply_policy(policy, easy()).retained.all()


def test_rows_that_are_equally_certain_stay_together_and_do_not_stop_the_search():
    rng = np.random.default_rng(1)
    doubts = np.where(rng.random(1000) < 0.6, 0.0, 0.4)
    policy = fit_risk_policy(of_doubts(doubts, rng.random(1000) < doubts), max_risk=0.05)
    assert 0 <= policy.threshold < 0.4
    assert policy.evidence["retained"] == (doubts == 0).sum()


def test_refusal_states_what_could_be_guaranteed():
    with pytest.raises(UserError, match=r"below max_risk 0.01 .* best that can be guaranteed is an error below 0\.\d+"):
        fit_risk_policy(easy(), max_risk=0.01)
    with pytest.raises(UserError, match=r"no threshold on these 4 rows .* below 0\.\d+"):
        fit_risk_policy(easy(4), max_risk=0.05)
    with pytest.raises(UserError, match=r"on these 130 groups .* guaranteed is an error below"):
        fit_risk_policy(easy(260, group=np.repeat(np.arange(130), 2).astype(str)), max_risk=0.01)
    truth = np.arange(400) % 2
    hard = of_doubts(np.linspace(0.1, 0.5, 400), np.random.default_rng(0).random(400) < 0.3, truth=truth)
    with pytest.raises(UserError, match=r"guaranteed is sensitivity above 0\.\d+ .* and specificity above 0\.\d+"):
        fit_screening_policy(hard, sensitivity=0.9, specificity=0.9)
    with pytest.raises(UserError, match=r"0\.001 needs at least 999 independent calibration rows; given 400"):
        fit_capacity_policy(easy(), capacity=0.001)


def test_multilabel_rows_are_right_as_a_whole():
    rng = np.random.default_rng(0)
    labels = (rng.random((300, 3)) < 0.5).astype(np.int64)
    logits = (6.0 * (2 * labels - 1))[None].astype(np.float32)
    policy = fit_risk_policy(Predictions(logits, labels, "multilabel", kind="cal"), max_risk=0.05)
    applied = apply_policy(policy, Predictions(logits, labels, "multilabel"))
    assert applied.retained_error == 0
    assert applied.predicted[0] == ";".join(str(k) for k in np.flatnonzero(labels[0]))


def naive_threshold(predictions: Predictions, risk, alpha):
    """The largest threshold whose own exact bound holds, as if it had been the only one looked at."""
    doubts = predictions.probs.min(axis=1)
    wrong = predictions.probs.argmax(axis=1) != predictions.labels
    order = np.argsort(doubts)
    counts = np.arange(1, len(doubts) + 1)
    good = np.flatnonzero(binom.cdf(np.cumsum(wrong[order]), counts, risk) <= alpha)
    return doubts[order][good[-1]] if len(good) else None


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


def test_the_guarantee_says_what_the_error_is_of():
    rows = draw(np.random.default_rng(0), 600, lambda doubts: doubts / 4)
    plain = fit_risk_policy(rows, max_risk=0.2)
    assert "the error among the retained is below 0.2" in plain.guarantee
    assert plain.evidence["error_without_referral"] == pytest.approx((rows.probs.argmax(1) != rows.labels).mean())
    grouped = replace(rows, group=np.repeat(np.arange(300), 2).astype(str))
    assert "mean over groups of the error among their retained rows" in fit_risk_policy(grouped, max_risk=0.2).guarantee


def test_a_refusal_carries_the_best_bound_and_its_coverage():
    with pytest.raises(NoGuarantee) as refusal:
        fit_risk_policy(easy(), max_risk=0.01)
    assert 0.01 < refusal.value.upper < 1
    assert 0 < refusal.value.coverage <= 1
    said = f"an error below {refusal.value.upper:.4g}, retaining {refusal.value.coverage:.1%} of rows"
    assert said in str(refusal.value)
    assert str(refusal.value).startswith("no threshold on these 400 rows")
    with pytest.raises(NoGuarantee, match="No bound at all can be guaranteed") as nothing:
        fit_risk_policy(of_doubts([0.1, 0.2], [1, 1]), max_risk=0.05)
    assert nothing.value.upper == 1


def test_the_default_seed_is_zero():
    grouped = easy(260, group=np.repeat(np.arange(130), 2).astype(str))
    thresholds = {fit_risk_policy(grouped, max_risk=0.3, seed=seed).threshold for seed in range(6)}
    assert len(thresholds) > 1
    assert fit_risk_policy(grouped, max_risk=0.3) == fit_risk_policy(grouped, max_risk=0.3, seed=0)
