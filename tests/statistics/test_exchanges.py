"""Exact p-values of rank tests: against every exchange, published tables, scipy, and simulations of equal methods."""

from itertools import permutations, product

import numpy as np
import pytest
from scipy import stats

from dubio.statistics import exchanges as module
from dubio.statistics.exchanges import exchange_p, exchanges, least_difference, signed_rank_p
from dubio.statistics.ranks import compare
from dubio.statistics.result_table import table_of


def friedman_p(ranks):
    over = exchanges(np.asarray(ranks, dtype=float))
    assert over is not None
    return exchange_p(np.asarray(ranks, dtype=float), over)


def by_brute_force(ranks):
    """The share of all orders in all blocks whose rank sums differ at least as much."""

    def spread(table):
        return np.square(table.sum(axis=0) - table.sum() / table.shape[1]).sum()

    every = [np.array(rows) for rows in product(*(list(permutations(row)) for row in ranks))]
    return np.mean([spread(table) >= spread(ranks) - 1e-9 for table in every])


@pytest.mark.parametrize(("blocks", "methods"), [(2, 2), (7, 2), (2, 3), (4, 3), (5, 3), (2, 4), (3, 4)])
@pytest.mark.parametrize("averaged", [1, 3])
def test_friedmans_p_counts_every_exchange_with_ties_and_averages(blocks, methods, averaged):
    rng = np.random.default_rng([blocks, methods])
    for levels in (2, 3, 50):
        values = rng.integers(0, levels, (averaged, blocks, methods))
        ranks = stats.rankdata(values, axis=2).mean(axis=0)
        assert friedman_p(ranks) == pytest.approx(by_brute_force(ranks), abs=1e-9)


def sums_with(chi2, blocks, methods):
    """S of a χ² without ties: χ² = 12 S / (N k (k + 1))."""
    return chi2 * blocks * methods * (methods + 1) / 12


@pytest.mark.parametrize(
    ("methods", "blocks", "chi2", "p"),
    [(3, 3, 6.0, 0.028), (3, 4, 6.5, 0.042), (3, 4, 8.0, 0.005), (3, 5, 6.4, 0.039), (3, 6, 7.0, 0.029),
     (4, 2, 6.0, 0.042), (4, 3, 7.4, 0.033), (4, 4, 7.8, 0.036)],
)  # fmt: skip
def test_friedmans_p_is_that_of_the_published_tables(methods, blocks, chi2, p):
    """Friedman 1937, tables V and VI, and every textbook since; the χ² distribution has 0.050, 0.039, 0.018 ….."""
    over = exchanges(np.tile(np.arange(1.0, methods + 1), (blocks, 1)))
    assert over is not None
    assert over.p(sums_with(chi2, blocks, methods)) == pytest.approx(p, abs=5.1e-4)


@pytest.mark.parametrize("blocks", [3, 12, 60])
def test_of_two_methods_friedmans_test_is_the_sign_test(blocks):
    """With ties, which leave the block out; and the least difference is the least that the sign test finds."""
    rng = np.random.default_rng(blocks)
    for _ in range(20):
        gaps = rng.integers(-2, 3, blocks)
        ranks = stats.rankdata(np.stack([gaps, np.zeros(blocks)], axis=1), axis=1)
        more, less = int((gaps > 0).sum()), int((gaps < 0).sum())
        p = stats.binomtest(more, more + less).pvalue if more + less else 1.0
        assert friedman_p(ranks) == pytest.approx(p, abs=1e-9)
        significant = [2 * k - more - less for k in range((more + less + 1) // 2, more + less + 1)
                       if stats.binomtest(k, more + less).pvalue <= 0.05] if more + less else []  # fmt: skip
        assert least_difference(ranks, 0.05) == (pytest.approx(significant[0] / blocks) if significant else None)


@pytest.mark.parametrize(("blocks", "methods"), [(8, 5), (5, 6), (12, 4)])
def test_exchanges_that_are_sampled_have_the_p_of_all(blocks, methods, monkeypatch):
    rows = tuple([tuple(np.arange(1.0, methods + 1))] * blocks)
    monkeypatch.setattr(module, "MOST_SUMS", 5_000_000)
    every, sampled = module._counted(rows), module._drawn(rows)
    assert (every.draws, sampled.draws) == (None, module.DRAWS)
    for share in (0.5, 0.1, 0.05, 0.01):
        square = every.squares[np.searchsorted(-every.tails, -share)]
        p = every.p(square)
        assert sampled.p(square) == pytest.approx(p, abs=4 * np.sqrt(p * (1 - p) / module.DRAWS) + 1e-4)
    assert sampled.p(1e9) == 1 / (1 + module.DRAWS)  # never 0: the order at hand is an exchange, too


def test_ranks_that_are_no_multiples_of_a_small_fraction_are_exchanged_too():
    rng = np.random.default_rng(2)
    ranks = rng.random((6, 3))
    ranks *= 6 / ranks.sum(axis=1, keepdims=True)
    assert friedman_p(ranks) == pytest.approx(by_brute_force(ranks), abs=0.02)


@pytest.mark.parametrize("methods", [4, 10, 18])
def test_of_many_blocks_the_distribution_is_chi_squared(methods):
    blocks = module.MANY + 1
    rng, sums = np.random.default_rng(methods), np.zeros((20_000, methods))
    for _ in range(blocks):
        sums += rng.permuted(np.tile(np.arange(1.0, methods + 1), (20_000, 1)), axis=1)
    chi2 = np.square(sums - blocks * (methods + 1) / 2).sum(axis=1) / sums_with(1, blocks, methods)
    assert (chi2 >= stats.chi2.isf(0.05, methods - 1)).mean() == pytest.approx(0.05, abs=0.005 + 3 * 0.00154)
    assert (methods == 4) or exchanges(np.tile(np.arange(1.0, methods + 1), (blocks, 1))) is None


def test_blocks_in_which_all_are_tied_are_no_evidence():
    ranks = np.full((40, 9), 5.0)
    assert friedman_p(ranks) == 1.0
    ranks[0] = np.arange(1, 10)
    assert friedman_p(ranks) == 1.0  # the chi-squared distribution of one block would say 0.37


@pytest.mark.parametrize("methods", [2, 3, 5])
@pytest.mark.parametrize("blocks", [3, 4, 6, 12])
def test_equal_methods_are_called_different_in_at_most_5_percent(methods, blocks):
    """With the defaults: by mean ranks, by Iman and Davenport's p, and by the signed-rank tests."""
    rng, draws, sets = np.random.default_rng([methods, blocks]), 400, 1 + blocks % 2
    owner = {f"d{k}": f"b{k // sets}" for k in range(sets * blocks)}
    count = {"ranks": 0, "Iman-Davenport": 0, "signed ranks": 0}
    for _ in range(draws):
        values = np.repeat(rng.normal(size=(blocks, methods)), sets, axis=0)
        values += 0.3 * rng.normal(size=values.shape)
        table = table_of(
            {"dataset": f"d{k}", "method": f"m{j}", "metric": "m", "value": f"{value:.4f}"}
            for k, row in enumerate(values) for j, value in enumerate(row)
        )  # fmt: skip
        compared = compare(table, {"m": "lower"}, blocks=owner)
        best, *others = compared.average_ranks
        differ = any(compared.differ(best, other) for other in others)
        assert not differ or compared.friedman.p <= 0.05
        assert (differ == (compared.friedman.p <= 0.05)) or methods > 2
        assert (compared.cliques == ()) == differ or methods > 2
        count["ranks"] += differ
        count["Iman-Davenport"] += compared.friedman.iman_davenport_p <= 0.05
        count["signed ranks"] += any(pair.adjusted_p <= 0.05 for pair in compared.pairs)
    assert max(count.values()) <= draws * 0.05 + 3 * np.sqrt(draws * 0.05 * 0.95), count


@pytest.mark.parametrize("count", [1, 4, 7, 11])
def test_the_signed_rank_p_counts_all_signs(count):
    """With ties in size and, in the differences at hand, zeros: they are left out."""
    rng = np.random.default_rng(count)
    signs = np.array(list(product((-1, 1), repeat=count)))
    for levels in (1, 3, 100):
        for _ in range(5):
            own = rng.choice([-1, 1], count) * rng.integers(1, levels + 1, count)
            ranks = stats.rankdata(np.abs(own))
            totals, half = (signs > 0) @ ranks, ranks.sum() / 2
            p = np.mean(np.abs(totals - half) >= abs((own > 0) @ ranks - half) - 1e-9)
            gaps = rng.permutation(np.concatenate([own, np.zeros(16)])).astype(float)
            assert signed_rank_p(gaps) == pytest.approx(p, abs=1e-12)


def test_the_signed_rank_p_equals_scipys_where_that_is_exact_and_of_many_differences():
    rng = np.random.default_rng(0)
    for count in (6, 20, 50, 80):
        gaps = rng.normal(0.3, 1.0, count)
        assert signed_rank_p(gaps) == pytest.approx(stats.wilcoxon(gaps).pvalue, rel=1e-9)
    tied = rng.choice([-2.0, -1.0, 1.0, 2.0, 3.0], 50)  # exact here, normal there
    assert signed_rank_p(tied) == pytest.approx(stats.wilcoxon(tied).pvalue, abs=0.02)
    assert signed_rank_p(np.zeros(4)) == 1.0


def test_five_of_sixteen_that_differ_one_way_are_not_significant():
    """The normal approximation, which scipy takes with zeros among more than 13 differences, has p = 0.043."""
    values = [(0.5, 0.5 + 0.01 * max(0, k - 10)) for k in range(16)]
    table = table_of(
        {"dataset": f"d{k}", "method": method, "metric": "m", "value": repr(round(value, 2))}
        for k, row in enumerate(values) for method, value in zip("ab", row, strict=True)
    )  # fmt: skip
    (pair,) = compare(table, {"m": "lower"}).pairs
    assert pair.p == pytest.approx(2 / 2**5)
