"""The linear maps of a model: which are found, and that curvature sees through padding in a transformer."""

import numpy as np
import pytest
import torch
from torch import nn

from dubio.encoders import TokenRows
from dubio.inference.batches import LabelledRows, collate
from dubio.networks.heads.linear import Softmax
from dubio.networks.linear_maps import LinearMap, WeightMatrix, linear_maps
from dubio.networks.network import Model, Network
from dubio.networks.spectral import SpectralNorm
from dubio.networks.textcnn_v2 import textcnn_v2
from dubio.training.laplace.curvature import kronecker, passed_once


def model_of(network):
    return Model(network, Softmax().build(network.width, 3))


def test_plain_layers_are_found_and_others_are_not():
    stage = nn.Sequential(
        nn.Conv2d(2, 4, 3, bias=False),
        nn.Conv2d(4, 4, 3, groups=2),
        nn.Conv2d(4, 4, 3, padding=1, padding_mode="circular"),
        nn.Conv2d(4, 4, 3, padding="same"),
        nn.BatchNorm2d(4),
        nn.Flatten(),
    )
    found = linear_maps(model_of(Network([stage], 4)))
    assert found == {
        "network.stages.0.0": WeightMatrix("network.stages.0.0.weight", None, (4, 2, 3, 3)),
        "head.linear": WeightMatrix("head.linear.weight", "head.linear.bias", (3, 4)),
    }
    assert [m.size for m in found.values()] == [(4, 18), (3, 5)]


def test_a_mark_names_the_weights_of_the_stage_around_it():
    model = model_of(textcnn_v2((9,), embedding=4, maps=3, kernels=(2,)))
    marks = [path for path in linear_maps(model) if isinstance(model.get_submodule(path), LinearMap)]
    assert [linear_maps(model)[path].weight for path in marks] == ["network.stages.2.layers.0.weight"]
    outputs = torch.ones(1, 2, 3)
    assert model.get_submodule(marks[0])(outputs, lambda rows: outputs) is outputs
    SpectralNorm(1.0).apply(model)  # the weight in use is then computed from another one
    assert list(linear_maps(model)) == ["head.linear"]


def test_padding_does_not_touch_the_factors_of_a_transformer(tmp_path):
    pytest.importorskip("transformers")
    from dubio.networks.bert import bert
    from tests.networks.helpers import VOCABULARY, save_bert

    torch.manual_seed(0)
    words = len(VOCABULARY)
    model = model_of(bert((words,), encoder=str(save_bert(tmp_path))))
    lengths = [5, 9, 2, 7]
    tokens = np.random.default_rng(0).integers(5, words, sum(lengths)).astype(np.int32)
    texts = TokenRows(tokens, np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64))
    data = LabelledRows(texts, np.array([0, 1, 2, 0]), 3)
    layers = passed_once(model, linear_maps(model), collate(texts, np.arange(2)))
    assert len(layers) == 2 * 6 + 2  # six a block, the pooling, the head
    together, alone = (
        kronecker(model, layers, data, batch=batch, device=torch.device("cpu"), seed=batch)[0] for batch in (4, 1)
    )
    for path in layers:
        for one, other in (
            (together[path].inputs, alone[path].inputs),
            (together[path].outputs, alone[path].outputs),
        ):
            torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5 * float(other.abs().max()))
