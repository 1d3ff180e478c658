"""ResNet-50: published parameter counts, and the function that it is."""

import pytest

from tests.networks.helpers import assert_function, assert_parameters, plain_resnet50, resnet50_parameters

# name, arguments, shape, classes, counted by hand, as published (model tables of imgclsmob, torchvision and others)
COUNTED = [
    ("resnet50", {"base": 64}, (3, 224, 224), 1000, resnet50_parameters(1000), 25_557_032),
]


@pytest.mark.parametrize(("name", "arguments", "shape", "classes", "by_hand", "published"), COUNTED)
def test_parameters_are_as_published(name, arguments, shape, classes, by_hand, published):
    assert_parameters(name, arguments, shape, classes, by_hand, published)


FUNCTIONS = {
    "resnet50": ({"base": 4}, lambda m, h: plain_resnet50(m, h, (3, 4, 6, 3))),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_deterministic_pass_is_the_network_written_out(name):
    arguments, plain = FUNCTIONS[name]
    assert_function(name.split()[0], arguments, plain)
