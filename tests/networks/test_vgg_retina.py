"""The VGG variant of the retina paper: its parameters counted by hand, its shapes, its sites, its twin."""

import numpy as np
import pytest
import torch
from torch import nn

from dubio.core.errors import UserError
from dubio.core.registry import NETWORKS
from dubio.inference.engine import plain_passes, shared_prefix
from dubio.networks.draws import BlockDraws
from dubio.networks.gaussian_weights import GaussianWeights
from dubio.networks.heads.linear import Sigmoid, Softmax
from dubio.networks.network import Model
from dubio.networks.noise import DropoutEdit, sites
from dubio.networks.vgg_retina import vgg_retina
from dubio.testing import check_network


def by_hand(base):
    """Weights and biases of 13 convolutions 3×3 and of one logit from averages and maxima."""
    filters = [base] + [base] * 2 + [2 * base] * 2 + [4 * base] * 4 + [8 * base] * 4
    weights = sum(9 * i * o for i, o in zip([3, *filters], filters, strict=False)) + 2 * filters[-1]
    return weights, sum(filters) + 1


def model_of(base=4, groups=5, size=64, head=None):
    network = vgg_retina((3, size, size), base=base, groups=groups)
    return Model(network, (head or Softmax()).build(network.width, 1 if head else 2))


def test_parameters_are_those_of_the_paper_and_the_gaussian_twin_keeps_the_budget():
    weights, biases = by_hand(32)
    whole = model_of(32, head=Sigmoid()).parameter_count()
    assert whole == weights + biases
    assert round(whole / 1e6, 2) == 2.66
    twin = model_of(22, head=Sigmoid())
    GaussianWeights().apply(twin)
    weights, biases = by_hand(22)
    assert twin.parameter_count() == 2 * weights + biases
    assert twin.parameter_count() == pytest.approx(whole, rel=0.06)
    bigger = by_hand(24)
    assert 2 * bigger[0] + bigger[1] > 1.1 * whole  # two filters more would break it


def test_thirteen_convolutions_in_five_groups_with_the_papers_details():
    network = vgg_retina((3, 512, 512), base=2)
    convolutions = [m for m in network.modules() if isinstance(m, nn.Conv2d)]
    assert [c.out_channels for c in convolutions] == [2, 2, 2, 4, 4, 8, 8, 8, 8, 16, 16, 16, 16]
    assert [c.stride[0] for c in convolutions] == [2] + [1] * 12
    sides, h = [], torch.zeros(1, 3, 512, 512)
    with torch.inference_mode():
        for stage in network.stages[:-1]:
            h = stage(h)
            sides.append(h.shape[-1])
    assert list(dict.fromkeys(sides)) == [256, 128, 64, 32, 16]
    for c in convolutions:
        bound = np.sqrt(6 / (9 * (c.in_channels + c.out_channels)))
        assert not c.bias.any()
        assert bound * 0.8 < c.weight.abs().max() <= bound


def test_the_output_is_averages_and_maxima_of_leaky_maps():
    network = vgg_retina((3, 16, 16), base=2, groups=2).eval()
    h = images = torch.randn(2, 3, 16, 16, generator=torch.Generator().manual_seed(0))
    convolutions = [m for m in network.modules() if isinstance(m, nn.Conv2d)]
    with torch.inference_mode():
        for i, c in enumerate(convolutions):
            h = c(h)
            h = torch.where(h > 0, h, 0.2 * h)
            if i == 0:
                padded = nn.functional.pad(h, (1, 1, 1, 1), value=-torch.inf)
                h = padded.unfold(2, 3, 2).unfold(3, 3, 2).amax(dim=(-1, -2))
        wanted = torch.cat([h.flatten(2).mean(-1), h.flatten(2).max(-1).values], dim=1)
        assert torch.allclose(network(images), wanted, atol=1e-6)


def test_dropout_acts_on_units_of_all_convolutions_but_the_last_and_concrete_dropout_on_channels_but_the_first():
    found = list(sites(vgg_retina((3, 64, 64), base=4)))
    units = [site for site in found if "dropout" in site.accepts]
    channels = [site for site in found if "concrete_dropout" in site.accepts]
    assert [site.name for site in units] == [f"conv{i}.units" for i in range(1, 13)]
    assert units[0].width == 4 * 32 * 32
    assert units[-1].width == 32 * 2 * 2
    assert [site.name for site in channels] == [f"conv{i}" for i in range(2, 14)]
    assert all(site.spatial for site in channels)


@pytest.mark.parametrize("arguments", [{"base": 4}, {"base": 8, "groups": 3}])
def test_the_network_conforms(arguments):
    assert check_network("vgg-retina", arguments=arguments) == []


def test_the_first_convolution_runs_once_for_all_samples():
    model = model_of(2, size=32)
    DropoutEdit(0.2).apply(model)
    model.eval()
    runs = []
    first = next(m for m in model.modules() if isinstance(m, nn.Conv2d))
    first.register_forward_hook(lambda *a: runs.append(1))
    batch, rows = torch.randn(3, 3, 32, 32, generator=torch.Generator().manual_seed(0)), np.arange(3)
    with torch.inference_mode():
        fast = shared_prefix(model, batch, BlockDraws(0), rows, 5).logits.flatten(0, 1)
        assert len(runs) == 1
        plain = plain_passes(model, batch, BlockDraws(0), rows, 5).logits.flatten(0, 1)
    assert torch.allclose(fast, plain, atol=1e-5)


def test_what_it_cannot_be_is_said():
    with pytest.raises(UserError, match=r"base must be .* at least 1"):
        NETWORKS.make("vgg-retina", (3, 64, 64), base=0)
    for groups in (1, 6):
        with pytest.raises(UserError, match=r"groups must be .* between 2 and 5"):
            NETWORKS.make("vgg-retina", (3, 64, 64), groups=groups)
