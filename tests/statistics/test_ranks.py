"""Ranks, Friedman and Nemenyi against scipy and scikit-posthocs, and the published check values."""

from fractions import Fraction

import numpy as np
import pytest
import scikit_posthocs
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy import stats

from dubio.core.errors import UserError
from dubio.statistics.ranks import (
    Ranks,
    cliques,
    compare,
    critical_difference,
    critical_value,
    friedman,
    kendall_tau,
    mid_ranks,
    rank,
    signed_rank_tests,
    win_draw_loss,
)
from dubio.statistics.result_table import Grid, table_of


def grid_of(values, better="lower", metric="m"):
    rows = tuple(tuple(Fraction(int(v)) if float(v).is_integer() else Fraction(str(v)) for v in row) for row in values)
    datasets = tuple(f"d{i}" for i in range(len(rows)))
    return Grid(metric, better, datasets, tuple(f"m{j}" for j in range(len(rows[0]))), rows)


tables = hnp.arrays(np.int64, st.tuples(st.integers(2, 8), st.integers(3, 6)), elements=st.integers(0, 5))


@settings(max_examples=60)
@given(tables)
def test_ranks_equal_scipy(table):
    np.testing.assert_allclose(rank([grid_of(table)]).values, stats.rankdata(table, axis=1))
    np.testing.assert_allclose(rank([grid_of(table, "higher")]).values, stats.rankdata(-table, axis=1))


@settings(max_examples=60)
@given(tables)
def test_friedman_equals_scipy_with_ties(table):
    found = friedman(rank([grid_of(table)]))
    if (table == table[:, :1]).all():
        assert (found.chi2, found.p) == (0.0, 1.0)
        return
    reference = stats.friedmanchisquare(*table.T)
    assert found.chi2 == pytest.approx(reference.statistic, abs=1e-9)
    assert found.p == found.iman_davenport_p  # of exchanges: see test_exchanges.py
    assert found.distribution in ("exact", "sampled")


def test_iman_davenport_by_hand():
    """F = (N − 1) χ² / (N(k − 1) − χ²), infinite where every dataset ranks the methods alike."""
    ranks = Ranks(tuple("abcd"), tuple(str(i) for i in range(14)), np.tile([1.0, 2.0, 3.0, 4.0], (14, 1)))
    assert friedman(ranks).chi2 == pytest.approx(42.0)
    assert friedman(ranks).iman_davenport == np.inf
    assert friedman(ranks).iman_davenport_p == pytest.approx(24.0**-13)  # all orders alike, whichever it is
    rng = np.random.default_rng(0)
    found = friedman(rank([grid_of(rng.integers(0, 100, (14, 4)))]))
    expected = 13 * found.chi2 / (14 * 3 - found.chi2)
    assert found.iman_davenport == pytest.approx(expected)
    assert found.iman_davenport_p == found.p  # F grows with χ²: over exchanges it is the same test
    many = friedman(rank([grid_of(rng.integers(0, 100, (40, 8)))]))
    assert many.distribution == "chi2"
    assert many.p == pytest.approx(stats.chi2.sf(many.chi2, 7))
    assert many.iman_davenport_p == pytest.approx(stats.f.sf(39 * many.chi2 / (40 * 7 - many.chi2), 7, 7 * 39))
    averaged = friedman(Ranks(("a", "b"), ("x", "y"), np.array([[4 / 3, 5 / 3]] * 2)))  # over three metrics
    assert averaged.chi2 == pytest.approx(2.0)
    nearly = friedman(Ranks(("a", "b"), ("x", "y", "z"), np.array([[1, 2], [1, 2], [1.25, 1.75]])))
    assert (nearly.chi2, nearly.iman_davenport) == pytest.approx((25 / 9, 25.0))


@pytest.mark.parametrize(("k", "n", "expected"), [(18, 5, 11.779), (18, 4, 13.169)])
def test_published_critical_differences(k, n, expected):
    assert critical_difference(k, n, 0.05) == pytest.approx(expected, abs=5e-4)


@pytest.mark.parametrize(("k", "q"), [(2, 1.960), (3, 2.343), (4, 2.569), (5, 2.728), (10, 3.164)])
def test_critical_values_of_demsar_table_5(k, q):
    assert critical_value(k, 0.05) == pytest.approx(q, abs=1.1e-3)


@pytest.mark.parametrize("seed", range(4))
def test_cliques_agree_with_nemenyi_p_values(seed):
    """Two methods share a clique just when scikit-posthocs' p-value is above α."""
    rng = np.random.default_rng(seed)
    values = rng.permuted(np.tile(np.arange(6), (12, 1)), axis=1) + np.arange(6) * rng.uniform(0.3, 1.2)
    grid = grid_of(np.round(values, 6))
    ranks = rank([grid])
    p = np.asarray(scikit_posthocs.posthoc_nemenyi_friedman(np.round(values, 6)))
    average = dict(zip(ranks.methods, ranks.average, strict=True))
    found = cliques(average, critical_difference(6, 12, 0.05))
    for i, one in enumerate(ranks.methods):
        for j, two in enumerate(ranks.methods):
            if i < j:
                together = any(one in clique and two in clique for clique in found)
                assert together == (p[i, j] > 0.05)


def test_cliques_are_the_largest_sets():
    ranks = {"a": 1.0, "b": 2.0, "c": 3.5, "d": 6.0}
    assert cliques(ranks, 2.0) == (("a", "b"), ("b", "c"))
    assert cliques(ranks, 10.0) == (("a", "b", "c", "d"),)
    assert cliques(ranks, 0.5) == ()
    assert cliques(ranks, 1.0) == ()  # a and b are exactly the critical difference apart


def test_several_metrics_average_within_a_dataset():
    first, second = grid_of([[1, 2, 3], [3, 2, 1]], metric="x"), grid_of([[1, 3, 2], [1, 2, 3]], metric="y")
    ranks = rank([first, second])
    np.testing.assert_allclose(ranks.values, [[1, 2.5, 2.5], [2, 2, 2]])
    assert friedman(ranks).datasets == 2


def _results(values):
    return table_of(
        {"dataset": f"d{i}", "method": f"m{j}", "metric": "m", "value": repr(float(value))}
        for i, row in enumerate(values)
        for j, value in enumerate(row)
    )


def test_a_block_that_repeats_its_datasets_counts_once():
    """Copies of a dataset in its block add nothing; counted as datasets they would."""
    values = np.random.default_rng(0).normal(size=(5, 4))
    copies = np.repeat(values, 3, axis=0)
    blocks = {f"d{i}": f"training {i // 3}" for i in range(15)}
    one, blocked = compare(_results(values), {"m": "lower"}), compare(_results(copies), {"m": "lower"}, blocks=blocks)
    assert (blocked.friedman, blocked.average_ranks) == (one.friedman, one.average_ranks)
    assert (blocked.critical_difference, blocked.pairs) == (one.critical_difference, one.pairs)
    assert compare(_results(copies), {"m": "lower"}).friedman.p < one.friedman.p
    assert sum(blocked.win_draw_loss["m0"]) == 15 * 3  # records are counts over datasets, no test
    with pytest.raises(UserError, match=r"two blocks of datasets.*Given 15 datasets of one block: d0, d1"):
        compare(_results(copies), {"m": "lower"}, blocks=dict.fromkeys(blocks, "one"))


def test_differences_that_cancel_in_every_block_are_no_difference():
    """Means of rounded differences were about 1e-17, all of one sign, and p was 0.03."""
    gaps = [0.1, 0.2, -0.3]
    values = np.array([[1.0 + gaps[i % 3], 1.0] for i in range(18)])
    blocks = {f"d{i}": f"training {i // 3}" for i in range(18)}
    (pair,) = compare(_results(values.round(1)), {"m": "lower"}, blocks=blocks).pairs
    assert (pair.p, pair.adjusted_p) == (1.0, 1.0)


def test_a_dataset_without_a_block_is_its_own_whatever_a_block_is_called():
    table = _results(np.random.default_rng(0).normal(size=(4, 3)))
    compared = compare(table, {"m": "lower"}, blocks={"d1": "d0", "d2": "d0"})
    assert compared.friedman.datasets == 3
    assert compared.pairs == compare(table, {"m": "lower"}, blocks={"d1": "own", "d2": "own"}).pairs


def test_no_pair_differs_where_friedman_finds_no_difference():
    """With many methods alike, one pair can lie a critical difference apart by chance; Friedman's test comes first."""
    rng = np.random.default_rng(4)
    apart = 0
    for _ in range(600):
        compared = compare(_results(rng.normal(size=(6, 4))), {"m": "lower"})
        best, worst = min(compared.average_ranks, key=compared.average_ranks.get), max(
            compared.average_ranks, key=compared.average_ranks.get
        )
        far = compared.average_ranks[worst] - compared.average_ranks[best] >= compared.critical_difference
        assert compared.differ(best, worst) == compared.differ(worst, best) == (far and compared.friedman.p <= 0.05)
        if far and compared.friedman.p > 0.05:
            apart += 1
            assert compared.cliques == (tuple(compared.average_ranks),)
    assert apart > 0


def test_friedman_over_blocks_keeps_its_level_where_test_sets_share_trainings():
    """Equal methods, 4 training sets with 3 test sets each: the chance of a training is in all of its test sets."""
    rng = np.random.default_rng(1)
    blocks = {f"d{i}": f"training {i // 3}" for i in range(12)}
    rejected = {"blocks": 0, "datasets": 0}
    for _ in range(400):
        values = np.repeat(rng.normal(size=(4, 6)), 3, axis=0) + 0.5 * rng.normal(size=(12, 6))
        ranks = rank([grid_of(np.round(values, 6))])
        rejected["blocks"] += friedman(ranks.averaged(blocks)).p < 0.05
        rejected["datasets"] += friedman(ranks).p < 0.05
    assert rejected["blocks"] <= 0.05 * 400 + 3 * np.sqrt(400 * 0.05 * 0.95)
    assert rejected["datasets"] > 0.3 * 400  # as if the twelve test sets were independent


def test_mid_ranks_are_exact():
    values = [Fraction("0.1"), Fraction("0.3"), Fraction("0.1"), Fraction("0.2")]
    assert mid_ranks(values, sign=1) == [Fraction(3, 2), 4, Fraction(3, 2), 3]


@settings(max_examples=40)
@given(tables, st.randoms())
def test_order_of_datasets_and_methods_does_not_matter(table, random):
    rows, columns = list(range(table.shape[0])), list(range(table.shape[1]))
    random.shuffle(rows)
    random.shuffle(columns)
    plain, moved = rank([grid_of(table)]), rank([grid_of(table[np.ix_(rows, columns)])])
    np.testing.assert_allclose(moved.average, plain.average[columns])
    assert friedman(moved).chi2 == pytest.approx(friedman(plain).chi2, abs=1e-9)
    wins, moved_wins = win_draw_loss([grid_of(table)]), win_draw_loss([grid_of(table[np.ix_(rows, columns)])])
    for place, column in enumerate(columns):
        assert moved_wins[f"m{place}"] == wins[f"m{column}"]


@settings(max_examples=40)
@given(tables)
def test_wins_equal_a_plain_count(table):
    for name, found in win_draw_loss([grid_of(table)]).items():
        column = int(name[1:])
        others = np.delete(table, column, axis=1)
        own = table[:, [column]]
        assert found == ((own < others).sum(), (own == others).sum(), (own > others).sum())


def test_signed_rank_tests():
    rng = np.random.default_rng(3)
    table = rng.integers(0, 1000, (9, 3))
    tests = signed_rank_tests(grid_of(table))
    assert [(t.first, t.second) for t in tests] == [("m0", "m1"), ("m0", "m2"), ("m1", "m2")]
    assert tests[0].p == pytest.approx(stats.wilcoxon(table[:, 0], table[:, 1]).pvalue)
    assert all(test.adjusted_p >= test.p for test in tests)
    assert signed_rank_tests(grid_of([[1, 1], [2, 2]]))[0].p == 1.0
    once_equal = np.array([[3, 3], [1, 2], [1, 4], [2, 7], [0, 8], [1, 6], [3, 9]])
    assert signed_rank_tests(grid_of(once_equal))[0].p == pytest.approx(stats.wilcoxon(*once_equal.T).pvalue)


def test_pairs_are_tested_under_one_metric_and_several_are_compared_each_alone():
    rng = np.random.default_rng(5)
    rows = [
        {"dataset": d, "method": m, "metric": metric, "value": int(rng.integers(0, 100))}
        for d in range(6) for m in ("x", "y", "z") for metric in ("nll", "brier")
    ]  # fmt: skip
    one = compare(table_of(rows), {"nll": "lower"})
    assert (len(one.pairs), one.by_metric) == (3, {})
    assert one.critical_difference == pytest.approx(stats.studentized_range.ppf(0.95, 3, np.inf) * np.sqrt(12 / 72))
    both = compare(table_of(rows), {"nll": "lower", "brier": "lower"})
    assert both.pairs == ()
    assert {name: len(own.pairs) for name, own in both.by_metric.items()} == {"nll": 3, "brier": 3}
    assert both.by_metric["nll"].average_ranks == one.average_ranks


def test_refusals():
    with pytest.raises(UserError, match="two datasets"):
        friedman(rank([grid_of([[1, 2, 3]])]))
    with pytest.raises(UserError, match="two methods"):
        friedman(rank([grid_of([[1], [2]])]))
    with pytest.raises(UserError, match="alpha"):
        critical_difference(3, 5, 1.5)
    with pytest.raises(UserError, match="two methods; given 1"):
        critical_difference(1, 5)
    with pytest.raises(UserError, match="one dataset; given 0"):
        critical_difference(3, 0)
    assert critical_value(2) == pytest.approx(stats.norm.ppf(0.975))
    assert critical_difference(2, 1) == pytest.approx(stats.norm.ppf(0.975))  # q of two methods is that of a z-test
    with pytest.raises(UserError, match="same methods"):
        rank([grid_of([[1, 2]]), grid_of([[1, 2, 3]], metric="other")])


def test_agreement_is_kendalls_tau_of_what_is_finite_and_none_where_all_are_tied():
    one, other = [1.0, 2.0, 3.0, np.nan, 5.0], [2.0, 1.0, 3.0, 0.0, np.inf]
    assert kendall_tau(one, other) == pytest.approx(stats.kendalltau([1, 2, 3], [2, 1, 3]).statistic)
    assert kendall_tau([1.0, 1.0, 1.0], [1.0, 2.0, 3.0]) is None
    assert kendall_tau([1.0, np.nan], [1.0, 2.0]) is None
    assert kendall_tau([], []) is None
    assert kendall_tau([1.0, 2.0], [5.0, 4.0]) == -1.0
