"""Packed ensembles: members are the networks of their slices, parameters are those of the paper's formulas."""

from __future__ import annotations

import pytest
import torch

from dubio.core.errors import UserError
from dubio.inference.engine import fixed, single_pass
from dubio.networks.draws import BlockDraws
from dubio.networks.members import member_slices, mixing_layer
from dubio.networks.noise import DropoutEdit, Site
from dubio.networks.packed import Packed
from tests.networks.helpers import lived_in
from tests.networks.member_models import CLASSES, FAMILIES, batch_of, logits_of, model_of

HALVES = {
    "mlp": {"hidden": [4, 4]},
    "cnn": {"channels": [2, 4], "dense": 4},
    "textcnn": {"embedding": 4, "maps": 2},
    "vgg-small": {"channels": [4, 8], "convolutions": [1, 2], "dense": 8},
    "resnet50": {"base": 4, "blocks": [1, 2]},
    "vgg-retina": {"base": 2, "groups": 2},
}
"""The networks of half the width."""


def slice_of(model, member, members):
    """The weights of one member by the names that they have in a network of its own."""
    own = dict(model.named_parameters()) | dict(model.named_buffers())
    state = {name: tensor for name, tensor in own.items() if name.endswith("num_batches_tracked")}
    for path, module in model.named_modules():
        for name, axis in getattr(module, "member_axes", {}).items():
            if getattr(module, name) is not None:
                state[f"{path}.{name}"] = getattr(module, name).chunk(members, dim=axis)[member]
    assert state.keys() == own.keys()
    return state


@pytest.mark.parametrize("name", FAMILIES)
def test_one_packing_is_the_plain_network(name):
    plain, packed = lived_in(model_of(name)), model_of(name, edit=Packed(1, 1.0))
    assert packed.parameter_count() == plain.parameter_count()
    packed.load_state_dict(plain.state_dict())
    batch = batch_of(name)
    torch.testing.assert_close(logits_of(packed, batch), logits_of(plain, batch))


@pytest.mark.parametrize("name", HALVES)
@pytest.mark.parametrize("members", [2, 4])
def test_members_are_separate_networks_of_their_slices(name, members):
    packed = lived_in(model_of(name, edit=Packed(members, members / 2)))
    batch = batch_of(name)
    logits = logits_of(packed, batch)
    assert logits.shape == (members, 5, CLASSES)
    for member in range(members):
        single = model_of(name, **HALVES[name])
        single.load_state_dict(slice_of(packed, member, members))
        torch.testing.assert_close(logits[member], logits_of(single, batch)[0])


@pytest.mark.parametrize("name", FAMILIES)
@pytest.mark.parametrize("gamma", [1, 2])
def test_no_member_changes_another(name, gamma):
    assert mixing_layer(model_of(name, edit=Packed(2, 2.0, gamma)), batch_of(name)) is None


@pytest.mark.parametrize("name", ["mlp", "textcnn", "preresnet"])
def test_the_loss_of_a_member_has_gradients_in_its_own_slices_alone(name):
    model = model_of(name, edit=Packed(2, 2.0))
    model.by_sample(model(batch_of(name)), 5)[1].square().sum().backward()
    for parameter in model.parameters():
        parameter.data = parameter.grad  # the views of slices then show gradients
    for path, (first, second) in ((path, t) for path, tensors in member_slices(model) for t in tensors):
        if "running" not in path:
            assert not first.any() or "norm" in path, path
            assert second.any(), path


def test_layers_have_the_parameters_of_the_formula():
    """α²·C_in·C_out·k²/(M·γ) weights and α·C_out biases; the first layer C_in·α·C_out·k², the heads M·(α·w/M + 1)·K."""
    members, alpha, gamma = 4, 2, 2
    model = model_of("cnn", edit=Packed(members, float(alpha), gamma), channels=[16, 32], dense=64)
    flat = 32 * 4 * 4
    conv1 = 3 * alpha * 16 * 9 + alpha * 16
    conv2 = alpha**2 * 16 * 32 * 9 // (members * gamma) + alpha * 32
    dense = alpha**2 * flat * 64 // (members * gamma) + alpha * 64
    heads = members * (alpha * 64 // members + 1) * CLASSES
    assert model.parameter_count() == conv1 + conv2 + dense + heads
    text = model_of("textcnn", edit=Packed(members, float(alpha)), embedding=16, maps=8)
    words, windows = 40 * alpha * 16, 3 + 4 + 5
    convs = windows * alpha**2 * 16 * 8 // members + 3 * alpha * 8
    assert text.parameter_count() == words + convs + members * (alpha * 24 // members + 1) * CLASSES


def test_first_weights_are_drawn_as_those_of_narrow_networks():
    """He's rule with the fan-out of one member, 2/(9·64), and torch's with the fan-in of one member, 1/(3·128)."""
    packed = model_of("vgg-small", edit=Packed(4, 2.0), channels=[128, 128], convolutions=[1, 1], dense=256)
    convs = [packed.network.stages[i].conv for i in (1, 2)]
    for conv in convs:
        assert float(conv.weight.detach().var()) == pytest.approx(2 / (9 * 64), rel=0.05)
        assert not conv.bias.any()
    last = packed.network.stages[5].linear
    assert float(last.weight.detach().var()) == pytest.approx(1 / (3 * 128), rel=0.05)


@pytest.mark.parametrize("name", ["textcnn", "vgg-small"])
def test_stages_prepared_for_fixed_weights_give_the_same(name):
    model, batch = lived_in(model_of(name, edit=Packed(2, 2.0))), batch_of(name)
    ready = fixed(model, 0)
    assert ready is not model
    draws, rows = BlockDraws(0), torch.arange(5).numpy()
    with torch.no_grad():
        expected, logits = (single_pass(m, batch, draws, rows, None).logits for m in (model, ready))
    torch.testing.assert_close(logits, expected, rtol=1e-4, atol=1e-5)


def test_dropout_has_a_draw_for_every_channel_of_every_member():
    model = model_of("wrn", edit=Packed(2, 2.0))
    DropoutEdit(0.5).apply(model)
    model.train()
    model.draw_from(torch.Generator().manual_seed(0))
    assert model.loss(batch_of("wrn"), torch.zeros(5, dtype=torch.long)).shape == (5,)


def test_a_width_that_does_not_divide_is_refused_by_the_layers_name():
    with pytest.raises(UserError, match=r"network\.stages\.0\.linear has 7 outputs.*multiple of size · gamma = 4"):
        model_of("mlp", edit=Packed(4, 2.0), hidden=[7, 8])
    with pytest.raises(UserError, match=r"network\.stages\.2 is a Convolve2d"):
        model_of("textcnn-v2", edit=Packed(2, 2.0), embedding=8, maps=4)


def test_a_training_pass_over_texts_is_that_of_a_prediction():
    """In training only the winning windows are followed, of every group of maps."""
    model, batch = model_of("textcnn", edit=Packed(2, 2.0)), batch_of("textcnn")
    torch.testing.assert_close(model.train()(batch).detach(), model.eval()(batch).detach())


@pytest.mark.parametrize(("alpha", "width", "members"), [(1.1, 200, 4), (4 / 3, 12, 2), (0.7, 40, 4), (0.29, 100, 1)])
def test_widths_are_multiplied_as_alpha_is_written(alpha, width, members):
    """In floats 1.1 · 200 is 220.00000000000003, and 0.29 · 100 would be cut to 28."""
    model = model_of("mlp", edit=Packed(members, alpha), hidden=[width, width])
    total = round(alpha * width)
    assert model.network.stages[0].linear.out_features == total
    assert model.network.width == total // members
    assert [site.width for site in model.network.stages[1].modules() if isinstance(site, Site)] == [total]
