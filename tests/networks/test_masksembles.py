"""Masksembles: masks with the ones and the overlap of the paper, on one network's weights."""

from __future__ import annotations

import re

import pytest
import torch
from torch import nn

from dubio.core.errors import UserError
from dubio.networks.heads.linear import Softmax
from dubio.networks.masksembles import Masksembles, masks, ones_per_mask
from dubio.networks.members import mixing_layer
from dubio.networks.network import Model, Network
from dubio.networks.rank_one import RankOne
from tests.networks.member_models import CLASSES, FAMILIES, batch_of, logits_of, model_of


@pytest.mark.parametrize("inputs", [2, 7, 16, 100, 300])
@pytest.mark.parametrize("scale", [1.0, 1.5, 2.0, 4.0])
def test_every_mask_has_the_same_ones_and_every_input_is_used(inputs, scale):
    torch.manual_seed(0)
    drawn = masks(inputs, 4, scale)
    assert drawn.shape == (4, inputs)
    assert set(drawn.unique().tolist()) <= {0.0, 1.0}
    assert drawn.any(dim=0).all()
    ones = max(ones_per_mask(inputs, 4, scale), -(-inputs // 4))
    assert drawn.sum(dim=1).tolist() == [ones] * 4
    if scale == 1.0:
        assert drawn.all()


@pytest.mark.parametrize("scale", [1.5, 2.0, 3.0])
def test_masks_overlap_as_much_as_independent_ones(scale):
    """Two of them share m/S ones on average, so that intersection over union is about 1/(2S − 1)."""
    torch.manual_seed(1)
    inputs, members = 300, 4
    ones, ratios, shared = ones_per_mask(inputs, members, scale), [], []
    for _ in range(50):
        drawn = masks(inputs, members, scale)
        for i in range(members):
            for j in range(i):
                both = float((drawn[i] * drawn[j]).sum())
                shared.append(both)
                ratios.append(both / (2 * ones - both))
    assert sum(shared) / len(shared) == pytest.approx(ones / scale, rel=0.02)
    assert sum(ratios) / len(ratios) == pytest.approx(1 / (2 * scale - 1), rel=0.03)


def test_disjoint_masks_are_those_of_an_ensemble():
    torch.manual_seed(0)
    drawn = masks(8, 4, 1000.0)
    assert drawn.sum(dim=0).tolist() == [1.0] * 8


@pytest.mark.parametrize("name", FAMILIES)
def test_members_are_the_network_with_masked_inputs(name):
    plain, ensemble, batch = model_of(name), model_of(name, edit=Masksembles(3, 2.0)), batch_of(name)
    assert ensemble.parameter_count() == plain.parameter_count()
    assert mixing_layer(ensemble, batch) is None
    logits = logits_of(ensemble, batch)
    assert logits.shape == (3, 5, CLASSES)
    for member in range(3):  # with the mask of one member for all, all members are that one
        same = model_of(name, edit=Masksembles(3, 2.0))
        for factors in (module for module in same.modules() if isinstance(module, RankOne)):
            factors.r = factors.r[[member] * 3]
        same.load_state_dict({k: v for k, v in ensemble.state_dict().items() if not k.endswith(".r")}, strict=False)
        torch.testing.assert_close(logits_of(same, batch), logits[[member] * 3])


def test_the_first_layer_reads_all_data_and_the_others_masked_inputs():
    model = model_of("mlp", edit=Masksembles(3, 2.0))
    masked = [path for path, module in model.named_modules() if isinstance(module, RankOne)]
    assert masked == ["network.stages.2.linear.factors", "head.linear.factors"]
    h, (first, second) = batch_of("mlp"), (model.network.stages[i].linear for i in (0, 2))
    hidden = torch.relu(first(h))
    expected = torch.relu(hidden * second.factors.r[1] @ second.weight.T + second.bias)
    logits = (expected * model.head.linear.factors.r[1]) @ model.head.linear.weight.T + model.head.linear.bias
    torch.testing.assert_close(logits_of(model, h)[1], logits.detach())


def test_in_training_each_example_goes_through_one_mask():
    model, batch, labels = model_of("mlp", edit=Masksembles(3, 2.0)), batch_of("mlp"), torch.tensor([0, 1, 2, 0, 1])
    everyone = torch.nn.functional.cross_entropy(
        logits_of(model, batch).flatten(0, 1), labels.repeat(3), reduction="none"
    ).reshape(3, 5)
    losses = model.train().loss(batch, labels)
    torch.testing.assert_close(losses.detach(), everyone[torch.arange(5) % 3, torch.arange(5)])


def test_a_scale_below_one_is_refused():
    with pytest.raises(UserError, match=r"scale must be at least 1.*0\.5"):
        Masksembles(4, 0.5)


def test_a_scale_that_leaves_inputs_unused_names_one_that_does_not():
    torch.manual_seed(0)
    with pytest.raises(UserError, match=r"no draw of 4 masks with 8 ones each used all 32 inputs") as refusal:
        masks(32, 4, 100.0)
    scale = float(re.search(r"Scale ([\d.]+) works", str(refusal.value))[1])
    assert masks(32, 4, scale).any(dim=0).all()


def test_a_network_without_weights_has_no_features_to_mask():
    with pytest.raises(UserError, match="no trained dense layer or convolution reads the outputs of another"):
        Masksembles(2).apply(Model(Network([nn.Identity()], 4), Softmax().build(4, 3)))
