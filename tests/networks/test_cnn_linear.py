"""Convolutions beside coarse pixels: its pixels are those of the linear baseline, its parameters counted by hand."""

import numpy as np
import pytest
import torch

from dubio.core.errors import UserError
from dubio.encoders import ArrayRows
from dubio.methods.logistic_regression import features_of
from dubio.networks.cnn_linear import PIXEL_SCALE, cnn_linear
from dubio.networks.heads.linear import Softmax
from dubio.networks.network import Model
from dubio.networks.noise import sites
from dubio.networks.packed import Packed
from dubio.testing import check_network


@pytest.mark.parametrize("size", [16, 28, 64])
def test_the_head_sees_the_pixels_of_the_linear_baseline(size):
    network = cnn_linear((3, size, size), channels=(2, 4)).eval()
    images = np.random.default_rng(0).normal(size=(3, 3, size, size)).astype(np.float32)
    with torch.inference_mode():
        features = network(torch.from_numpy(images)).numpy()
    maps = 4 * 16
    assert features.shape == (3, network.width)
    assert np.allclose(features[:, maps:], PIXEL_SCALE * features_of({}, ArrayRows(images)), atol=1e-5)


def test_parameters_are_those_counted_by_hand():
    network = cnn_linear((3, 64, 64))
    weights = 9 * (3 * 8 + 8 * 16 + 16 * 32) + 2 * (8 + 16 + 32)
    assert network.width == 32 * 16 + 3 * 256
    model = Model(network, Softmax().build(network.width, 2))
    assert model.parameter_count() == weights + 2 * network.width + 2 == 8650


def test_concrete_dropout_acts_on_channels_but_those_of_the_data():
    channels = [site.name for site in sites(cnn_linear((1, 32, 32))) if "concrete_dropout" in site.accepts]
    assert channels == ["conv2", "conv3"]


def test_the_network_conforms():
    assert check_network("cnn-linear", arguments={"channels": [2, 4]}) == []


def test_members_of_a_packed_ensemble_cannot_divide_pixels():
    network = cnn_linear((3, 32, 32), channels=(4, 8))
    model = Model(network, Softmax().build(network.width, 2))
    with pytest.raises(UserError, match=r"packed: .* pixels"):
        Packed(2, 2.0).apply(model)
