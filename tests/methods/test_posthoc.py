"""Post-hoc scores and DDU as methods: what they share, what they store, that they conform and compose."""

from __future__ import annotations

import json

import numpy as np
import pytest

from dubio.core.errors import UserError
from dubio.core.registry import METHODS
from dubio.core.specs import describe, restore
from dubio.encoders import encoding_for
from dubio.inference.feature_scores import Density, Mahalanobis, NearestNeighbours
from dubio.inference.posterior import Mixture
from dubio.methods import FitContext, NetworkSpec, encode_split, fit, pred_spec
from dubio.methods.posthoc import ScoreArguments
from dubio.methods.prediction import own_scores, sample_scores
from dubio.networks.spectral import SpectralNorm
from dubio.testing import assert_ok, check_method
from dubio.testing.tasks import SMALL_NETWORKS, small_task
from tests.methods.helpers import blobs, predict
from tests.methods.test_laplace import both, predicted, spec_of

SMALL = {"epochs": 3, "batch": 16, "lr": 0.01}
MLP = NetworkSpec("mlp", {"hidden": [8, 8]})
SEVEN = ("energy", "react", "ash", "mahalanobis", "relative_mahalanobis", "knn", "vim")


def test_the_training_is_that_of_the_deterministic_method_of_the_same_arguments():
    arguments = {"epochs": 7, "lr": 0.02, "l2": 1e-4, "optimiser": "sgd"}
    recipe, plain = METHODS.make("posthoc", **arguments), METHODS.make("deterministic", **arguments)
    task = blobs()
    assert spec_of(recipe.start, task) == spec_of(plain, task)
    assert (recipe.objective.epochs, recipe.states, recipe.pooled) == (0, 1, 0)
    assert tuple(score.name for score in recipe.collect.scores) == SEVEN
    assert restore(json.loads(json.dumps(describe(recipe)))) == recipe
    ensemble = METHODS.make("posthoc-ensemble", **arguments)
    assert ensemble.members == 5
    assert spec_of(ensemble, task) == spec_of(recipe, task)


def test_ddu_bounds_the_weights_before_it_fits_a_density():
    recipe = METHODS.make("ddu", spectral=2.0)
    assert recipe.edits == recipe.start.edits == (SpectralNorm(2.0),)
    assert recipe.collect.scores == (Density(),)
    assert recipe.start.objective.epochs == 45


def test_arguments_reach_their_scores():
    arguments = ScoreArguments(temperature=2.0, rectify=0.8, prune=0.7, neighbour=3, bank=9, principal=0.25)
    energy, react, ash, knn, vim = arguments.named(("energy", "react", "ash", "knn", "vim"))
    assert (energy.temperature, react.share, ash.share, knn.k, knn.bank, vim.share) == (2.0, 0.8, 0.7, 3, 9, 0.25)
    recipe = METHODS.make("posthoc", neighbour=3, scores=("knn", "mahalanobis"))
    assert recipe.collect.scores == (NearestNeighbours(3), Mahalanobis())
    with pytest.raises(UserError, match="mahalanobi"):
        METHODS.make("posthoc", scores=("mahalanobi",))


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"scores": ("react",), "temperature": 2.0}, "temperature=2.0 has no effect: the score 'energy' alone uses it"),
        ({"scores": ("energy",), "neighbour": 7}, "neighbour=7 has no effect: the score 'knn' alone uses it"),
        ({"bank": 10, "neighbour": 12}, r"neighbour must be at most .* in the bank, 10 \(bank\); given 12"),
    ],
)
def test_an_argument_that_no_chosen_score_uses_is_refused(arguments, words):
    for name in ("posthoc", "posthoc-ensemble"):
        with pytest.raises(UserError, match=words):
            METHODS.make(name, **arguments)
    METHODS.make("posthoc", scores=("react",), temperature=1.0)


def test_the_default_neighbour_is_the_last_one_of_a_smaller_bank():
    """A bank of 30 was refused for a neighbour that nobody had given."""
    task, scores = blobs(), []
    for own in ({"neighbour": 30}, {}):
        recipe = METHODS.make("posthoc", **SMALL, scores=("knn",), bank=30, **own)
        scores.append(predicted(recipe, task, both(recipe, task)[1]).scores["knn"])
    np.testing.assert_array_equal(*scores)


@pytest.mark.parametrize(
    ("method", "arguments", "words"),
    [("ddu", {"spectral": -1}, "ddu: spectral must be a number above 0; given -1"),
     ("swag", {"samples": 0}, "swag: samples must be a whole number of at least 1; given 0")],
)  # fmt: skip
def test_a_refusal_names_the_argument_that_was_given(method, arguments, words):
    with pytest.raises(UserError, match=words):
        METHODS.make(method, **arguments)


def test_a_neighbour_beyond_the_training_rows_is_refused_with_their_number():
    """It became the last neighbour, without a word; only the default does, of few rows."""
    task = blobs()
    with pytest.raises(UserError, match="neighbour must be at most the number of training rows, 80; given 81"):
        both(METHODS.make("posthoc", **SMALL, scores=("knn",), neighbour=81), task)
    both(METHODS.make("posthoc", **SMALL, scores=("knn",), neighbour=80), task)
    NearestNeighbours().check_rows(5)


@pytest.mark.parametrize("name", ["posthoc", "ddu"])
def test_scores_arrive_as_columns_and_probabilities_are_those_of_the_network(name):
    task, recipe = blobs(), METHODS.make(name, **SMALL)
    parent, child = both(recipe, task)
    predictions = predicted(recipe, task, child)
    asked = pred_spec(recipe.start, "f", seed=0, member=0)
    plain = predict(spec_of(recipe.start, task), asked, parent.tensors, parent.encoder, task.of_kind("id")[0])
    assert np.array_equal(predictions.logits, plain.logits)
    assert tuple(predictions.scores) == (SEVEN if name == "posthoc" else ("density",))
    for score in predictions.scores.values():
        assert score.shape == (40,)
        assert np.ptp(score) > 0
    assert child.record["scores"]["rows"] == 80
    assert child.record["val_nll"] == pytest.approx(parent.record["val_nll"], rel=1e-5)


def test_several_labels_have_the_scores_that_need_no_class():
    task, recipe = blobs("multilabel"), METHODS.make("posthoc", **SMALL)
    _, child = both(recipe, task)
    assert tuple(predicted(recipe, task, child).scores) == ("energy", "react", "ash", "knn")
    posterior = recipe.fit(task, MLP, seed=0, context=FitContext())
    assert posterior.scores == recipe.collect.scores[:3] + recipe.collect.scores[5:6]


def test_the_scores_of_an_ensemble_are_means_over_its_members():
    task, recipe = blobs(), METHODS.make("posthoc-ensemble", **SMALL, members=2)
    posterior = recipe.fit(task, MLP, seed=0, context=FitContext())
    assert isinstance(posterior, Mixture)
    encoded = encode_split(encoding_for("table", {}), task.of_kind("train")[0], task.of_kind("id")[0])
    arrays = sample_scores(posterior.draw(0), encoded, 3, "cpu")
    assert arrays["own.knn"].shape == (2, 40)
    np.testing.assert_allclose(own_scores(arrays)["knn"], arrays["own.knn"].astype(np.float64).mean(axis=0))


@pytest.mark.parametrize("inputs", ["table", "image", "text"])
def test_posthoc_conforms(inputs):
    assert_ok(check_method("posthoc", inputs=(inputs,)))


def test_ddu_conforms_where_the_network_offers_weights():
    assert_ok(check_method("ddu", inputs=("table", "image")))
    task = small_task("text")
    recipe = METHODS.make("ddu", **SMALL)
    with pytest.raises(UserError, match=r"offers no weight for 'spectral_norm'.*density"):
        fit(spec_of(recipe.start, task, network=SMALL_NETWORKS["text"]), task, FitContext())


def test_features_are_stored_where_asked_and_training_is_shared():
    plain, asked = (METHODS.make("deterministic", **SMALL, **more) for more in ({}, {"store_features": "last"}))
    task = blobs()
    assert spec_of(plain, task) == spec_of(asked, task)
    fitted, split = fit(spec_of(plain, task), task, FitContext()), task.of_kind("id")[0]
    specs = [pred_spec(recipe, "f", seed=0, member=0) for recipe in (plain, asked)]
    assert specs[1] == {**specs[0], "features": "last"}
    without, stored = (predict(spec_of(plain, task), s, fitted.tensors, fitted.encoder, split) for s in specs)
    assert without.features is None
    assert stored.features.shape == (1, 40, 8)
    assert np.array_equal(stored.logits, without.logits)
    weight, bias = (fitted.tensors[f"0/head.linear.{name}"] for name in ("weight", "bias"))
    np.testing.assert_allclose(stored.features[0] @ weight.T + bias, stored.logits[0], atol=0.02)
    with pytest.raises(UserError, match=r"store_features.*'last', the number of a layer"):
        METHODS.make("deterministic", store_features="first")
