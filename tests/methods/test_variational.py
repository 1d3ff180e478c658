"""Mean-field VI as a method: what it is made of, what it shares, that it learns, resumes, and composes."""

import json

import numpy as np
import pytest
import torch

from dubio.core.errors import UserError
from dubio.core.registry import METHODS
from dubio.core.specs import describe, restore
from dubio.encoders import encoding_for
from dubio.inference.augmentation import Affine, ShiftFlip, Views
from dubio.inference.batches import collate
from dubio.inference.posterior import Mixture
from dubio.inference.samples import StoredSamples
from dubio.methods import FitContext, NetworkSpec, encode_split, fit, fit_spec, pred_spec
from dubio.methods.recipe import Recipe
from dubio.networks.gaussian_weights import GaussianWeights
from dubio.networks.heads.heteroscedastic import Heteroscedastic
from dubio.networks.noise import DropoutEdit
from dubio.testing import assert_ok, check_method
from dubio.testing.tasks import small_task
from dubio.training.optimisers import SGD, Adam, AdamW, MeanAndScale
from tests.methods.helpers import Kept, blobs, equal, predict

SMALL = {"epochs": 6, "batch": 16, "lr": 0.01, "samples": 3}
STARTED = {**SMALL, "optimiser": "sgd", "start_epochs": 4, "start_lr": 0.01, "schedule": "cosine"}


def spec_of(recipe, task, seed=0, member=0, start_id=None, network=("mlp", {"hidden": [8, 8]})):
    encoding = encoding_for(task.inputs, {"min_frequency": 1} if task.inputs == "text" else {})
    return fit_spec(recipe, task, encoding, NetworkSpec(*network), seed=seed, member=member, start_id=start_id)


def predicted(recipe, task, network=("mlp", {"hidden": [8, 8]}), split="id"):
    spec = spec_of(recipe, task, network=network)
    fitted = fit(spec, task, FitContext())
    asked = pred_spec(recipe, "f", seed=0, member=0)
    return fitted, predict(spec, asked, fitted.tensors, fitted.encoder, task.of_kind(split)[0])


def test_both_ways_of_training_come_out_of_the_arguments():
    scratch, started = METHODS.make("mean-field-vi"), METHODS.make("mean-field-vi", **STARTED, beta=1e-4)
    assert scratch.start is None
    assert isinstance(scratch.optimiser, MeanAndScale)
    assert isinstance(scratch.optimiser.mean, Adam)
    assert scratch.optimiser.l2 == scratch.edits[0].l2 == 5e-5
    assert scratch.edits[0].log_sigma == -5.0
    assert isinstance(started.optimiser.mean, SGD)
    assert started.edits == (GaussianWeights(5e-5, beta=1e-4, anneal=0.25),)
    assert started.start is not None
    assert METHODS.make("mean-field-vi-ensemble").members == 5
    for recipe in (scratch, started):
        assert restore(json.loads(json.dumps(describe(recipe)))) == recipe


def test_pre_training_is_the_deterministic_method_of_the_same_arguments():
    task = blobs()
    started = METHODS.make("mean-field-vi", **STARTED)
    plain = METHODS.make("deterministic", epochs=4, batch=16, lr=0.01, l2=5e-5)
    assert spec_of(started.start, task) == spec_of(plain, task)
    parent = fit(spec_of(started.start, task), task, FitContext())
    child = fit(spec_of(started, task, start_id="p"), task, FitContext(start=parent.tensors))
    # with nothing to learn, μ is what the parent left
    still = METHODS.make("mean-field-vi", **{**STARTED, "epochs": 0})
    copied = fit(spec_of(still, task, start_id="p"), task, FitContext(start=parent.tensors))
    assert all(np.array_equal(copied.tensors[name], tensor) for name, tensor in parent.tensors.items())
    assert {name.rpartition(".")[2] for name in child.tensors.keys() - parent.tensors.keys()} == {"log_sigma"}
    assert child.record["val_nll"] < parent.record["val_nll"]


def test_ensembles_share_their_fits_with_the_single_model():
    task = blobs()
    one, many = METHODS.make("mean-field-vi", **SMALL), METHODS.make("mean-field-vi-ensemble", **SMALL, members=2)
    assert spec_of(one, task) == spec_of(many, task)
    assert spec_of(one, task) != spec_of(METHODS.make("mean-field-vi", **SMALL, beta=0.5), task)
    posterior = many.fit(task, NetworkSpec("mlp", {"hidden": [8, 8]}), seed=0, context=FitContext())
    assert isinstance(posterior, Mixture)
    assert posterior.draw(0).member == (0, 0, 0, 1, 1, 1)


def test_every_member_has_a_start_of_its_own_beside_a_checkpoint():
    many = METHODS.make("mean-field-vi-ensemble", **STARTED, members=2)
    network = NetworkSpec("mlp", {"hidden": [8, 8]})
    plain, beside = (
        many.fit(blobs(), network, seed=0, context=FitContext(checkpoint=kept)).tensors() for kept in (None, Kept(99))
    )
    assert equal(plain, beside)


@pytest.mark.parametrize(
    ("name", "inputs", "more"),
    [
        ("mean-field-vi", "table", {}),
        ("mean-field-vi", "image", {"views": 1, "rotation": 5.0}),
        ("mean-field-vi", "table", {"start_epochs": 10, "start_lr": 0.02, "optimiser": "sgd"}),
        ("mean-field-vi-ensemble", "table", {"members": 2, "estimator": "local_reparameterisation"}),
    ],
)
def test_methods_conform(name, inputs, more):
    arguments = {"epochs": 20, "batch": 16, "lr": 0.02, "samples": 4, **more}
    assert_ok(check_method(name, inputs=(inputs,), arguments=arguments))


@pytest.mark.parametrize("arguments", [SMALL, STARTED, {**SMALL, "estimator": "local_reparameterisation"}])
def test_the_same_seed_gives_the_same_bits_and_a_resumed_training_is_the_uninterrupted_one(arguments):
    task = blobs()
    recipe = METHODS.make("mean-field-vi", **arguments)
    spec = spec_of(recipe, task)
    start = recipe.start and fit(spec_of(recipe.start, task), task, FitContext()).tensors
    whole, again = (fit(spec, task, FitContext(start=start)) for _ in range(2))
    assert equal(whole.tensors, again.tensors)
    cut = Kept(3)
    with pytest.raises(KeyboardInterrupt):
        fit(spec, task, FitContext(start=start, checkpoint=cut))
    resumed = fit(spec, task, FitContext(start=start, checkpoint=cut))
    assert equal(whole.tensors, resumed.tensors)
    assert whole.record["history"] == resumed.record["history"]
    other = spec_of(METHODS.make("mean-field-vi", **arguments), task, seed=1)
    assert not equal(whole.tensors, fit(other, task, FitContext(start=start)).tensors)


@pytest.mark.parametrize("target", ["multiclass", "multilabel"])
def test_validation_judges_drawn_weights(target):
    task = blobs(target)
    wide = METHODS.make("mean-field-vi", **{**SMALL, "samples": 3}, log_sigma=1.0, scale_lr=1e-6, collect="last")
    fitted, found = predicted(wide, task, split="val")
    narrow = {n: np.full_like(t, -20.0) if n.endswith("log_sigma") else t for n, t in fitted.tensors.items()}
    spec = spec_of(wide, task)
    asked = pred_spec(wide, "f", seed=0, member=0)
    at_means = predict(spec, asked, narrow, fitted.encoder, task.of_kind("val")[0])

    def nll(predictions):
        p, y = np.clip(predictions.probs.astype(np.float64), 1e-12, 1 - 1e-12), predictions.labels
        each = -np.log(np.where(y == 1, p, 1 - p)).sum(1) if target == "multilabel" else -np.log(p[np.arange(40), y])
        return each.mean()

    assert nll(at_means) + 0.2 < nll(found)
    assert abs(fitted.record["val_nll"] - nll(found)) < abs(fitted.record["val_nll"] - nll(at_means))


def test_a_prediction_does_not_depend_on_its_batches_and_samples_are_a_prefix():
    task = small_task("image")
    network = ("vgg-retina", {"base": 4, "groups": 2})
    recipe = METHODS.make("mean-field-vi", **SMALL, log_sigma=-2.0)
    fitted, found = predicted(recipe, task, network)
    assert found.logits.shape == (3, 90, 3)
    spec = spec_of(recipe, task, network=network)
    encoded = encode_split(restore(spec["encoding"]), task.of_kind("train")[0], task.of_kind("id")[0])
    named = {name: torch.from_numpy(array) for name, array in fitted.tensors.items()}
    model = recipe.fit(task, NetworkSpec(*network), seed=0, context=FitContext()).model

    def logits(samples, size):
        drawn = StoredSamples().restore(named, model, samples, None).draw(3)
        cuts = [np.arange(i, min(90, i + size)) for i in range(0, 90, size)]
        return torch.cat([drawn.predict(collate(encoded, rows), rows).logits for rows in cuts], dim=1)

    whole = logits(3, 90)
    assert torch.allclose(logits(3, 7), whole, atol=1e-5)
    assert torch.allclose(logits(5, 90)[:3], whole, atol=1e-6)
    assert (whole[0] - whole[1]).abs().max() > 0.01


def test_it_composes_with_dropout_other_heads_and_other_networks():
    edits = (GaussianWeights(1e-4, log_sigma=-3.0), DropoutEdit(0.2))
    both = Recipe(
        "both", edits=edits, head=Heteroscedastic(), optimiser=MeanAndScale(Adam(0.01, 1e-4), 0.01), samples=2
    )
    _, found = predicted(both, blobs())
    assert found.logits.shape == (2, 40, 3)
    assert found.data_variance is not None
    text = METHODS.make("mean-field-vi", **{**SMALL, "epochs": 12})
    network = ("textcnn-v2", {"embedding": 16, "maps": 8, "length": 12})
    _, found = predicted(text, small_task("text"), network)
    assert (found.probs.argmax(1) == found.labels).mean() > 0.8


def test_augmentation_is_affine_only_where_more_than_whole_pixels_is_asked():
    old = METHODS.make("deterministic", shift=2, flip=0.5)
    assert old.objective.augmentation == ShiftFlip(2, 0.5)
    new = METHODS.make("mean-field-vi", shift=3, flip=0.5, rotation=180.0, zoom=0.1, views=2)
    assert new.objective.augmentation == Affine(0.1, 3, 180.0, 0.5)
    assert new.views == Views(Affine(0.1, 3, 180.0, 0.5), 2)
    assert METHODS.make("csgld", flip_vertical=0.5).objective.augmentation == Affine(flip_vertical=0.5)
    assert METHODS.make("deterministic").objective.augmentation is None


def test_what_does_not_go_together_is_refused():
    for optimiser in (Adam(), Adam(l2=1e-3), AdamW(decay=5e-5), MeanAndScale(SGD(l2=1e-3))):
        with pytest.raises(UserError, match="both must be the same"):
            Recipe("x", edits=(GaussianWeights(),), optimiser=optimiser)
    with pytest.raises(UserError, match="samples must be at least 1"):
        METHODS.make("mean-field-vi", samples=0)
    with pytest.raises(UserError, match=r"scale_lr must be .* above 0"):
        METHODS.make("mean-field-vi", scale_lr=0.0)
    task = blobs()
    plain = Recipe("x", optimiser=MeanAndScale(Adam(l2=1e-4)))
    with pytest.raises(UserError, match="no Gaussian weights"):
        fit(spec_of(plain, task), task, FitContext())
