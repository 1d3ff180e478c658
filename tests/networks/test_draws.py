"""Draws in blocks of rows: reproducible, and of the law that they are asked for."""

import numpy as np
import pytest
import torch
from scipy import stats

from dubio.networks.draws import BLOCK, GAMMA, BlockDraws, _mixed


def test_draws_depend_on_seed_sample_block_and_place_alone():
    rows = np.array([3, 700, 5, 129])
    whole = BlockDraws(7).rows("a", "uniform", 6, range(4), np.arange(1000))
    assert torch.equal(BlockDraws(7).rows("a", "uniform", 6, range(4), rows), whole[:, rows])
    assert torch.equal(BlockDraws(7).rows("a", "uniform", 6, range(2, 4), rows), whole[2:, rows])
    for other in (
        BlockDraws(8).rows("a", "uniform", 6, range(4), rows),
        BlockDraws(7).rows("b", "uniform", 6, range(4), rows),
    ):
        assert not torch.equal(other, whole[:, rows])


def test_draws_forgotten_by_the_memory_come_back_the_same():
    draws = BlockDraws(1)
    first = draws.rows("a", "normal", 3, range(2), np.arange(BLOCK))
    for block in range(1, 100):
        draws.rows("a", "normal", 3, range(2), np.array([block * BLOCK]))
    assert torch.equal(draws.rows("a", "normal", 3, range(2), np.arange(BLOCK)), first)


def test_draws_have_the_law_they_are_asked_for():
    uniform = BlockDraws(0).rows("a", "uniform", 50, range(10), np.arange(500))
    normal = BlockDraws(0).rows("a", "normal", 50, range(10), np.arange(500))
    assert uniform.min() >= 0
    assert uniform.max() < 1
    assert uniform.mean().item() == pytest.approx(0.5, abs=0.003)
    assert normal.mean().item() == pytest.approx(0.0, abs=0.01)
    assert normal.std().item() == pytest.approx(1.0, abs=0.01)


def keys(count, seed=0):
    return np.random.default_rng(seed).integers(0, 2**63, size=count).astype(np.uint64)


def test_draws_of_a_key_depend_on_seed_sample_site_and_key_alone():
    rows = keys(40)
    whole = BlockDraws(7).rows("a", "uniform", 6, range(4), rows)
    order = np.array([3, 31, 5, 5])
    assert torch.equal(BlockDraws(7).rows("a", "uniform", 6, range(1, 3), rows[order]), whole[1:3, order])
    for other in (
        BlockDraws(8).rows("a", "uniform", 6, range(4), rows),
        BlockDraws(7).rows("b", "uniform", 6, range(4), rows),
        BlockDraws(7).rows("a", "uniform", 6, range(4), rows + np.uint64(1)),
    ):
        assert not (other == whole).any()


def test_draws_of_keys_are_those_of_splitmix64():
    # the first outputs of the reference implementation (Vigna, splitmix64.c) from the state 1234567
    reference = [6457827717110365317, 3203168211198807973, 9817491932198370423, 4593380528125082431]
    state = np.uint64(1234567)
    steps = np.arange(1, 5).astype(np.uint64) * np.uint64(GAMMA)
    assert _mixed(state + steps).tolist() == reference


@pytest.mark.parametrize("law", ["uniform", "normal"])
def test_draws_of_keys_have_their_law_and_are_uncorrelated(law):
    draws = BlockDraws(3).rows("a", law, 50, range(10), np.arange(500).astype(np.uint64)).numpy().astype(np.float64)
    distribution = stats.uniform() if law == "uniform" else stats.norm()
    assert stats.kstest(draws.ravel(), distribution.cdf).pvalue > 0.001
    for axis in range(3):  # neighbours among samples, rows and units
        first, second = (
            np.take(draws, range(draws.shape[axis] - 1), axis),
            np.take(draws, range(1, draws.shape[axis]), axis),
        )
        correlation = np.corrcoef(first.ravel(), second.ravel())[0, 1]
        assert abs(correlation) < 4 / np.sqrt(first.size)
