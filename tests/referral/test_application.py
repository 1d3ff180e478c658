"""A policy applied to new predictions: decisions, the operating point, and the shift test against scipy's."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import ks_2samp

from dubio.core.errors import UserError
from dubio.core.predictions import Predictions
from dubio.referral import (
    apply_policy,
    fit_capacity_policy,
    shift_test,
)
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
    twice = easy()
    twice = replace(twice, logits=np.concatenate([twice.logits, twice.logits]), member=None)
    assert "2 samples" in apply_policy(policy, twice).warnings[0]


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


def test_shift_test_rejects_at_most_at_its_level_also_with_groups():
    rng, rejected = np.random.default_rng(0), 0
    for run in range(200):
        base = np.repeat(rng.random(120) / 2, 4)
        group = np.repeat(np.arange(120), 4)
        both = of_doubts(base, np.zeros(480), group)
        policy = fit_capacity_policy(both.take(group < 60), capacity=0.2, seed=run)
        rejected += shift_test(policy, both.take(group >= 60), level=0.05, seed=run).significant
    assert rejected <= 20  # 0.05 of 200, and chance
