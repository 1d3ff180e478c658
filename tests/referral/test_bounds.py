"""Bounds against scipy's exact interval, brute force and each other."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binom, binomtest

from dubio.referral.bounds import binomial_p, binomial_upper, hoeffding_bentkus_p, hoeffding_bentkus_upper
from dubio.referral.fixed_sequence import FixedSequences


@given(st.integers(1, 300), st.data(), st.sampled_from([0.01, 0.05, 0.2]))
@settings(max_examples=60)
def test_binomial_upper_is_scipys_exact_one_and_inverts_the_p_value(count, data, level):
    errors = data.draw(st.integers(0, count))
    upper = binomial_upper(errors / count, count, level)
    exact = binomtest(errors, count, alternative="less").proportion_ci(1 - level, method="exact").high
    assert upper == pytest.approx(exact, abs=1e-10)
    if errors < count:
        assert binomial_p(errors / count, count, upper * (1 + 1e-9)) <= level
        assert binomial_p(errors / count, count, upper * (1 - 1e-6)) > level


def test_no_rows_no_evidence():
    for p_value, upper in ((binomial_p, binomial_upper), (hoeffding_bentkus_p, hoeffding_bentkus_upper)):
        assert p_value(0.0, 0, 0.3) == 1.0
        assert upper(0.0, 0, 0.05) == 1.0


@pytest.mark.parametrize("mean", [0.0, 0.03, 0.25, 0.9, 1.0])
@pytest.mark.parametrize("count", [1, 17, 400])
def test_hoeffding_bentkus_by_its_formula_and_inverse(mean, count):
    risk = 0.35
    low = min(mean, risk)
    parts = [x * np.log(x / y) for x, y in ((low, risk), (1 - low, 1 - risk)) if x > 0]
    tail = np.e * binom.cdf(np.ceil(round(mean * count, 6)), count, risk)
    assert hoeffding_bentkus_p(mean, count, risk) == pytest.approx(min(1.0, tail, np.exp(-count * sum(parts))))
    upper = hoeffding_bentkus_upper(mean, count, 0.05)
    assert mean <= upper <= 1
    if upper < 1 - 1e-6:
        assert hoeffding_bentkus_p(mean, count, upper) <= 0.05
        assert hoeffding_bentkus_p(mean, count, upper - 1e-6) > 0.05


@pytest.mark.parametrize("count", [1, 17, 400])
def test_hoeffding_bentkus_upper_without_losses_has_a_closed_form(count):
    # (1 − r)ⁿ = level, as KL(0 ‖ r) = −log(1 − r) and Bentkus has e times as much
    assert hoeffding_bentkus_upper(0.0, count, 0.05) == pytest.approx(1 - 0.05 ** (1 / count), abs=2e-9)


def test_hoeffding_bentkus_is_no_tighter_than_what_is_exact():
    for errors in range(0, 40, 7):
        assert hoeffding_bentkus_p(errors / 100, 100, 0.3) >= binomial_p(errors / 100, 100, 0.3) - 1e-12


@given(st.integers(0, 10**6))
@settings(max_examples=30)
def test_a_sequence_finds_the_last_of_an_unbroken_run_of_passed_tests(seed):
    rng = np.random.default_rng(seed)
    doubts, rows = rng.integers(1, 2 ** int(rng.integers(3, 11)), 200) / 1024, 200
    wrong = (rng.random(rows) < 0.3 * doubts / doubts.max()).astype(float)
    sequences = FixedSequences.over(doubts, wrong, risk=0.1, level=0.1)
    best = None
    for start, level in sequences._starts():
        for count in sorted({round(rows * step / 100) for step in range(1, 101)} | {c for c, _ in sequences._starts()}):
            if count < start:
                continue
            limit = np.inf if count == rows else np.sort(doubts)[count]
            kept = doubts < limit
            if not kept.any() or binom.cdf(wrong[kept].sum(), kept.sum(), 0.1) > level:
                break
            best = max(best or 0, int(kept.sum()))
    found = sequences.largest()
    assert (None if found is None else found.retained) == best
    assert sum(level for _, level in sequences._starts()) == pytest.approx(0.1)
    if found is not None:
        assert found.retained == (doubts <= found.threshold).sum()
        assert found.wrong == wrong[doubts <= found.threshold].sum()


def test_an_upper_bound_is_a_rate():
    assert hoeffding_bentkus_upper(0.0, 1, 1e-10) <= 1.0  # its upward rounding stops at one
