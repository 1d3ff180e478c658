"""Spectral normalisation against numpy's singular values."""

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

from dubio.core.errors import UserError
from dubio.networks.cnn import cnn
from dubio.networks.mlp import mlp
from dubio.networks.network import Stage
from dubio.networks.spectral import SpectralBound, SpectralNorm, bounded_layers
from dubio.networks.textcnn import textcnn
from dubio.networks.textcnn_v2 import textcnn_v2
from tests.networks.helpers import SMALL, image_model


def made(build, seed=0):
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return build()


def largest(weight):
    return np.linalg.svd(weight.detach().numpy().reshape(len(weight), -1), compute_uv=False)[0]


@pytest.mark.parametrize(
    "network",
    [
        lambda: mlp((7,), hidden=(30, 20)),
        lambda: cnn((2, 8, 8), channels=(5, 6), dense=9),
        lambda: textcnn_v2((40,), embedding=12, maps=10, kernels=(2, 3)),
    ],
    ids=["mlp", "cnn", "textcnn-v2"],
)
@pytest.mark.parametrize("s", [0.3, 0.9])
def test_no_weight_in_use_is_larger_than_the_bound(network, s):
    model = made(network)
    for layer in bounded_layers(model):
        with torch.no_grad():
            layer.weight.mul_(5.0)
    made(lambda: SpectralNorm(s).apply(model))
    model.train()
    layers = list(bounded_layers(model))
    assert layers
    for layer in layers:
        for _ in range(200):  # the vectors follow the weight, one iteration a training pass
            layer.weight  # noqa: B018
    model.eval()
    for layer in layers:
        assert largest(layer.weight) <= s * (1 + 1e-3)
        assert largest(layer.weight) == pytest.approx(s, rel=1e-3)


def test_the_bound_holds_while_the_weight_is_trained():
    layer = made(lambda: nn.Linear(12, 10))
    holder = Stage()
    holder.layer, holder.bounds = layer, ("layer",)
    made(lambda: SpectralNorm(1.0).apply(holder))
    optimiser = torch.optim.Adam(layer.parameters(), lr=0.02)
    inputs = torch.randn(64, 12, generator=torch.Generator().manual_seed(1))
    for _ in range(300):  # the larger the outputs, the smaller the loss
        optimiser.zero_grad()
        (-(layer(inputs) ** 2).mean()).backward()
        optimiser.step()
    layer.eval()
    assert largest(layer.weight) == pytest.approx(1.0, rel=1e-3)


def test_a_weight_below_the_bound_stays_as_it_is():
    weight = torch.randn(9, 4, 3, generator=torch.Generator().manual_seed(0))
    bound = SpectralBound(weight, float(largest(weight)) * 1.01)
    assert torch.equal(bound(weight), weight)
    assert torch.equal(SpectralBound(torch.zeros(3, 2), 1.0)(torch.zeros(3, 2)), torch.zeros(3, 2))


def test_eval_mode_leaves_the_vectors_and_the_store_keeps_them():
    model = made(lambda: mlp((5,), hidden=(6,)))
    made(lambda: SpectralNorm(0.5).apply(model))
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    assert {name.rpartition(".")[2] for name in before} >= {"u", "v", "original"}
    model.eval()
    model(torch.ones(2, 5))
    assert all(torch.equal(before[name], tensor) for name, tensor in model.state_dict().items())
    with torch.no_grad():
        next(bounded_layers(model)).parametrizations.weight.original.add_(1.0)
    model.train()
    model(torch.ones(2, 5))
    moved = [name for name, tensor in model.state_dict().items() if not torch.equal(before[name], tensor)]
    assert {name.rpartition(".")[2] for name in moved} == {"u", "v", "original"}


def test_the_gradient_is_that_of_the_formula():
    weight = torch.randn(4, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(3))
    bound = SpectralBound(weight.float(), 0.7).double().eval()
    for _ in range(300):
        bound.iterate(weight)
    given = weight.clone().requires_grad_()
    target = torch.arange(24.0, dtype=torch.float64).reshape(4, 6)
    (bound(given) * target).sum().backward()
    exact = weight.clone().requires_grad_()
    (exact * (0.7 / torch.linalg.matrix_norm(exact, 2)) * target).sum().backward()
    assert torch.allclose(given.grad, exact.grad, rtol=1e-6, atol=1e-8)


def test_a_convolution_is_bounded_by_the_root_of_its_positions():
    # the convolution written out as a matrix, column by column
    weight = torch.randn(3, 2, 3, 3, generator=torch.Generator().manual_seed(5))
    unit = torch.eye(2 * 36).reshape(-1, 2, 6, 6)
    matrix = functional.conv2d(unit, weight, padding=1).flatten(1).T.numpy()
    norm = np.linalg.svd(matrix, compute_uv=False)[0]
    assert norm <= np.sqrt(9) * largest(weight) * (1 + 1e-6)


def test_a_network_that_offers_nothing_is_refused():
    with pytest.raises(UserError, match="offers no weight for 'spectral_norm'"):
        SpectralNorm(1.0).apply(textcnn((20,), embedding=4, maps=3))
    with pytest.raises(UserError, match=r"s must be .* above 0"):
        SpectralNorm(0.0)


@pytest.mark.parametrize("name", SMALL)
def test_spectral_bounds_cover_all_convolutions_and_hidden_layers(name):
    model = image_model(name)
    layers = [m for m in model.network.modules() if isinstance(m, nn.Conv2d | nn.Linear)]
    SpectralNorm(0.5).apply(model)
    assert sum(isinstance(m, SpectralBound) for m in model.modules()) == len(layers)
    for layer in layers:
        assert torch.linalg.matrix_norm(layer.weight.detach().flatten(1), 2) < 0.53  # by power iteration
