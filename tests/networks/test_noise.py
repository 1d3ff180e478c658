"""Noise against closed forms: means, variances, penalties, and the law of the largest survivor."""

import math

import pytest
import torch
from torch import nn

from dubio.core.errors import UserError
from dubio.networks.heads.linear import Softmax
from dubio.networks.mlp import mlp
from dubio.networks.network import Model
from dubio.networks.noise import ConcreteDropout, ConcreteDropoutEdit, Dropout, DropoutEdit, Site


def sampled(noise, h, draws, seed=0):
    noise.eval()
    noise.sampling = True
    noise.given = torch.rand(draws, noise.width, generator=torch.Generator().manual_seed(seed))
    return noise(h.expand(draws, -1))


def test_dropout_keeps_the_mean_and_has_the_variance_of_a_scaled_bernoulli():
    h, p = torch.tensor([[1.0, -2.0, 3.0]]), 0.3
    out = sampled(Dropout(3, p), h, 200_000)
    assert torch.allclose(out.mean(0), h[0], atol=0.03)
    assert torch.allclose(out.var(0), h[0] ** 2 * p / (1 - p), rtol=0.02)


def test_noise_is_identity_in_a_deterministic_pass():
    h = torch.randn(5, 4)
    for noise in (Dropout(4, 0.5), ConcreteDropout(4, start=0.5, temperature=0.1, length_scale=0.1)):
        assert torch.equal(noise.eval()(h), h)


@pytest.mark.parametrize("p", [0.05, 0.3, 0.8])
def test_concrete_dropout_approaches_a_bernoulli_as_its_temperature_falls(p):
    out = sampled(ConcreteDropout(1, start=p, temperature=1e-3, length_scale=0.1), torch.ones(1, 1), 100_000)
    dropped = (out < 0.5).double().mean().item()
    assert dropped == pytest.approx(p, abs=4 * math.sqrt(p * (1 - p) / 100_000))
    assert out.max().item() == pytest.approx(1 / (1 - p), rel=1e-5)


@pytest.mark.parametrize("p", [1e-7, 1.0 - 1e-7, 1.0 - 2.0**-17])
def test_a_rate_near_0_or_1_is_rounded_to_neither(p):
    noise = Dropout(1, p)
    noise.generator = torch.Generator().manual_seed(0)
    share = noise.dropped((1_000_000,)).double().mean().item()
    assert 0.0 < share < 1.0
    assert share == pytest.approx(p, abs=1e-4)
    never = Dropout(1, 0.0)
    never.generator = noise.generator
    assert not never.dropped((100_000,)).any()



def test_concrete_noise_is_the_relaxation_of_the_paper():
    p, tau, u = 0.2, 2 / 3, 0.37
    noise = ConcreteDropout(1, start=p, temperature=tau, length_scale=0.1).eval()
    noise.sampling, noise.given = True, torch.tensor([[u]])
    z = 1 / (1 + math.exp(-(math.log(p / (1 - p)) + math.log(u / (1 - u))) / tau))
    assert noise(torch.ones(1, 1)).item() == pytest.approx((1 - z) / (1 - p), rel=1e-6)


def test_concrete_noise_is_finite_at_the_ends_of_the_unit_interval():
    noise = ConcreteDropout(2, start=0.1, temperature=0.1, length_scale=0.1).eval()
    noise.sampling, noise.given = True, torch.tensor([[0.0, 1.0 - 2**-24]])
    assert torch.isfinite(noise(torch.ones(1, 2))).all()


def test_concrete_penalty_is_the_closed_form():
    p, scale, n = 0.25, 0.1, 500
    weights = [torch.randn(7, 3), torch.randn(2, 3)]
    noise = ConcreteDropout(3, start=p, temperature=0.1, length_scale=scale)
    norm = sum(float((w**2).sum()) for w in weights)
    expected = scale**2 / (2 * n) * norm / (1 - p) + 3 / n * (p * math.log(p) + (1 - p) * math.log(1 - p))
    assert noise.penalty(weights, n).item() == pytest.approx(expected, rel=1e-5)


def test_fixed_penalties_do_not_depend_on_the_number_of_examples():
    """The text paper's code: w_reg·‖W‖²/(1 − p) + d_reg·D_in·(p ln p + (1 − p) ln(1 − p))."""
    p, weights = 0.25, [torch.randn(7, 3)]
    edit = ConcreteDropoutEdit(p, weight_penalty=1e-6, rate_penalty=1e-5)
    noise = edit.noise(Site("x", 3, accepts=("concrete_dropout",)))
    entropy = p * math.log(p) + (1 - p) * math.log(1 - p)
    expected = 1e-6 * float((weights[0] ** 2).sum()) / (1 - p) + 1e-5 * 3 * entropy
    for n in (10, 10_000):
        assert noise.penalty(weights, n).item() == pytest.approx(expected, rel=1e-5)


def test_one_draw_a_channel_is_shared_by_all_positions():
    noise = Dropout(8, 0.5).train()
    noise.generator = torch.Generator().manual_seed(0)
    out = noise(torch.ones(4, 8, 6, 5))
    assert torch.equal(out, out[:, :, :1, :1].expand_as(out))


@pytest.mark.parametrize("p", [0.2, 0.5, 0.8])
def test_survivor_ranks_are_geometric(p):
    noise = Dropout(1, p).eval()
    noise.sampling, noise.given = True, torch.rand(200_000, 1, generator=torch.Generator().manual_seed(3))
    ranks = noise.survivor(1000)[:, 0].numpy()
    for g in range(5):
        expected = (1 - p) * p**g
        assert (ranks == g).mean() == pytest.approx(expected, abs=5 * math.sqrt(expected / 200_000))


def test_an_edit_fills_only_the_sites_that_accept_it_and_says_so_when_there_are_none():
    body = mlp((5,), hidden=(4, 3))
    model = Model(body, Softmax().build(body.width, 2))
    DropoutEdit(0.2).apply(model)
    assert model.rates() == {"layer2": 0.2, "head": 0.2}
    with pytest.raises(UserError, match="already filled"):
        DropoutEdit(0.2).apply(model)
    bare = Model(mlp((5,), hidden=(4,)), nn.Identity())
    with pytest.raises(UserError, match="no site for 'dropout'"):
        DropoutEdit(0.2).apply(bare)


def test_a_spatial_site_gets_the_spatial_temperature():
    edit = ConcreteDropoutEdit()
    assert edit.noise(Site("a", 3, accepts=(), spatial=True)).temperature == pytest.approx(2 / 3)
    assert edit.noise(Site("a", 3, accepts=())).temperature == pytest.approx(0.1)


@pytest.mark.parametrize("p", [-0.1, 1.0, 2.0])
def test_a_rate_outside_the_unit_interval_is_refused(p):
    with pytest.raises(UserError, match=r"p must be .* at least 0 and below 1"):
        DropoutEdit(p)
