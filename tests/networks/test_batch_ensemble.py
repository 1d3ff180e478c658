"""BatchEnsemble: members are networks with the weights W ∘ (s rᵀ), in training and at prediction."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from dubio.networks.batch_ensemble import BatchEnsemble
from dubio.networks.members import mixing_layer
from dubio.networks.rank_one import RankOne
from dubio.networks.word_convolutions import WordConvolutions
from tests.networks.helpers import lived_in
from tests.networks.member_models import CLASSES, FAMILIES, batch_of, logits_of, model_of

NAMES = [*FAMILIES, "textcnn-v2"]
SMALL_TEXT = {"textcnn-v2": {"embedding": 8, "maps": 4}}


def model(name, **arguments):
    return model_of(name, **SMALL_TEXT.get(name, {}), **arguments)


def member_model(name, ensemble, member):
    """The plain network with the weights of one member, W ∘ (s rᵀ), and its biases."""
    plain = model(name)
    stages = [s for s in ensemble.network.stages if type(s).__name__ not in ("SplitMembers", "JoinMembers")]
    pairs = [*zip(plain.network.stages, stages, strict=True), (plain.head, ensemble.head)]
    for own, other in pairs:
        own.load_state_dict(other.state_dict(), strict=False)
        scaled = {path: m for path, m in other.named_modules() if isinstance(m, RankOne)}
        for path, factors in scaled.items():
            _scale(own, path, factors, member)
    return plain


def _scale(stage, path, factors, member):
    r, s = factors.r[member].detach(), factors.s[member].detach()
    bias = None if factors.bias is None else factors.bias[member].detach()
    with torch.no_grad():
        if isinstance(stage, WordConvolutions):
            index = int(path.split(".")[-1])
            if hasattr(stage, "weights"):  # [size, F, E]
                stage.weights[index].mul_(s[:, None] * r)
                stage.biases[index].copy_(bias)
            else:  # [F, 1, k, E]
                stage.layers[index].weight.mul_(s[:, None, None, None] * r)
                stage.layers[index].bias.copy_(bias)
            return
        layer = stage.get_submodule(path.removesuffix(".factors"))
        layer.weight.mul_((s[:, None] * r).reshape(len(s), len(r), *([1] * (layer.weight.ndim - 2))))
        if bias is not None:
            layer.bias.copy_(bias)


def disturb(ensemble):
    """Other factors and biases than the first ones."""
    generator = torch.Generator().manual_seed(3)
    for factors in (m for m in ensemble.modules() if isinstance(m, RankOne)):
        for tensor in (factors.r, factors.s, factors.bias):
            if tensor is not None:
                tensor.data = torch.randn(tensor.shape, generator=generator)
    return ensemble


@pytest.mark.parametrize("name", NAMES)
def test_one_member_with_unit_factors_is_the_plain_network(name):
    plain, one = lived_in(model(name)), lived_in(model(name, edit=BatchEnsemble(1, "ones")))
    batch = batch_of(name)
    torch.testing.assert_close(logits_of(one, batch), logits_of(plain, batch))


@pytest.mark.parametrize("name", NAMES)
def test_members_are_networks_with_rank_one_factors(name):
    ensemble, batch = lived_in(disturb(model(name, edit=BatchEnsemble(3)))), batch_of(name)
    logits = logits_of(ensemble, batch)
    assert logits.shape == (3, 5, CLASSES)
    for member in range(3):
        expected = logits_of(member_model(name, ensemble, member).eval(), batch)[0]
        torch.testing.assert_close(logits[member], expected, rtol=1e-4, atol=1e-4)
    assert mixing_layer(ensemble, batch) is None


def test_a_training_step_repeats_the_batch_for_every_member():
    ensemble, batch = disturb(model("mlp", edit=BatchEnsemble(3))), batch_of("mlp")
    labels = torch.tensor([0, 1, 2, 0, 1])
    losses = ensemble.train().loss(batch, labels)
    members = [member_model("mlp", ensemble, k) for k in range(3)]
    expected = torch.stack([nn.functional.cross_entropy(m(batch), labels, reduction="none") for m in members]).mean(0)
    torch.testing.assert_close(losses, expected)


def test_a_layer_has_n_k_weights_and_m_times_n_plus_k_factors():
    members = 4
    plain, ensemble = model("mlp"), model("mlp", edit=BatchEnsemble(members))
    layers = [(10, 8), (8, 8), (8, CLASSES)]
    weights = sum(n * k + members * (n + k) + members * k for n, k in layers)
    assert ensemble.parameter_count() == weights
    assert plain.parameter_count() == sum(n * k + k for n, k in layers)
    text = model("textcnn", edit=BatchEnsemble(members))
    convs = sum(size * 8 * 4 + members * (8 + 4) + members * 4 for size in (3, 4, 5))
    assert text.parameter_count() == 40 * 8 + convs + 12 * CLASSES + members * (12 + CLASSES) + members * CLASSES


def test_first_factors_are_signs_that_differ_between_members():
    factors = [m for m in model("mlp", edit=BatchEnsemble(4)).modules() if isinstance(m, RankOne)]
    for tensor in (f.r for f in factors):
        assert set(tensor.unique().tolist()) == {-1.0, 1.0}
    assert len({tuple(row.tolist()) for row in factors[0].r}) == 4
