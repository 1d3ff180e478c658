"""VGG, PreResNet, WideResNet and ResNet-50: published parameter counts, the functions they are, their first weights."""

import math

import pytest
import torch
from torch import nn

from dubio.core.errors import UserError
from dubio.core.registry import NETWORKS
from dubio.networks.noise import sites
from dubio.networks.preresnet import preresnet
from dubio.networks.vgg import vgg16_bn, vgg_small
from dubio.networks.wide_resnet import wrn
from tests.networks.helpers import (
    SMALL,
    images,
    lived_in,
    model_of,
    plain_preresnet,
    plain_resnet50,
    plain_vgg,
    plain_wrn,
    preresnet_parameters,
    resnet50_parameters,
    vgg_parameters,
    wrn_parameters,
)

VGG16 = ((64, 2), (128, 2), (256, 3), (512, 3), (512, 3))
CIFAR = (3, 32, 32)

# name, arguments, shape, classes, counted by hand, as published (model tables of imgclsmob, torchvision and others)
COUNTED = [
    ("vgg16-bn", {"base": 64}, CIFAR, 10, vgg_parameters(VGG16, 512, 10), 15_253_578),
    ("vgg16-bn", {"base": 64}, CIFAR, 100, vgg_parameters(VGG16, 512, 100), 15_299_748),
    ("preresnet", {"depth": 20}, CIFAR, 10, preresnet_parameters(3, "basic", 10), 272_282),
    ("preresnet", {"depth": 110}, CIFAR, 10, preresnet_parameters(12, "bottleneck", 10), None),
    ("preresnet", {"depth": 110, "block": "basic"}, CIFAR, 10, preresnet_parameters(18, "basic", 10), 1_730_522),
    ("preresnet-164", {"depth": 164}, CIFAR, 10, preresnet_parameters(18, "bottleneck", 10), 1_703_258),
    ("wrn", {"depth": 16, "widen": 2}, CIFAR, 10, wrn_parameters(2, 2, 10), 691_674),
    ("wrn", {"depth": 28, "widen": 10}, CIFAR, 10, wrn_parameters(4, 10, 10), 36_479_194),
    ("wrn", {"depth": 28, "widen": 10}, CIFAR, 100, wrn_parameters(4, 10, 100), 36_536_884),
    ("resnet50", {"base": 64}, (3, 224, 224), 1000, resnet50_parameters(1000), 25_557_032),
]


@pytest.mark.parametrize(("name", "arguments", "shape", "classes", "by_hand", "published"), COUNTED)
def test_parameters_are_as_published(name, arguments, shape, classes, by_hand, published):
    with torch.device("meta"):  # nothing is drawn: 36 million numbers would take a while
        found = model_of(name, shape, classes, **arguments).parameter_count()
    assert found == by_hand
    assert published is None or found == published


def test_the_small_vgg_and_the_bottleneck_preresnet_110_are_as_documented():
    groups = ((16, 1), (32, 2), (64, 2), (128, 2))
    assert model_of("vgg-small", CIFAR, 10, dense=128).parameter_count() == vgg_parameters(groups, 128, 10) == 375_594
    assert preresnet_parameters(12, "bottleneck", 10) == 1_146_842


FUNCTIONS = {
    "vgg16-bn": (SMALL["vgg16-bn"], lambda m, h: plain_vgg(m, h, (0, 1, 0, 1, 0, 0, 1, 0, 0, 1, 0, 0, 0))),
    "vgg-small": (SMALL["vgg-small"], lambda m, h: plain_vgg(m, h, (1, 0, 1))),
    "preresnet": (SMALL["preresnet"], lambda m, h: plain_preresnet(m, h, (1, 2, 2), 2)),
    "preresnet of bottlenecks": (
        {"depth": 20, "block": "bottleneck"},
        lambda m, h: plain_preresnet(m, h, (1, 1, 2, 1, 2, 1), 3),
    ),
    "wrn": ({"depth": 16, "widen": 2}, lambda m, h: plain_wrn(m, h, (1, 1, 2, 1, 2, 1))),
    "resnet50": ({"base": 4}, lambda m, h: plain_resnet50(m, h, (3, 4, 6, 3))),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_deterministic_pass_is_the_network_written_out(name):
    arguments, plain = FUNCTIONS[name]
    model, batch = lived_in(model_of(name.split()[0], **arguments)), images()
    with torch.inference_mode():
        found, wanted = model.network(batch), plain(model, batch)
    assert wanted.std() > 1e-3
    assert torch.allclose(found, wanted, rtol=1e-4, atol=1e-5 * float(wanted.abs().max()))


def test_a_small_image_is_pooled_no_further_than_to_one_pixel():
    lone = vgg16_bn((3, 16, 16), base=2, dense=6)
    assert lone.stages[-2].linear.in_features == 16  # the fifth pooling has one pixel left and does nothing
    assert vgg16_bn(CIFAR, base=2, dense=6).stages[-2].linear.in_features == 16
    assert vgg16_bn((3, 64, 64), base=2, dense=6).stages[-2].linear.in_features == 16 * 4


@pytest.mark.parametrize("name", SMALL)
def test_convolutions_start_from_hes_fan_out_rule(name):
    larger = {
        "vgg16-bn": {"base": 16},
        "vgg-small": {"channels": [32, 64], "convolutions": [1, 2]},
        "preresnet": {"depth": 20},
        "preresnet-164": {"depth": 20},
        "wrn": {"depth": 16, "widen": 2},
        "resnet50": {"base": 16},
    }
    model = model_of(name, **larger[name])
    convolutions = [m for m in model.modules() if isinstance(m, nn.Conv2d)]
    for c in convolutions:
        wanted = math.sqrt(2.0 / (c.out_channels * c.kernel_size[0] ** 2))
        assert float(c.weight.detach().std()) == pytest.approx(wanted, rel=4.0 / math.sqrt(c.weight.numel()))
        assert c.bias is None or not c.bias.any()
    assert any(c.bias is not None for c in convolutions) == name.startswith("vgg")
    for m in model.modules():
        if isinstance(m, nn.BatchNorm2d):
            assert (m.weight == 1).all()
            assert not m.bias.any()


def accepting(network, edit):
    return [site.name for site in sites(network) if edit in site.accepts]


def test_dropout_acts_where_the_paper_has_it():
    vgg = model_of("vgg16-bn")
    assert accepting(vgg, "dropout") == ["dense1", "dense2"]
    assert accepting(vgg, "concrete_dropout")[:2] == ["conv1-2", "conv2-1"]
    assert len(accepting(vgg, "concrete_dropout")) == 12 + 2 + 1
    wide = model_of("wrn", depth=16, widen=2)
    blocks = [f"group{g}.block{b}" for g in (1, 2, 3) for b in (1, 2)]
    assert accepting(wide, "dropout") == [f"{block}.units" for block in blocks]
    assert {site.width for site in sites(wide) if "dropout" in site.accepts} == {32 * 256, 64 * 64, 128 * 16}
    assert len(accepting(wide, "concrete_dropout")) == 12 + 1
    for name in ("preresnet", "resnet50"):
        model = model_of(name)
        assert accepting(model, "dropout") == ["head"]
        convolutions = {"preresnet": 2 * 3, "resnet50": 3 * 3}[name]
        assert len(accepting(model.network, "concrete_dropout")) == convolutions


def test_what_they_cannot_be_is_said():
    with pytest.raises(UserError, match=r"depth must be 6n \+ 2 with basic blocks, such as 20 or 26; given 21"):
        preresnet(CIFAR, depth=21)
    with pytest.raises(UserError, match=r"depth must be 9n \+ 2 with bottleneck blocks, such as 101 or 110; given 109"):
        preresnet(CIFAR, depth=109)
    with pytest.raises(UserError, match=r"such as 8 or 14; given 2"):
        preresnet(CIFAR, depth=2)
    with pytest.raises(UserError, match=r"wrn: depth must be 6n \+ 4, such as 16 or 22; given 20"):
        wrn(CIFAR, depth=20)
    with pytest.raises(UserError, match=r"the same number of groups; given \[8\] and \[1, 2\]"):
        vgg_small(CIFAR, channels=(8,), convolutions=(1, 2))


@pytest.mark.parametrize(
    ("name", "argument", "value"),
    [
        ("wrn", "widen", 0),
        ("resnet50", "base", 0),
        ("resnet50", "blocks", (1, 0)),
        ("resnet50", "blocks", ()),
        ("vgg16-bn", "dense", 0),
        ("vgg-small", "convolutions", (0,)),
    ],
)
def test_a_size_below_one_is_refused(name, argument, value):
    with pytest.raises(UserError, match=rf"{name}: {argument} must be .* at least 1; given"):
        NETWORKS.make(name, CIFAR, **{argument: value})
