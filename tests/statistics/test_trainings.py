"""The variance over trainings: its formulas, and how often methods that are alike are called different by it."""

from __future__ import annotations

import math
from itertools import combinations

import numpy as np
import pytest
from numpy.typing import NDArray

from dubio.statistics.trainings import NO_CHANCE, Trainings, over_members, over_runs, own_terms, pair_terms
from dubio.statistics.verdicts import Pairs, Rows, Runs, compare_methods

Array = NDArray[np.float64]


def of_runs(name: str, values: Array) -> Trainings:
    trainings = over_runs({(name, k): float(x) for k, x in enumerate(values)})
    assert trainings is not None
    return trainings


def left_out(name: str, members: Array) -> dict[tuple[str, ...], float]:
    """The mean of an ensemble's members without each of them."""
    return {(f"{name}{k}",): float(np.delete(members, k).mean()) for k in range(len(members))}


# -- formulas


def test_runs_have_the_variance_of_their_mean() -> None:
    values = np.random.default_rng(0).normal(size=7)
    trainings = of_runs("a", values)
    assert (trainings.variance, trainings.freedom) == pytest.approx((values.var(ddof=1) / 7, 6))
    assert over_runs({("a", 0): 1.0}) is None
    assert over_runs({("a", 0): 1.0, ("a", 1): math.inf}) is None


def test_members_of_which_the_score_is_the_mean_have_the_variance_of_that_mean() -> None:
    members = np.random.default_rng(1).normal(size=(3, 5))
    trainings = over_members([left_out(str(run), own) for run, own in enumerate(members)])
    assert trainings is not None
    assert trainings.variance == pytest.approx(sum(own.var(ddof=1) / 5 for own in members) / 9)
    assert (trainings.freedom, trainings.runs) == (12, 3)
    assert over_members([{("a",): 1.0}]) is None
    assert over_members([]) is None


def test_two_parts_are_enough_and_trainings_that_runs_share_count_once() -> None:
    run = {("a",): 1.0, ("b",): 1.6}
    once, twice = over_members([run]), over_members([run, run])
    assert once is not None
    assert twice is not None
    assert (once.variance, once.freedom) == pytest.approx((0.6**2 / 4, 1))  # (M − 1)/M Σ (θ_j − θ̄)², M = 2
    assert once.shares == pytest.approx({("a",): 0.15 * math.sqrt(2), ("b",): -0.15 * math.sqrt(2)})
    assert twice.shares == pytest.approx(once.shares)
    assert over_members([{("a",): 1.0, ("b",): math.nan}]) is None


def test_parts_of_any_size_give_an_unbiased_variance() -> None:
    rng = np.random.default_rng(2)
    sizes = np.array_split(np.arange(13), 5)
    estimates = []
    for _ in range(4000):
        members = rng.normal(size=13)
        trainings = over_members([{tuple(map(int, part)): np.delete(members, part).mean() for part in sizes}])
        assert trainings is not None
        estimates.append(trainings.variance)
    assert np.mean(estimates) == pytest.approx(1 / 13, rel=0.05)


def test_two_methods_of_the_same_trainings_are_compared_fit_by_fit() -> None:
    rng = np.random.default_rng(3)
    members = rng.normal(size=5)
    other = members + 0.01 * rng.normal(size=5)
    pair = {"a": over_members([left_out("fit", members)]), "b": over_members([left_out("fit", other)])}
    trainings = {name: own for name, own in pair.items() if own is not None}
    terms = own_terms(trainings, {"a": 5, "b": 5})
    ((variance, freedom),) = pair_terms("a", "b", trainings, terms)
    assert (variance, freedom) == pytest.approx(((other - members).var(ddof=1) / 5, 4))
    apart = {"a": trainings["a"], "b": of_runs("b", other)}
    assert len(pair_terms("a", "b", apart, own_terms(apart, {"a": 5, "b": 1}))) == 2


def test_the_joint_variance_has_the_fewer_degrees_of_freedom() -> None:
    shares = {("x",): 0.1, ("y",): -0.1}
    trainings = {"a": Trainings(shares, 9), "b": Trainings({key: 2 * u for key, u in shares.items()}, 5)}
    terms = own_terms(trainings, {"a": 1, "b": 1})
    assert pair_terms("a", "b", trainings, terms) == [(pytest.approx(0.02), 5)]


def test_methods_of_another_group_hold_nothing_up() -> None:
    trainings = {"a": of_runs("a", np.array([1.0, 1.001])), "b": of_runs("b", np.array([1.0, 1.2]))}
    trainings |= {"far": of_runs("far", np.array([0.0, 500.0])), "near": of_runs("near", np.array([0.0, 0.001]))}
    groups = {"a": "one", "b": "one", "far": "two", "near": "two"}
    terms = own_terms(trainings, groups)
    assert terms["a"].variance == pytest.approx(4 * (5e-7 + 0.02) / 2 / 2)
    assert terms["b"].variance == pytest.approx(4 * (5e-7 + 0.02) / 2 / 2)
    assert (terms["a"].group, terms["far"].group) == ("one", "two")
    # one estimate serves both of a group, and has its degrees of freedom once; two groups have one each
    assert pair_terms("a", "b", trainings, terms) == [(pytest.approx(2 * terms["a"].variance), terms["a"].freedom)]
    assert len(pair_terms("a", "near", trainings, terms)) == 2
    assert (NO_CHANCE.runs, Trainings({}, 3).runs) == (1, 1)


def test_few_degrees_of_freedom_are_held_up_by_the_group() -> None:
    trainings = {"a": of_runs("a", np.array([1.0, 1.001])), "b": of_runs("b", np.array([1.0, 1.2, 1.4]))}
    trainings["c"] = of_runs("c", np.array([1.0, 1.0, 1.0, 1.0, 1.1]))
    terms = own_terms(trainings, dict.fromkeys("abc", "single"))
    pooled = (5e-7 + 2 * 0.04 + 4 * 0.002) / 7
    assert terms["a"].variance == pytest.approx(4 * pooled / 2)
    assert terms["b"].variance == pytest.approx(max(0.04, 2.5 * pooled) / 3)
    assert (terms["c"].variance, terms["c"].freedom) == pytest.approx((0.002 / 5, 4))
    effective = (7 * pooled) ** 2 / (5e-7**2 + 2 * 0.04**2 + 4 * 0.002**2)
    assert (terms["a"].freedom, terms["b"].freedom) == pytest.approx((effective, 2))


def test_a_training_without_chance_has_no_variance() -> None:
    terms = own_terms({"a": NO_CHANCE, "b": of_runs("b", np.arange(5.0))}, {"a": 1, "b": 1})
    assert (terms["a"].variance, terms["a"].freedom) == (0.0, math.inf)


def ensemble_nll(p: Array, fits: Array | list[int]) -> Array:
    """Loss per example of the averaged probabilities of some fits; ``p`` is [fits, examples], of the label."""
    return np.asarray(-np.log(p[fits].mean(axis=0)))


def test_the_jackknife_of_an_ensembles_nll_is_not_too_small() -> None:
    # −log of a mean of probabilities is no mean over members: the jackknife errs upwards, never far downwards.
    rng = np.random.default_rng(4)
    margin, values, estimates = rng.normal(1.0, 2.0, 300), [], []
    for _ in range(600):
        p = 1 / (1 + np.exp(-(margin + rng.normal(0, 1.5, (5, 1)) + rng.normal(0, 1.5, (5, 300)))))
        values.append(ensemble_nll(p, [0, 1, 2, 3, 4]).mean())
        parts = {(k,): float(ensemble_nll(p, [j for j in range(5) if j != k]).mean()) for k in range(5)}
        trainings = over_members([parts])
        assert trainings is not None
        estimates.append(trainings.variance)
    ratio = np.mean(estimates) / np.var(values, ddof=1)
    assert 0.9 < ratio < 1.6  # Monte-Carlo error of the ratio: 0.07


# -- how often methods that are alike are called different

SPREADS = ("even", "tenfold", "hundredfold", "one wild", "half")
"""How the variances over trainings of the methods differ: not, or up to so many times."""


def spreads(kind: str, methods: int, rng: np.random.Generator) -> Array:
    """Standard deviations over trainings of the methods."""
    calm = np.full(methods, 0.1)
    calm[: {"one wild": 1, "half": methods // 2}.get(kind, 0)] = 1.0
    fold = {"even": 1.0, "tenfold": 10.0, "hundredfold": 100.0}.get(kind)
    return calm if fold is None else fold ** (-rng.uniform(0, 1, methods) / 2)


def replicate(
    kind: str, methods: int, runs: int, examples: float, rng: np.random.Generator, *, shift: float = 0.0
) -> Pairs:
    """Compare methods on a test set of 200 examples; with one run, each is an ensemble of five members.

    A value is an effect of the example, shared by all methods, one of training, one of training and example, and one of
    method and example. The latter makes the variance over examples ``examples`` times the mean one over trainings. All
    methods have the same expectation, but for the last, which is ``shift`` standard deviations of a training worse.
    """
    n, count = 200, 5 if runs == 1 else runs
    deviations = spreads(kind, methods, rng)
    typical = math.sqrt(float(np.mean(deviations**2)))
    noise = typical * math.sqrt(examples * n / count / 2)
    base, rows, scores, trainings = rng.normal(0, 1, n), {}, {}, {}
    for index, deviation in enumerate(deviations):
        name = str(index)
        own = base + rng.normal(0, noise, n) + (shift * typical if index == methods - 1 else 0.0)
        values = own + rng.normal(0, deviation, (count, 1)) + rng.normal(0, deviation, (count, n))
        means = values.mean(axis=1)
        rows[name] = values.mean(axis=0)
        scores[name] = Runs((float(means.mean()),) if runs == 1 else tuple(means.tolist()))
        trainings[name] = over_members([left_out(name, means)]) if runs == 1 else of_runs(name, means)
    return compare_methods(scores, "lower", Rows(rows), trainings, dict.fromkeys(scores, "alike"))


def false_alarms(kind: str, methods: int, runs: int, examples: float, draws: int, seed: int = 0) -> float:
    rng = np.random.default_rng((seed, SPREADS.index(kind), methods, runs, int(10 * examples)))
    replicates = (replicate(kind, methods, runs, examples, rng) for _ in range(draws))
    return float(np.mean([any(test.better is not None for test in pairs.tests) for pairs in replicates]))


def power(methods: int, runs: int, shift: float, draws: int) -> float:
    """The share of the pairs with a worse method that are significant, variances hundredfold apart."""
    rng, last = np.random.default_rng((1, methods, runs)), str(methods - 1)
    shares = []
    for _ in range(draws):
        tests = replicate("hundredfold", methods, runs, 1.0, rng, shift=shift).tests
        shares.append(np.mean([test.better == test.first for test in tests if test.second == last]))
    return float(np.mean(shares))


def limit(draws: int) -> float:
    """5 % and two Monte-Carlo errors."""
    return 0.05 + 2 * math.sqrt(0.05 * 0.95 / draws)


@pytest.mark.parametrize(("methods", "runs"), [(2, 1), (2, 2), (2, 5), (4, 3), (10, 1), (10, 3)])
def test_methods_that_are_alike_are_called_different_in_five_of_a_hundred_draws(methods: int, runs: int) -> None:
    draws = 240 if methods < 10 else 80
    for kind in ("hundredfold", "one wild"):
        assert false_alarms(kind, methods, runs, 0.3, draws) <= limit(draws)


def test_a_worse_method_is_found() -> None:
    assert power(2, 5, 5.0, 60) > 0.9
    assert power(4, 1, 5.0, 60) > 0.5


@pytest.mark.slow
@pytest.mark.parametrize("runs", [1, 2, 3, 5])
@pytest.mark.parametrize("methods", [2, 4, 10, 18])
def test_methods_that_are_alike_in_every_design(methods: int, runs: int) -> None:
    draws = {2: 2000, 4: 1000, 10: 400, 18: 200}[methods]
    rates = {
        (kind, examples): false_alarms(kind, methods, runs, examples, draws)
        for kind in SPREADS
        for examples in (0.1, 1.0, 10.0)
    }
    print(methods, runs, "at most", max(rates.values()), "power", [power(methods, runs, x, 200) for x in (3.0, 5.0)])
    assert max(rates.values()) <= limit(draws), rates


def test_every_pair_is_tested() -> None:
    pairs = replicate("even", 4, 2, 1.0, np.random.default_rng(0))
    assert {(test.first, test.second) for test in pairs.tests} == set(combinations("0123", 2))
    assert pairs.question == "methods"
