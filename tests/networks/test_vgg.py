"""VGG: published parameter counts, and the function that it is."""

import pytest

from dubio.networks.vgg import vgg16_bn
from tests.networks.helpers import (
    CIFAR,
    SMALL,
    assert_function,
    assert_parameters,
    image_model,
    plain_vgg,
    preresnet_parameters,
    vgg_parameters,
)

VGG16 = ((64, 2), (128, 2), (256, 3), (512, 3), (512, 3))

# name, arguments, shape, classes, counted by hand, as published (model tables of imgclsmob, torchvision and others)
COUNTED = [
    ("vgg16-bn", {"base": 64}, CIFAR, 10, vgg_parameters(VGG16, 512, 10), 15_253_578),
    ("vgg16-bn", {"base": 64}, CIFAR, 100, vgg_parameters(VGG16, 512, 100), 15_299_748),
]


@pytest.mark.parametrize(("name", "arguments", "shape", "classes", "by_hand", "published"), COUNTED)
def test_parameters_are_as_published(name, arguments, shape, classes, by_hand, published):
    assert_parameters(name, arguments, shape, classes, by_hand, published)


FUNCTIONS = {
    "vgg16-bn": (SMALL["vgg16-bn"], lambda m, h: plain_vgg(m, h, (0, 1, 0, 1, 0, 0, 1, 0, 0, 1, 0, 0, 0))),
    "vgg-small": (SMALL["vgg-small"], lambda m, h: plain_vgg(m, h, (1, 0, 1))),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_deterministic_pass_is_the_network_written_out(name):
    arguments, plain = FUNCTIONS[name]
    assert_function(name.split()[0], arguments, plain)


def test_the_small_vgg_and_the_bottleneck_preresnet_110_are_as_documented():
    groups = ((16, 1), (32, 2), (64, 2), (128, 2))
    count = image_model("vgg-small", CIFAR, 10, dense=128).parameter_count()
    assert count == vgg_parameters(groups, 128, 10) == 375_594
    assert preresnet_parameters(12, "bottleneck", 10) == 1_146_842


def test_a_small_image_is_pooled_no_further_than_to_one_pixel():
    lone = vgg16_bn((3, 16, 16), base=2, dense=6)
    assert lone.stages[-2].linear.in_features == 16  # the fifth pooling has one pixel left and does nothing
    assert vgg16_bn(CIFAR, base=2, dense=6).stages[-2].linear.in_features == 16
    assert vgg16_bn((3, 64, 64), base=2, dense=6).stages[-2].linear.in_features == 16 * 4
