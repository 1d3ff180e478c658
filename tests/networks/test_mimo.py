"""MIMO: independent inputs in training, one input for all members at prediction."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from dubio.core.errors import UserError
from dubio.networks.mimo import MIMO
from tests.networks.member_models import CLASSES, IMAGES, batch_of, logits_of, model_of


def arranged(edit, rows=40, seed=0):
    """A training batch as a network gets it, of inputs that are their own number, and the example of each output."""
    model = model_of("mlp", edit=edit)
    model.draw_from(torch.Generator().manual_seed(seed))
    inputs = torch.arange(rows, dtype=torch.float32)[:, None].expand(rows, 10)
    batch, examples = model.network.arrangement(inputs, rows)
    return batch.unflatten(1, (edit.size, 10))[:, :, 0], examples.unflatten(0, (-1, edit.size))


@pytest.mark.parametrize("name", ["mlp", *IMAGES])
def test_a_prediction_shows_the_same_input_to_all(name):
    """Its first layer is then the one whose weights are the sums over inputs."""
    model, batch = model_of(name, edit=MIMO(3)), batch_of(name)
    logits = logits_of(model, batch)
    assert logits.shape == (3, 5, CLASSES)
    plain = model_of(name)
    state = {k.removeprefix("network."): v for k, v in model.state_dict().items() if k.startswith("network.")}
    moved = {f"stages.{int(k.split('.')[1]) - 1}.{k.split('.', 2)[2]}": v for k, v in state.items()}
    first = next(k for k, v in plain.network.state_dict().items() if v.shape != moved[k].shape)
    moved[first] = moved[first].unflatten(1, (3, -1)).sum(1)
    plain.network.load_state_dict(moved)
    for member in range(3):
        plain.head.linear.weight.data = model.head.linear.weight.detach().unflatten(0, (3, -1))[member]
        plain.head.linear.bias.data = model.head.linear.bias.detach().unflatten(0, (3, -1))[member]
        torch.testing.assert_close(logits_of(plain, batch)[0], logits[member], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("repetitions", [1, 3])
def test_every_member_sees_every_example_as_often_as_it_is_repeated(repetitions):
    inputs, examples = arranged(MIMO(3, repetitions))
    torch.testing.assert_close(inputs, examples.float())  # the label of each output is that of its input
    assert inputs.shape == (40 * repetitions, 3)
    for member in range(3):
        assert examples[:, member].bincount().tolist() == [repetitions] * 40
    agreement = float((examples[:, 0] == examples[:, 1]).float().mean())
    assert agreement < 0.2  # 1/40 expected


@pytest.mark.parametrize("fraction", [0.0, 0.3, 1.0])
def test_a_fraction_of_the_rows_has_one_example_in_all_inputs(fraction):
    _, examples = arranged(MIMO(3, 50, fraction))
    same = float((examples == examples[:, :1]).all(dim=1).float().mean())
    assert same == pytest.approx(fraction + (1 - fraction) / 40**2, abs=0.01)


def test_the_loss_of_an_example_is_the_mean_over_its_rows():
    model, batch, labels = model_of("mlp", edit=MIMO(3, 2)), batch_of("mlp"), torch.tensor([0, 1, 2, 0, 1])
    model.train().draw_from(torch.Generator().manual_seed(4))
    losses = model.loss(batch, labels)
    model.draw_from(torch.Generator().manual_seed(4))
    rows, examples = model.network.arrangement(batch, 5)
    each = nn.functional.cross_entropy(model(rows), labels[examples], reduction="none")
    for i in range(5):
        torch.testing.assert_close(losses[i], each[examples == i].mean())


def test_parameters_are_those_of_one_network_with_a_wider_first_layer_and_more_heads():
    plain, model = model_of("cnn"), model_of("cnn", edit=MIMO(3))
    more = 2 * 3 * 9 * 4 + 2 * (8 + 1) * CLASSES
    assert model.parameter_count() == plain.parameter_count() + more


def test_texts_are_refused_by_the_name_of_the_embedding():
    with pytest.raises(UserError, match=r"network\.stages\.0\.table is an Embedding"):
        model_of("textcnn", edit=MIMO(3))
