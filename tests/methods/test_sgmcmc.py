"""Cyclical samplers as methods: what they keep, that they learn, resume, and predict with every snapshot."""

import numpy as np
import pytest
import torch

from dubio.core.errors import UnknownName, UserError
from dubio.core.registry import METHODS
from dubio.core.specs import describe, restore
from dubio.encoders import encoding_for
from dubio.inference.samples import WeightSamples
from dubio.methods import FitContext, NetworkSpec, estimate, fit, fit_spec, pred_spec
from dubio.methods.recipe import Recipe
from dubio.networks.noise import DropoutEdit
from dubio.testing import assert_ok, check_method
from dubio.training.collectors import KeepAll
from dubio.training.objectives import Objective
from dubio.training.schedules import Cyclic
from dubio.training.sgmcmc import SGLD
from tests.methods.helpers import Kept, blobs, equal, predict

NAMES = ("csgld", "csghmc", "csgld-ensemble", "csghmc-ensemble")
SMALL = {"epochs": 8, "batch": 16, "cycles": 2, "sampling_epochs": 2, "samples_per_cycle": 2}


def spec_of(recipe, task, seed=0, member=0):
    network = NetworkSpec("mlp", {"hidden": [8, 8]})
    return fit_spec(recipe, task, encoding_for("table", {}), network, seed=seed, member=member)


@pytest.mark.parametrize("name", NAMES)
def test_each_comes_out_by_name_and_survives_its_description(name):
    recipe = METHODS.make(name)
    assert restore(describe(recipe)) == recipe
    assert recipe.states == recipe.pooled == 15
    assert recipe.members == (5 if "ensemble" in name else 1)
    assert recipe.objective.patience == 0


def test_a_rule_trains_as_its_number_does_and_a_number_keeps_its_identity():
    """80 training rows in batches of 16: 5 batches."""
    for rule, value in (("1/n", 1 / 80), ("n/batches^2", 80 / 25)):
        fits = [
            fit(spec_of(METHODS.make("csgld", **SMALL, lr=0.01, temperature=given), blobs()), blobs(), FitContext())
            for given in (rule, value)
        ]
        assert equal(*(one.tensors for one in fits))
    described = describe(METHODS.make("csgld", temperature=0.25).schedule)
    assert described["temperature"] == 0.25
    with pytest.raises(UserError, match=r"temperature .* '1/n', 'n/batches\^2'; given \"1/N\". Did you mean '1/n'"):
        METHODS.make("csgld", temperature="1/N")


@pytest.mark.parametrize(("name", "inputs"), [("csgld", "table"), ("csghmc", "text"), ("csgld", "image")])
def test_methods_conform(name, inputs):
    arguments = {"epochs": 24, "batch": 8, "cycles": 2, "lr": 0.1 if name == "csgld" else 0.01}
    assert_ok(check_method(name, inputs=(inputs,), arguments=arguments))


def test_an_ensemble_conforms():
    assert_ok(check_method("csghmc-ensemble", arguments={**SMALL, "epochs": 16, "members": 2, "lr": 0.02}))


def test_ensembles_share_their_fits_with_the_single_model():
    task = blobs()
    one, many = METHODS.make("csgld", **SMALL), METHODS.make("csgld-ensemble", **SMALL, members=3)
    assert spec_of(one, task) == spec_of(many, task)
    assert spec_of(one, task) != spec_of(METHODS.make("csgld", **SMALL, temperature=0.5), task)


@pytest.mark.parametrize("stop_after", [2, 3, 4, 7])
@pytest.mark.parametrize("name", ["csgld", "csghmc"])
def test_a_resumed_training_equals_the_uninterrupted_one(name, stop_after):
    task = blobs()
    more = {"momentum": 0.9} if name == "csgld" else {}
    spec = spec_of(METHODS.make(name, **SMALL, **more), task)
    whole = fit(spec, task, FitContext())
    checkpoint = Kept(stop_after)
    with pytest.raises(KeyboardInterrupt):
        fit(spec, task, FitContext(checkpoint=checkpoint))
    resumed = fit(spec, task, FitContext(checkpoint=checkpoint))
    assert equal(whole.tensors, resumed.tensors)
    assert whole.record["history"] == resumed.record["history"]
    assert whole.record["val_nll"] == resumed.record["val_nll"]


def test_the_same_seed_gives_the_same_bits_and_noise_is_really_added():
    task = blobs()
    hot, cold = (METHODS.make("csgld", **SMALL, temperature=t) for t in (1.0, 0.0))
    first, again, other, still = (
        fit(spec_of(recipe, task, seed=seed), task, FitContext()).tensors
        for recipe, seed in ((hot, 0), (hot, 0), (hot, 1), (cold, 0))
    )
    assert equal(first, again)
    assert not equal(first, other)
    assert not equal(first, still)


def test_the_number_of_states_is_known_before_training():
    task = blobs()
    for arguments, wanted in (({}, 4), ({"burn_in": 1}, 2), ({"samples_per_cycle": 1}, 2), ({"cycles": 4}, 8)):
        recipe = METHODS.make("csgld", **{**SMALL, **arguments})
        tensors = fit(spec_of(recipe, task), task, FitContext()).tensors
        assert recipe.states == wanted == len({name.partition("/")[0] for name in tensors})
    one = estimate(spec_of(METHODS.make("deterministic"), task), task)["bytes"]
    assert estimate(spec_of(METHODS.make("csgld", **SMALL), task), task)["bytes"] == 4 * one


def test_gradients_are_whole_where_weights_are_sampled():
    task = blobs()
    everywhere = {**SMALL, "cycles": 1, "sampling_epochs": 8, "samples_per_cycle": 8}
    cut, whole = (
        fit(spec_of(METHODS.make("csgld", **everywhere, clip=clip), task), task, FitContext()).tensors
        for clip in (1e-6, 0.0)
    )
    assert equal(cut, whole)
    exploring = {**everywhere, "temperature": 0.0}
    held, free = (
        fit(spec_of(METHODS.make("csgld", **exploring, clip=clip), task), task, FitContext()).tensors
        for clip in (1e-6, 0.0)
    )
    assert not equal(held, free)


@pytest.mark.parametrize("target", ["multiclass", "multilabel"])
def test_every_snapshot_predicts_and_validation_judges_them_together(target):
    task = blobs(target)
    recipe = METHODS.make("csgld", **SMALL, lr=0.2)
    spec, told = spec_of(recipe, task), pred_spec(recipe, "f", seed=0, member=0)
    fitted = fit(spec, task, FitContext())
    found = predict(spec, told, fitted.tensors, fitted.encoder, task.split("val"))
    assert found.logits.shape == (4, 40, 3)
    assert not found.member.any()
    for state in range(4):
        own = {name.replace(f"{state}/", "0/", 1): t for name, t in fitted.tensors.items() if name[0] == str(state)}
        alone = predict(spec, told, own, fitted.encoder, task.split("val"))
        assert np.allclose(alone.logits[0], found.logits[state], atol=1e-5)
    labels = found.labels
    if target == "multilabel":
        each = -np.log(np.where(labels == 1, found.probs, 1 - found.probs)).sum(1)
    else:
        each = -np.log(found.probs[np.arange(40), labels])
    assert fitted.record["val_nll"] == pytest.approx(each.mean(), rel=1e-4)
    assert fitted.record["best_epoch"] == 8


def test_states_and_dropout_masks_go_together():
    task = blobs()
    recipe = Recipe(
        "x", edits=(DropoutEdit(0.5),), objective=Objective(16, 4, 0), optimiser=SGLD(0.1),
        schedule=Cyclic(2, 1, 0.01, 1), collect=KeepAll(), samples=3,
    )  # fmt: skip
    assert recipe.pooled == 6
    spec = spec_of(recipe, task)
    fitted = fit(spec, task, FitContext())
    found = predict(spec, pred_spec(recipe, "f", seed=0, member=0), fitted.tensors, fitted.encoder, task.split("id"))
    assert len({sample.tobytes() for sample in found.logits}) == 6


def test_two_equal_states_draw_masks_of_their_own():
    task = blobs()
    recipe = METHODS.make("mc-dropout", epochs=1, samples=2)
    spec = spec_of(recipe, task)
    tensors = fit(spec, task, FitContext()).tensors
    twice = tensors | {name.replace("0/", "1/", 1): array for name, array in tensors.items()}
    told, encoder = pred_spec(recipe, "f", seed=0, member=0), fit(spec, task, FitContext()).encoder
    one, two = (predict(spec, told, t, encoder, task.split("id")).logits for t in (tensors, twice))
    assert np.array_equal(two[:2], one)
    assert not np.array_equal(two[2:], one)


def test_snapshots_are_float32_and_no_larger_than_the_network():
    task = blobs()
    recipe = METHODS.make("csghmc", **SMALL)
    fitted = fit(spec_of(recipe, task), task, FitContext())
    assert {array.dtype for array in fitted.tensors.values()} == {np.dtype(np.float32)}
    stored = sum(array.size for array in fitted.tensors.values())
    assert stored == recipe.states * fitted.record["parameters"]


def test_nonsense_is_refused_with_the_reason():
    with pytest.raises(UserError, match="multiple of cycles; given epochs=9, cycles=2"):
        METHODS.make("csgld", **{**SMALL, "epochs": 9})
    with pytest.raises(UserError, match="would collect nothing"):
        METHODS.make("csgld", **SMALL, burn_in=2)
    with pytest.raises(UserError, match="at most one snapshot"):
        METHODS.make("csgld", **{**SMALL, "samples_per_cycle": 3})
    with pytest.raises(UnknownName, match="argument of csghmc"):
        METHODS.make("csghmc", momentum=0.9)
    with pytest.raises(UnknownName, match="argument of csgld"):
        METHODS.make("csgld", patience=3)


def test_a_posterior_of_states_is_one_fit():
    task = blobs()
    posterior = METHODS.make("csgld", **SMALL).fit(
        task, NetworkSpec("mlp", {"hidden": [8, 8]}), seed=0, context=FitContext()
    )
    assert isinstance(posterior, WeightSamples)
    drawn = posterior.draw(0)
    assert drawn.member == (0, 0, 0, 0)
    assert drawn.predict(torch.zeros(5, 3), np.arange(5)).logits.shape == (4, 5, 3)
