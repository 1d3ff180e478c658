"""WideResNet: its parameters, its function, and where dropout acts inside its blocks."""

import pytest
import torch

from dubio.inference.engine import plain_passes, shared_prefix
from tests.networks.helpers import (
    CIFAR,
    DROPOUT_EDITS,
    assert_function,
    assert_parameters,
    image_logits,
    image_model,
    lived_in,
    plain_wrn,
    runs_of_convolutions,
    wrn_parameters,
)

# name, arguments, shape, classes, counted by hand, as published (model tables of imgclsmob, torchvision and others)
COUNTED = [
    ("wrn", {"depth": 16, "widen": 2}, CIFAR, 10, wrn_parameters(2, 2, 10), 691_674),
    ("wrn", {"depth": 28, "widen": 10}, CIFAR, 10, wrn_parameters(4, 10, 10), 36_479_194),
    ("wrn", {"depth": 28, "widen": 10}, CIFAR, 100, wrn_parameters(4, 10, 100), 36_536_884),
]


@pytest.mark.parametrize(("name", "arguments", "shape", "classes", "by_hand", "published"), COUNTED)
def test_parameters_are_as_published(name, arguments, shape, classes, by_hand, published):
    assert_parameters(name, arguments, shape, classes, by_hand, published)


FUNCTIONS = {
    "wrn": ({"depth": 16, "widen": 2}, lambda m, h: plain_wrn(m, h, (1, 1, 2, 1, 2, 1))),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_deterministic_pass_is_the_network_written_out(name):
    arguments, plain = FUNCTIONS[name]
    assert_function(name.split()[0], arguments, plain)


def test_dropout_inside_blocks_masks_single_units_and_leaves_the_first_convolution_shared():
    model = lived_in(image_model("wrn"))
    DROPOUT_EDITS["dropout"].apply(model)
    runs = runs_of_convolutions(model.eval())
    image_logits(shared_prefix, model, samples=6)
    assert runs["network.stages.1.conv"] == 1
    block, seen = model.network.stages[2], []
    block.conv2.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0].detach().clone()))
    block.norm2.register_forward_hook(lambda _, __, out: seen.append(torch.relu(out.detach())))
    image_logits(plain_passes, model, samples=1)
    before, after = seen
    ratio = after[before > 0] / before[before > 0]
    dropped = ratio == 0
    assert torch.allclose(ratio[~dropped], torch.tensor(1 / 0.7), rtol=1e-5)
    assert float(dropped.float().mean()) == pytest.approx(0.3, abs=0.02)
    alive, lost = (before > 0).sum((2, 3)), ((after == 0) & (before > 0)).sum((2, 3))
    assert (lost / alive)[alive > 50].max() < 0.6  # no channel is dropped as a whole
