"""The heteroscedastic head against numerical integration over its noise."""

import math

import numpy as np
import pytest
import torch
from scipy import integrate, stats

from dubio.networks.heads.heteroscedastic import Heteroscedastic


def heteroscedastic(link, draws):
    head = Heteroscedastic(draws, link).build(2, 1 if link == "sigmoid" else 2)
    head.given = torch.randn(1, head.normals, generator=torch.Generator().manual_seed(0))
    return head


def test_the_sigmoid_link_integrates_over_the_noise():
    mu, variance = 0.7, 2.0
    exact, _ = integrate.quad(lambda e: stats.norm.pdf(e) / (1 + np.exp(-(mu + math.sqrt(variance) * e))), -9, 9)
    head = heteroscedastic("sigmoid", 200_000)
    output = torch.tensor([[mu, math.log(variance)]])
    scores = head.scores(output)
    assert torch.sigmoid(scores.logits).item() == pytest.approx(exact, abs=2e-3)
    assert scores.data_variance.item() == pytest.approx(variance, rel=1e-5)
    assert head.loss(output, torch.tensor([[1]])).item() == pytest.approx(-math.log(exact), abs=4e-3)
    assert head.loss(output, torch.tensor([[0]])).item() == pytest.approx(-math.log(1 - exact), abs=6e-3)


def test_the_softmax_link_integrates_over_the_noise():
    mu, variance = (0.5, -0.3), (1.5, 0.4)
    # With two classes only the difference matters: N(μ0 − μ1, σ0² + σ1²).
    exact, _ = integrate.quad(
        lambda d: stats.norm.pdf(d, mu[0] - mu[1], math.sqrt(sum(variance))) / (1 + np.exp(-d)), -15, 15
    )
    head = heteroscedastic("softmax", 200_000)
    output = torch.tensor([[*mu, *(math.log(v) for v in variance)]])
    assert torch.softmax(head.scores(output).logits, -1)[0, 0].item() == pytest.approx(exact, abs=2e-3)
    assert head.loss(output, torch.tensor([0])).item() == pytest.approx(-math.log(exact), abs=4e-3)


def test_the_loss_and_the_scores_agree_for_the_same_draws():
    head = Heteroscedastic(4).build(3, 5)
    head.given = torch.randn(6, head.normals, generator=torch.Generator().manual_seed(1))
    output, labels = torch.randn(6, 10, generator=torch.Generator().manual_seed(2)), torch.arange(6) % 5
    loss = head.loss(output, labels)
    log_probs = torch.log_softmax(head.scores(output).logits, -1)
    assert torch.allclose(loss, -log_probs[torch.arange(6), labels], atol=1e-5)


def test_extreme_outputs_stay_finite():
    for link, labels in (("softmax", torch.tensor([1])), ("sigmoid", torch.tensor([[0, 1]]))):
        head = Heteroscedastic(3, link).build(2, 2)
        head.given = torch.randn(1, head.normals, generator=torch.Generator().manual_seed(0))
        output = torch.tensor([[60.0, -60.0, 2.0, 2.0]])
        assert torch.isfinite(head.loss(output, labels)).all()
        assert torch.isfinite(head.scores(output).logits).all()
