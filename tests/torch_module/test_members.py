"""Ensembles inside a user's own module: where it allows them, and the layer that does not."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

import dubio
from dubio.core.errors import UserError
from tests.torch_module.helpers import pictures, refused, table

NAMES = ("packed-ensemble", "batch-ensemble", "masksembles", "multi-head", "mimo")
SIZES = {"mimo": 3}


class Convnet(nn.Module):
    """Two convolutions, batch-norm and two dense layers, with functional pooling."""

    def __init__(self):
        super().__init__()
        self.first = nn.Conv2d(1, 4, 3, padding=1)
        self.norm = nn.BatchNorm2d(4)
        self.second = nn.Conv2d(4, 4, 3, padding=1)
        self.hidden = nn.Linear(36, 8)
        self.last = nn.Linear(8, 2)

    def forward(self, x):
        h = self.norm(self.first(x)).relu()
        h = nn.functional.max_pool2d(self.second(h).relu(), 2).flatten(1)
        return self.last(self.hidden(h).relu())


@pytest.mark.parametrize("name", NAMES)
def test_members_of_a_module_are_samples_and_are_read_back(name, tmp_path):
    data = pictures()
    fits = [dubio.fit(name, network=Convnet, train=data, epochs=2, seed=1) for _ in range(2)]
    first, again = (fit.predict(*data) for fit in fits)
    members = SIZES.get(name, 4)
    assert first.logits.shape == (members, 40, 2)
    np.testing.assert_array_equal(first.member, np.arange(members))
    np.testing.assert_array_equal(first.logits, again.logits)
    assert not np.array_equal(first.logits[0], first.logits[1])
    fits[0].save(tmp_path / "fit.safetensors")
    read = dubio.load_fit(tmp_path / "fit.safetensors", network=Convnet)
    np.testing.assert_array_equal(read.predict(*data).logits, first.logits)
    with pytest.raises(UserError, match="its members share one network"):
        next(iter(fits[0].state_dicts()))


def test_a_layer_that_would_mix_members_is_named():
    def normalised():
        return nn.Sequential(nn.Linear(4, 8), nn.LayerNorm(8), nn.ReLU(), nn.Linear(8, 3))

    refused(r"module\.1 is a LayerNorm", "packed-ensemble", network=normalised, train=table(), epochs=1)
    for name in ("batch-ensemble", "masksembles", "multi-head", "mimo"):
        dubio.fit(name, network=normalised, train=table(), epochs=1)


def test_a_forward_that_mixes_channels_is_refused_by_the_layer():
    class Mixing(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.last = nn.Linear(4, 8), nn.Linear(8, 3)

        def forward(self, x):
            return self.last(torch.softmax(self.first(x), dim=1))

    refused("the layer 'first' mixes members", "packed-ensemble", network=Mixing, train=table(), epochs=1)


def test_a_forward_that_joins_rows_and_positions_is_refused_by_the_layer():
    class Positions(nn.Module):
        def __init__(self):
            super().__init__()
            self.each, self.last = nn.Linear(2, 4), nn.Linear(8, 3)

        def forward(self, x):
            return self.last(self.each(x.reshape(-1, 2)).relu().reshape(len(x), -1))

    refused("the layer 'each' mixes members", "batch-ensemble", network=Positions, train=table(), epochs=1)


def test_a_forward_with_fixed_widths_is_refused_with_the_reason():
    class Fixed(Convnet):
        def forward(self, x):
            h = nn.functional.max_pool2d(self.second(self.norm(self.first(x))).relu(), 2).reshape(-1, 36)
            return self.last(self.hidden(h).relu())

    refused("with members this one fails", "packed-ensemble", network=Fixed, train=pictures(), epochs=1)


def test_an_embedding_has_no_place_for_several_inputs():
    class Words(nn.Module):
        def __init__(self):
            super().__init__()
            self.table, self.last = nn.Embedding(5, 4), nn.Linear(4, 2)

        def forward(self, x):
            return self.last(self.table(x).mean(dim=1))

    data = np.arange(80).reshape(20, 4) % 5, np.arange(20) % 2
    refused(r"module\.table is a Embedding", "mimo", network=Words, train=data, epochs=1)
