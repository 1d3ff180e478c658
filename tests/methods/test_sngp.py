"""SNGP and its combinations: what they are made of, what they share, and that the variance reaches the scores."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from dubio.core.errors import UserError
from dubio.core.predictions import pool_members
from dubio.core.registry import METHODS, TASKS
from dubio.core.specs import describe, restore
from dubio.core.types import Examples, SourceCard, Split, Task
from dubio.encoders import encoding_for
from dubio.formats.predictions import read_predictions, write_predictions
from dubio.inference.posterior import Mixture
from dubio.inference.samples import WeightSamples
from dubio.methods import FitContext, NetworkSpec, fit, fit_spec, pred_spec
from dubio.methods.recipe import Recipe
from dubio.metrics.quantities import uncertainty
from dubio.networks.heads.gp import RandomFeatureGP
from dubio.networks.spectral import SpectralNorm
from dubio.tasks.sources.locate import DataMissing
from dubio.testing import check_method, check_network
from tests.methods.helpers import Kept, predict

NAMES = [entry.name for entry in METHODS.entries() if entry.facts.get("family") == "sngp"]

SMALL = {"features": 32, "epochs": 6, "batch": 16, "lr": 0.01}
CARD = SourceCard("made here", "1", "none", "none")


def blobs(rows=160, target="multiclass", seed=0):
    generator = np.random.default_rng(seed)
    labels = generator.integers(0, 3, size=rows)
    inputs = (np.eye(3)[labels] * 4 + generator.normal(size=(rows, 3))).astype(np.float32)
    if target == "multilabel":
        labels = np.stack([inputs[:, k] > 2 for k in range(3)], axis=1).astype(np.int64)
    cuts = {"train": slice(0, rows // 2), "val": slice(rows // 2, 3 * rows // 4), "id": slice(3 * rows // 4, rows)}
    splits = tuple(Split.of(kind, kind, Examples(inputs[cut], labels[cut])) for kind, cut in cuts.items())
    return Task("blobs", "table", target, tuple("abc"), splits, CARD)


def spec_of(name, task, seed=0, member=0, **arguments):
    recipe = METHODS.make(name, **{**SMALL, **arguments})
    network = NetworkSpec("mlp", {"hidden": [8, 8]})
    return recipe, fit_spec(recipe, task, encoding_for("table", {}), network, seed=seed, member=member)


def predicted(name, task, member=0, **arguments):
    recipe, spec = spec_of(name, task, member=member, **arguments)
    fitted = fit(spec, task, FitContext())
    asked = pred_spec(recipe, "f", seed=0, member=member)
    return fitted, predict(spec, asked, fitted.tensors, fitted.encoder, task.split("id"))


def test_the_rows_are_those_of_the_paper_and_the_head_alone():
    recipes = {name: METHODS.make(name) for name in NAMES}
    assert len(recipes) == 11
    assert all(isinstance(recipe.head, RandomFeatureGP) for recipe in recipes.values())
    bounded = {name for name, recipe in recipes.items() if SpectralNorm(15.0) in recipe.edits}
    assert bounded == set(recipes) - {"gp-head"}
    axes = {(tuple(type(edit).__name__ for edit in r.edits), r.samples > 0, r.members > 1) for r in recipes.values()}
    assert len(axes) == 11
    for recipe in recipes.values():
        assert restore(json.loads(json.dumps(describe(recipe)))) == recipe


def test_ten_combinations_share_three_fits_and_the_bound_makes_others():
    task = blobs()
    fits = {repr(spec_of(name, task)[1]) for name in NAMES if name != "gp-head"}
    assert len(fits) == 3
    assert spec_of("sngp", task)[1] == spec_of("sngp-ensemble", task)[1]
    assert spec_of("sngp-regularised", task)[1] == spec_of("mc-sngp", task)[1]
    assert spec_of("sngp", task)[1] != spec_of("sngp", task, spectral=2.0)[1]


@pytest.mark.parametrize(
    ("name", "inputs"), [("sngp", "table"), ("mc-sngp-concrete-dropout", "table"), ("gp-head", "text")]
)
def test_methods_conform(name, inputs):
    assert check_method(name, inputs=(inputs,), arguments={"features": 64, "epochs": 8, "lr": 0.03}) == []


def test_the_networks_conform():
    for name in ("textcnn-v2", "mlp", "cnn"):
        assert check_network(name) == []


@pytest.mark.parametrize(("name", "samples"), [("sngp", 1), ("mc-sngp", 10), ("mc-sngp-concrete-dropout", 10)])
@pytest.mark.parametrize("target", ["multiclass", "multilabel"])
def test_the_variance_of_every_sample_is_predicted_and_stored(name, samples, target, tmp_path):
    task = blobs(target=target)
    _, found = predicted(name, task)
    assert found.model_variance is not None
    assert found.model_variance.shape == (samples, 40)
    assert (found.model_variance > 0).all()
    assert found.data_variance is None
    write_predictions(tmp_path / "p.safetensors", found)
    again = read_predictions(tmp_path / "p.safetensors")
    assert np.array_equal(again.model_variance, found.model_variance)
    model = uncertainty(found, "model_uncertainty")
    if samples == 1:
        assert np.allclose(model, found.model_variance[0])
    else:
        link = (lambda z: 1 / (1 + np.exp(-z))) if target == "multilabel" else _softmax
        assert np.allclose(model, link(found.logits.astype(np.float64)).var(axis=0).mean(axis=-1), atol=1e-6)


def _softmax(z):
    z = np.exp(z - z.max(-1, keepdims=True))
    return z / z.sum(-1, keepdims=True)


def test_an_ensemble_keeps_the_variance_of_each_member():
    task = blobs()
    parts = [predicted("sngp", task, member=member)[1] for member in (0, 1)]
    pooled = pool_members(parts)
    assert np.array_equal(pooled.model_variance, np.concatenate([part.model_variance for part in parts]))
    recipe, _ = spec_of("sngp-ensemble", task, members=2)
    posterior = recipe.fit(task, NetworkSpec("mlp", {"hidden": [8, 8]}), seed=0, context=FitContext())
    assert isinstance(posterior, Mixture)
    sampled = posterior.draw(0).predict(torch.zeros(5, 3), np.arange(5))
    assert sampled.model_variance.shape == (2, 5)
    assert sampled.logits.shape == (2, 5, 3)


def test_several_states_of_one_fit_are_scored_by_the_head():
    # the output of this head is not its logits, so that states cannot be mapped over
    task = blobs()
    recipe, _ = spec_of("sngp", task)
    single = recipe.fit(task, NetworkSpec("mlp", {"hidden": [8, 8]}), seed=0, context=FitContext())
    batch, rows = torch.ones(4, 3), np.arange(4)
    once = single.draw(0).predict(batch, rows)
    twice = WeightSamples(single.model, (single.states[0], single.states[0])).draw(0).predict(batch, rows)
    assert torch.equal(twice.logits, once.logits.repeat(2, 1, 1))
    assert torch.equal(twice.model_variance, once.model_variance.repeat(2, 1))


def test_a_resumed_training_is_the_uninterrupted_one():
    task = blobs()
    _, spec = spec_of("sngp-regularised", task, spectral=0.8)
    whole = fit(spec, task, FitContext())
    cut = Kept(stop_after=3)
    with pytest.raises(KeyboardInterrupt):
        fit(spec, task, FitContext(checkpoint=cut))
    resumed = fit(spec, task, FitContext(checkpoint=cut))
    assert whole.tensors.keys() == resumed.tensors.keys()
    assert all(np.array_equal(whole.tensors[name], resumed.tensors[name]) for name in whole.tensors)
    assert any(name.endswith("head.root") for name in whole.tensors)


def test_the_stored_weights_in_use_respect_the_bound():
    task, s = blobs(), 0.5
    recipe, _ = spec_of("sngp", task, spectral=s, epochs=20)
    posterior = recipe.fit(task, NetworkSpec("mlp", {"hidden": [8, 8]}), seed=0, context=FitContext())
    posterior.draw(0)
    for stage in posterior.model.network.stages:
        assert np.linalg.svd(stage.linear.weight.detach().numpy(), compute_uv=False)[0] <= s * (1 + 1e-3)


def test_what_a_network_cannot_do_is_said():
    with pytest.raises(UserError, match="nothing in this recipe is random"):
        Recipe("x", edits=(SpectralNorm(1.0),), samples=3)
    texts = Examples(("a b a b", "c d c d", "a b c d"), np.array([0, 1, 0]))
    splits = tuple(Split.of(kind, kind, texts) for kind in ("train", "val", "id"))
    task = Task("t", "text", "multiclass", ("a", "b"), splits, CARD)
    encoding, recipe = encoding_for("text", {"min_frequency": 1}), METHODS.make("sngp", **SMALL)
    spec = fit_spec(recipe, task, encoding, NetworkSpec("textcnn"), seed=0, member=0)
    with pytest.raises(UserError, match="'gp-head'"):
        fit(spec, task, FitContext())


def test_real_requests_are_learned(data_dir: Path, monkeypatch):
    monkeypatch.setenv("DUBIO_DATA", str(data_dir))
    try:
        whole = TASKS.make("clinc")
    except DataMissing:
        pytest.skip("CLINC is not among the real data")
    splits = []
    for kind, many in (("train", 100), ("val", 20), ("id", 30)):
        split = whole.of_kind(kind)[0]
        rows = np.concatenate([np.flatnonzero(split.data.labels == k)[:many] for k in range(4)])
        splits.append(Split.of(kind, kind, split.data.take(rows)))
    task = Task("some", "text", "multiclass", whole.classes[:4], tuple(splits), whole.card)
    network = NetworkSpec("textcnn-v2", {"embedding": 32, "maps": 16, "length": 30})
    recipe = METHODS.make("sngp", features=128, epochs=8, lr=0.005)
    spec = fit_spec(recipe, task, encoding_for("text", {}), network, seed=0, member=0)
    fitted = fit(spec, task, FitContext())
    found = predict(spec, pred_spec(recipe, "f", seed=0, member=0), fitted.tensors, fitted.encoder, task.split("id"))
    assert (found.probs.argmax(1) == found.labels).mean() > 0.9
