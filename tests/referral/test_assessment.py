"""Assessing a policy on labelled data: by hand, by brute force over groups, against scipy's exact interval."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import binomtest

from dubio.core.predictions import Predictions
from dubio.metrics.decisions import correct
from dubio.referral import Policy, fit_capacity_policy
from dubio.referral.assessment import (
    Observation,
    ReferredShare,
    exact_interval,
    observe,
    referred_share,
)
from dubio.referral.units import rounded_uncertainty
from dubio.statistics.bootstrap import units_of

ENTROPY = "predictive_entropy"


def two_classes(doubts: list[float], labels: list[bool], group: list[str] | None = None) -> Predictions:
    chance = np.array(doubts)
    logits = np.log(np.stack([1 - chance, chance], axis=1))[None].astype(np.float32)
    names = None if group is None else np.array(group)
    return Predictions(logits, np.array(labels, dtype=np.int64), group=names)


def policy_between(doubt: float) -> Policy:
    """A policy that retains rows with less doubt than this."""
    calibration = two_classes(list(np.linspace(0.01, 0.49, 40)), [False] * 40)
    policy = fit_capacity_policy(calibration, capacity=0.3, quantity=ENTROPY)
    return replace(policy, threshold=float(rounded_uncertainty(two_classes([doubt], [False]), ENTROPY)[0]))


def grouped_rows(seed: int) -> Predictions:
    rng = np.random.default_rng(seed)
    doubts = rng.uniform(0.01, 0.49, 90)
    return two_classes(list(doubts), list(rng.random(90) < doubts), [f"patient {k % 30}" for k in range(90)])


def test_groups_count_alike_in_the_referred_share():
    # Patient a: 1 of 3 referred; b: its only one referred; c: none of two. Mean 4/9, of rows 2/6.
    rows = two_classes(
        [0.01, 0.02, 0.45, 0.45, 0.01, 0.02],
        [True, False, False, True, False, False],
        ["a", "a", "a", "b", "c", "c"],
    )
    policy = policy_between(0.2)
    share = referred_share(policy, rows)
    assert share.share == pytest.approx((1 / 3 + 1 + 0) / 3)
    assert share.interval == pytest.approx((0.0, 1.0))  # the same patient three times: 1 of 27 each, above 2.5 %
    observation = observe(policy, "test", rows)
    assert observation.retained == pytest.approx(4 / 6)
    assert observation.error == pytest.approx(1 / 4)
    assert referred_share(policy, replace(rows, group=np.repeat("a", 6))).interval is None
    single = referred_share(policy, replace(rows, group=None))
    exact = binomtest(2, 6).proportion_ci(0.95)
    assert single.share == pytest.approx(2 / 6)
    assert single.interval == pytest.approx((exact.low, exact.high))


def test_intervals_resample_groups_whole():
    rows, policy = grouped_rows(0), policy_between(0.3)
    retained = rounded_uncertainty(rows, ENTROPY) <= policy.threshold
    wrong = ~correct(rows)
    names = np.unique(rows.group)
    referred_of = {name: (~retained)[rows.group == name].mean() for name in names}
    retained_of = {name: int((retained & (rows.group == name)).sum()) for name in names}
    shares, errors = [], []
    for weights in units_of(rows).weights(1000, 0):
        for drawn in weights.replicates():
            shares.append(np.mean([referred_of[rows.group[row]] for row in drawn]))  # all have three rows
            mine = drawn[retained[drawn]]
            if len(mine):
                errors.append(np.average(wrong[mine], weights=[1 / retained_of[g] for g in rows.group[mine]]))
    share = referred_share(policy, rows)
    assert share.share == pytest.approx(np.mean(list(referred_of.values())))
    assert share.interval == pytest.approx(tuple(np.quantile(shares, [0.025, 0.975])), abs=1e-9)
    observation = observe(policy, "test", rows)
    error, interval = observation.error, observation.interval
    groups = np.unique(rows.group[retained])
    assert error == pytest.approx(np.mean([wrong[retained & (rows.group == g)].mean() for g in groups]))
    assert interval == pytest.approx(tuple(np.quantile(errors, [0.025, 0.975])), abs=0.01)
    assert observe(policy, "test", replace(rows, group=np.repeat("one", len(rows)))).interval is None


def test_an_interval_without_errors_starts_at_zero_and_with_errors_alone_ends_at_one():
    assert exact_interval(0.0, 20) == pytest.approx((0.0, 1 - 0.025 ** (1 / 20)))
    assert exact_interval(1.0, 20) == pytest.approx((0.025 ** (1 / 20), 1.0))


def test_rows_without_labels_have_no_error():
    rows = replace(grouped_rows(1), labels=np.full(90, -1))
    observation = observe(policy_between(0.3), "new", rows)
    assert observation.error is None
    assert observation.retained == pytest.approx(
        (rounded_uncertainty(rows, ENTROPY) <= policy_between(0.3).threshold).mean()
    )


@pytest.mark.parametrize(
    ("error", "interval", "outcome"),
    [
        (0.04, (0.02, 0.07), "met"),
        (0.06, (0.03, 0.10), "undecided"),
        (0.09, (0.06, 0.13), "violated"),
        (0.09, None, "above"),
        (None, None, "nothing retained"),
    ],
)
def test_the_outcome_of_a_risk_guarantee(error, interval, outcome):
    assert Observation("test", 0.5, error, interval, 0.5).outcome(0.05) == outcome


@pytest.mark.parametrize(
    ("share", "interval", "outcome"),
    [
        (0.3, (0.2, 0.4), "met"),
        (0.35, (0.31, 0.42), "undecided"),
        (0.5, (0.37, 0.6), "violated"),
        (0.5, (0.35, 0.6), "undecided"),
        (0.5, None, "above"),
    ],
)
def test_a_capacity_is_violated_only_above_the_limit_that_the_policy_states(share, interval, outcome):
    assert ReferredShare(share, interval).outcome(0.3, upper=0.36) == outcome


def test_the_shift_test_warns_below_its_level():
    assert Observation("a", 0.5, 0.1, None, 1e-3).warned
    assert not Observation("a", 0.5, 0.1, None, 0.02).warned
