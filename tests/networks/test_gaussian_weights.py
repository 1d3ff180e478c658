"""Gaussian weights: both estimators against brute force and closed forms, the KL divergence, a known posterior.

Networks with Gaussian weights: what they predict, which layers they offer, what is refused.
"""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import torch
from torch import nn
from torch.distributions import Normal, kl_divergence
from torch.nn import functional

from dubio.core.errors import UserError
from dubio.inference.engine import plain_passes, shared_prefix
from dubio.networks import draws as drawing
from dubio.networks.cnn import cnn
from dubio.networks.draws import BlockDraws
from dubio.networks.gaussian_weights import GaussianConv2d, GaussianLinear, GaussianWeights, divergence
from dubio.networks.heads.heteroscedastic import Heteroscedastic
from dubio.networks.heads.linear import Softmax
from dubio.networks.mlp import mlp
from dubio.networks.network import HeadModule, Model, Network, Stage, random_layers
from dubio.networks.noise import DropoutEdit
from dubio.networks.spectral import SpectralNorm
from dubio.networks.textcnn import textcnn
from dubio.networks.textcnn_v2 import textcnn_v2
from dubio.testing.sites import batch_of, of_mixed_length
from dubio.training.optimisers import SGD, Adam, MeanAndScale
from tests.networks.helpers import SMALL, image_logits, image_model, lived_in, nearly_equal, normals, seeded

REPEATS = 6000


class OneLayer(Stage):
    """One layer that offers itself."""

    uncertain = ("layer",)

    def __init__(self, layer):
        super().__init__()
        self.layer = layer

    def forward(self, h):
        return self.layer(h)


def gaussian(layer, seed=0, spread=0.3, **options):
    """The layer with Gaussian weights of different deviations, in training mode."""
    stage = OneLayer(seeded(layer))
    GaussianWeights(**options).apply(Model(Network([stage], 1), nn.Module()))
    generator = torch.Generator().manual_seed(seed)
    stage.layer.generator = generator
    with torch.no_grad():
        stage.layer.log_sigma.add_(5.0 + torch.randn(stage.layer.log_sigma.shape, generator=generator) * spread - 1.0)
    return stage.layer.train()


def dense(**options):
    return gaussian(lambda: nn.Linear(3, 2), **options), normals(2, 3)


def conv(**options):
    return gaussian(lambda: nn.Conv2d(2, 3, 3, padding=1), **options), normals(2, 2, 4, 4)


def marginal_variance(layer, h):
    """Of the outputs when every example had weights of its own: Σ h² σ²."""
    return layer.with_weight(h * h, torch.exp(2 * layer.log_sigma), None).detach()


# -- Flipout


@pytest.mark.parametrize("build", [dense, conv])
def test_flipout_gives_each_example_the_weights_of_its_signs(build, monkeypatch):
    layer, h = build()
    signs, change = [], []
    draw_signs, draw_normals = layer._signs, layer._normals
    monkeypatch.setattr(layer, "_signs", lambda *a: signs.append(draw_signs(*a)) or signs[-1], raising=False)
    monkeypatch.setattr(layer, "_normals", lambda like: change.append(draw_normals(like)) or change[-1], raising=False)
    found = layer(h)
    s, r = (one.reshape(2, -1) for one in signs)
    assert set(torch.cat([s.flatten(), r.flatten()]).tolist()) == {-1.0, 1.0}
    for b in range(2):
        flips = torch.einsum("o,i->oi", r[b], s[b]).reshape(len(r[b]), len(s[b]), *([1] * (h.ndim - 2)))
        weight = layer.weight + torch.exp(layer.log_sigma) * change[0] * flips
        alone = layer.with_weight(h[b : b + 1], weight, layer.bias)
        assert torch.allclose(found[b : b + 1], alone, atol=1e-5)


def test_over_all_signs_two_examples_are_uncorrelated_and_each_has_the_variance_of_its_own_draw(monkeypatch):
    """Exact: every combination of signs once, for one ΔW."""
    layer = gaussian(lambda: nn.Linear(2, 2, bias=False))
    h, change = normals(2, 2).double(), normals(2, 2, seed=3).double()
    layer.double()
    monkeypatch.setattr(layer, "_normals", lambda like: change, raising=False)
    deltas = []
    for bits in itertools.product((-1.0, 1.0), repeat=8):
        given = iter(torch.tensor(bits, dtype=torch.float64).reshape(2, 2, 2))
        monkeypatch.setattr(layer, "_signs", lambda *a, given=given: next(given), raising=False)
        deltas.append((layer(h) - layer.with_weight(h, layer.weight, None)).detach())
    deltas = torch.stack(deltas)
    between = torch.einsum("ni,nj->ij", deltas[:, 0], deltas[:, 1]) / len(deltas)
    assert torch.allclose(between, torch.zeros(2, 2, dtype=torch.float64), atol=1e-14)
    within = torch.einsum("nbi,nbj->bij", deltas, deltas) / len(deltas)
    scale = (torch.exp(layer.log_sigma) * change).detach() ** 2
    for b in range(2):
        assert torch.allclose(within[b], torch.diag(scale @ (h[b] ** 2)), atol=1e-14)


@pytest.mark.parametrize("build", [dense, conv])
def test_flipout_has_the_moments_of_independent_draws(build):
    layer, h = build()
    with torch.no_grad():
        mean = layer.with_weight(h, layer.weight, layer.bias)
        deltas = torch.stack([layer(h) - mean for _ in range(REPEATS)]).flatten(2)
    variance = marginal_variance(layer, h).flatten(1)
    assert torch.allclose(deltas.var(0), variance, rtol=0.15)
    deviation = variance.sqrt()
    # a correlation of uncorrelated values has a standard error of 1/√REPEATS
    correlation = torch.einsum("ni,nj->ij", deltas[:, 0], deltas[:, 1]) / REPEATS
    correlation /= torch.outer(deviation[0], deviation[1])
    assert correlation.abs().max() < 5.5 / math.sqrt(REPEATS)
    assert (deltas.mean(0) / deviation).abs().max() < 5 / math.sqrt(REPEATS)


def test_flipout_keeps_the_covariance_between_positions_and_local_reparameterisation_does_not():
    moments = {}
    for estimator in ("flipout", "local_reparameterisation"):
        layer, h = conv(estimator=estimator)
        with torch.no_grad():
            out = torch.stack([layer(h[:1]) for _ in range(REPEATS)])[:, 0, 0]
        moments[estimator] = torch.cov(out.flatten(1).T)
    unfolded = functional.unfold(h[:1], 3, padding=1)[0]  # [weights, positions]
    exact = unfolded.T @ (torch.exp(2 * layer.log_sigma[0].detach()).reshape(-1, 1) * unfolded)
    assert torch.allclose(moments["flipout"], exact, atol=0.12 * float(exact.max()))
    diagonal = torch.diag(torch.diag(exact))
    assert torch.allclose(moments["local_reparameterisation"], diagonal, atol=0.12 * float(exact.max()))
    assert (exact - diagonal).abs().max() > 0.3 * exact.max()


# -- local reparameterisation


@pytest.mark.parametrize("build", [dense, conv])
def test_local_reparameterisation_has_the_mean_and_variance_of_the_output(build):
    layer, h = build(estimator="local_reparameterisation")
    rows = 20000
    with torch.no_grad():
        out = layer(h[:1].expand(rows, *h.shape[1:]))
        mean = layer.with_weight(h[:1], layer.weight, layer.bias)[0]
    variance = marginal_variance(layer, h[:1])[0]
    assert ((out.mean(0) - mean) / variance.sqrt()).abs().max() < 5 / math.sqrt(rows)
    assert torch.allclose(out.var(0), variance, rtol=0.06)
    # examples are independent: halves of the batch do not correlate
    one, two = (half - mean for half in out.chunk(2))
    assert ((one * two).mean(0) / variance).abs().max() < 5 / math.sqrt(rows / 2)


@pytest.mark.parametrize(("build", "exact"), [(dense, "local_reparameterisation"), (conv, "flipout")])
def test_mixed_is_the_exact_estimator_of_each_sort_of_layer(build, exact):
    outputs = []
    for estimator in ("mixed", exact):
        layer, h = build(estimator=estimator)
        layer.generator = torch.Generator().manual_seed(7)
        with torch.no_grad():
            outputs.append(layer(h))
    assert torch.equal(*outputs)


def test_an_input_of_zeros_has_a_finite_gradient():
    layer, h = dense(estimator="local_reparameterisation")
    layer(torch.zeros_like(h)).sum().backward()
    assert all(torch.isfinite(p.grad).all() for p in layer.parameters())


# -- the KL divergence


def test_the_divergence_and_decay_are_the_kl_of_two_gaussians():
    mu, log_sigma, precision = normals(5, 4).double(), normals(5, 4, seed=2).double(), 37.5
    exact = kl_divergence(Normal(mu, log_sigma.exp()), Normal(torch.zeros(()).double(), precision**-0.5)).sum()
    assert torch.allclose(divergence(log_sigma, precision) + 0.5 * precision * (mu**2).sum(), exact)


def test_the_loss_holds_the_kl_once_and_decay_is_not_scaled_by_beta():
    examples, l2 = 50, 0.02
    exact = {}
    for beta in (1.0, 0.1):
        body = mlp((3,), hidden=(4,))
        model = Model(body, Softmax().build(4, 2))
        GaussianWeights(l2, log_sigma=-1.0, beta=beta).apply(model)
        optimiser = MeanAndScale(Adam(1e-3, l2), 1e-3).build(model)
        decayed = [p for group in optimiser.param_groups if group["weight_decay"] == l2 for p in group["params"]]
        assert {id(p) for p in decayed} == {id(p) for n, p in model.named_parameters() if "log_sigma" not in n}
        means = [layer.weight for layer in model.gaussians()]
        mu2 = 0.5 * l2 * sum(float((mu**2).sum().detach()) for mu in means)
        prior = Normal(torch.zeros(()), (examples * l2) ** -0.5)
        kl = sum(float(kl_divergence(Normal(mu.detach(), math.exp(-1.0)), prior).sum()) for mu in means)
        exact[beta] = (float(model.penalty(examples).detach()), kl / examples - mu2)
    assert exact[1.0][0] == pytest.approx(exact[1.0][1], rel=1e-5)
    assert exact[0.1][0] == pytest.approx(0.1 * exact[0.1][1], rel=1e-5)


def test_beta_rises_over_its_part_of_the_steps():
    layer = gaussian(lambda: nn.Linear(2, 2), anneal=0.5)
    whole = float(layer.penalty(10, 1.0).detach())
    wanted = {0.0: 0.0, 0.125: 0.25, 0.25: 0.5, 0.5: 1.0, 0.9: 1.0}
    for progress, share in wanted.items():
        assert float(layer.penalty(10, progress).detach()) == pytest.approx(share * whole, abs=1e-6)


# -- a posterior that is known


@pytest.mark.parametrize("estimator", ["flipout", "local_reparameterisation", "mixed"])
@pytest.mark.parametrize("optimiser", [Adam(0.02, 0.05), SGD(0.02, l2=0.05)])
def test_a_conjugate_linear_model_comes_out_with_its_closed_form_posterior(estimator, optimiser):
    """y = x·w + noise: with orthogonal columns the posterior is N(Λ⁻¹Xᵀy/s², Λ⁻¹), Λ = XᵀX/s² + N·l2 diagonal."""
    rows, noise, l2 = 64, 0.7, 0.05
    columns = np.linalg.qr(np.random.default_rng(0).normal(size=(rows, 3)))[0] * np.array([4.0, 8.0, 12.0])
    truth = np.array([0.5, -1.0, 2.0])
    targets = columns @ truth + noise * np.random.default_rng(1).normal(size=rows)
    precision = columns.T @ columns / noise**2 + rows * l2 * np.eye(3)
    mean = np.linalg.solve(precision, columns.T @ targets / noise**2)
    model = Model(Network([OneLayer(nn.Linear(3, 1, bias=False))], 1), HeadModule())
    GaussianWeights(l2, log_sigma=-2.0, estimator=estimator).apply(model)
    (layer,) = model.gaussians()
    layer.generator = torch.Generator().manual_seed(0)
    part = MeanAndScale(optimiser, 0.02)
    steps = part.build(model)
    x, y = torch.from_numpy(columns).float(), torch.from_numpy(targets).float()
    kept = []
    for step in range(1500):
        part.set_factor(steps, 1.0 if step < 750 else 0.2)
        loss = ((y - model.network(x)[:, 0]) ** 2).mean() / (2 * noise**2) + model.penalty(rows)
        steps.zero_grad()
        loss.backward()
        steps.step()
        if step >= 750:
            kept.append(torch.cat([layer.weight.detach().clone(), layer.log_sigma.detach().clone()]))
    found = torch.stack(kept).mean(0).numpy()
    deviation = np.sqrt(1 / np.diag(precision))
    assert np.allclose(found[0], mean, atol=0.15 * deviation.max())
    assert np.allclose(np.exp(found[1]), deviation, rtol=0.06)


# -- prediction


def made(build, edit=None, head=None, **options):
    network = seeded(build)
    model = seeded(lambda: Model(network, (head or Softmax()).build(network.width, 3)))
    if edit is not None:
        edit.apply(model)
    GaussianWeights(**{"log_sigma": -1.5, **options}).apply(model)
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
        return chunks.logits.flatten(0, 1).reshape(6, len(chosen), 3)

    whole = passes(shared_prefix, np.arange(12))
    assert torch.allclose(whole, passes(plain_passes, np.arange(12)), atol=1e-5)
    parts = torch.cat([passes(shared_prefix, np.arange(i, i + 4)) for i in (0, 4, 8)], dim=1)
    assert torch.allclose(whole, parts, atol=1e-5)
    assert whole.std(0).min() > 1e-3
    assert all(layer.drawn_weight is None for layer in model.gaussians())


def test_a_sample_is_one_set_of_weights_from_the_posterior():
    model = made(lambda: mlp((3,), hidden=(4,)))
    layer, samples = model.gaussians()[0], 4000
    draws = BlockDraws(1)
    with torch.inference_mode():
        weights = torch.stack([layer.drawn(draws.shared(layer.path, 12, s)) for s in range(samples)])
    sigma = math.exp(-1.5)
    assert ((weights.mean(0) - layer.weight) / sigma).abs().max() < 5 / math.sqrt(samples)
    assert torch.allclose(weights.std(0), torch.full((4, 3), sigma), rtol=0.07)
    correlation = torch.corrcoef(weights.flatten(1).T)
    assert (correlation - torch.eye(12)).abs().max() < 5.5 / math.sqrt(samples)
    batch, rows = normals(5, 3), np.arange(5)
    with torch.inference_mode():
        found = shared_prefix(model, batch, BlockDraws(1), rows, 3).logits[2]
        first, last = (one.drawn(draws.shared(one.path, one.weight.numel(), 2)) for one in model.gaussians())
        hidden = torch.relu(functional.linear(batch, first, layer.bias))
        wanted = functional.linear(hidden, last, model.head.linear.bias)
    assert torch.allclose(found, wanted, atol=1e-6)


def test_what_is_remembered_of_draws_is_bounded_and_changes_nothing(monkeypatch):
    rows = np.arange(300)
    whole = BlockDraws(0)
    wanted = [whole.rows("a", "uniform", 7, range(2), rows), whole.shared("b", 50, 1)]
    monkeypatch.setattr(drawing, "CACHED_ELEMENTS", 0)
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
    assert [layer.path for layer in model.gaussians()] == ["network.stages.0.linear", "head.mu", "head.log_variance"]
    assert {type(layer) for layer in made(NETWORKS["cnn"][0]).gaussians()} == {GaussianConv2d, GaussianLinear}


def test_what_cannot_be_gaussian_is_refused():
    with pytest.raises(UserError, match=r"offers no .* for 'gaussian_weights'"):
        made(lambda: textcnn((20,), embedding=4, maps=3))
    bounded = mlp((3,), hidden=(4,))
    SpectralNorm(1.0).apply(bounded)
    with pytest.raises(UserError, match="without another edit such as spectral_norm"):
        GaussianWeights().apply(Model(bounded, nn.Module()))
    for wrong in ({"l2": 0.0}, {"beta": -1.0}, {"anneal": 1.5}, {"estimator": "flip"}):
        with pytest.raises(UserError, match=next(iter(wrong))):
            GaussianWeights(**wrong)
    assert random_layers(mlp((3,), hidden=(4,))) == []


@pytest.mark.parametrize("name", SMALL)
def test_gaussian_weights_cover_all_convolutions_and_dense_layers_and_nothing_else(name):
    model = lived_in(image_model(name))
    layers = [m for m in model.modules() if isinstance(m, nn.Conv2d | nn.Linear)]
    weights, before = sum(m.weight.numel() for m in layers), model.parameter_count()
    GaussianWeights(log_sigma=-3.0).apply(model)
    assert model.gaussians() == layers
    assert model.parameter_count() == before + weights
    found = image_logits(shared_prefix, model.eval(), samples=3)
    assert nearly_equal(found, image_logits(plain_passes, model, samples=3))
    assert found.reshape(3, 4, 3).std(0).min() > 1e-6


@pytest.mark.parametrize("examples", [1, 40])
def test_an_unscaled_divergence_counts_every_training_example_again(examples):
    """The erratum's penalty with the optimiser's decay ½ λ Σ μ² is the whole KL divergence, without 1/N."""
    decay = 0.02
    layer = gaussian(lambda: nn.Linear(4, 3), l2=decay, beta=1.0, unscaled_kl=True)
    prior = Normal(0.0, math.sqrt(1.0 / (examples * decay)))
    whole = kl_divergence(Normal(layer.weight, torch.exp(layer.log_sigma)), prior).sum()
    squares = layer.weight.square().sum()
    torch.testing.assert_close(layer.penalty(examples, 1.0) + 0.5 * decay * squares, whole)
    scaled = gaussian(lambda: nn.Linear(4, 3), l2=decay, beta=1.0)
    torch.testing.assert_close(scaled.penalty(examples, 1.0) + 0.5 * decay * squares, whole / examples)
