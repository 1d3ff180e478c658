from __future__ import annotations

import math
import statistics
from itertools import combinations, product
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from statsmodels.stats.multitest import multipletests

from dubio.core.errors import UserError
from dubio.core.types import Direction, FloatArray
from dubio.reporting.score_table import Cell
from dubio.statistics.trainings import NO_CHANCE, over_runs
from dubio.statistics.verdicts import (
    Replicates,
    Rows,
    Runs,
    Verdict,
    compare_methods,
    compare_systems,
    holm,
    holm_levels,
    judge_differences,
    smallest_difference,
    two_sided_p,
)


def cell(*values: float) -> Cell:
    return Cell(tuple(values))


def against_best(
    cells: dict[str, Cell], better: Direction, *more: Any, among: Any = (), **named: Any
) -> dict[str, Verdict]:
    return compare_methods(cells, better, *more, **named).against_best(among)


def systems_against_best(cells: dict[str, Cell], rows: Rows) -> dict[str, Verdict]:
    return compare_systems(cells, "lower", rows).against_best()


def welch(a: FloatArray, b: FloatArray) -> tuple[float, float, float]:
    """Welch's p, error and degrees of freedom, these halfway to the least of the two samples."""
    result = stats.ttest_ind(a, b, equal_var=False)
    freedom = (result.df + min(len(a), len(b)) - 1) / 2
    error = abs((a.mean() - b.mean()) / result.statistic)
    return float(2 * stats.t.sf(abs(result.statistic), freedom)), float(error), float(freedom)


def test_the_spread_of_runs_is_their_sample_deviation() -> None:
    assert Runs((1.0, 2.0, 4.0)).std == pytest.approx(statistics.stdev([1, 2, 4]))
    assert Runs((1.0, 2.0)).std == pytest.approx(math.sqrt(0.5))
    assert [Runs(values).std for values in ((1.0,), (), (1.0, math.inf))] == [None, None, None]


def test_the_best_of_three_has_no_difference_and_the_others_theirs() -> None:
    scores = {"low": Runs((0.50, 0.52, 0.51)), "high": Runs((0.90, 0.92, 0.91)), "mid": Runs((0.70, 0.72, 0.71))}
    for better, best in (("lower", "low"), ("higher", "high")):
        verdicts = compare_methods(scores, better).against_best()
        assert {name: (own.place, own.difference) for name, own in verdicts.items()} == {
            name: ("best", 0.0) if name == best else ("behind", pytest.approx(abs(runs.mean - scores[best].mean)))
            for name, runs in scores.items()
        }


def test_a_pair_without_a_variance_has_a_p_value_of_one() -> None:
    (test,) = judge_differences({("a", "b"): (0.3, [])}, "lower")
    assert (test.p, test.adjusted_p, test.better, test.resolves) == (1.0, 1.0, None, math.inf)


@pytest.mark.parametrize("variance", [0.0, 0.25, 1.0])
def test_the_smallest_significant_difference_is_that_of_student(variance: float) -> None:
    expected = stats.t.ppf(0.975, 9) * math.sqrt(variance)
    assert smallest_difference([(variance, 9)]) == pytest.approx(expected)
    if variance:
        assert two_sided_p(expected, [(variance, 9)]) == pytest.approx(0.05)


def test_a_term_without_variance_takes_no_degrees_of_freedom() -> None:
    assert two_sided_p(1.5, [(0.0, 1), (1.0, 9)]) == pytest.approx(2 * stats.t.sf(1.5, 9))


def test_levels_of_holm_by_hand() -> None:
    assert holm_levels([0.5, 0.001, 0.04], 0.05) == pytest.approx((0.025, 0.05 / 3, 0.025))  # the second fails
    assert holm_levels([0.025, 0.04], 0.05) == (0.025, 0.05)  # a p-value at its level is rejected


def test_two_units_have_a_variance_of_one_degree_of_freedom() -> None:
    rows = Rows({"a": np.array([1.0, 3.0]), "b": np.array([0.5, 0.5])})
    assert rows.term("a", "b") == rows.own_term("a") == (pytest.approx(1.0), 1)  # s²/n = 2/2
    assert rows.own_term("c") is None
    assert Rows({"a": np.array([1.0]), "b": np.array([0.5])}).term("a", "b") is None
    draws = np.array([1.0, 2.0, 4.0])
    assert Replicates({"a": draws}, 2).own_term("a") == (pytest.approx(statistics.variance(draws)), 1)
    assert Replicates({"a": draws}, 1).own_term("a") is None
    assert Replicates({"a": np.append(draws, math.inf)}, 9).own_term("a") is None


def test_without_examples_it_is_welchs_test() -> None:
    rng = np.random.default_rng(0)
    for _ in range(50):
        a, b = rng.normal(0, 1, 5), rng.normal(1.5, 0.4, 6)
        verdicts = against_best({"a": cell(*a), "b": cell(*b)}, "lower")
        significant = "behind" in {verdict.place for verdict in verdicts.values()}
        assert significant == (welch(a, b)[0] < 0.05)


def test_with_one_run_each_it_is_the_paired_test_over_examples() -> None:
    rng = np.random.default_rng(1)
    for shift in np.linspace(0, 0.5, 30):
        a = rng.normal(1, 0.3, 60)
        b = a + rng.normal(shift, 0.8, 60)
        losses = Rows({"a": a, "b": b})
        verdicts = systems_against_best({"a": cell(a.mean()), "b": cell(b.mean())}, losses)
        significant = "behind" in {verdict.place for verdict in verdicts.values()}
        assert significant == (stats.ttest_rel(a, b).pvalue < 0.05)


def test_groups_are_the_units_of_the_paired_variance() -> None:
    rng = np.random.default_rng(2)
    by_group = rng.normal(0, 1, 20)
    difference = np.repeat(by_group, 5)  # five equal examples a group tell no more than one
    group = np.repeat(np.arange(20).astype(str), 5)
    variance, freedom = Rows({"a": difference, "b": np.zeros(100)}, group).term("a", "b")  # type: ignore[misc]
    assert freedom == 19
    assert variance == pytest.approx(by_group.var(ddof=1) / 20)


def test_pairs_are_welchs_tests_corrected_after_holm() -> None:
    rng = np.random.default_rng(6)
    groups = {name: rng.normal(centre, 0.3, 6) for name, centre in zip("abcd", (0.0, 0.3, 0.6, 1.6), strict=True)}
    cells = {name: cell(*values) for name, values in groups.items()}
    tests = compare_methods(cells, "lower", variance_groups=dict.fromkeys(cells, 0)).tests
    expected = [welch(groups[t.first], groups[t.second]) for t in tests]
    p = [own for own, *_ in expected]
    assert [test.p for test in tests] == pytest.approx(p)
    assert [test.adjusted_p for test in tests] == pytest.approx(multipletests(p, method="holm")[1])
    for test, (_, error, freedom), level in zip(tests, expected, holm_levels(p, 0.05), strict=True):
        assert (test.error, test.freedom) == pytest.approx((error, freedom))
        assert test.resolves == pytest.approx(stats.t.ppf(1 - level / 2, freedom) * error)
        assert (test.better is not None) == (abs(test.difference) > test.resolves)
        half = stats.t.ppf(0.975, freedom) * error
        assert (test.low, test.high) == pytest.approx((test.difference - half, test.difference + half))
    assert len({test.better for test in tests}) > 1


def test_holm_finds_every_difference_that_bonferroni_finds_and_more() -> None:
    rng = np.random.default_rng(8)
    more = 0
    for _ in range(40):
        cells = {str(k): cell(*rng.normal(0.25 * k, 0.1, 5)) for k in range(4)}
        tests = compare_methods(cells, "lower", variance_groups=dict.fromkeys(cells, "alike")).tests
        by_holm = {test for test in tests if test.better is not None}
        by_bonferroni = {test for test in tests if test.p <= 0.05 / 6}
        assert by_bonferroni <= by_holm
        more += len(by_holm - by_bonferroni)
    assert more > 0


def test_the_best_is_the_lowest_or_the_highest_mean() -> None:
    cells = {"a": cell(0.2, 0.21), "b": cell(0.9, 0.91), "c": cell(0.5, 0.52)}
    assert against_best(cells, "lower")["a"].place == "best"
    assert against_best(cells, "higher")["b"].place == "best"


def test_a_wide_spread_is_not_distinguishable_a_narrow_one_is() -> None:
    cells = {"best": cell(0.10, 0.101, 0.099), "near": cell(0.05, 0.2, 0.1), "far": cell(0.5, 0.501, 0.499)}
    places = {name: verdict.place for name, verdict in against_best(cells, "lower").items()}
    assert places == {"best": "best", "near": "tied", "far": "behind"}


def test_one_run_and_no_examples_is_not_judged() -> None:
    assert against_best({"a": cell(0.1), "b": cell(0.9)}, "lower")["b"].place == "unjudged"


def test_a_single_training_is_judged_as_a_system_and_not_as_a_method() -> None:
    rng = np.random.default_rng(3)
    good = rng.gamma(1, 0.2, 400)
    bad = good + rng.gamma(1, 0.2, 400)
    losses = Rows({"a": good, "b": bad})
    cells = {"a": cell(good.mean()), "b": cell(bad.mean())}
    systems, methods = compare_systems(cells, "lower", losses), compare_methods(cells, "lower", losses)
    assert (systems.question, methods.question) == ("systems", "methods")
    assert systems.against_best()["b"].place == "behind"
    assert systems.against_best()["b"].difference == pytest.approx(bad.mean() - good.mean())
    assert methods.against_best()["b"].place == "unjudged"


def test_a_training_without_chance_needs_one_run() -> None:
    rng = np.random.default_rng(3)
    rows = Rows({name: rng.normal(shift, 1, 90) for name, shift in (("a", 0.0), ("b", 0.6), ("c", 0.1))})
    cells = {name: cell(float(values.mean())) for name, values in rows.values.items()}
    methods = compare_methods(cells, "lower", rows, dict.fromkeys(cells, NO_CHANCE))
    assert methods.tests == compare_systems(cells, "lower", rows).tests


def test_pairs_that_are_not_judged_do_not_make_the_others_stricter() -> None:
    cells = {"a": cell(0.1, 0.12, 0.11, 0.1, 0.13), "b": cell(0.15, 0.17, 0.16, 0.14, 0.15)}
    alone, among = (compare_methods(own, "lower") for own in (cells, {**cells, "once": cell(0.12)}))
    assert among.verdict("b", "a") == alone.verdict("b", "a")
    assert among.verdict("once", "a").place == among.verdict("b", "once").place == "unjudged"


@pytest.mark.parametrize("runs", [1, 3, 6])
def test_methods_of_the_same_predictions_differ_by_nothing_in_any_training(runs: int) -> None:
    values = tuple(0.1 + 0.01 * k for k in range(runs))
    cells = {"scores": cell(*values), "network": cell(*values), "other": cell(*(x + 0.02 for x in values))}
    twins = dict.fromkeys(("network", "scores"), "network")
    pairs, apart = (compare_methods(cells, "lower", same=same) for same in (twins, {}))
    assert pairs.verdict("scores", "network") == Verdict("tied", 0.0, 0.0, 1.0)
    assert pairs.same("network", "scores")
    assert not pairs.same("network", "other")
    assert not apart.same("network", "scores")
    assert pairs.verdict("other", "network").place == apart.verdict("other", "network").place


@pytest.mark.parametrize("runs", [3, 6])
@pytest.mark.parametrize("copies", [1, 2])
@pytest.mark.parametrize("last", [False, True])
def test_methods_of_the_same_predictions_are_judged_as_one(runs: int, copies: int, last: bool) -> None:
    """Neither the correction nor the variance of a group, from which few runs borrow, changes with their number."""
    rng = np.random.default_rng(3)
    rows = {name: rng.normal(0.3 * k, 0.1, 40) for k, name in enumerate(("network", "other", "third"))}
    cells = {name: cell(*rng.normal(0.3 * k, 0.1 * (k + 1), runs)) for k, name in enumerate(rows)}
    twins = [f"scores {k}" for k in range(copies)]
    more = dict.fromkeys(twins, cells["network"])
    every = cells | more if last else more | cells
    same = dict.fromkeys(["network", *twins], "one")
    sample = Rows(rows | dict.fromkeys(twins, rows["network"]))
    groups = dict.fromkeys(every, "alike")
    alone = compare_methods(cells, "lower", Rows(rows), variance_groups=groups)
    beside = compare_methods(every, "lower", sample, variance_groups=groups, same=same)
    assert len(beside.tests) == math.comb(3 + copies, 2)
    for one, two in combinations(cells, 2):
        assert beside.verdict(one, two) == alone.verdict(one, two)
    for twin, other in product(twins, ("other", "third")):
        assert beside.verdict(other, twin) == alone.verdict(other, "network")
        assert beside.advantage(other, twin) == alone.advantage(other, "network")


def test_systems_of_the_same_predictions_are_judged_as_one() -> None:
    rng = np.random.default_rng(3)
    rows = {name: rng.normal(0.06 * k, 0.2, 60) for k, name in enumerate(("a", "b", "c"))}
    twins = {"copy": rows["a"], "copy 2": rows["a"]}
    cells = {name: cell(float(values.mean())) for name, values in (rows | twins).items()}
    alone = compare_systems({name: cells[name] for name in rows}, "lower", Rows(rows))
    same = dict.fromkeys(["a", *twins], "a")
    beside = compare_systems(cells, "lower", Rows(rows | twins), same=same)
    for one, two in combinations(rows, 2):
        assert beside.verdict(one, two) == alone.verdict(one, two)
    assert beside.verdict("b", "copy") == alone.verdict("b", "a")
    assert beside.verdict("copy", "copy 2") == Verdict("tied", 0.0, 0.0, 1.0)
    assert beside.same("a", "copy 2")
    apart = compare_systems(cells, "lower", Rows(rows | twins))
    assert apart.verdict("a", "c").resolves > beside.verdict("a", "c").resolves  # type: ignore[operator]


@pytest.mark.parametrize("names", ["ab", "abc"])
def test_where_all_methods_make_the_same_predictions_nothing_is_tested(names: str) -> None:
    cells = dict.fromkeys(names, cell(0.1, 0.2))
    pairs = compare_methods(cells, "lower", same=dict.fromkeys(names, "one"))
    assert {(test.p, test.adjusted_p, test.error, test.better) for test in pairs.tests} == {(1.0, 1.0, 0.0, None)}
    assert [verdict.place for verdict in pairs.against_best().values()] == ["best", *["tied"] * (len(names) - 1)]


@pytest.mark.parametrize("order", [("network", "copy", "other"), ("copy", "other", "network")])
def test_a_copy_with_fits_of_its_own_takes_no_joint_variance_away(order: tuple[str, ...]) -> None:
    """Which of two names came first decided whether a third method of the same trainings was compared fit by fit."""
    values = np.random.default_rng(8).normal(0.3, 0.05, 8)
    runs = {"network": cell(*values), "copy": cell(*values), "other": cell(*(values + 0.004))}
    fits = {"network": "fit", "copy": "fit of no epoch", "other": "fit"}
    every = {name: over_runs({(fits[name], k): x for k, x in enumerate(runs[name].values)}) for name in order}
    trainings = {name: own for name, own in every.items() if own is not None}
    scores, same = {name: runs[name] for name in order}, {"network": 1, "copy": 1}
    pairs = compare_methods(scores, "lower", None, trainings, same=same)
    assert [pairs.verdict("other", name).place for name in ("network", "copy")] == ["behind", "behind"]
    assert compare_methods(scores, "lower", None, trainings).verdict("other", "copy").place == "tied"


def test_more_methods_ask_for_a_larger_difference() -> None:
    two = {"a": cell(0.1, 0.12, 0.11), "b": cell(0.15, 0.17, 0.16)}
    many = two | {f"m{i}": cell(0.4, 0.5, 0.6) for i in range(6)}
    assert against_best(many, "lower")["b"].resolves > against_best(two, "lower")["b"].resolves  # type: ignore[operator]


def test_a_part_of_the_methods_is_judged_as_strictly_as_all_of_them() -> None:
    cells = {"a": cell(0.1, 0.12, 0.11), "b": cell(0.15, 0.17, 0.16), "c": cell(0.25, 0.27, 0.3), "d": cell(0.5, 0.6)}
    groups = dict.fromkeys(cells, "alike")
    part = against_best(cells, "lower", variance_groups=groups, among=("b", "c"))
    assert (part["b"].place, set(part)) == ("best", {"b", "c"})
    assert part["c"] == compare_methods(cells, "lower", variance_groups=groups).verdict("c", "b")
    alone = against_best({name: cells[name] for name in "bc"}, "lower", variance_groups=groups)
    assert part["c"].resolves != alone["c"].resolves


def test_false_alarms_stay_below_the_level() -> None:
    rng = np.random.default_rng(4)
    alarms = 0
    for _ in range(300):
        cells = {str(k): cell(*rng.normal(1, 0.1, 3)) for k in range(5)}
        verdicts = against_best(cells, "lower", variance_groups=dict.fromkeys(cells, "alike"))
        alarms += any(verdict.place == "behind" for verdict in verdicts.values())
    # The best of five is chosen after looking; the correction over all pairs has to make up for it.
    assert alarms / 300 < 0.06


def test_an_infinite_loss_is_behind_and_never_best() -> None:
    cells = {"a": cell(float("inf"), 0.1), "b": cell(0.3, 0.4), "none": Cell((), undefined=2)}
    verdicts = against_best(cells, "lower")
    assert (verdicts["a"].place, verdicts["b"].place) == ("behind", "best")
    assert "none" not in verdicts


def test_a_trained_system_of_infinite_loss_is_not_compared() -> None:
    rows = {"a": np.r_[np.inf, np.zeros(9)], "b": np.arange(10.0), "c": np.arange(10.0) + 1}
    pairs = compare_systems({name: Runs((float(own.mean()),)) for name, own in rows.items()}, "lower", Rows(rows))
    assert {name: own.place for name, own in pairs.against_best().items()} == {"b": "best", "c": "behind"}
    assert [(test.first, test.second) for test in pairs.tests] == [("b", "c")]


def test_a_difference_of_replicates_has_their_variance_and_no_more_freedom_than_units() -> None:
    rng = np.random.default_rng(9)
    draws = {"a": rng.normal(1, 0.1, 300), "b": rng.normal(1, 0.1, 300)}
    variance, freedom = Replicates(draws, 50).term("a", "b")  # type: ignore[misc]
    assert (variance, freedom) == (pytest.approx((draws["a"] - draws["b"]).var(ddof=1)), 49)
    draws["a"][:20] = np.nan  # undefined replicates are left out
    assert Replicates(draws, 1000).term("a", "b")[1] == 279  # type: ignore[index]
    assert Replicates(draws, 1).term("a", "b") is None


def test_two_methods_are_compared_as_strictly_as_with_the_best() -> None:
    rng = np.random.default_rng(0)
    rows = Rows({name: rng.normal(shift, 1, 80) for name, shift in (("a", 0.0), ("b", 0.3), ("c", 0.9))})
    pairs = compare_systems({name: cell(float(values.mean())) for name, values in rows.values.items()}, "lower", rows)
    verdicts = pairs.against_best()
    for name in "bc":
        assert pairs.verdict(name, "a") == verdicts[name]
        turned = pairs.verdict("a", name)
        assert (turned.difference, turned.p) == (-verdicts[name].difference, verdicts[name].p)


def test_methods_are_not_judged_where_the_spread_of_one_is_not_known() -> None:
    rng = np.random.default_rng(1)
    a = rng.normal(0, 0.05, 200)
    rows = Rows({"a": a, "b": a + 0.02 + rng.normal(0, 0.01, 200)})
    once = {name: cell(float(values.mean())) for name, values in rows.values.items()}
    varied = {**once, "b": cell(once["b"].mean - 0.003, once["b"].mean + 0.003)}
    for cells in (once, varied):
        assert against_best(cells, "lower", rows)["b"].place == "unjudged"


@settings(max_examples=25)
@given(st.lists(st.floats(0, 1), min_size=1, max_size=20))
def test_holm_equals_statsmodels(p: list[float]) -> None:
    np.testing.assert_allclose(holm(p), multipletests(p, method="holm")[1], atol=1e-12)


@settings(max_examples=50)
@given(st.lists(st.floats(0, 1), min_size=1, max_size=20))
def test_a_p_value_is_rejected_at_its_own_level_exactly_when_holm_rejects_it(p: list[float]) -> None:
    rejected = np.asarray(p) <= np.asarray(holm_levels(p, 0.05)) * (1 + 1e-12)
    assert (rejected == multipletests(p, alpha=0.05, method="holm")[0]).all()


def test_holm_refuses_what_is_no_probability() -> None:
    with pytest.raises(UserError, match="between 0 and 1"):
        holm([0.1, 1.2])
