"""The Gaussian-process head against kernels and posteriors in closed form."""

import math

import numpy as np
import pytest
import torch

from dubio.core.errors import TrainingFailed, UserError
from dubio.networks.heads.gp import RandomFeatureGP

WIDTH = 4


def head_of(classes=3, seed=0, **options):
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return RandomFeatureGP(**{"features": 16, "scaling": "as_they_are", **options}).build(WIDTH, classes)


def rows(n, seed=0, scale=1.0):
    return scale * torch.randn(n, WIDTH, generator=torch.Generator().manual_seed(seed))


def pass_over(head, inputs, labels, batch):
    """An epoch in which nothing is learned."""
    head.train()
    head.begin_epoch()
    for start in range(0, len(inputs), batch):
        head.loss(head(inputs[start : start + batch]), labels[start : start + batch])
    head.end_epoch()
    return head.eval()


def covariance(head):
    return (head.root.T @ head.root).detach().numpy()


def test_random_features_come_to_the_gaussian_kernel():
    inputs, scale = rows(12), 0.7
    squared = torch.cdist(inputs, inputs).square().numpy()
    wanted = np.exp(-squared / (2 * scale**2 * WIDTH))

    def differences(features):
        made = [head_of(features=features, length_scale=scale, seed=seed)(inputs).detach() for seed in range(20)]
        return np.stack([(phi @ phi.T).numpy() - wanted for phi in made])

    few, many = differences(32), differences(512)
    # a mean of D terms: unbiased, its variance falls as 1/D
    assert (few**2).mean() / (many**2).mean() == pytest.approx(16, rel=0.3)
    assert np.abs(many.mean(axis=0)).max() < 5 / np.sqrt(20 * 512)
    assert np.abs(many).max() < 5 / np.sqrt(512)


def test_standardised_rows_have_mean_zero_and_deviation_one():
    head, inputs = head_of(scaling="standardised"), rows(5)
    plain = head_of(scaling="as_they_are")
    by_hand = (inputs - inputs.mean(1, keepdim=True)) / inputs.std(1, keepdim=True, correction=0)
    assert torch.allclose(head(inputs), plain(by_hand), atol=1e-4)


@pytest.mark.parametrize("batch", [1, 7, 40])
@pytest.mark.parametrize("link", ["softmax", "sigmoid"])
def test_the_precision_is_the_sum_over_the_epoch_whatever_the_batch(link, batch):
    head, inputs = head_of(link=link, ridge=0.3), rows(40)
    labels = torch.arange(40) % 3 if link == "softmax" else (rows(40, 1)[:, :3] > 0).long()
    pass_over(head, inputs, labels, batch)
    phi = head(inputs).detach().double().numpy()
    logits = phi @ head.output.weight.detach().double().numpy().T
    if link == "softmax":
        probs = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
        top = probs.max(1)
        weights = top * (1 - top)
    else:
        probs = 1 / (1 + np.exp(-logits))
        weights = (probs * (1 - probs)).max(1)
    wanted = sum(w * np.outer(f, f) for w, f in zip(weights, phi, strict=True)) + 0.3 * np.eye(16)
    assert np.allclose(head.precision.numpy() + 0.3 * np.eye(16), wanted, rtol=1e-4, atol=1e-5)
    assert np.allclose(covariance(head) @ wanted, np.eye(16), atol=1e-3)


def test_with_two_classes_the_weight_is_p_times_one_minus_p():
    head, inputs = head_of(classes=2), rows(9)
    pass_over(head, inputs, torch.arange(9) % 2, 9)
    phi = head(inputs)
    p = torch.softmax(head.output(phi), -1)[:, 0]
    wanted = (phi * (p * (1 - p))[:, None]).T @ phi
    assert torch.allclose(head.precision, wanted, atol=1e-5)


def test_an_epoch_forgets_the_one_before():
    head, inputs, labels = head_of(), rows(20), torch.arange(20) % 3
    pass_over(head, rows(50, 3), torch.arange(50) % 3, 10)
    pass_over(head, inputs, labels, 10)
    fresh = pass_over(head_of(), inputs, labels, 10)
    assert torch.equal(head.root, fresh.root)


def test_validation_and_prediction_add_nothing():
    head, inputs = pass_over(head_of(), rows(20), torch.arange(20) % 3, 10), rows(5, 4)
    before = head.precision.clone()
    head.scores(head(inputs))
    head.loss(head(inputs), torch.arange(5) % 3)
    assert torch.equal(head.precision, before)


def test_with_unit_weights_the_variance_is_that_of_gaussian_process_regression():
    # Bayesian linear regression on φ with noise 1 and prior 1/ridge is a GP with kernel φφᵀ/ridge.
    ridge, inputs, new = 0.5, rows(25), rows(8, 7, scale=2.0)
    head = pass_over(head_of(likelihood="gaussian", ridge=ridge), inputs, torch.arange(25) % 3, 6)
    phi, star = head(inputs).detach().double().numpy(), head(new).detach().double().numpy()
    kernel, cross, prior = phi @ phi.T / ridge, star @ phi.T / ridge, (star * star).sum(1) / ridge
    wanted = prior - np.einsum("ij,ij->i", cross, np.linalg.solve(kernel + np.eye(25), cross.T).T)
    assert np.allclose(head.scores(head(new)).model_variance.detach().numpy(), wanted, rtol=1e-4)


def test_before_any_data_the_variance_is_the_priors():
    head, inputs = head_of(features=1024, ridge=2.0).eval(), rows(6)
    found = head.scores(head(inputs)).model_variance
    assert torch.allclose(found, head(inputs).square().sum(1) / 2.0, rtol=1e-5)


def test_the_variance_grows_away_from_the_data():
    head = head_of(features=512, likelihood="gaussian", length_scale=1.0)
    pass_over(head, rows(400, scale=0.5), torch.arange(400) % 3, 50)
    direction = torch.ones(WIDTH) / math.sqrt(WIDTH)
    line = torch.tensor([0.0, 2.0, 4.0, 8.0])[:, None] * direction
    variance = head.scores(head(line)).model_variance
    assert (variance.diff() > 0).all()
    assert variance[3] > 10 * variance[0]


def test_logits_are_divided_by_the_mean_field_factor():
    head, inputs = pass_over(head_of(), rows(20), torch.arange(20) % 3, 10), rows(5, 4)
    phi = head(inputs).detach().numpy()
    variance = np.einsum("ij,jk,ik->i", phi, covariance(head), phi)
    scores = head.scores(head(inputs))
    wanted = phi @ head.output.weight.detach().numpy().T / np.sqrt(1 + math.pi / 8 * variance)[:, None]
    assert np.allclose(scores.model_variance.detach().numpy(), variance, rtol=1e-4)
    assert np.allclose(scores.logits.detach().numpy(), wanted, atol=1e-5)
    assert scores.data_variance is None


def test_the_random_part_is_fixed_drawn_from_the_seed_and_stored():
    head = head_of()
    assert {name for name, _ in head.named_parameters()} == {"output.weight"}
    assert set(head.state_dict()) == {"output.weight", "frequencies", "phases", "root"}
    assert torch.equal(head.frequencies, head_of().frequencies)
    assert not torch.equal(head.frequencies, head_of(seed=1).frequencies)


def test_losses_are_those_of_the_plain_logits():
    head, inputs = head_of().train(), rows(4)
    logits = head.output(head(inputs))
    wanted = torch.nn.functional.cross_entropy(logits, torch.tensor([0, 1, 2, 0]), reduction="none")
    assert torch.equal(head.loss(head(inputs), torch.tensor([0, 1, 2, 0])), wanted)
    many, labels = head_of(link="sigmoid").train(), torch.tensor([[1, 0, 1]])
    z = many.output(many(inputs[:1]))[0].detach().numpy()
    signs = np.array([-1, 1, -1])
    loss = many.loss(many(inputs[:1]), labels)
    assert loss.item() == pytest.approx(np.log1p(np.exp(signs * z)).sum(), rel=1e-5)


def test_the_target_chooses_the_link_and_nonsense_is_refused():
    assert RandomFeatureGP().for_target("multilabel").link == "sigmoid"
    assert RandomFeatureGP().for_target("ordinal").link == "softmax"
    with pytest.raises(UserError, match=r"features must be .* at least 1"):
        RandomFeatureGP(features=0)
    with pytest.raises(UserError, match=r"ridge must be .* above 0"):
        RandomFeatureGP(ridge=0.0)
    head = head_of(ridge=1e-30)
    head.begin_epoch()
    head.precision.fill_(1.0)
    with pytest.raises(TrainingFailed, match="larger ridge"):
        head.end_epoch()
