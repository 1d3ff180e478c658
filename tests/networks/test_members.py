"""How members share a batch, and the check that they stay apart."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from dubio.core.errors import UserError
from dubio.networks.batch_ensemble import BatchEnsemble
from dubio.networks.heads.linear import Softmax
from dubio.networks.masksembles import Masksembles
from dubio.networks.members import SplitMembers, exchangeable, mixing_layer
from dubio.networks.network import Dense, Model, Network, Stage
from dubio.networks.noise import DropoutEdit
from dubio.networks.packed import Packed
from tests.networks.member_models import FAMILIES, batch_of, model_of


class Mixes(Stage):
    """Adds the mean over all channels to each."""

    def forward(self, h):
        return h + h.mean(dim=1, keepdim=True)


def test_the_layer_through_which_members_mix_is_named():
    network = Network([Dense("a", 4, 8, accepts=()), Mixes(), Dense("b", 8, 8, accepts=())], 8)
    model = Model(network, Softmax().build(8, 3))
    Packed(2, 2.0).apply(model)
    batch = torch.randn(5, 4)
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    assert mixing_layer(model, batch) == "network.stages.0.linear"
    for name, tensor in model.state_dict().items():
        torch.testing.assert_close(tensor, before[name])


def test_rows_of_members_lie_side_by_side():
    split = SplitMembers(3)
    assert split(torch.tensor([1, 2])).tolist() == [1, 1, 1, 2, 2, 2]
    words = model_of("textcnn").network.stages[0](batch_of("textcnn", rows=2))
    torch.testing.assert_close(split(words).places[::3], words.places)


def test_members_come_before_noise():
    model = model_of("mlp")
    DropoutEdit(0.5).apply(model)
    with pytest.raises(UserError, match="batch_ensemble: must come before"):
        BatchEnsemble(2).apply(model)


def test_noise_is_drawn_for_each_members_rows():
    model = model_of("mlp", edit=BatchEnsemble(3))
    DropoutEdit(0.5).apply(model)
    assert [site.sets for site in model.sites() if site.noise is not None] == [3, 3]


def test_a_layer_of_another_kind_is_refused_by_name():
    class Odd(Stage):
        bounds = ("layer",)

        def __init__(self):
            super().__init__()
            self.layer = nn.Bilinear(4, 4, 8)

    model = Model(Network([Odd()], 8), Softmax().build(8, 3))
    with pytest.raises(UserError, match=r"network\.stages\.0\.layer is a Bilinear"):
        BatchEnsemble(2).apply(model)


class Adds(Stage):
    """Adds the same values to all examples."""

    def forward(self, h):
        return h + torch.arange(float(h.shape[1]))


@pytest.mark.parametrize(("stages", "expected"), [([], True), ([Adds()], False)])
def test_members_that_read_different_values_cannot_exchange_their_weights(stages, expected):
    torch.manual_seed(0)
    network = Network([Dense("a", 4, 8, accepts=()), *stages, Dense("b", 8, 8, accepts=())], 8)
    model, batch = Model(network, Softmax().build(8, 3)), torch.randn(5, 4)
    Packed(2, 2.0).apply(model)
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    assert mixing_layer(model, batch) is None
    assert exchangeable(model, batch) is expected
    for name, tensor in model.state_dict().items():
        torch.testing.assert_close(tensor, before[name], rtol=0, atol=0)


@pytest.mark.parametrize("name", FAMILIES)
@pytest.mark.parametrize("edit", [Packed(2, 2.0), BatchEnsemble(2), Masksembles(2)])
def test_members_of_every_family_exchange_their_weights(name, edit):
    assert exchangeable(model_of(name, edit=edit), batch_of(name))
