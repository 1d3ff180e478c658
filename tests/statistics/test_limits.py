"""Simultaneous limits: by hand against Student's t, and by simulation with the defaults of a report."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest
from scipy import stats

from dubio.statistics.limits import excess_limits, intervals
from dubio.statistics.verdicts import Pairs, PairTest, Rows, Runs, compare_methods, judge_differences


def pairs_of(errors: dict[tuple[str, str], float], means: dict[str, float], freedom: int = 9) -> Pairs:
    """Pairs with these standard errors (NaN: not judged); lower is better."""
    estimates = {
        (one, two): (means[one] - means[two], [] if math.isnan(error) else [(error**2, freedom)])
        for (one, two), error in errors.items()
    }
    scores = {name: Runs((mean,)) for name, mean in means.items()}
    return Pairs(scores, "lower", judge_differences(estimates, "lower"), "methods")


def test_the_limit_of_two_systems_is_the_one_sided_t_limit() -> None:
    pairs = pairs_of({("a", "b"): 0.02}, {"a": 0.5, "b": 0.53})
    half = stats.t.ppf(0.95, 9) * 0.02
    assert excess_limits(pairs) == pytest.approx({"a": max(0.0, -0.03 + half), "b": 0.03 + half})
    flipped = Pairs(pairs.scores, "higher", pairs.tests, "methods")
    assert excess_limits(flipped) == pytest.approx({"a": 0.03 + half, "b": max(0.0, -0.03 + half)})


def test_the_limit_is_the_largest_over_all_that_may_be_best() -> None:
    means = {"a": 0.50, "b": 0.51, "c": 0.52}
    pairs = pairs_of({("a", "b"): 0.001, ("a", "c"): 0.001, ("b", "c"): 0.05}, means)
    half = stats.t.ppf(1 - 0.05 / 2, 9)
    limits = excess_limits(pairs)
    assert limits["a"] == 0.0
    assert limits["b"] == pytest.approx(-0.01 + half * 0.05)
    assert limits["c"] == pytest.approx(0.01 + half * 0.05)
    assert excess_limits(pairs, ("a", "b")) == pytest.approx({"a": 0.0, "b": 0.01 + stats.t.ppf(0.95, 9) * 0.001})


def test_systems_that_were_not_judged_have_no_limit_and_do_not_count() -> None:
    means = {"a": 0.50, "b": 0.51, "once": 0.40}
    unknown = math.nan
    pairs = pairs_of({("a", "b"): 0.01, ("a", "once"): unknown, ("b", "once"): unknown}, means)
    half = stats.t.ppf(0.95, 9) * 0.01
    assert excess_limits(pairs) == pytest.approx({"a": -0.01 + half, "b": 0.01 + half})
    assert excess_limits(pairs, ("a", "once")) == {}


def test_a_noisier_comparison_has_a_higher_limit() -> None:
    limits = [
        excess_limits(pairs_of({("a", "b"): error}, {"a": 0.927, "b": 0.954}))["b"] for error in (0.001, 0.01, 0.1)
    ]
    assert all(low < high for low, high in pairwise(limits))


def coverage(systems: int, replicates: int, seed: int, *, repeats: int = 3, equal: bool) -> float:
    """The share of simulated benchmarks in which no system exceeds its limit; means differ, or are equal."""
    rng, hits = np.random.default_rng(seed), 0
    means = np.zeros(systems) if equal else np.linspace(0.0, 0.15, systems)
    names = [f"m{k}" for k in range(systems)]
    for _ in range(replicates):
        difficulty, own = rng.normal(0, 1, 120), rng.normal(0, 0.3, (systems, 120))
        trained = means[:, None] + rng.normal(0, 0.04, (systems, repeats))
        scores = {name: Runs(tuple(trained[k] + (difficulty + own[k]).mean())) for k, name in enumerate(names)}
        rows = {name: difficulty + own[k] + trained[k].mean() for k, name in enumerate(names)}
        limits = excess_limits(compare_methods(scores, "lower", Rows(rows), None, dict.fromkeys(names, "single")))
        hits += all(limits[name] >= means[k] - 1e-12 for k, name in enumerate(names))
    return hits / replicates


@pytest.mark.parametrize(("systems", "replicates"), [(2, 400), (6, 200), (18, 60)])
@pytest.mark.parametrize("equal", [True, False])
def test_all_limits_hold_together(systems: int, replicates: int, equal: bool) -> None:
    assert coverage(systems, replicates, 7, equal=equal) >= 0.95 - 2 * math.sqrt(0.05 * 0.95 / replicates)


@pytest.mark.slow
@pytest.mark.parametrize("systems", [2, 3, 5, 10, 18])
@pytest.mark.parametrize("repeats", [2, 5])
@pytest.mark.parametrize("equal", [True, False])
def test_all_limits_hold_together_in_many_designs(systems: int, repeats: int, equal: bool) -> None:
    share = coverage(systems, 600, 11, repeats=repeats, equal=equal)
    assert share >= 0.95 - 2 * math.sqrt(0.05 * 0.95 / 600)


def test_several_intervals_are_bonferroni_t_intervals() -> None:
    limits = intervals({"a": (0.6, [(0.01**2, 4)]), "b": (0.7, [(0.02**2, 30)]), "unknown": (0.9, [])})
    assert set(limits) == {"a", "b"}
    for name, value, error, freedom in (("a", 0.6, 0.01, 4), ("b", 0.7, 0.02, 30)):
        half = stats.t.ppf(1 - 0.05 / 6, freedom) * error
        assert (limits[name].low, limits[name].high) == pytest.approx((value - half, value + half))
    alone = intervals({"a": (0.6, [(0.01**2, 4)])})["a"]
    assert alone.high - alone.low == pytest.approx(2 * stats.t.ppf(0.975, 4) * 0.01)
    assert intervals({}) == {}


def test_a_pair_without_variance_is_exact() -> None:
    pairs = pairs_of({("a", "b"): 0.0}, {"a": 0.5, "b": 0.6})
    assert excess_limits(pairs) == pytest.approx({"a": 0.0, "b": 0.1})
    assert isinstance(pairs.tests[0], PairTest)
