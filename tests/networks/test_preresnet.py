"""PreResNet: published parameter counts, and the function that it is."""

import pytest

from tests.networks.helpers import (
    CIFAR,
    SMALL,
    assert_function,
    assert_parameters,
    plain_preresnet,
    preresnet_parameters,
)

# name, arguments, shape, classes, counted by hand, as published (model tables of imgclsmob, torchvision and others)
COUNTED = [
    ("preresnet", {"depth": 20}, CIFAR, 10, preresnet_parameters(3, "basic", 10), 272_282),
    ("preresnet", {"depth": 110}, CIFAR, 10, preresnet_parameters(12, "bottleneck", 10), None),
    ("preresnet", {"depth": 110, "block": "basic"}, CIFAR, 10, preresnet_parameters(18, "basic", 10), 1_730_522),
    ("preresnet-164", {"depth": 164}, CIFAR, 10, preresnet_parameters(18, "bottleneck", 10), 1_703_258),
]


@pytest.mark.parametrize(("name", "arguments", "shape", "classes", "by_hand", "published"), COUNTED)
def test_parameters_are_as_published(name, arguments, shape, classes, by_hand, published):
    assert_parameters(name, arguments, shape, classes, by_hand, published)


FUNCTIONS = {
    "preresnet": (SMALL["preresnet"], lambda m, h: plain_preresnet(m, h, (1, 2, 2), 2)),
    "preresnet of bottlenecks": (
        {"depth": 20, "block": "bottleneck"},
        lambda m, h: plain_preresnet(m, h, (1, 1, 2, 1, 2, 1), 3),
    ),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_deterministic_pass_is_the_network_written_out(name):
    arguments, plain = FUNCTIONS[name]
    assert_function(name.split()[0], arguments, plain)
