"""Dropout layers of a module as noise sites."""

from copy import deepcopy

import numpy as np
import pytest
import torch
from torch import nn

import dubio
from dubio.inference.engine import sampling
from dubio.methods import prediction
from dubio.methods.recipe import Recipe
from dubio.networks.draws import BlockDraws
from dubio.torch_module.dropout_sites import OwnDropout
from dubio.torch_module.wrapped_module import wrap
from tests.torch_module.helpers import Convnet, dropping, perceptron, pictures, table


def test_draws_depend_on_the_row_and_not_on_the_batch(monkeypatch):
    inputs, _ = pictures(40)
    fitted = dubio.fit("mc-dropout", network=Convnet, train=pictures(), epochs=1, samples=3)
    whole = fitted.predict(inputs).logits
    np.testing.assert_array_equal(fitted.predict(inputs).logits, whole)
    np.testing.assert_allclose(fitted.predict(inputs[:17]).logits, whole[:, :17], atol=1e-6)
    monkeypatch.setattr(prediction, "EVALUATION_BATCH", 7)
    np.testing.assert_allclose(fitted.predict(inputs).logits, whole, atol=1e-6)
    assert np.abs(whole[0] - whole[1]).max() > 1e-3


def test_a_sample_is_the_module_with_the_drawn_masks():
    module = dropping(0.25)
    inputs = torch.from_numpy(table(10)[0])
    wanted = deepcopy(module)
    model = wrap(module, Recipe("mine", edits=(OwnDropout(),), samples=2), inputs[:3]).eval()
    rows = np.arange(10)
    given = BlockDraws(5).rows("2", "uniform", 8, range(1), rows)[0]
    (noise,) = model.noises()
    with sampling(model), torch.no_grad():
        noise.given = given
        found = model(inputs)
        hidden = wanted[1](wanted[0](inputs))
        torch.testing.assert_close(found, wanted[3](hidden * (given >= 0.25) / 0.75))


def test_each_use_of_a_layer_has_draws_of_its_own_and_channels_share_one():
    model = wrap(Convnet(), Recipe("mine", edits=(OwnDropout(),), samples=2), torch.zeros(3, 1, 6, 6))
    assert {site.name: site.width for site in model.sites() if site.noise} == {"channels": 3, "drop": 27, "drop#2": 6}
    assert model.rates() == {"channels": 0.25, "drop": 0.5, "drop#2": 0.5}


class Attending(nn.Module):
    """A transformer layer, whose fused kernel would pass over its dropout in evaluation."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(9, 8)
        self.layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.3, batch_first=True)
        self.fc = nn.Linear(8, 2)

    def forward(self, tokens):
        return self.fc(self.layer(self.embed(tokens)).mean(1))


def test_a_transformer_on_tokens():
    generator = np.random.default_rng(0)
    tokens, labels = generator.integers(0, 9, size=(24, 5)), np.arange(24) % 2
    fitted = dubio.fit("mc-dropout", network=Attending, train=(tokens, labels), epochs=1, samples=2)
    assert set(fitted.records[0]["rates"]) == {"layer.dropout", "layer.dropout1", "layer.dropout2"}
    found = fitted.predict(tokens).logits
    assert np.abs(found[0] - found[1]).max() > 1e-3
    gaussian = dubio.fit(
        "mean-field-vi", network=Attending, train=(tokens, labels), epochs=1, samples=2, log_sigma=-1.0
    )
    drawn = gaussian.predict(tokens).logits
    assert np.abs(drawn[0] - drawn[1]).max() > 1e-2


class Turned(nn.Module):
    """Drops with the batch on the second axis."""

    def __init__(self):
        super().__init__()
        self.drop = nn.Dropout(0.5)
        self.fc = nn.Linear(4, 3)

    def forward(self, x):
        return self.fc(self.drop(x.T).T)


@pytest.mark.parametrize(
    ("module", "words"),
    [
        (perceptron(), "the module has no nn.Dropout layer"),
        (nn.Sequential(nn.AlphaDropout(0.5), nn.Linear(4, 3)), "'0' is an AlphaDropout"),
        (nn.Sequential(nn.Dropout(1.0), nn.Linear(4, 3)), "p=1.0; it must be"),
        (Turned(), "the first axis must be the batch"),
    ],
)
def test_dropout_that_cannot_be_drawn_is_refused(module, words):
    with pytest.raises(dubio.UserError, match=words):
        dubio.fit("mc-dropout", network=module, train=table(), epochs=1)
