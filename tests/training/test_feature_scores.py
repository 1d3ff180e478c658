"""The collector of post-hoc scores: which models it accepts, which features it fits to."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from dubio.core.errors import UserError
from dubio.encoders.rows import ArrayRows
from dubio.inference.batches import LabelledRows
from dubio.inference.feature_scores import Density, Energy, Mahalanobis, NearestNeighbours
from dubio.networks.heads.heteroscedastic import Heteroscedastic
from dubio.networks.heads.linear import Softmax
from dubio.networks.mlp import mlp
from dubio.networks.network import Model, Network
from dubio.training.collectors import Collected, FinishContext
from dubio.training.feature_scores import FeatureScores, training_features

SOFTMAX = Softmax()


def model_of(head=SOFTMAX, width=4, classes=3, sets=1):
    torch.manual_seed(0)
    body = mlp((5,), hidden=(6, width))
    return Model(Network(list(body.stages), width, sets=sets), head.build(width, classes))


def context(rows=40, seed=3):
    generator = np.random.default_rng(0)
    values, labels = generator.normal(size=(rows, 5)).astype(np.float32), np.arange(rows) % 3
    data = LabelledRows(ArrayRows(values), labels, 3)
    return FinishContext(data, None, torch.device("cpu"), seed, batch=8)


def test_features_are_those_before_the_last_layer_in_the_order_of_rows():
    model, surroundings = model_of(), context()
    train = training_features(model, surroundings)
    expected = model.eval().network(torch.from_numpy(surroundings.train.encoded.values))
    torch.testing.assert_close(train.features, expected.detach())
    assert train.labels.tolist() == surroundings.train.labels.tolist()


def test_more_rows_than_fit_in_memory_are_a_seeded_subset(monkeypatch):
    monkeypatch.setattr("dubio.training.feature_scores.TRAINING_ELEMENTS", 10 * 4)
    whole, model = context().train, model_of()
    train = training_features(model, context())
    assert train.features.shape == (10, 4)
    every = model.network(torch.from_numpy(whole.encoded.values)).detach()
    rows = [int((every - row).abs().sum(1).argmin()) for row in train.features]
    assert rows == sorted(set(rows))
    assert train.labels.tolist() == whole.labels[rows].tolist()
    assert not torch.equal(train.features, training_features(model, context(seed=4)).features)


def test_finish_keeps_the_weights_and_records_what_was_fitted():
    model, collected = model_of(), Collected()
    posterior = FeatureScores((Mahalanobis(), Energy())).finish(collected, model, context())
    assert posterior.state.keys() == model.state_dict().keys()
    facts = collected.facts["record"]["scores"]
    assert (facts["names"], facts["rows"], facts["width"]) == (["mahalanobis", "energy"], 40, 4)
    assert facts["elements"] == 4 + 16 + 12


def test_features_that_are_not_finite_are_refused():
    model = model_of()
    with torch.no_grad():
        model.network.stages[1].linear.weight.fill_(float("nan"))
    with pytest.raises(UserError, match="not finite"):
        FeatureScores((Energy(),)).finish(Collected(), model, context())


def test_models_without_such_features_are_refused():
    collector = FeatureScores((Energy(), Density()))
    collector.check(model_of())
    with pytest.raises(UserError, match=r"score energy: needs a softmax .* HeteroscedasticHead"):
        collector.check(model_of(Heteroscedastic(3)))
    FeatureScores((NearestNeighbours(),)).check(model_of(Heteroscedastic(3)))
    with pytest.raises(UserError, match="one set of features per example; given 2"):
        collector.check(model_of(sets=2))
    whole = model_of()
    whole.head.linear = nn.Identity()
    with pytest.raises(UserError, match="plain dense one with a bias"):
        collector.check(whole)
    with pytest.raises(UserError, match="density: 70000 covariances"):
        collector.check(model_of(width=32, classes=70000))


def test_scores_that_need_classes_are_left_out_of_several_labels():
    collector = FeatureScores((Energy(), Density(), NearestNeighbours()))
    assert collector.for_target("ordinal") is collector
    assert collector.for_target("multilabel").scores == (Energy(), NearestNeighbours())
    with pytest.raises(UserError, match="density need one class per example"):
        FeatureScores((Density(),)).for_target("multilabel")


def test_each_score_is_named_once():
    with pytest.raises(UserError, match="at least one, each once; given energy, energy"):
        FeatureScores((Energy(), Energy()))
    with pytest.raises(UserError, match="at least one"):
        FeatureScores(())
