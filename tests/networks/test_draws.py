"""Draws in blocks of rows: reproducible, and of the law that they are asked for."""

import numpy as np
import pytest
import torch

from dubio.networks.draws import BLOCK, BlockDraws


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
