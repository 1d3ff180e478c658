"""Laplace as a method: what it is made of, what it shares, what it stores and says, that it conforms and composes."""

import json
from dataclasses import replace

import numpy as np
import pytest

from dubio.core.errors import UserError
from dubio.core.registry import METHODS
from dubio.core.specs import describe, restore
from dubio.encoders import encoding_for
from dubio.inference.augmentation import ShiftFlip, Views
from dubio.inference.posterior import Mixture
from dubio.methods import FitContext, NetworkSpec, fit, fit_spec, pred_spec
from dubio.methods.recipe import Recipe
from dubio.networks.gaussian_weights import GaussianWeights
from dubio.networks.heads.heteroscedastic import Heteroscedastic
from dubio.testing import assert_ok, check_method
from dubio.testing.tasks import SMALL_NETWORKS, small_task
from dubio.training.laplace.collector import Laplace
from dubio.training.objectives import Objective
from tests.methods.helpers import blobs, predict

SMALL = {"epochs": 4, "batch": 16, "lr": 0.01, "samples": 3}
STRUCTURES = ("kron", "diag", "last-full", "last-kron", "last-diag")


def spec_of(recipe, task, start_id=None, network=("mlp", {"hidden": [8, 8]}), seed=0):
    encoding = encoding_for(task.inputs, {"min_frequency": 1} if task.inputs == "text" else {})
    return fit_spec(recipe, task, encoding, NetworkSpec(*network), seed=seed, member=0, start_id=start_id)


def both(recipe, task, **more):
    """The fits of a recipe's start and of itself."""
    parent = fit(spec_of(recipe.start, task, **more), task, FitContext())
    return parent, fit(spec_of(recipe, task, "p", **more), task, FitContext(start=parent.tensors))


def predicted(recipe, task, fitted, **more):
    asked = pred_spec(recipe, "f", seed=0, member=0)
    return predict(spec_of(recipe, task, "p", **more), asked, fitted.tensors, fitted.encoder, task.of_kind("id")[0])


def test_it_is_a_zero_epoch_child_of_the_deterministic_method_of_the_same_arguments():
    recipe = METHODS.make("laplace", epochs=7, lr=0.02, l2=1e-4, optimiser="sgd", structure="diag", samples=5)
    plain = METHODS.make("deterministic", epochs=7, lr=0.02, l2=1e-4, optimiser="sgd")
    assert recipe.collect == Laplace("diag", 5, norm_examples=2048)
    assert recipe.objective.epochs == 0
    assert (recipe.samples, recipe.states, recipe.pooled) == (0, 5, 5)
    task = blobs()
    assert spec_of(recipe.start, task) == spec_of(plain, task)
    assert METHODS.make("laplace-ensemble").members == 5
    assert restore(json.loads(json.dumps(describe(recipe)))) == recipe
    ensemble = METHODS.make(
        "laplace-ensemble", epochs=7, lr=0.02, l2=1e-4, optimiser="sgd", structure="diag", samples=5
    )
    assert spec_of(ensemble, task) == spec_of(recipe, task)


@pytest.mark.parametrize("structure", STRUCTURES)
@pytest.mark.parametrize("target", ["multiclass", "multilabel"])
def test_every_structure_predicts_from_what_is_stored_and_says_what_is_random(structure, target):
    task = blobs(target)
    recipe = METHODS.make("laplace", **SMALL, structure=structure, scale=1.0)
    parent, child = both(recipe, task)
    found = predicted(recipe, task, child)
    assert found.logits.shape == (3, 40, 3)
    assert not np.array_equal(found.logits[0], found.logits[1])
    said = child.record["laplace"]
    layers = {"head.linear"} if structure.startswith("last") else {"head.linear", "network.stages.0.linear"}
    assert layers <= {name.rpartition(".")[0] for name in said["random"]}
    assert said["random_parameters"] + said["fixed_parameters"] == parent.record["parameters"]
    assert said["scale"] == 1.0
    assert said["log_evidence"] < said["log_likelihood"] < 0
    assert np.isfinite(child.record["val_nll"])
    # θ* is the parent's, whatever is random
    for name in said["random"]:
        assert np.array_equal(child.tensors[f"distribution/point/{name}"], parent.tensors[f"0/{name}"])
    for name in said["fixed"]:
        assert np.array_equal(child.tensors[f"fixed/{name}"], parent.tensors[f"0/{name}"])


def test_the_prior_is_the_decay_the_evidence_or_what_validation_says():
    task = blobs()
    said = {
        prior: both(METHODS.make("laplace", **SMALL, l2=1e-3, prior=prior), task)[1].record["laplace"]
        for prior in ("decay", "marginal-likelihood", "validation")
    }
    assert said["decay"]["prior_precision"] == pytest.approx(80 * 1e-3)
    evidence = [said[prior]["log_evidence"] for prior in ("decay", "validation")]
    assert said["marginal-likelihood"]["log_evidence"] >= max(evidence)
    assert 80 * 10**-6.26 <= said["validation"]["prior_precision"] <= 80 * 10**-1.74
    with pytest.raises(UserError, match=r"prior='decay'.*l2.*0\.0.*marginal-likelihood"):
        METHODS.make("laplace", **SMALL, prior="decay")  # no training is needed to know


def test_an_overconfident_network_is_softened():
    task = blobs(apart=1.0)
    recipe = METHODS.make(
        "laplace", epochs=150, patience=0, collect="last", batch=16, lr=0.02, samples=20, structure="last-full"
    )
    parent, child = both(recipe, task)
    assert child.record["val_nll"] < 0.8 * parent.record["val_nll"]
    assert child.record["laplace"]["scale"] > 0.05


def test_one_fit_serves_plain_predictions_and_those_with_views():
    task = small_task("image")
    network = SMALL_NETWORKS["image"]
    more = {**SMALL, "shift": 1, "epochs": 8}
    plain, viewed = METHODS.make("laplace", **more), METHODS.make("laplace", **more, views=1)
    assert plain.views is None
    assert viewed.views == Views(ShiftFlip(1), 1)
    assert spec_of(plain, task, network=network) == spec_of(viewed, task, network=network)
    _, child = both(plain, task, network=network)
    scales = child.record["laplace"]
    assert float(child.tensors["distribution/scale"]) == scales["scale"]
    assert float(child.tensors["viewed/scale"]) == scales["scale_with_views"]
    # with one scale far off, only the predictions that use it change
    other = {**child.tensors, "viewed/scale": np.array(3.0)}
    spec, split = spec_of(plain, task, "p", network=network), task.of_kind("id")[0]
    for recipe, same in ((plain, True), (viewed, False)):
        asked = pred_spec(recipe, "f", seed=0, member=0)
        one, two = (predict(spec, asked, tensors, child.encoder, split).logits for tensors in (child.tensors, other))
        assert np.array_equal(one, two) == same


@pytest.mark.parametrize("network", ["textcnn", "textcnn-v2"])
def test_of_a_text_network_convolutions_are_random_and_embeddings_stay(network):
    task = small_task("text")
    recipe = METHODS.make("laplace", **SMALL)
    given = (network, {"embedding": 6, "maps": 4, "kernels": [2, 3]})
    _, child = both(recipe, task, network=given)
    said = child.record["laplace"]
    assert said["fixed"] == ["network.stages.0.table.weight"]
    assert predicted(recipe, task, child, network=given).logits.shape[0] == 3


@pytest.mark.parametrize(
    ("name", "inputs", "more"),
    [
        ("laplace", "table", {}),
        ("laplace", "text", {"structure": "diag", "scale": 0.01}),
        ("laplace", "image", {"views": 1, "shift": 1, "damping": "pi", "scale": 0.1, "epochs": 8}),
        ("laplace-ensemble", "table", {"members": 2, "structure": "last-full", "prior": "validation", "scale": 1.0}),
    ],
)
def test_methods_conform(name, inputs, more):
    arguments = {"epochs": 15, "batch": 16, "lr": 0.02, "samples": 4, **more}
    assert_ok(check_method(name, inputs=(inputs,), arguments=arguments))


def test_an_ensemble_has_an_approximation_a_member():
    many = METHODS.make("laplace-ensemble", **SMALL, members=2, scale=0.5)
    posterior = many.fit(blobs(), NetworkSpec("mlp", {"hidden": [8, 8]}), seed=0, context=FitContext())
    assert isinstance(posterior, Mixture)
    assert posterior.draw(0).member == (0, 0, 0, 1, 1, 1)


@pytest.mark.parametrize("starts", [True, False])
def test_too_large_a_last_layer_is_refused_before_anything_is_trained(starts):
    told, task, network = [], blobs(), NetworkSpec("mlp", {"hidden": [2731]})  # 3 × 2732 weights, 8192 allowed
    recipe = METHODS.make("laplace", **SMALL, structure="last-full")
    if not starts:
        recipe = replace(recipe, start=None, objective=recipe.start.objective)
    context = FitContext(progress=lambda *words: told.append(words))
    with pytest.raises(UserError, match="3 × 2732 = 8196"):
        recipe.fit(task, network, seed=0, context=context)
    if not starts:
        with pytest.raises(UserError, match="8196"):
            fit(spec_of(recipe, task, network=(network.name, network.arguments)), task, context)
    assert not told
    replace(recipe, collect=Laplace("last-diag")).fit(task, network, seed=0, context=context)
    assert told


def test_what_cannot_be_is_refused_with_a_reason():
    with pytest.raises(UserError, match=r"structure.*last-full.*\"full\""):
        Laplace("full")
    with pytest.raises(UserError, match=r"damping='pi'.*'diag'.*last-kron"):
        METHODS.make("laplace", structure="diag", damping="pi")
    with pytest.raises(UserError, match=r"scale must be .* above 0"):
        METHODS.make("laplace", scale=0.0)
    with pytest.raises(UserError, match=r"samples must be .* at least 1"):
        METHODS.make("laplace", samples=0)
    task = blobs()
    two_layers = Recipe("x", head=Heteroscedastic(2), objective=Objective(epochs=0, patience=0), collect=Laplace())
    with pytest.raises(UserError, match="HeteroscedasticHead"):
        fit(spec_of(two_layers, task), task, FitContext())
    base = METHODS.make("mean-field-vi", epochs=0, patience=0)
    random = Recipe(
        "x", edits=(GaussianWeights(),), objective=base.objective, optimiser=base.optimiser, collect=Laplace()
    )
    with pytest.raises(UserError, match="Gaussian already"):
        fit(spec_of(random, task), task, FitContext())
    with pytest.raises(UserError, match="no training can continue from the distribution that laplace leaves"):
        Recipe("x", start=METHODS.make("laplace"))
