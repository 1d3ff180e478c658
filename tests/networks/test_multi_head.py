"""Several last layers on one network."""

from __future__ import annotations

import pytest
import torch

from dubio.core.errors import UserError
from dubio.networks.heads.gp import RandomFeatureGP
from dubio.networks.heads.heteroscedastic import Heteroscedastic
from dubio.networks.multi_head import MultiHead
from dubio.networks.network import Model
from tests.networks.member_models import CLASSES, FAMILIES, batch_of, logits_of, model_of


@pytest.mark.parametrize("name", FAMILIES)
def test_members_are_the_network_with_their_own_last_layer(name):
    plain, ensemble, batch = model_of(name), model_of(name, edit=MultiHead(3)), batch_of(name)
    width = plain.network.width
    assert ensemble.parameter_count() == plain.parameter_count() + 2 * (width + 1) * CLASSES
    logits, head = logits_of(ensemble, batch), ensemble.head.linear
    plain.network.load_state_dict(ensemble.network.state_dict())
    for member in range(3):
        plain.head.linear.weight.data = head.weight.detach().unflatten(0, (3, -1))[member]
        plain.head.linear.bias.data = head.bias.detach().unflatten(0, (3, -1))[member]
        torch.testing.assert_close(logits[member], logits_of(plain, batch)[0])


def test_both_layers_of_a_heteroscedastic_head_have_members():
    network = model_of("mlp").network
    model = Model(network, Heteroscedastic().build(network.width, CLASSES))
    MultiHead(3).apply(model)
    model.draw_from(torch.Generator().manual_seed(0))
    assert model.loss(batch_of("mlp"), torch.zeros(5, dtype=torch.long)).shape == (5,)
    assert model.head.mu.weight.shape == model.head.log_variance.weight.shape == (3 * CLASSES, 8)


def test_a_head_without_a_dense_layer_is_refused_by_name():
    network = model_of("mlp").network
    model = Model(network, RandomFeatureGP(features=8).build(network.width, CLASSES))
    with pytest.raises(UserError, match="RandomFeatureGPHead without one"):
        MultiHead(3).apply(model)


def test_members_are_made_once():
    model = model_of("mlp", edit=MultiHead(3))
    with pytest.raises(UserError, match="has 3 sets of features already"):
        MultiHead(2).apply(model)
