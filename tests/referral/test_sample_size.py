"""How many calibration units a promise would take, against brute force, closed forms and the policies themselves."""

from __future__ import annotations

from math import ceil, log

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dubio.core.predictions import Predictions
from dubio.referral import NoGuarantee, fit_risk_policy
from dubio.referral.bounds import BINOMIAL, HOEFFDING_BENTKUS, binomial_upper, hoeffding_bentkus_upper
from dubio.referral.sample_size import fewest_units, least_count, sample_size_sentence, units_needed

ROWS, GROUPS = BINOMIAL, HOEFFDING_BENTKUS


@given(st.floats(0.0, 0.12), st.floats(0.13, 0.5), st.sampled_from([0.05, 0.1, 0.2]))
@settings(max_examples=40, deadline=None)
def test_the_least_count_is_that_of_the_upper_bound(mean: float, risk: float, level: float) -> None:
    found = least_count(mean, risk, level=level, bound=ROWS, most=400)
    shown = [n for n in range(1, 401) if binomial_upper(ceil(n * mean - 1e-9) / n, n, level) <= risk]
    assert found == (shown[0] if shown else None)


def test_the_least_count_of_groups_is_that_of_their_upper_bound() -> None:
    for mean in (0.0, 0.02, 0.055):
        found = least_count(mean, 0.11, level=0.1, bound=GROUPS, most=1000)
        assert found is not None
        assert hoeffding_bentkus_upper(mean, found, 0.1) <= 0.11 + 1e-6
        assert all(hoeffding_bentkus_upper(mean, n, 0.1) > 0.11 for n in range(1, found))


def test_without_errors_the_least_count_has_a_closed_form() -> None:
    # (1 − r)ⁿ ≤ α, for rows and for groups alike: Hoeffding's bound of a mean of 0 is the same.
    for bound in (ROWS, GROUPS):
        assert least_count(0.0, 0.11, level=0.1, bound=bound) == ceil(log(0.1) / log(0.89)) == 20
    assert fewest_units(0.11, 0.9, single=False) == 20 / 0.8
    assert fewest_units(0.11, 0.9, single=True) == ceil(log(0.09) / log(0.89)) == 21
    assert fewest_units(1e-6, 0.9, single=True) is None


def test_an_error_at_the_bound_is_never_shown_to_be_below() -> None:
    assert least_count(0.11, 0.11, level=0.1, bound=ROWS) is None
    assert least_count(0.10, 0.11, level=0.1, bound=ROWS, most=50) is None


def rows(sure_wrong: int, unsure_wrong: int, *, size: int = 100, group: int = 1) -> Predictions:
    """``size`` rows that are sure and ``size`` that are not, so many of each wrong, ``group`` of them a patient."""
    odds = np.repeat([4.0, 0.5], size)
    labels = np.zeros(2 * size, dtype=np.int64)
    labels[:sure_wrong], labels[size : size + unsure_wrong] = 1, 1
    logits = np.stack([odds, np.zeros(2 * size)], axis=1)[None].astype(np.float32)
    names = np.array([f"p{row // group}" for row in range(2 * size)]) if group > 1 else None
    return Predictions(logits, labels, group=names, kind="cal")


def test_what_is_needed_follows_from_the_kept_by_hand() -> None:
    # Half is kept, 4 of 100 wrong: (4 + ½) / 101; keeping all, 54 of 200 are wrong, above the bound.
    found = units_needed(rows(4, 50), max_risk=0.1, confidence=0.9, quantity="confidence")
    assert found is not None
    assert (found.retained, found.error) == (0.5, pytest.approx(4.5 / 101))
    kept = next(n for n in range(1, 2000) if binomial_upper(ceil(n * 4.5 / 101 - 1e-9) / n, n, 0.09) <= 0.1)
    assert found.units == 2 * kept
    assert units_needed(rows(20, 50), max_risk=0.1, confidence=0.9, quantity="confidence") is None


def test_groups_count_as_one_and_a_fifth_of_them_chooses_thresholds() -> None:
    found = units_needed(rows(4, 50, group=2), max_risk=0.1, confidence=0.9, quantity="confidence")
    assert found is not None
    # Two patients have both sure rows wrong, 48 have none: mean loss 2/50, drawn to one half.
    assert found.error == pytest.approx(2.5 / 51)
    kept = least_count(2.5 / 51, 0.1, level=0.1, bound=GROUPS)
    assert kept is not None
    assert found.units == ceil(kept / 0.5 / 0.8 - 1e-9)


def world(units: int, group: int, draw: int) -> Predictions:
    """Groups of one doubt each, wrong together, with a chance that grows with the doubt: 2 % up to half of them."""
    rng = np.random.default_rng(draw)
    doubt = rng.random(units) / 2
    wrong = rng.random(units) < np.where(doubt < 0.25, 0.02, 0.5)
    odds = np.repeat(np.log((1 - doubt) / doubt), group)
    logits = np.stack([odds, np.zeros(units * group)], axis=1)[None].astype(np.float32)
    names = np.repeat(np.arange(units), group).astype(str) if group > 1 else None
    return Predictions(logits, np.repeat(wrong, group).astype(np.int64), group=names, kind="cal")


@pytest.mark.parametrize("group", [1, 2])
def test_the_promise_can_mostly_be_made_from_twice_as_many_and_seldom_from_a_third(group: int) -> None:
    options = {"max_risk": 0.12, "confidence": 0.9, "quantity": "confidence"}
    needed = units_needed(world(400, group, 1000), **options)  # type: ignore[arg-type]
    assert needed is not None

    def made(units: int, draw: int) -> bool:
        try:
            fit_risk_policy(world(units, group, draw), **options)  # type: ignore[arg-type]
        except NoGuarantee:
            return False
        return True

    assert np.mean([made(2 * needed.units, draw) for draw in range(40)]) > 0.5
    assert np.mean([made(needed.units // 3, draw) for draw in range(40)]) < 0.1


@pytest.mark.parametrize("group", [1, 2])
def test_a_refused_set_is_never_said_to_be_larger_than_needed(group: int) -> None:
    options = {"max_risk": 0.12, "confidence": 0.9, "quantity": "confidence"}
    fewer = 0
    for draw in range(40):
        calibration = world(100 * group, group, draw)
        try:
            fit_risk_policy(calibration, **options)  # type: ignore[arg-type]
        except NoGuarantee:
            sentence = sample_size_sentence(calibration, **options)  # type: ignore[arg-type]
            needed = units_needed(calibration, **options)  # type: ignore[arg-type]
            assert needed is not None
            beyond = units_needed(calibration, **options, refused=100 * group)  # type: ignore[arg-type]
            assert beyond is not None
            assert beyond.units == max(needed.units, 100 * group + 1)
            unit = "rows" if group == 1 else "groups"
            assert sentence.startswith(f"An estimate: if further {unit} are like these, ")
            enough = needed.units <= 100 * group
            assert (f"like these, more than these are needed, retaining {needed.retained:.0%}; " in sentence) == enough
            assert (f"at least about {needed.units:,} are needed" in sentence) != enough
            fewer += enough
    assert fewer > 0 or group == 1


def test_the_search_for_a_size_goes_beyond_what_there_is() -> None:
    many = rows(200, 50, size=6000)
    assert "Even 24,000 rows" in sample_size_sentence(many, max_risk=0.01, confidence=0.95, quantity="confidence")


def test_few_rows_without_error_are_not_said_to_be_wrong_too_often() -> None:
    few = Predictions(np.log([[[0.9, 0.1], [0.8, 0.2], [0.7, 0.3]]]).astype(np.float32), np.zeros(3, dtype=np.int64))
    sentence = sample_size_sentence(few, max_risk=0.05, confidence=0.95, quantity="confidence")
    assert sentence.startswith("These rows are too few to estimate how many would be enough. Even without any error")


def test_the_search_ends_with_the_largest_number() -> None:
    assert least_count(0.0, 0.11, level=0.1, bound=ROWS, most=20) == 20  # as many as the closed form needs
    assert least_count(0.0, 0.11, level=0.1, bound=ROWS, most=19) is None
    assert least_count(0.0, 0.95, level=0.1, bound=ROWS, most=1) == 1
    assert least_count(0.0, 0.5, level=0.5, bound=ROWS) == 1  # (1 − r)ⁿ = α passes


def test_coverages_are_tried_at_every_tenth() -> None:
    # Only the most certain tenth is free of errors: nothing larger can be retained.
    odds = np.linspace(6.0, 0.1, 1000)
    labels = (np.arange(1000) >= 100).astype(np.int64)
    some = Predictions(np.stack([odds, np.zeros(1000)], axis=1)[None].astype(np.float32), labels, kind="cal")
    needed = units_needed(some, max_risk=0.1, confidence=0.9, quantity="confidence")
    assert needed is not None
    assert needed.retained == pytest.approx(0.1, abs=0.002)
    least = least_count(0.5 / 101, 0.1, level=0.09, bound=ROWS)
    assert least is not None
    assert needed.units == pytest.approx(least / 0.1, rel=0.02)
    limited = units_needed(some, max_risk=0.1, confidence=0.9, quantity="confidence", refused=0)
    assert needed == limited


def few_rows(wrong: int, kind: str = "cal") -> Predictions:
    """Three rows, the last so many of them wrong."""
    logits = np.log([[[0.9, 0.1], [0.8, 0.2], [0.7, 0.3]]]).astype(np.float32)
    return Predictions(logits, (np.arange(3) >= 3 - wrong).astype(np.int64), kind=kind)


def test_rows_of_which_some_coverage_is_right_are_too_few_and_those_at_the_bound_wrong_too_often() -> None:
    options = {"confidence": 0.95, "quantity": "confidence"}
    assert sample_size_sentence(few_rows(1), max_risk=0.05, **options).startswith("These rows are too few")  # type: ignore[arg-type]
    tied = Predictions(np.zeros((1, 2, 2), dtype=np.float32) + np.array([0.5, 0.0], dtype=np.float32), np.array([0, 1]))
    assert sample_size_sentence(tied, max_risk=0.5, **options).startswith("Even 10,000 rows like these")  # type: ignore[arg-type]
    assert sample_size_sentence(few_rows(1, "val"), max_risk=0.05, **options).startswith("These rows")  # type: ignore[arg-type]


def test_more_units_than_are_searched_are_not_promised() -> None:
    # Of the most certain tenth 1,600 rows would do, of which ten times as many must be drawn: more than 10,000.
    odds, labels = np.linspace(6.0, 0.1, 1000), (np.arange(1000) >= 100).astype(np.int64)
    some = Predictions(np.stack([odds, np.zeros(1000)], axis=1)[None].astype(np.float32), labels, kind="cal")
    count = least_count(0.5 / 101, 0.0085, level=0.09, bound=ROWS)
    assert count is not None
    assert 1000 < count < 10_000
    assert units_needed(some, max_risk=0.0085, confidence=0.9, quantity="confidence") is None
