"""Assessing a policy on labelled data: by hand, against scipy's exact interval, and by simulated groups."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import binom, binomtest

from dubio.core.errors import UserError
from dubio.core.predictions import Predictions
from dubio.metrics.decisions import correct
from dubio.referral import Policy, fit_capacity_policy
from dubio.referral.assessment import (
    Observation,
    Rate,
    SubgroupRates,
    observe,
    outcome_of,
    referred_share,
    share_of_units,
)
from dubio.referral.bounds import hoeffding_bentkus_upper
from dubio.referral.shift import SHIFT_LEVEL
from dubio.referral.units import rounded_uncertainty
from dubio.statistics.bootstrap import units_of
from dubio.statistics.subgroups import UNDERPOWERED

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
    assert share.value == pytest.approx((1 / 3 + 1 + 0) / 3)
    assert share.units == 3
    observation = observe(policy, "test", rows)
    assert observation.retained == pytest.approx(4 / 6)
    assert observation.error == pytest.approx(1 / 4)
    single = referred_share(policy, replace(rows, group=None))
    exact = binomtest(2, 6).proportion_ci(0.95)
    assert single.value == pytest.approx(2 / 6)
    assert single.interval == pytest.approx((exact.low, exact.high))
    alone = referred_share(policy, replace(rows, group=np.arange(6).astype(str)))  # groups of one row are rows
    assert alone.interval == pytest.approx(single.interval)


def test_error_is_the_mean_over_groups_that_retain_a_row():
    rows, policy = grouped_rows(0), policy_between(0.3)
    retained = rounded_uncertainty(rows, ENTROPY) <= policy.threshold
    wrong = ~correct(rows)
    groups = np.unique(rows.group[retained])
    observation = observe(policy, "test", rows)
    assert observation.error == pytest.approx(np.mean([wrong[retained & (rows.group == g)].mean() for g in groups]))
    low, high = observation.interval
    assert 0 <= low < observation.error < high <= 1


def test_an_interval_over_groups_covers_the_truth_also_of_few_groups_without_an_error():
    """Patients whose rows are all right or all wrong, and of one to four rows: the mean over groups is the error."""
    rng, missed = np.random.default_rng(0), {5: 0, 40: 0}
    for count in missed:
        for _ in range(300):
            sizes = rng.integers(1, 5, count)
            group = np.repeat(np.arange(count), sizes)
            flags = (rng.random(count) < 0.1)[group]
            rows = two_classes([0.1] * len(group), [False] * len(group), group.astype(str).tolist())
            share = share_of_units(flags, np.ones(len(group), dtype=bool), units_of(rows))
            missed[count] += not share.interval[0] <= 0.1 <= share.interval[1]
    assert all(number <= binom.ppf(0.999, 300, 0.05) for number in missed.values())
    nothing = share_of_units(
        np.zeros(6, dtype=bool), np.ones(6, dtype=bool), units_of(two_classes([0.1] * 6, [False] * 6, list("aabbcc")))
    )
    assert nothing.interval[1] > 0.5  # three patients without an error show little; resampling them would give (0, 0)


def test_an_interval_without_errors_starts_at_zero_and_with_errors_alone_ends_at_one():
    rows, counted = two_classes([0.1] * 20, [False] * 20), np.ones(20, dtype=bool)
    assert share_of_units(~counted, counted, units_of(rows)).interval == pytest.approx((0.0, 1 - 0.025 ** (1 / 20)))
    assert share_of_units(counted, counted, units_of(rows)).interval == pytest.approx((0.025 ** (1 / 20), 1.0))


def test_rows_without_labels_have_no_error():
    rows = replace(grouped_rows(1), labels=np.full(90, -1))
    observation = observe(policy_between(0.3), "new", rows)
    assert observation.error is None
    assert observation.retained == pytest.approx(
        (rounded_uncertainty(rows, ENTROPY) <= policy_between(0.3).threshold).mean()
    )


@pytest.mark.parametrize(
    ("interval", "outcome"),
    [
        ((0.02, 0.045), "met"),
        ((0.00, 0.70), "undecided"),  # no error in three rows shows nothing
        ((0.03, 0.10), "undecided"),
        ((0.06, 0.13), "violated"),
        (None, "nothing retained"),
    ],
)
def test_an_outcome_is_that_of_the_whole_interval(interval, outcome):
    assert outcome_of(interval, 0.05) == outcome
    error = None if interval is None else sum(interval) / 2
    assert Observation("test", 0.5, error, interval, 0.5).outcome(0.05) == outcome
    if interval is not None:
        low, high = interval
        assert Rate("error", error, interval, 50, False, 0.05).outcome == outcome
        assert Rate("sensitivity", 1 - error, (1 - high, 1 - low), 50, False, 0.95).outcome == outcome
        assert Rate("error", error, interval, 50, False, None).outcome is None


def test_the_shift_test_warns_below_its_level():
    assert Observation("a", 0.5, 0.1, None, 1e-3).warned
    assert not Observation("a", 0.5, 0.1, None, 0.02).warned
    assert not Observation("a", 0.5, 0.1, None, SHIFT_LEVEL).warned


def test_a_bound_at_the_end_of_the_interval():
    assert outcome_of((0.02, 0.05), 0.05) == "met"
    assert outcome_of((0.05, 0.09), 0.05) == "violated"


def test_another_system_is_not_observed():
    other = replace(two_classes([0.1, 0.2], [True, False]), target="multilabel", labels=np.ones((2, 2), dtype=np.int8))
    with pytest.raises(UserError, match="target"):
        observe(policy_between(0.3), "test", other)


def test_a_row_at_the_threshold_is_retained_in_every_measure():
    policy, rows = policy_between(0.3), two_classes([0.3, 0.3, 0.4], [False, False, False])
    assert referred_share(policy, rows).value == pytest.approx(1 / 3)
    assert observe(policy, "test", rows).retained == pytest.approx(2 / 3)


def test_one_group_of_several_rows_is_enough_to_leave_the_exact_interval():
    """Shares of groups need not be 0 or 1: a binomial count of half a group would be rounded away."""
    rows, every = two_classes([0.1] * 5, [False] * 5, list("aabcd")), np.ones(5, dtype=bool)
    share = share_of_units(np.array([True, False, False, False, False]), every, units_of(rows))
    assert share.value == pytest.approx(1 / 8)
    expected = (1 - hoeffding_bentkus_upper(7 / 8, 4, 0.025), hoeffding_bentkus_upper(1 / 8, 4, 0.025))
    assert share.interval == pytest.approx(expected)


@pytest.mark.parametrize(("units", "underpowered"), [(UNDERPOWERED - 1, True), (UNDERPOWERED, False)])
def test_a_subgroup_counts_its_rows_and_says_when_it_is_too_small(units, underpowered):
    subgroup = SubgroupRates(rows=90, units=units, retained=60, rates=())
    assert subgroup.underpowered is underpowered
    assert subgroup.as_dict() == {
        "rows": 90, "units": units, "underpowered": underpowered, "retained": 60, "referred": 30, "rates": [],
    }  # fmt: skip
