"""A file gives its tensors back in any order; what is drawn must not depend on it."""

import torch

from dubio.inference.laplace import LaplaceGaussian
from dubio.inference.laplace_blocks import diagonal_block
from dubio.inference.weight_draws import LowRankGaussian, generator_of
from dubio.networks.linear_maps import WeightMatrix

SHAPES = {"b.weight": (2, 3), "b.bias": (2,), "a.weight": (4, 2)}


def turned(named):
    return dict(reversed(named.items()))


def equal(one, other):
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


def test_swag_draws_the_same():
    generator = torch.Generator().manual_seed(0)
    mean = {name: torch.randn(shape, generator=generator) for name, shape in SHAPES.items()}
    variance = {name: torch.rand(shape, generator=generator) for name, shape in SHAPES.items()}
    deviations = {name: torch.randn((2, *shape), generator=generator) for name, shape in SHAPES.items()}
    read = LowRankGaussian(mean, variance, deviations)
    other = LowRankGaussian(turned(mean), turned(variance), turned(deviations))
    assert equal(read.draw(generator_of(0, 1)), other.draw(generator_of(0, 1)))


def test_laplace_draws_the_same():
    point = {name: torch.zeros(shape) for name, shape in SHAPES.items()}
    matrices = [WeightMatrix("b.weight", "b.bias", (2, 3)), WeightMatrix("a.weight", None, (4, 2))]
    blocks = tuple(diagonal_block(matrix, torch.ones(matrix.size, dtype=torch.float64), 10) for matrix in matrices)
    draws = [LaplaceGaussian(point, some, 1.0).draw(generator_of(0, 1)) for some in (blocks, blocks[::-1])]
    assert equal(*draws)
