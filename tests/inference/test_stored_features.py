"""Features of a layer, stored with predictions: which they are, how exact, how large, and what is refused."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import torch

from dubio.core.errors import UserError
from dubio.encoders.rows import ArrayRows
from dubio.inference.samples import WeightSamples, state_of
from dubio.inference.stored_features import stored_features
from dubio.networks.cnn import cnn
from dubio.networks.heads.linear import Softmax
from dubio.networks.network import Model


def posterior(states=1):
    torch.manual_seed(0)
    body = cnn((1, 8, 8), channels=(3,), dense=5)
    model = Model(body, Softmax().build(body.width, 3)).eval()
    return WeightSamples(model, tuple({n: t + 0.1 * k for n, t in state_of(model).items()} for k in range(states)))


def images(rows=300):
    return ArrayRows(np.random.default_rng(1).normal(size=(rows, 1, 8, 8)).astype(np.float32))


@torch.inference_mode()
def test_they_are_the_inputs_of_the_head_within_half_precision():
    own, rows = posterior(states=2), images()
    features = stored_features(own, "last", rows, "cpu")
    assert (features.dtype, features.shape) == (np.float16, (2, 300, 5))
    for k, state in enumerate(own.states):
        own.model.load_state_dict(state)
        expected = own.model.network(torch.from_numpy(rows.values)).numpy()
        # a number of ordinary size is rounded by at most 2⁻¹¹ of itself; below 2⁻¹⁴ by at most 2⁻²⁵
        assert (np.abs(features[k] - expected) <= 2.0**-11 * np.abs(expected) * 1.01 + 2.0**-25).all()


@torch.inference_mode()
def test_the_positions_of_a_map_are_averaged():
    own, rows = posterior(), images(7)
    maps = own.model.network.stages[0](torch.from_numpy(rows.values)).numpy()
    expected = [[sum(image[c].ravel().tolist()) / 16 for c in range(3)] for image in maps]
    np.testing.assert_allclose(stored_features(own, "0", rows, "cpu")[0], expected, atol=1e-3)


def test_the_posterior_keeps_its_weights():
    own, rows = posterior(states=2), images(7)
    before = state_of(own.model)
    stored_features(own, "last", rows, "cpu")
    assert all(torch.equal(tensor, own.model.state_dict()[name]) for name, tensor in before.items())


def test_a_layer_that_is_not_there_is_refused_with_those_that_are():
    with pytest.raises(UserError, match=r"layers 0 \(ConvBlock\), 1 \(Flatten\), 2 \(Dense\) and 'last'; given 3"):
        stored_features(posterior(), "3", images(7), "cpu")


def test_more_than_the_bound_is_refused_by_name(monkeypatch):
    monkeypatch.setattr("dubio.inference.stored_features.FEATURE_BYTES", 2 * 300 * 5)
    assert stored_features(posterior(), "last", images(), "cpu").nbytes == 3000
    with pytest.raises(UserError, match=r"5 features; of 300 examples and 2 weight states .* 6,000 .* 3,000"):
        stored_features(posterior(states=2), "last", images(), "cpu")


def test_values_that_half_precision_cannot_hold_are_refused_without_a_warning_beside():
    """numpy's "overflow encountered in cast" stood above the sentence."""
    own = posterior()
    own.states[0]["network.stages.2.linear.bias"].fill_(1e6)
    with warnings.catch_warnings(action="error"), pytest.raises(UserError, match="float16 cannot hold"):
        stored_features(own, "last", images(7), "cpu")
