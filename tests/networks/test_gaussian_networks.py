"""Networks with Gaussian weights: what they predict, which layers they offer, what is refused."""

import math

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

from dubio.core.errors import UserError
from dubio.inference.engine import plain_passes, shared_prefix
from dubio.networks import draws as drawing
from dubio.networks.cnn import cnn
from dubio.networks.draws import BlockDraws
from dubio.networks.gaussian_weights import (
    GaussianConv2d,
    GaussianLinear,
    GaussianWeights,
    gaussian_layers,
)
from dubio.networks.heads.heteroscedastic import Heteroscedastic
from dubio.networks.heads.softmax import Softmax
from dubio.networks.mlp import mlp
from dubio.networks.network import Model
from dubio.networks.noise import DropoutEdit, fill
from dubio.networks.spectral import SpectralNorm, fill_weights
from dubio.networks.textcnn import textcnn
from dubio.networks.textcnn_v2 import textcnn_v2
from dubio.testing.samples import batch_of, of_mixed_length
from tests.networks.seeded_layers import normals, seeded

# -- prediction


def made(build, edit=None, head=None, **options):
    network = seeded(build)
    model = seeded(lambda: Model(network, (head or Softmax()).build(network.width, 3)))
    if edit is not None:
        fill(model, edit)
    GaussianWeights(**{"log_sigma": -1.5, **options}).put_on(model.network, model.head)
    return model.eval()


NETWORKS = {
    "mlp": (lambda: mlp((7,), hidden=(6, 5)), "table"),
    "cnn": (lambda: cnn((1, 8, 8), channels=(3, 4), dense=6), "image"),
    "textcnn-v2": (lambda: textcnn_v2((40,), embedding=6, maps=4, kernels=(2, 3)), "text"),
}


@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize("edit", [None, DropoutEdit(0.4)])
def test_samples_do_not_depend_on_the_batch_and_are_those_of_whole_passes(name, edit):
    build, inputs = NETWORKS[name]
    model, encoded = made(build, edit), of_mixed_length(inputs, 12, 0)
    rows = np.arange(12) * 40  # in several blocks

    def passes(way, chosen):
        with torch.inference_mode():
            chunks = way(model, batch_of(encoded, chosen), BlockDraws(5), rows[chosen], 6)
        return torch.cat([chunk.logits for chunk in chunks]).reshape(6, len(chosen), 3)

    whole = passes(shared_prefix, np.arange(12))
    assert torch.allclose(whole, passes(plain_passes, np.arange(12)), atol=1e-5)
    parts = torch.cat([passes(shared_prefix, np.arange(i, i + 4)) for i in (0, 4, 8)], dim=1)
    assert torch.allclose(whole, parts, atol=1e-5)
    assert whole.std(0).min() > 1e-3
    assert all(layer.given is None for layer in model.gaussians())


def test_a_sample_is_one_set_of_weights_from_the_posterior():
    model = made(lambda: mlp((3,), hidden=(4,)))
    layer, samples = model.gaussians()[0], 4000
    draws = BlockDraws(1)
    with torch.inference_mode():
        weights = torch.stack([layer.drawn(draws.shared(layer.place, 12, s)) for s in range(samples)])
    sigma = math.exp(-1.5)
    assert ((weights.mean(0) - layer.weight) / sigma).abs().max() < 5 / math.sqrt(samples)
    assert torch.allclose(weights.std(0), torch.full((4, 3), sigma), rtol=0.07)
    correlation = torch.corrcoef(weights.flatten(1).T)
    assert (correlation - torch.eye(12)).abs().max() < 5.5 / math.sqrt(samples)
    batch, rows = normals(5, 3), np.arange(5)
    with torch.inference_mode():
        found = shared_prefix(model, batch, BlockDraws(1), rows, 3)[2].logits
        first, last = (one.drawn(draws.shared(one.place, one.weight.numel(), 2)) for one in model.gaussians())
        hidden = torch.relu(functional.linear(batch, first, layer.bias))
        wanted = functional.linear(hidden, last, model.head.linear.bias)
    assert torch.allclose(found, wanted, atol=1e-6)


def test_what_is_remembered_of_draws_is_bounded_and_changes_nothing(monkeypatch):
    rows = np.arange(300)
    whole = BlockDraws(0)
    wanted = [whole.rows("a", "uniform", 7, range(2), rows), whole.shared("b", 50, 1)]
    monkeypatch.setattr(drawing, "KEPT_ELEMENTS", 0)
    small = BlockDraws(0)
    for _ in range(2):
        assert torch.equal(small.rows("a", "uniform", 7, range(2), rows), wanted[0])
        assert torch.equal(small.shared("b", 50, 1), wanted[1])
    assert small._elements == 0


def test_a_deterministic_pass_uses_the_means():
    build, _ = NETWORKS["cnn"]
    model, network = made(build), seeded(build)
    plain = seeded(lambda: Model(network, Softmax().build(network.width, 3))).eval()
    batch = normals(4, 1, 8, 8)
    with torch.inference_mode():
        assert torch.equal(model(batch), plain(batch))


def test_heads_offer_their_layers():
    model = made(lambda: mlp((3,), hidden=(4,)), head=Heteroscedastic())
    assert [layer.place for layer in model.gaussians()] == ["network.stages.0.linear", "head.mu", "head.log_variance"]
    assert {type(layer) for layer in made(NETWORKS["cnn"][0]).gaussians()} == {GaussianConv2d, GaussianLinear}


def test_what_cannot_be_gaussian_is_refused():
    with pytest.raises(UserError, match=r"offers no layer for 'gaussian_weights'; mlp, cnn"):
        made(lambda: textcnn((20,), embedding=4, maps=3))
    bounded = mlp((3,), hidden=(4,))
    fill_weights(bounded, SpectralNorm(1.0))
    with pytest.raises(UserError, match="without another edit such as spectral_norm"):
        GaussianWeights().put_on(bounded, nn.Module())
    for wrong in ({"l2": 0.0}, {"beta": -1.0}, {"anneal": 1.5}, {"estimator": "flip"}):
        with pytest.raises(UserError, match=next(iter(wrong))):
            GaussianWeights(**wrong)
    assert gaussian_layers(mlp((3,), hidden=(4,))) == []
