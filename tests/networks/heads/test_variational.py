"""The variational last layer against sampled weights, torch's and scipy's densities, and the optimum of its bound."""

import math

import numpy as np
import pytest
import torch
from scipy.stats import invwishart
from torch.distributions import MultivariateNormal, kl_divergence

from dubio.core.errors import UserError
from dubio.inference.engine import plain_passes, shared_prefix
from dubio.networks.draws import BlockDraws
from dubio.networks.heads.head import categorical_loss
from dubio.networks.heads.variational import DENSE_ELEMENTS, Variational
from dubio.networks.network import Model, Network
from dubio.training.optimisers import Adam

WIDTH, CLASSES, ROWS = 3, 4, 30


def head_of(seed=0, **options):
    """A head away from its first values, in double precision."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        head = Variational(**options).build(WIDTH, CLASSES).double()
        for parameter in head.parameters():
            parameter.data.add_(0.4 * torch.randn(parameter.shape))
    return head


def inputs(rows=ROWS, seed=1):
    return torch.randn(rows, WIDTH, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def labels(rows=ROWS, seed=2):
    return torch.randint(CLASSES, (rows,), generator=torch.Generator().manual_seed(seed))


def weights_of(head):
    """q as torch's distributions, one per class, over weights and bias."""
    mean = torch.cat([head.linear.weight, head.linear.bias[:, None]], dim=1).detach()
    factors = head.factors().detach()
    if head.lower is None:
        factors = torch.diag_embed(factors)
    return MultivariateNormal(mean, scale_tril=factors)


def sampled_logits(head, features, draws, seed=3):
    with torch.random.fork_rng(), torch.no_grad():
        torch.manual_seed(seed)
        a = torch.nn.functional.pad(features, (0, 1), value=1.0)
        noise = torch.exp(head.log_noise) * torch.randn(draws, len(features), CLASSES, dtype=torch.float64)
        return torch.einsum("skd,bd->sbk", weights_of(head).sample((draws,)), a) + noise


@pytest.mark.parametrize("covariance", ["dense", "diagonal"])
def test_logits_have_the_moments_of_sampled_weights(covariance):
    head, features, draws = head_of(covariance=covariance), inputs(6), 60_000
    logits = sampled_logits(head, features, draws)
    mean, variance = (t.detach() for t in head.moments(head(features)))
    assert ((logits.mean(0) - mean).abs() < 5 * (variance / draws).sqrt()).all()
    torch.testing.assert_close(logits.var(0), variance, rtol=5 * math.sqrt(2 / draws), atol=0)


@pytest.mark.parametrize("covariance", ["dense", "diagonal"])
def test_the_loss_is_the_bound_of_sampled_weights_and_bounds_their_likelihood(covariance):
    head, features, y, draws = head_of(covariance=covariance), inputs(6), labels(6), 60_000
    logits = sampled_logits(head, features, draws)
    loss = head.loss(head(features), y).detach()
    # E z_y − log Σ_k E exp z_k, both expectations over draws; the second has a large variance
    exponentials = logits.exp()
    spread = (exponentials.std(0) / exponentials.mean(0)).amax(1) / math.sqrt(draws)
    sampled = exponentials.mean(0).sum(1).log() - logits.mean(0).gather(1, y[:, None])[:, 0]
    assert ((loss - sampled).abs() < 5 * spread + 0.02).all()
    likelihood = torch.log_softmax(logits, dim=2)[:, torch.arange(6), y].mean(0)
    assert (loss > -likelihood).all()


def test_without_variance_it_is_the_cross_entropy():
    head, features, y = head_of(), inputs(), labels()
    with torch.no_grad():
        head.log_diagonal.fill_(-40.0), head.lower.zero_(), head.log_noise.fill_(-40.0)
        torch.testing.assert_close(head.loss(head(features), y), categorical_loss(head.linear(features), y))
        torch.testing.assert_close(head.scores(head(features)).logits, head.linear(features))


def test_a_label_is_a_class_against_a_logit_of_zero():
    head, features = head_of(link="sigmoid"), inputs(5)
    y = (inputs(5, seed=9) @ torch.ones(WIDTH, CLASSES, dtype=torch.float64) > 0).long()
    mean, variance = head.moments(head(features))
    raised = torch.stack([torch.zeros_like(mean), mean + variance / 2], dim=2)
    wanted = torch.logsumexp(raised, dim=2) - torch.where(y == 1, mean, torch.zeros_like(mean))
    torch.testing.assert_close(head.loss(head(features), y), wanted.sum(1))


@pytest.mark.parametrize("covariance", ["dense", "diagonal"])
@pytest.mark.parametrize("prior", [1.0, 0.3])
def test_the_divergence_is_that_of_torch(covariance, prior):
    head = head_of(covariance=covariance, prior_variance=prior)
    zero, unit = torch.zeros(WIDTH + 1, dtype=torch.float64), torch.eye(WIDTH + 1, dtype=torch.float64)
    wanted = kl_divergence(weights_of(head), MultivariateNormal(zero, prior * unit)).sum()
    torch.testing.assert_close(head.divergence().detach(), wanted)


def test_the_noise_has_an_inverse_wishart_density():
    heads = [head_of(seed, noise_scale=0.7, noise_freedom=5.0) for seed in (0, 1)]
    ours = [head.noise_density().item() for head in heads]
    covariances = [np.diag(np.exp(2 * head.log_noise.detach().numpy())) for head in heads]
    theirs = [invwishart.logpdf(matrix, df=5.0, scale=0.7 * np.eye(CLASSES)) for matrix in covariances]
    assert ours[0] - ours[1] == pytest.approx(theirs[0] - theirs[1])


def optimised(head, features, y):
    """The head at the optimum of the bound on these examples."""
    optimiser = torch.optim.LBFGS(
        head.parameters(), max_iter=500, tolerance_grad=1e-7, tolerance_change=1e-13, line_search_fn="strong_wolfe"
    )

    def closure():
        optimiser.zero_grad()
        loss = head.loss(head(features), y).sum() + len(y) * head.penalty(len(y)) if len(y) else head.penalty(1)
        loss.backward()
        return loss

    optimiser.step(closure)
    return head


def test_at_its_optimum_covariances_have_the_closed_form():
    # the gradient of the bound vanishes, with p = softmax(m + v/2), in S_k where S_k⁻¹ = I/s + Σ_n p_nk a_n a_nᵀ, in
    # σ_k² where ½ Σ_n p_nk + (ν + K + 1)/(2 σ²) = s₀/(2 σ⁴), and in w̄_k where Σ_n (y_nk − p_nk) a_n = w̄_k/s
    prior, features, y = 0.8, inputs(), labels()
    head = optimised(head_of(prior_variance=prior, noise_scale=0.6, noise_freedom=2.0), features, y)
    mean, variance = (t.detach() for t in head.moments(head(features)))
    p = torch.softmax(mean + variance / 2, dim=1)
    a = torch.nn.functional.pad(features, (0, 1), value=1.0)
    precision = torch.eye(WIDTH + 1) / prior + torch.einsum("nk,nd,ne->kde", p, a, a)
    torch.testing.assert_close(weights_of(head).precision_matrix, precision, rtol=1e-4, atol=1e-4)
    noise = torch.exp(2 * head.log_noise.detach())
    torch.testing.assert_close(p.sum(0) + (2.0 + CLASSES + 1) / noise, 0.6 / noise**2, rtol=1e-4, atol=1e-4)
    residual = torch.nn.functional.one_hot(y, CLASSES).double() - p
    torch.testing.assert_close(residual.T @ a, weights_of(head).mean / prior, rtol=1e-4, atol=1e-4)


def test_without_data_it_comes_to_its_prior():
    head = optimised(head_of(prior_variance=0.5, noise_scale=3.0), inputs(0), labels(0))
    own, unit = weights_of(head), torch.eye(WIDTH + 1, dtype=torch.float64)
    torch.testing.assert_close(own.covariance_matrix, (0.5 * unit).expand(CLASSES, -1, -1), atol=1e-6, rtol=1e-6)
    assert own.mean.abs().max() < 1e-6
    torch.testing.assert_close(
        head.log_noise.exp().square().detach(), torch.full((CLASSES,), 3.0 / (1 + CLASSES + 1)).double()
    )


def model_of(head):
    return Model(Network([torch.nn.Identity()], WIDTH), head.float()).eval()


def test_samples_are_draws_of_the_logits():
    model, features, rows, draws = model_of(head_of()), inputs(5).float(), np.arange(5), 2000
    with torch.inference_mode():
        mean, variance = model.head.moments(model(features))
        scores = shared_prefix(model, features, BlockDraws(1), rows, draws)
        assert scores.logits.shape == (draws, 5, CLASSES)
        assert ((scores.logits.mean(0) - mean).abs() < 5 * (variance / draws).sqrt()).all()
        torch.testing.assert_close(scores.logits.var(0), variance, rtol=5 * math.sqrt(2 / draws), atol=0)
        few = shared_prefix(model, features, BlockDraws(1), rows, 7).logits
        torch.testing.assert_close(few, plain_passes(model, features, BlockDraws(1), rows, 7).logits)
        torch.testing.assert_close(few[:, 2:], shared_prefix(model, features[2:], BlockDraws(1), rows[2:], 7).logits)


def test_one_pass_predicts_with_mean_field_logits_and_the_variance_of_the_weights():
    head, features = head_of(), inputs(5)
    model = model_of(head)
    with torch.inference_mode():
        scores = shared_prefix(model, features.float(), BlockDraws(1), np.arange(5), 0)
        mean, variance = head.moments(head(features.float()))
        torch.testing.assert_close(scores.logits[0], mean / torch.sqrt(1 + math.pi / 8 * variance))
        without_noise = (variance - torch.exp(2 * head.log_noise)).mean(1)
        torch.testing.assert_close(scores.model_variance[0], without_noise)
        # a probability of two classes: E σ(z) within the accuracy of the probit approximation
        z = mean[0, 0] + variance[0, 0].sqrt() * torch.randn(100_000, generator=torch.Generator().manual_seed(0))
        assert torch.sigmoid(scores.logits[0, 0, 0]) == pytest.approx(float(torch.sigmoid(z).mean()), abs=0.02)


def test_weight_decay_leaves_the_layer_to_its_prior():
    model = model_of(head_of())
    groups = Adam(l2=0.1).build(model).param_groups
    decayed = {id(p) for group in groups if group["weight_decay"] for p in group["params"]}
    assert not decayed & {id(p) for p in model.head.parameters()}
    assert {id(p) for group in groups for p in group["params"]} == {id(p) for p in model.head.parameters()}


def test_the_penalty_of_a_model_is_that_of_its_head():
    head = head_of().float()
    torch.testing.assert_close(model_of(head).penalty(50), (head.divergence() - head.noise_density()) / 50)


def test_covariances_that_are_too_large_are_refused():
    width = math.isqrt(DENSE_ELEMENTS // 100)
    with pytest.raises(UserError, match=r"covariance='dense' would have 100 classes of .* use covariance='diagonal'"):
        Variational().build(width, 100)
    assert Variational("diagonal").build(width, 100).log_diagonal.shape == (100, width + 1)
