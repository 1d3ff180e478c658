"""The Laplace approximation's Gaussians against dense matrices, and its evidence against closed forms."""

import math

import numpy as np
import pytest
import torch
from scipy.optimize import minimize_scalar
from scipy.stats import multivariate_normal
from torch import nn

from dubio.inference.laplace import LaplaceGaussian, diagonal_block, full_block, kronecker_block
from dubio.networks.heads.linear import Softmax
from dubio.networks.linear_maps import WeightMatrix, linear_maps
from dubio.networks.network import Model, Network
from dubio.training.laplace.selection import best_prior, log_evidence

N = 50


def spread(size, seed, rank=None):
    root = torch.randn(size, rank or size, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return root @ root.T / size


def model_of():
    network = Network([nn.Linear(2, 3)], 3)
    return Model(network, Softmax().build(3, 2))


def matrix_of(model):
    return linear_maps(model)["network.stages.0"]


def blocks_of(model):
    """Blocks of the first layer, with the dense precision N·F + δ·I that each stands for."""
    matrix = matrix_of(model)
    a, g = spread(3, 0, rank=2), spread(3, 1)
    fisher, values = spread(9, 2), spread(9, 3).diagonal().reshape(3, 3)
    share = math.sqrt(N * float(a.trace()) / float(g.trace()))
    eye, whole = torch.eye(3, dtype=torch.float64), torch.eye(9, dtype=torch.float64)

    def split(d):
        return torch.kron(g + math.sqrt(d) / share * eye, N * a + math.sqrt(d) * share * eye)

    return {
        "kron": (kronecker_block(matrix, a, g, N), lambda d: N * torch.kron(g, a) + d * whole),
        "kron-pi": (kronecker_block(matrix, a, g, N, "pi"), split),
        "diag": (diagonal_block(matrix, values, N), lambda d: torch.diag(N * values.flatten() + d)),
        "full": (full_block(matrix, fisher, N), lambda d: N * fisher + d * whole),
    }


KINDS = ("kron", "kron-pi", "diag", "full")


@pytest.mark.parametrize("kind", KINDS)
def test_the_eigenvalues_and_the_eigenbasis_are_those_of_the_dense_precision(kind):
    block, dense = blocks_of(model_of())[kind]
    for prior in (1e-3, 0.7, 40.0):
        values = block.precision(prior)
        basis = torch.stack([block.rotated(unit.reshape(3, 3)).flatten() for unit in torch.eye(9)], dim=1).double()
        torch.testing.assert_close(basis @ torch.diag(values.flatten()) @ basis.T, dense(prior), rtol=1e-5, atol=1e-4)
        assert float(values.log().sum()) == pytest.approx(float(torch.logdet(dense(prior))), rel=1e-4)


@pytest.mark.parametrize("kind", KINDS)
def test_draws_have_the_inverse_precision_as_their_covariance(kind):
    model = model_of()
    block, dense = blocks_of(model)[kind]
    point = block.matrix.scatter(block.matrix.gather(dict(model.named_parameters())).detach())
    scale, prior, draws = 0.5, 0.7, 4_000
    gaussian = LaplaceGaussian(point, (block,), prior, scale)
    generator = torch.Generator().manual_seed(0)
    found = torch.stack([block.matrix.gather(gaussian.draw(generator)).flatten() for _ in range(draws)]).double()
    wanted = scale**2 * torch.linalg.inv(dense(prior))
    torch.testing.assert_close(
        found.mean(0),
        block.matrix.gather(point).flatten().double(),
        rtol=0,
        atol=float(wanted.diagonal().max()) ** 0.5 / 12,
    )
    error = (wanted.diagonal()[:, None] * wanted.diagonal() + wanted**2).sqrt() / math.sqrt(draws)
    assert ((torch.cov(found.T) - wanted).abs() < 5 * error).all()


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_stored_draws_the_same(kind):
    model = model_of()
    block, _ = blocks_of(model)[kind]
    point = block.matrix.scatter(block.matrix.gather(dict(model.named_parameters())).detach())
    gaussian = LaplaceGaussian(point, (block,), 0.7, 0.3)
    again = LaplaceGaussian.from_tensors(gaussian.tensors(), model, "pi" if kind == "kron-pi" else "exact")
    one, other = (g.draw(torch.Generator().manual_seed(4)) for g in (gaussian, again))
    assert all(torch.equal(one[name], other[name]) for name in point)
    assert again.centre().keys() == point.keys()
    wider = gaussian.scaled(0.6).draw(torch.Generator().manual_seed(4))
    name = block.matrix.weight
    torch.testing.assert_close(wider[name] - point[name], 2 * (one[name] - point[name]))


def test_a_weight_and_its_bias_make_one_matrix_wherever_the_outputs_are():
    generator = torch.Generator().manual_seed(0)
    state = {"w": torch.randn(2, 4, 3, generator=generator), "b": torch.randn(3, generator=generator)}
    last = WeightMatrix("w", "b", (2, 4, 3), outputs=2)
    assert last.size == (3, 9)
    inputs = torch.randn(2, 4, generator=generator)
    wanted = torch.einsum("jef,je->f", state["w"], inputs) + state["b"]
    torch.testing.assert_close(last.gather(state) @ torch.cat([inputs.flatten(), torch.ones(1)]), wanted)
    for matrix in (last, WeightMatrix("w", None, (2, 4, 3))):
        back = matrix.scatter(matrix.gather(state))
        assert all(torch.equal(back[name], state[name]) for name in matrix.names)


def gaussian_regression():
    """y = X θ + noise: a model whose Laplace approximation is its posterior. Inputs, outputs, one block, its θ*(δ)."""
    rng = np.random.default_rng(0)
    x, truth = rng.normal(size=(40, 6)), rng.normal(size=6) * 0.6
    y = x @ truth + rng.normal(size=40)
    block = full_block(WeightMatrix("w", None, (1, 6)), torch.from_numpy(x.T @ x / 40), 40)

    def evidence(prior):
        mean = np.linalg.solve(x.T @ x + prior * np.eye(6), x.T @ y)
        likelihood = multivariate_normal(np.zeros(40), np.eye(40)).logpdf(y - x @ mean)
        return log_evidence([block], prior, log_likelihood=likelihood, squared_norm=float(mean @ mean))

    return x, y, block, evidence


@pytest.mark.parametrize("prior", [0.01, 1.0, 30.0])
def test_the_evidence_of_a_gaussian_model_is_its_marginal_likelihood(prior):
    x, y, _, evidence = gaussian_regression()
    exact = multivariate_normal(np.zeros(40), np.eye(40) + x @ x.T / prior).logpdf(y)
    assert evidence(prior) == pytest.approx(exact, rel=1e-6)


@pytest.mark.parametrize("kind", KINDS)
def test_the_best_prior_is_the_optimum_of_the_dense_evidence(kind):
    block, dense = blocks_of(model_of())[kind]

    def cost(exponent):
        prior = 10.0**exponent
        return 0.5 * (prior * 3.0 + float(torch.logdet(dense(prior))) - 9 * math.log(prior))

    wanted = minimize_scalar(cost, bounds=(-4, 8), method="bounded", options={"xatol": 1e-8})
    found = best_prior((block,), squared_norm=3.0)
    assert math.log10(found) == pytest.approx(wanted.x, abs=2e-3)


def test_the_norm_counts_the_weights_that_are_random():
    layer = nn.Linear(3, 2)
    gaussian = LaplaceGaussian({"w": layer.weight.detach(), "b": layer.bias.detach()}, (), 1.0)
    wanted = sum(float((p.detach() ** 2).sum()) for p in layer.parameters())
    assert gaussian.squared_norm() == pytest.approx(wanted, rel=1e-6)


def test_untransposed_factors_give_the_covariance_of_the_wrong_product():
    """L⁻¹ z has the covariance (Lᵀ L)⁻¹, with L the Cholesky factor of the damped precision."""
    matrix, a, g, prior = matrix_of(model_of()), spread(3, 0, rank=2), spread(3, 1), 0.7
    block = kronecker_block(matrix, a, g, N, "pi_untransposed")
    dense = blocks_of(model_of())["kron-pi"][1](prior)
    factor = torch.linalg.cholesky(dense)
    units = torch.eye(9, dtype=torch.float64)
    root = torch.stack([block.deviation(unit.reshape(3, 3), prior).flatten() for unit in units], dim=1)
    torch.testing.assert_close(root @ root.T, torch.linalg.inv(factor.T @ factor), rtol=1e-4, atol=1e-6)
    assert not torch.allclose(root @ root.T, torch.linalg.inv(dense), rtol=1e-2)


def test_sums_instead_of_averages_count_every_example_again():
    a, g = spread(3, 0), spread(3, 1)
    block = kronecker_block(matrix_of(model_of()), a, g, N, sums=True)
    dense = N**2 * torch.kron(g, a) + 0.7 * torch.eye(9, dtype=torch.float64)
    assert float(block.precision(0.7).log().sum()) == pytest.approx(float(torch.logdet(dense)), rel=1e-5)
