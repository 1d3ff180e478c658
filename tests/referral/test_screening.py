"""The positive class of a screening policy."""

from dataclasses import replace

import numpy as np
import pytest

from dubio.core.errors import UnknownName
from dubio.referral import fit_screening_policy
from dubio.referral.bounds import binomial_p
from dubio.referral.screening import class_index
from tests.referral.helpers import ALPHA, at_most, easy, of_doubts, threshold_or_none


def test_positive_class_by_name_or_number():
    truth = np.arange(600) % 2
    given = replace(of_doubts(np.linspace(0.01, 0.2, 600), np.zeros(600), truth=truth), classes=("well", "sick"))
    named = fit_screening_policy(given, sensitivity=0.8, positive="sick")
    assert named == fit_screening_policy(given, sensitivity=0.8, positive=1)
    assert named.positive == 1


def patients(rng, rows, miss, alarm):
    truth = rng.random(rows) < 0.4
    wrong = rng.random(rows) < np.where(truth, miss, alarm)
    return of_doubts(rng.random(rows) / 2, wrong, truth=truth)


RATES = [(0.15, 0.05), *(pytest.param(miss, 0.2, marks=pytest.mark.slow) for miss in (0.02, 0.15))]


@pytest.mark.parametrize(("miss", "alarm"), RATES)
def test_screening_policy_breaks_its_bounds_at_most_at_the_stated_rate(miss, alarm):
    rng, runs, violations, naive = np.random.default_rng(5), 300, 0, 0
    goals = {"sensitivity": 0.85, "specificity": 0.8}
    for _ in range(runs):
        drawn = patients(rng, 400, miss, alarm)
        found = threshold_or_none(lambda drawn=drawn: fit_screening_policy(drawn, **goals, confidence=1 - ALPHA))
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


def test_the_guarantee_names_the_positive_class():
    truth = np.arange(600) % 2
    unnamed = of_doubts(np.linspace(0.01, 0.2, 600), np.zeros(600), truth=truth)
    named = replace(unnamed, classes=("well", "sick"))
    assert fit_screening_policy(named, sensitivity=0.8, positive="well").guarantee.endswith("; positive is well.")
    assert fit_screening_policy(unnamed, sensitivity=0.8).guarantee.endswith("; positive is class 1.")


def test_the_evidence_has_the_rates_of_the_test_set():
    rng = np.random.default_rng(0)
    truth = rng.random(800) < 0.4
    doubts = rng.random(800) / 2
    calibration = of_doubts(doubts, rng.random(800) < doubts / 3, truth=truth)
    policy = fit_screening_policy(calibration, sensitivity=0.7, specificity=0.7)
    for name in ("sensitivity", "specificity"):
        assert 0.7 < policy.evidence[name] <= 1.0
    assert policy.evidence["sensitivity"] != policy.evidence["specificity"]


@pytest.mark.parametrize(("name", "index"), [("0", 0), (1, 1), ("1", 1), ("2", None), (2, None), ("x", None)])
def test_a_class_is_named_by_its_index_below_their_number(name, index):
    if index is None:
        with pytest.raises(UnknownName, match="positive class"):
            class_index(easy(), name)
    else:
        assert class_index(easy(), name) == index
