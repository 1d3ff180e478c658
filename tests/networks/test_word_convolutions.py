"""The largest values over time: those of a sort, and under dropout with the distribution of drawn masks."""

import numpy as np
import pytest
import torch

from dubio.networks.noise import Dropout
from dubio.networks.word_convolutions import Maps, PickOverTime, RankOverTime, largest


@pytest.mark.parametrize(("length", "depth"), [(1, 1), (9, 1), (9, 4), (3, 8), (40, 24)])
def test_largest_values_are_those_of_a_sort(length, depth):
    values = torch.randn(3, length, 7, generator=torch.Generator().manual_seed(length))
    values[0, length // 2 :] = -torch.inf
    expected = values.sort(dim=1, descending=True).values[:, :depth].transpose(1, 2)
    assert torch.equal(largest(values, depth), expected)
    assert torch.equal(largest(values.clone().requires_grad_(), depth).detach(), expected)


def picked(values, p, samples, seed):
    """Samples of the ranking and picking stages on one map ``[L]``."""
    pick = PickOverTime((1,), 1)
    noise = Dropout(1, p).eval()
    noise.sampling = True
    pick.sites[0].noise = noise
    ranked = RankOverTime(pick)(Maps((values.reshape(1, -1, 1),)))
    noise.given = torch.rand(samples, 1, generator=torch.Generator().manual_seed(seed))
    return pick(ranked)[:, 0].numpy()


@pytest.mark.parametrize("p", [0.1, 0.5, 0.8])
@pytest.mark.parametrize("length", [1, 3, 60])
def test_order_statistics_have_the_distribution_of_drawn_masks(p, length):
    """P(max of survivors = j-th largest) = (1 − p)p^(j−1), P(none survives) = p^L: exactly, and by masks."""
    values = torch.rand(length, generator=torch.Generator().manual_seed(length)) + 0.1
    samples = 100_000
    ours = picked(values, p, samples, seed=1)
    masks = np.random.default_rng(2).random((samples, length)) >= p
    drawn = (values.numpy() * masks).max(axis=1) / (1 - p)
    ordered = np.sort(values.numpy())[::-1] / (1 - p)
    for j in range(min(length, 6)):
        exact = (1 - p) * p**j
        slack = 5 * np.sqrt(exact / samples) + 1e-9
        assert np.isclose(ours, ordered[j], atol=1e-6).mean() == pytest.approx(exact, abs=slack)
        assert np.isclose(drawn, ordered[j], atol=1e-6).mean() == pytest.approx(exact, abs=slack)
    assert (ours == 0).mean() == pytest.approx(p**length, abs=5 * np.sqrt(p**length / samples) + 1e-9)
    assert ours.mean() == pytest.approx(drawn.mean(), abs=5 * drawn.std() / np.sqrt(samples / 2) + 1e-9)
