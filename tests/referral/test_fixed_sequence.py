"""Fixed-sequence testing: the bound that a refusal offers holds at the stated rate."""

import numpy as np
import pytest
from scipy.stats import binom, binomtest

from dubio.referral.fixed_sequence import Candidate, FixedSequences
from dubio.referral.units import rounded_uncertainty
from tests.referral.helpers import ALPHA, RISK, at_most, draw, flat


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


def fewest_rows(errors, risk, level):
    return next(rows for rows in range(errors + 1, 10_000) if binom.cdf(errors, rows, risk) <= level)


@pytest.mark.parametrize("rows", [10, 30, 60, 100, 1000])
def test_the_sequences_start_where_the_procedure_says(rows):
    sequences = FixedSequences.over(np.arange(rows) / rows, np.zeros(rows), risk=0.1, level=0.1)
    earliest, three = fewest_rows(0, 0.1, 0.09), fewest_rows(3, 0.1, 0.09)
    start = min(rows, max(earliest, min(three, int(0.4 * rows))))
    guards = sorted({round(rows * step / 20) for step in range(1, 21)} - {0})
    starts = sequences._starts()
    assert [count for count, _ in starts] == [start, *guards]
    assert [level for _, level in starts] == pytest.approx([0.09] + [0.01 / 20] * len(guards))


@pytest.mark.parametrize("rows", [3, 10, 200])
def test_the_best_bound_is_the_lowest_exact_one_over_tenths_sharing_the_level(rows):
    rng = np.random.default_rng(0)
    doubts = rng.permutation(rows) / 256
    wrong = (rng.random(rows) < 0.2 + doubts / 2) * 1.0
    upper, candidate = FixedSequences.over(doubts, wrong, risk=0.01, level=0.1).best_bound()
    bounds, counts = {}, {round(rows * step / 10) for step in range(1, 11)} - {0}
    for count in counts:
        errors = int(wrong[np.argsort(doubts)[:count]].sum())
        share = 1 - 0.1 / len(counts)
        bounds[count] = binomtest(errors, count, alternative="less").proportion_ci(share, method="exact").high
    best = min(bounds, key=bounds.get)
    assert (upper, candidate.retained) == (pytest.approx(bounds[best]), best)
    assert candidate.error == wrong[np.argsort(doubts)[:best]].mean()


def test_nothing_retained_has_no_errors():
    assert Candidate(0.1, 0, 0).error == 0.0
    tied = FixedSequences.over(np.array([0.5, 0.5]), np.array([1.0, 1.0]), risk=0.1, level=0.1).candidate(1)
    assert (tied.retained, tied.wrong) == (0, 0)  # ties stay together


@pytest.mark.parametrize("rows", [7, 20, 33, 150])
def test_the_candidates_are_every_hundredth_and_the_starts(rows):
    sequences = FixedSequences.over(np.arange(rows) / rows, np.zeros(rows), risk=0.1, level=0.1)
    hundredths = {int(np.rint(rows * step / 100)) for step in range(1, 101)}
    assert sequences._counts().tolist() == sorted(hundredths | {count for count, _ in sequences._starts()})


def by_hand(doubts, wrong, risk, level):
    """The procedure of the module, step by step, with scipy's binomial distribution."""
    rows = len(doubts)
    main = 0.9 * level
    start = min(rows, max(fewest_rows(0, risk, main), min(fewest_rows(3, risk, main), int(0.4 * rows))))
    guards = sorted({round(rows * step / 20) for step in range(1, 21)} - {0})
    counts = sorted({int(np.rint(rows * step / 100)) for step in range(1, 101)} | {start, *guards})
    best = None
    for first, share in [(start, main), *((guard, 0.1 * level / 20) for guard in guards)]:
        for count in (count for count in counts if count >= first):
            kept = doubts < (np.inf if count >= rows else np.sort(doubts)[count])
            if not kept.any() or binom.cdf(wrong[kept].sum(), kept.sum(), risk) > share:
                break
            best = max(best or 0, int(kept.sum()))
    return best


def test_the_largest_candidate_is_that_of_the_procedure_also_for_few_rows():
    rng, largest = np.random.default_rng(0), []
    for _ in range(200):
        rows, risk, level = int(rng.integers(2, 60)), float(rng.choice([0.2, 0.5, 0.9])), float(rng.choice([0.05, 0.3]))
        doubts = rng.integers(1, int(rng.choice([4, 1000])), rows) / 1024
        wrong = (rng.random(rows) < rng.choice([0.02, 0.1, 0.5])) * 1.0
        candidate = FixedSequences.over(doubts, wrong, risk=risk, level=level).largest()
        largest.append(None if candidate is None else candidate.retained)
        assert largest[-1] == by_hand(doubts, wrong, risk, level)
    assert {None, 2} < set(largest)


def test_a_single_row_is_enough_where_the_bound_is_high():
    # 1 − 0.8 = 0.2 passes at 0.9 · 0.3; with the wrong second row 1 − 0.8² = 0.36 does not.
    candidate = FixedSequences.over(np.array([0.1, 0.2]), np.array([0.0, 1.0]), risk=0.8, level=0.3).largest()
    assert candidate is not None
    assert (candidate.retained, candidate.wrong) == (1, 0)
