"""Predictions of a fitted module: inputs that cannot be used are named by row and type."""

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader

import dubio
from dubio.inference.predictor import load_state
from tests.torch_module.helpers import ONE_EPOCH, Listed, dataset, perceptron, table, with_value


@pytest.fixture(scope="module")
def fitted():
    return dubio.fit("deterministic", network=perceptron, train=table(), **ONE_EPOCH)


@pytest.mark.parametrize("make", [with_value, lambda v: with_value(v)[0], dataset, lambda v: DataLoader(dataset(v))])
def test_predictions_name_the_row_of_the_inputs(fitted, make):
    with pytest.raises(dubio.UserError, match=r"x: row 7 \(counted from 0\) is nan at 2"):
        fitted.predict(make(np.nan))
    with pytest.raises(dubio.UserError, match=r"x: row 7 \(counted from 0\) is nan at 2"):
        fitted.probs(make(np.nan))


def test_whole_numbers_are_floats_where_the_module_takes_floats(fitted):
    whole = np.arange(24).reshape(6, 4) - 9
    wanted = fitted.predict(whole.astype(np.float32)).logits
    np.testing.assert_array_equal(fitted.predict(whole).logits, wanted)
    np.testing.assert_array_equal(fitted.predict(whole.tolist()).logits, wanted)
    examples = Listed(torch.from_numpy(whole), [0] * 6)
    np.testing.assert_array_equal(fitted.predict(DataLoader(examples)).logits, wanted)
    with pytest.raises(dubio.UserError, match="x: inputs have type uint8; the fit saw float32"):
        fitted.predict(np.zeros((2, 4), np.uint8))
    inputs, labels = table()
    rounded = np.round(inputs)
    told = {"network": perceptron, "train": table(), **ONE_EPOCH}
    ours = dubio.fit("deterministic", val=(rounded.astype(np.int64), labels), **told)
    theirs = dubio.fit("deterministic", val=(rounded, labels), **told)
    assert ours.records[0]["history"] == theirs.records[0]["history"]


def test_tokens_must_be_whole_numbers():
    tokens, labels = np.arange(60)[:, None] % 9, np.arange(60) % 2

    def network():
        return nn.Sequential(nn.Embedding(9, 4), nn.Flatten(), nn.Linear(4, 2))

    found = dubio.fit("deterministic", network=network, train=(tokens, labels), **ONE_EPOCH)
    wanted = found.predict(tokens).logits
    np.testing.assert_array_equal(found.predict(tokens.astype(np.int32)).logits, wanted)
    with pytest.raises(dubio.UserError, match="x: inputs have type float32; the fit saw int64"):
        found.predict(tokens.astype(float))
    with pytest.raises(dubio.UserError, match="val: inputs have type float32; those of train have int64"):
        dubio.fit("deterministic", network=network, train=(tokens, labels), val=(tokens * 1.0, labels), **ONE_EPOCH)


def test_the_variance_that_a_last_layer_has_without_samples_is_predicted():
    inputs, labels = table()
    fitted = dubio.fit("vbll", network=perceptron, train=(inputs, labels), samples=0, **ONE_EPOCH)
    predictions = fitted.predict((inputs, labels))
    (posterior,) = fitted.members
    load_state(posterior.model, next(iter(posterior.weight_states())))
    with torch.no_grad():
        features = posterior.model.eval().network(torch.from_numpy(inputs))
        variance = posterior.model.head.weight_variance(features).mean(1)
    np.testing.assert_allclose(predictions.model_variance, variance[None], rtol=1e-5)
