"""Ensembles inside one network as methods: their members are samples, stored and restored like those of any other."""

from __future__ import annotations

import numpy as np
import pytest

from dubio.core.errors import UserError
from dubio.core.registry import METHODS
from dubio.encoders import TextEncoding, encoding_for
from dubio.methods import FitContext, NetworkSpec, estimate, fit, fit_recipe, fit_spec, pred_spec, predict_with
from dubio.methods.encoding_cache import encode_split
from dubio.methods.recipe import Recipe
from dubio.methods.specification import build_model
from dubio.metrics.quantities import uncertainty
from dubio.networks.batch_ensemble import BatchEnsemble
from dubio.networks.multi_head import MultiHead
from dubio.networks.noise import DropoutEdit
from dubio.networks.packed import Packed
from dubio.runner.costs import stored_samples
from dubio.statistics.ensemble_equivalent import growth_curve
from dubio.testing import assert_ok, check_method
from dubio.testing.tasks import SMALL_NETWORKS, small_task
from tests.methods.helpers import predict

NAMES = [entry.name for entry in METHODS.entries() if entry.facts.get("family") == "cheap-ensembles"]
QUICK = {"epochs": 10, "batch": 16, "lr": 0.02}


def spec_of(name, inputs="table", **arguments):
    task, recipe = small_task(inputs), METHODS.make(name, **{**QUICK, **arguments})
    encoding = TextEncoding(min_frequency=1) if inputs == "text" else encoding_for(inputs, {})
    return task, recipe, fit_spec(recipe, task, encoding, NetworkSpec(*SMALL_NETWORKS[inputs]), seed=0, member=0)


def test_a_batch_that_would_leave_masks_without_examples_is_refused():
    words = r"masksembles: batch must be at least 4: an example of a batch trains one of 4 members.*; given 3\."
    with pytest.raises(UserError, match=words):
        METHODS.make("masksembles", batch=3)
    METHODS.make("masksembles", batch=4)
    METHODS.make("batch-ensemble", batch=1)  # every example trains every member


def test_there_is_one_method_for_each():
    assert set(NAMES) == {"packed-ensemble", "batch-ensemble", "masksembles", "multi-head", "mimo"}


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("inputs", ["table", pytest.param("image", marks=pytest.mark.slow), "text"])
def test_it_conforms(name, inputs):
    if inputs in (METHODS.entry(name).facts.get("inputs") or ("table", "image", "text")):
        assert_ok(check_method(name, inputs=(inputs,), arguments={**QUICK, "epochs": 15}))


@pytest.mark.parametrize("name", NAMES)
def test_its_members_are_samples_of_which_everything_is_computed(name):
    task, recipe, spec = spec_of(name)
    result, split = fit(spec, task, FitContext()), task.of_kind("id")[0]
    prediction = pred_spec(recipe, "f", seed=0, member=0)
    stored = predict(spec, prediction, result.tensors, result.encoder, split)
    assert stored.logits.shape == (recipe.sets, len(split), 3)
    np.testing.assert_array_equal(stored.member, np.arange(recipe.sets))
    assert recipe.pooled == stored_samples(prediction, spec) == recipe.sets
    assert len(growth_curve(stored, unit="sample", orders=2)) == recipe.sets
    assert (uncertainty(stored, "mutual_information") >= -1e-6).all()
    # the stored fit predicts what the one in memory does
    posterior = fit_recipe(recipe, task, NetworkSpec(*SMALL_NETWORKS["table"]), seed=0, context=FitContext())
    rows = encode_split(encoding_for("table", {}), task.of_kind("train")[0], split)
    again = predict_with(posterior, rows, split, {"target": task.target, "classes": task.classes}, seed=0)
    np.testing.assert_allclose(again.logits, stored.logits, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", NAMES)
def test_on_a_network_whose_head_sees_pixels_it_trains_or_is_refused_by_name(name):
    """BatchEnsemble failed in training, which begins at a regression on the pixels, and MIMO in its first pass."""
    task, recipe = small_task("image"), METHODS.make(name, **QUICK)
    network = NetworkSpec("cnn-linear", {"channels": [8, 8]})
    spec = fit_spec(recipe, task, encoding_for("image", {}), network, seed=0, member=0)
    if name in ("packed-ensemble", "mimo"):
        method = name.removesuffix("-ensemble")
        with pytest.raises(UserError, match=rf"^{method}.*: .*pixels, which members cannot .*; use another network"):
            fit(spec, task, FitContext())
        return
    result, split = fit(spec, task, FitContext()), task.of_kind("id")[0]
    stored = predict(spec, pred_spec(recipe, "f", seed=0, member=0), result.tensors, result.encoder, split)
    assert stored.logits.shape[0] == recipe.sets
    assert np.isfinite(stored.logits).all()


def test_dropout_combines_with_members():
    task, _, spec = spec_of("packed-ensemble")
    recipe = Recipe("both", edits=(Packed(2, 2.0), DropoutEdit(0.2)), samples=3)
    spec = fit_spec(recipe, task, encoding_for("table", {}), NetworkSpec("mlp", {"hidden": [16]}), seed=0, member=0)
    assert recipe.pooled == 6
    model = build_model(spec, (2,))
    assert [site.sets for site in model.sites() if site.noise is not None] == [2]


def test_two_edits_with_members_are_refused():
    with pytest.raises(UserError, match="batch_ensemble and multi_head would each make members"):
        Recipe("both", edits=(BatchEnsemble(2), MultiHead(2)))


def test_a_forecast_knows_that_masks_train_one_member_and_predict_with_all():
    """A prediction of Masksembles computes M rows where a training pass computes one."""
    costs = {}
    for name in ("deterministic", "masksembles"):
        task, _, spec = spec_of(name)
        costs[name] = estimate(spec, task, pace=1.0)
    assert costs["masksembles"]["pass"] == pytest.approx(4 * costs["deterministic"]["pass"])
    assert costs["masksembles"]["seconds"] > costs["deterministic"]["seconds"]


def test_the_multi_label_head_has_members_too():
    recipe = METHODS.make("batch-ensemble", **QUICK).for_task("table", "multilabel")
    assert type(recipe.head).__name__ == "Sigmoid"
