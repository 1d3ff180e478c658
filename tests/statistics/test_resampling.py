"""What the bootstrap draws, against the multinomial law it must follow."""

from itertools import pairwise, product
from math import factorial

import numpy as np
import pytest
from scipy import stats

from dubio.core.predictions import Predictions
from dubio.statistics.resampling import UNDECIDED, ShortPoisson, Units, Weights, units_of


def drawn(units, replicates, seed=0):
    """``[R, N]``."""
    return np.concatenate([weights.counts.T for weights in units.weights(replicates, seed)]).astype(np.int64)


def examples(count):
    return Units(np.arange(count), count)


@pytest.fixture(params=[0, 1 << 20])
def few(request, monkeypatch):
    """Counts from the table of bytes wherever they can be, and nowhere."""
    monkeypatch.setattr("dubio.statistics.resampling.FEW", request.param)


@pytest.mark.parametrize("count", [1, 2, 5, 9, 10, 11, 40, 257, 3000])
def test_every_replicate_draws_as_many_as_there_are(few, count):
    assert (drawn(examples(count), 50).sum(axis=1) == count).all()


@pytest.mark.parametrize("count", [3, 4])
def test_all_outcomes_of_a_few_units_have_their_probabilities(few, count, monkeypatch):
    """Σ over all outcomes: n! / (Π w_i! nⁿ)."""
    monkeypatch.setattr("dubio.statistics.resampling.SHORTFALL", 0.5)  # some of so few come from the table as well
    outcomes = [w for w in product(range(count + 1), repeat=count) if sum(w) == count]
    chance = [factorial(count) / np.prod([factorial(k) for k in w]) / count**count for w in outcomes]
    found = drawn(examples(count), 12_000)
    times = dict.fromkeys(outcomes, 0)
    for row in map(tuple, found.tolist()):
        times[row] += 1
    assert stats.chisquare(list(times.values()), np.array(chance) * len(found)).pvalue > 1e-4


@pytest.mark.parametrize("count", [12, 30, 1000])
def test_parts_of_many_units_are_multinomial(few, count):
    """Counts of three parts of the units, of most of which the Poisson table decides: chi-square over all cells."""
    cuts = np.array([0, 2, count // 3, count])
    replicates = 4000
    found = drawn(examples(count), replicates)
    parts = np.stack([found[:, low:high].sum(axis=1) for low, high in pairwise(cuts)], axis=1)
    one = parts[:, 0]
    edges = np.arange(6)
    expected = stats.binom.pmf(edges, count, 2 / count)
    cells = np.append(np.bincount(np.minimum(one, 6), minlength=7)[:6], (one > 5).sum())
    assert stats.chisquare(cells, np.append(expected, 1 - expected.sum()) * replicates).pvalue > 1e-4
    share = np.diff(cuts) / count
    covariance = count * (np.diag(share) - np.outer(share, share))
    assert np.abs(parts.mean(axis=0) - count * share).max() < 5 * np.sqrt(covariance.max() / replicates)
    np.testing.assert_allclose(np.cov(parts.T), covariance, atol=6 * covariance.max() / np.sqrt(replicates))


def test_single_units_have_the_binomial_law_far_into_the_tail():
    found = drawn(examples(2500), 400, seed=3)
    times = np.bincount(found.ravel(), minlength=8)
    expected = stats.binom.pmf(np.arange(7), 2500, 1 / 2500) * found.size
    # units of one replicate are nearly independent: their correlation is −1/(n − 1)
    seen, rest = np.append(times[:7], times[7:].sum()), found.size - expected.sum()
    assert stats.chisquare(seen, np.append(expected, rest)).pvalue > 1e-4


@pytest.mark.parametrize("count", [1, 9, 10, 50, 50_000])
def test_the_table_and_its_remainder_make_up_a_poisson_law(monkeypatch, count):
    monkeypatch.setattr("dubio.statistics.resampling.FEW", 0)
    law = ShortPoisson.of(count)
    mean = max(0.0, 1 - 3 / np.sqrt(count))
    assert law.mean == pytest.approx(mean)
    table = np.frombuffer(law.table, dtype=np.uint8)
    settled = np.bincount(table[table != UNDECIDED], minlength=40)[:40]
    share = np.diff(law.remainder, prepend=0.0) * (table == UNDECIDED).sum()
    np.testing.assert_allclose((settled + share) / 256, stats.poisson.pmf(np.arange(40), mean), atol=1e-15)


def test_seeded_and_independent_of_blocks(few, monkeypatch):
    units = examples(30)
    one = drawn(units, 25, seed=4)
    monkeypatch.setattr("dubio.statistics.resampling.BLOCK_CELLS", 30 * 7)
    np.testing.assert_array_equal(drawn(units, 25, seed=4), one)
    np.testing.assert_array_equal(drawn(units, 9, seed=4), one[:9])
    assert (drawn(units, 25, seed=5) != one).any()


def test_a_group_has_one_weight():
    names = np.array(["a", "b", "a", "c", "c", "c"])
    units = units_of(Predictions(np.zeros((1, 6, 2), dtype=np.float32), np.zeros(6, dtype=np.int64), group=names))
    found = drawn(units, 100)
    assert (found[:, 0] == found[:, 2]).all()
    assert (found[:, 3:] == found[:, 3:4]).all()
    assert (found[:, 0] + found[:, 1] + found[:, 3] == 3).all()
    weights = Weights.of(found)
    np.testing.assert_array_equal(weights.totals, found.sum(axis=1))
    assert [list(rows) for rows in weights.replicates()] == [list(np.repeat(np.arange(6), row)) for row in found]


def test_weights_beyond_a_byte_are_kept():
    weights = Weights.of(np.array([[300, 0], [1, 70_000]]))
    np.testing.assert_array_equal(weights.totals, [300, 70_001])
