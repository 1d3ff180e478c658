"""Ensembles along a trajectory as methods: what they share, that they learn, resume, and predict with every state."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy.special import softmax

from dubio.core.errors import UnknownName, UserError
from dubio.core.predictions import pool_members
from dubio.core.registry import METHODS
from dubio.core.specs import describe, restore
from dubio.core.types import Examples, SourceCard, Split, Task
from dubio.encoders import encoding_for
from dubio.inference.posterior import Mixture
from dubio.inference.weight_draws import WeightDraws
from dubio.methods import FitContext, NetworkSpec, estimate, fit, fit_spec, pred_spec
from dubio.methods.recipe import Recipe
from dubio.testing import assert_ok, check_method
from dubio.training.collectors import KeepAll, Last
from dubio.training.optimisers import SGD, Adam
from dubio.training.schedules import Constant, ConstantTail, Cut, Cyclic, LinearTail, Triangular
from dubio.training.swag import SWA, SWAG
from tests.methods.helpers import Kept, equal, predict

START = {"epochs": 2, "batch": 8, "collect": "last", "patience": 0}
NAMES = {
    "snapshot-ensemble": {"epochs": 4, "batch": 8, "cycles": 2},
    "fge": {**START, "cycles": 2},
    "swa": {**START, "tail_epochs": 3},
    "swag": {**START, "tail_epochs": 3, "rank": 2, "samples": 4},
}
STATES = {"snapshot-ensemble": 2, "fge": 2, "swa": 1, "swag": 4}


def images(rows=49, seed=0):
    generator = np.random.default_rng(seed)
    labels = generator.integers(0, 2, size=rows)
    pixels = (generator.random((rows, 8, 8, 1)) * 80 + labels[:, None, None, None] * 100).astype(np.uint8)
    cuts = {"train": slice(0, 25), "val": slice(25, 37), "id": slice(37, rows)}
    splits = tuple(Split.of(k, k, Examples(pixels[c], labels[c])) for k, c in cuts.items())
    return Task("images", "image", "multiclass", ("dark", "light"), splits, SourceCard("made", "1", "none", "none"))


SMALL_VGG = NetworkSpec("vgg-small", {"channels": [3, 4], "convolutions": [1, 1], "dense": 6})
SMALL_CNN = NetworkSpec("cnn", {"channels": [2], "dense": 4})
"""A network with batch-norm, and one without."""


def spec_of(recipe, task, network=SMALL_VGG, **more):
    return fit_spec(recipe, task, encoding_for("image", {}), network, **{"seed": 0, "member": 0, **more})


def fitted(recipe, task, network=SMALL_VGG, checkpoint=None):
    start = None if recipe.start is None else fitted(recipe.start, task, network).tensors
    return fit(spec_of(recipe, task, network), task, FitContext(start=start, checkpoint=checkpoint))


@pytest.mark.parametrize("name", [*NAMES, *(f"{name}-ensemble" for name in NAMES)])
def test_each_comes_out_by_name_and_survives_its_description(name):
    recipe = METHODS.make(name)
    assert restore(describe(recipe)) == recipe
    single = name if name in NAMES else name.removesuffix("-ensemble")
    assert recipe.states == recipe.pooled or recipe.states == 1
    assert recipe.members == (1 if name in NAMES else 5)
    assert recipe.fit_part() == METHODS.make(single).fit_part()
    assert recipe.objective.patience == 0


def test_defaults_are_the_compositions_that_the_papers_describe():
    snapshots, fge, swa, swag = (METHODS.make(name) for name in NAMES)
    assert (snapshots.schedule, snapshots.collect, snapshots.start) == (Cyclic(5), KeepAll(), None)
    assert (fge.schedule, fge.collect, fge.optimiser) == (Triangular(5, 0.05), KeepAll(), SGD(1e-2))
    assert fge.objective.epochs == 9
    assert (swa.schedule, swa.collect) == (ConstantTail(), SWA())
    assert (swag.schedule, swag.collect, swag.objective.epochs) == (ConstantTail(), SWAG(20, 20, 2048), 20)
    assert isinstance(METHODS.make("swag", tail_optimiser="adam").optimiser, Adam)
    # on CIFAR with networks other than VGG, as the ensembling study has it
    told = {"tail_lr": 5e-2, "cycle_epochs": 4, "cycles": 10, "optimiser": "sgd", "schedule": "linear_tail"}
    other = METHODS.make("fge", **told, epochs=160, schedule_epochs=200)
    assert (other.schedule, other.objective.epochs) == (Triangular(10, 0.01), 38)
    assert other.start.schedule == Cut(LinearTail(), 0.8)


def test_pre_training_is_the_fit_of_the_deterministic_method():
    task = images()
    training = {"epochs": 7, "batch": 16, "lr": 0.02, "l2": 1e-4, "optimiser": "sgd", "schedule": "linear_tail"}
    plain = METHODS.make("deterministic", **training, shift=1)
    starts = [METHODS.make(name, **training, shift=1, views=1).start for name in ("fge", "swa", "swag")]
    for start in starts:
        assert spec_of(start, task) == spec_of(plain, task)
    tail = METHODS.make("swag", **training, shift=1)
    assert tail.optimiser == SGD(1e-2, l2=1e-4)
    assert tail.objective.augmentation == plain.objective.augmentation
    whole = METHODS.make("fge", **training, schedule_epochs=7).start
    assert spec_of(whole, task) == spec_of(METHODS.make("deterministic", **training), task)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("network", [SMALL_VGG, SMALL_CNN], ids=["norm", "plain"])
def test_a_resumed_training_equals_the_uninterrupted_one(name, network):
    task, recipe = images(), METHODS.make(name, **NAMES[name])
    whole = fitted(recipe, task, network)
    for stop_after in range(1, recipe.objective.epochs):
        checkpoint = Kept(stop_after)
        with pytest.raises(KeyboardInterrupt):
            fitted(recipe, task, network, checkpoint)
        resumed = fitted(recipe, task, network, checkpoint)
        assert equal(whole.tensors, resumed.tensors)
        assert whole.record["val_nll"] == resumed.record["val_nll"]
    assert equal(whole.tensors, fitted(recipe, task, network).tensors)


@pytest.mark.parametrize("views", [0, 2])
@pytest.mark.parametrize("name", NAMES)
def test_every_state_predicts_and_validation_judges_them_together(name, views):
    task, recipe = images(), METHODS.make(name, **NAMES[name], shift=1, views=views)
    done = fitted(recipe, task)
    told = pred_spec(recipe, "f", seed=0, member=0)
    found = predict(spec_of(recipe, task), told, done.tensors, done.encoder, task.split("val"))
    assert recipe.states == STATES[name]
    assert found.logits.shape == (STATES[name] * max(1, views), 12, 2)
    assert len({sample.tobytes() for sample in found.logits}) == len(found.logits)
    if not views:
        each = -np.log(found.probs[np.arange(12), found.labels])
        assert done.record["val_nll"] == pytest.approx(each.mean(), rel=1e-4)


def test_what_is_stored_is_what_was_announced():
    task = images()

    def announced(recipe):
        return estimate(spec_of(recipe, task, SMALL_CNN), task)["bytes"]

    for name, arguments in NAMES.items():
        recipe = METHODS.make(name, **arguments)
        stored = sum(array.nbytes for array in fitted(recipe, task, SMALL_CNN).tensors.values())
        assert announced(recipe) == pytest.approx(stored, abs=8)
    # a distribution is stored once, however many draws predict: mean, variance and two deviations
    more = METHODS.make("swag", **{**NAMES["swag"], "samples": 50})
    assert announced(more) == 4 * announced(more.start)


def test_half_precision_is_an_argument_of_snapshots():
    task = images()

    def logits(recipe):
        done, told = fitted(recipe, task), pred_spec(recipe, "f", seed=0, member=0)
        return predict(spec_of(recipe, task), told, done.tensors, done.encoder, task.split("id")).logits

    for name in ("snapshot-ensemble", "fge"):
        full, half = (METHODS.make(name, **NAMES[name], store=store) for store in ("float32", "float16"))
        assert spec_of(full, task) == spec_of(METHODS.make(name, **NAMES[name]), task)
        assert "store" not in describe(full)["collect"]
        exact, rounded = logits(full), logits(half)
        assert not np.array_equal(exact, rounded)
        np.testing.assert_allclose(rounded, exact, atol=5e-3)
    assert METHODS.make("csgld", store="float16").collect == KeepAll(store="float16")


def test_an_ensemble_of_them_is_a_mixture_of_their_own_trainings():
    task = images()
    many = METHODS.make("swag-ensemble", **NAMES["swag"], members=2)
    posterior = many.fit(task, SMALL_VGG, seed=0, context=FitContext())
    assert isinstance(posterior, Mixture)
    assert all(isinstance(part, WeightDraws) for part in posterior.parts)
    assert posterior.draw(0).member == (0,) * 4 + (1,) * 4
    alone = fitted(METHODS.make("swag", **NAMES["swag"]), task)
    assert all(np.array_equal(tensor.numpy(), alone.tensors[n]) for n, tensor in posterior.parts[0].tensors().items())
    assert posterior.parts[0].seed != posterior.parts[1].seed


@pytest.mark.parametrize("name", ["deterministic", "swag"])
def test_an_augmented_ensemble_is_the_mean_over_views_and_members(name):
    """Brute force: every network on the image and on its mirror image; a view is one of the two."""
    arguments = NAMES["swag"] if name == "swag" else START
    task, members, views = images(), 2, 3
    recipe = METHODS.make(name, **arguments, flip=0.5, views=views)
    split, parts, mirrored = task.split("id"), [], []
    for member in range(members):
        specs = [spec_of(link, task, member=member) for link in recipe.chain()]
        start = None
        for spec in specs:
            done = fit(spec, task, FitContext(start=start))
            start = done.tensors
        told = pred_spec(recipe, "f", seed=0, member=member)
        parts.append(predict(specs[-1], told, done.tensors, done.encoder, split))
        plain = pred_spec(METHODS.make(name, **arguments), "f", seed=0, member=member)
        turned = Split.of("turned", "id", Examples(split.data.inputs[:, :, ::-1].copy(), split.data.labels))
        both = [predict(specs[-1], plain, done.tensors, done.encoder, one).logits for one in (split, turned)]
        mirrored.append(np.repeat(np.stack(both), views, axis=1))  # [2, states × views, N, K]
    pooled = pool_members(parts)
    sides = np.concatenate(mirrored, axis=1)
    distance = np.abs(pooled.logits[None] - sides).max(axis=3)  # [2, S, N]
    side = distance.argmin(axis=0)
    np.testing.assert_allclose(distance.min(axis=0), 0.0, atol=1e-5)
    rows, samples = np.arange(len(split)), np.arange(pooled.samples)[:, None]
    probabilities = softmax(sides[side, samples, rows[None]].astype(np.float64), axis=-1)
    np.testing.assert_allclose(pooled.probs, probabilities.mean(axis=0), atol=1e-6)
    assert pooled.samples == members * (4 if name == "swag" else 1) * views
    assert 0.3 < side.mean() < 0.7  # both sides are seen, and no two samples see the same ones
    assert len({choice.tobytes() for choice in side}) > pooled.samples - 2


def test_a_training_can_go_on_from_the_mean_but_not_from_a_distribution():
    task = images()
    swa, swag = (METHODS.make(name, **NAMES[name]) for name in ("swa", "swag"))
    child = Recipe("child", start=swa.fit_part(), objective=swa.objective, schedule=Constant(), collect=Last())
    posterior = child.fit(task, SMALL_VGG, seed=0, context=FitContext())
    assert len(posterior.states) == 1
    with pytest.raises(UserError, match="the distribution that swag leaves"):
        Recipe("child", start=swag.fit_part(), objective=swag.objective)


def shared_tail(**more):
    """SWAG, and SWA from its fit."""
    swag = METHODS.make("swag", **NAMES["swag"], **more)
    arguments = {**NAMES["swag"], "swag_samples": NAMES["swag"]["samples"], **more}
    arguments.pop("samples")
    return swag, METHODS.make("swa", **arguments)


@pytest.mark.parametrize("network", [SMALL_VGG, SMALL_CNN], ids=["norm", "plain"])
def test_one_tail_serves_the_mean_and_the_distribution(network):
    """SWA's weights are SWAG's mean bit for bit, that of the snapshots, and those of a tail of its own."""
    task, (swag, swa) = images(), shared_tail()
    assert swa.start == swag.fit_part()
    assert (swa.objective.epochs, swa.states) == (0, 1)
    gaussian, mean = fitted(swag, task, network).tensors, fitted(swa, task, network).tensors
    assert equal(mean, fitted(METHODS.make("swa", **NAMES["swa"]), task, network).tensors)
    prefix = "distribution/mean/"
    names = [name.removeprefix(prefix) for name in gaussian if name.startswith(prefix)]
    every = fitted(replace(swag, collect=KeepAll()), task, network).tensors
    for name in names:
        assert np.array_equal(mean[f"0/{name}"], gaussian[prefix + name])
        snapshots = np.stack([every[f"{k}/{name}"].astype(np.float64) for k in range(3)])
        np.testing.assert_allclose(mean[f"0/{name}"], snapshots.mean(0), rtol=2e-7, atol=1e-9)
        if not np.array_equal(snapshots[0], snapshots[2]):
            assert not np.array_equal(mean[f"0/{name}"], every[f"2/{name}"])
    assert len(names) > 3


def test_views_and_other_draws_change_whose_tail_is_shared():
    swag, swa = shared_tail(shift=1, views=2)
    assert swa.views.each == 2
    assert swa.start == swag.fit_part()
    assert METHODS.make("swa", swag_samples=5).start != METHODS.make("swag").fit_part()
    assert METHODS.make("swa", swag_samples=20).start == METHODS.make("swag").fit_part()
    with pytest.raises(UserError, match="tail_epochs must be at least 2"):
        METHODS.make("swa", swag_samples=5, tail_epochs=1)


def test_arguments_of_a_gaussian_that_nothing_would_use_are_refused():
    with pytest.raises(UserError, match="swa: rank=5 has no effect without swag_samples; give swag_samples"):
        METHODS.make("swa", rank=5)
    assert METHODS.make("swa", rank=5, swag_samples=20).start == METHODS.make("swag", rank=5).fit_part()


@pytest.mark.parametrize(("name", "inputs"), [("swag", "text"), ("fge", "table"), ("swa", "image")])
def test_methods_conform(name, inputs):
    tail = {"cycles": 2} if name == "fge" else {"tail_epochs": 3}
    assert_ok(check_method(name, inputs=(inputs,), arguments={"epochs": 12, "batch": 8, "lr": 0.01, **tail}))


def test_snapshots_and_an_ensemble_conform():
    assert_ok(check_method("snapshot-ensemble", arguments={"epochs": 24, "batch": 8, "cycles": 2, "lr": 0.01}))
    few = {"epochs": 12, "batch": 8, "lr": 0.01, "tail_epochs": 3, "samples": 3, "members": 2}
    assert_ok(check_method("swag-ensemble", arguments=few))


def test_nonsense_is_refused_with_the_reason():
    for name, arguments, words in (
        ("fge", {"cycle_epochs": 3}, "cycle_epochs must be even"),
        ("fge", {"tail_low_lr": 0.1}, "tail_low_lr must lie between 0 and tail_lr.* given 0.1 and 0.01"),
        ("fge", {"tail_lr": 0.0, "tail_low_lr": 0.0}, "tail_lr, which is positive; given 0.0 and 0.0"),
        ("swag", {"schedule_epochs": 10}, "schedule_epochs, .* at least epochs=45.*; given 10"),
        ("swag", {"tail_epochs": 1}, "tail_epochs must be at least 2: .*; given 1"),
        ("swa", {"tail_epochs": 0}, "tail_epochs must be at least 1; given 0"),
        ("snapshot-ensemble", {"cycles": 4}, "multiple of cycles; given epochs=45, cycles=4"),
    ):
        with pytest.raises(UserError, match=words):
            METHODS.make(name, **arguments)
    with pytest.raises(UnknownName, match="argument of snapshot-ensemble"):
        METHODS.make("snapshot-ensemble", patience=3)


def test_a_single_network_of_mean_weights_is_one_deterministic_pass():
    posterior = METHODS.make("swa", **NAMES["swa"]).fit(images(), SMALL_VGG, seed=0, context=FitContext())
    drawn = posterior.draw(0)
    assert drawn.member == (0,)
    assert drawn.predict(torch.zeros(5, 1, 8, 8), np.arange(5)).logits.shape == (1, 5, 2)
