"""Networks of convolutions (VGG, PreResNet, WideResNet, ResNet-50): first weights, dropout sites, refused arguments."""

import math

import pytest
import torch
from torch import nn

from dubio.core.errors import UserError
from dubio.core.registry import NETWORKS
from dubio.networks.noise import sites
from dubio.networks.preresnet import preresnet
from dubio.networks.vgg import vgg_small
from dubio.networks.wide_resnet import wrn
from tests.networks.helpers import CIFAR, SMALL, image_batch, image_model, lived_in, nearly_equal


@pytest.mark.parametrize("name", SMALL)
def test_examples_can_be_mapped_over(name):
    model = lived_in(image_model(name))
    with torch.inference_mode():
        assert nearly_equal(torch.vmap(lambda one: model(one[None])[0])(image_batch()), model(image_batch()))


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
    model = image_model(name, **larger[name])
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
    vgg = image_model("vgg16-bn")
    assert accepting(vgg, "dropout") == ["dense1", "dense2"]
    assert accepting(vgg, "concrete_dropout")[:2] == ["conv1-2", "conv2-1"]
    assert len(accepting(vgg, "concrete_dropout")) == 12 + 2 + 1
    wide = image_model("wrn", depth=16, widen=2)
    blocks = [f"group{g}.block{b}" for g in (1, 2, 3) for b in (1, 2)]
    assert accepting(wide, "dropout") == [f"{block}.units" for block in blocks]
    assert {site.width for site in sites(wide) if "dropout" in site.accepts} == {32 * 256, 64 * 64, 128 * 16}
    assert len(accepting(wide, "concrete_dropout")) == 12 + 1
    for name in ("preresnet", "resnet50"):
        model = image_model(name)
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
