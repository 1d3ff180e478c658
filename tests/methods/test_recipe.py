"""Recipes: the 18 set-ups by name, what is refused and why, what is shared."""

import json
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
import torch

from dubio.core.errors import UnknownName, UserError
from dubio.core.registry import METHODS
from dubio.core.specs import describe, restore
from dubio.core.types import Examples, SourceCard, Split, Task
from dubio.inference.augmentation import ShiftFlip, Views
from dubio.inference.posterior import Mixture
from dubio.methods import FitContext, NetworkSpec, estimate, fit, pred_spec
from dubio.methods.recipe import Recipe
from dubio.networks.noise import ConcreteDropoutEdit, DropoutEdit
from dubio.training.collectors import Last
from tests.methods.helpers import SETUPS, images, predict, spec_of


@pytest.mark.parametrize("name", SETUPS)
def test_a_recipe_survives_its_description(name):
    recipe = METHODS.make(name, epochs=3)
    assert restore(describe(recipe)) == recipe


def test_a_process_that_never_heard_of_the_methods_restores_every_description():
    descriptions = json.dumps([describe(METHODS.make(name)) for name in SETUPS])
    code = "import json, sys, dubio.methods; from dubio.core.specs import restore; restore(json.load(sys.stdin))"
    ended = subprocess.run([sys.executable, "-c", code], input=descriptions, text=True, capture_output=True)
    assert ended.returncode == 0, ended.stderr


def test_nonsense_is_refused_with_the_reason():
    with pytest.raises(UserError, match="every sample would be the same"):
        Recipe("x", samples=10)
    with pytest.raises(UserError, match="dropout and concrete_dropout would drop the same inputs"):
        Recipe("x", edits=(DropoutEdit(0.5), ConcreteDropoutEdit()))
    with pytest.raises(UserError, match="the same edit twice"):
        Recipe("x", edits=(DropoutEdit(0.5), DropoutEdit(0.1)))
    with pytest.raises(UserError, match=r"deep-ensemble: members must be .* at least 1"):
        METHODS.make("deep-ensemble", members=0)
    with pytest.raises(UserError, match="samples must be at least 1"):
        METHODS.make("mc-dropout", samples=0)
    with pytest.raises(UserError, match="every view would be the same"):
        METHODS.make("deterministic", views=4)
    with pytest.raises(UnknownName, match="Did you mean 'samples'"):
        METHODS.make("mc-dropout", sample=3)
    with pytest.raises(UnknownName, match="argument of deterministic"):
        METHODS.make("deterministic", p=0.5)
    with pytest.raises(UnknownName, match="Did you mean 'mc-dropout'"):
        METHODS.make("mcdropout")
    with pytest.raises(UserError, match="lr must be a number"):
        METHODS.make("deterministic", lr="fast")


def test_an_augmentation_for_images_is_refused_on_a_table():
    table = Task(
        "t",
        "table",
        "multiclass",
        ("a", "b"),
        tuple(Split.of(k, k, Examples(np.zeros((4, 2)), np.array([0, 1, 0, 1]))) for k in ("train", "val", "id")),
        SourceCard("made", "1", "none", "none"),
    )
    with pytest.raises(UserError, match="for image inputs; the task has table inputs"):
        spec_of(METHODS.make("deterministic", shift=1), table, "mlp")
    with pytest.raises(UserError, match="networks for table: mlp"):
        spec_of(METHODS.make("deterministic"), table, "cnn")


def test_identity_of_a_fit_covers_only_what_touches_weights():
    task = images()
    base = METHODS.make("mc-dropout", epochs=3)
    assert spec_of(base, task) == spec_of(METHODS.make("mc-dropout", epochs=3, samples=99), task)
    assert spec_of(base, task) == spec_of(METHODS.make("mc-dropout-ensemble", epochs=3, members=7), task)
    assert spec_of(base, task) != spec_of(METHODS.make("mc-dropout", epochs=3, p=0.4), task)
    assert spec_of(base, task) != spec_of(base, task, member=1)
    assert pred_spec(base, "f", seed=0, member=0) != pred_spec(replace(base, samples=11), "f", seed=0, member=0)


def test_samples_drawn_in_another_way_have_another_identity_and_the_same_fit(monkeypatch):
    recipe = METHODS.make("mc-concrete-dropout", epochs=3)
    quiet = METHODS.make("concrete-dropout", epochs=3)
    before = [pred_spec(r, "f", seed=0, member=0) for r in (recipe, quiet)], spec_of(recipe, images())
    monkeypatch.setattr(ConcreteDropoutEdit, "sampling_version", ConcreteDropoutEdit.sampling_version + 1)
    after = [pred_spec(r, "f", seed=0, member=0) for r in (recipe, quiet)], spec_of(recipe, images())
    assert before[0][0] != after[0][0]
    assert before[0][1] == after[0][1], "nothing is drawn"
    assert before[1] == after[1]
    monkeypatch.setattr(ConcreteDropoutEdit, "sampling_version", 1)
    assert "sampling" not in pred_spec(recipe, "f", seed=0, member=0), "ids of the first version stay valid"


def test_fitting_in_one_process_gives_the_members_of_the_store():
    task = images()
    recipe = METHODS.make("mc-dropout-ensemble", members=2, samples=3, epochs=2)
    posterior = recipe.fit(task, NetworkSpec("cnn"), seed=4, context=FitContext())
    assert isinstance(posterior, Mixture)
    for member, part in enumerate(posterior.parts):
        alone = fit(spec_of(recipe, task, seed=4, member=member), task, FitContext())
        for name, tensor in part.tensors().items():
            assert np.array_equal(tensor.numpy(), alone.tensors[name])
    drawn = posterior.draw(0)
    assert drawn.member == (0, 0, 0, 1, 1, 1)
    assert drawn.predict(torch.zeros(5, 1, 6, 6), np.arange(5)).logits.shape == (6, 5, 2)


def test_a_child_starts_from_its_parents_weights():
    task = images()
    parent = METHODS.make("deterministic", epochs=2)
    first = fit(spec_of(parent, task), task, FitContext())
    child = Recipe("child", start=parent, objective=replace(parent.objective, epochs=0))
    kept = fit(spec_of(child, task), task, FitContext(start=first.tensors))
    assert all(np.array_equal(kept.tensors[name], first.tensors[name]) for name in first.tensors)
    other = fit(spec_of(METHODS.make("heteroscedastic", epochs=1), task), task, FitContext())
    with pytest.raises(UserError, match="the earlier fit has head"):
        fit(spec_of(child, task), task, FitContext(start=other.tensors))


def test_a_fit_that_continues_another_is_never_trained_from_scratch():
    task = images()
    parent = METHODS.make("deterministic", epochs=1)
    child = Recipe("child", start=parent.fit_part(), objective=replace(parent.objective, epochs=0))
    with pytest.raises(UserError, match="start: this fit continues from another one"):
        fit(spec_of(child, task), task, FitContext())
    planned = {**spec_of(parent, task), "start": "0" * 64}
    with pytest.raises(UserError, match="start: this fit continues from another one"):
        fit(planned, task, FitContext())
    first = fit(spec_of(parent, task), task, FitContext())
    with pytest.raises(UserError, match="this recipe starts from scratch"):
        fit(spec_of(parent, task), task, FitContext(start=first.tensors))


def test_a_start_may_start_from_another_one():
    task = images()
    first = METHODS.make("deterministic", epochs=2)
    second = Recipe("second", start=first.fit_part(), objective=replace(first.objective, epochs=1), collect=Last())
    third = Recipe("third", start=second.fit_part(), objective=replace(first.objective, epochs=0))
    posterior = third.fit(task, NetworkSpec("cnn"), seed=0, context=FitContext())
    one = fit(spec_of(first, task), task, FitContext())
    two = fit(spec_of(second, task), task, FitContext(start=one.tensors))
    assert all(np.array_equal(tensor.numpy(), two.tensors[name]) for name, tensor in posterior.tensors().items())
    assert any(not np.array_equal(one.tensors[name], two.tensors[name]) for name in one.tensors)


def test_views_are_seen_at_prediction_and_do_not_depend_on_the_batch():
    task = images()
    recipe = METHODS.make("mc-dropout", epochs=2, shift=1, flip=0.5, views=3, samples=2)
    assert recipe.views == Views(ShiftFlip(1, 0.5), 3)
    fitted = fit(spec_of(recipe, task), task, FitContext())
    spec, prediction = spec_of(recipe, task), pred_spec(recipe, "f", seed=0, member=0)
    split = task.split("id")
    whole = predict(spec, prediction, fitted.tensors, fitted.encoder, split)
    assert whole.logits.shape == (6, 15, 2)
    assert len({row.tobytes() for row in whole.logits}) == 6
    first = Split.of("id", "id", split.data.take(np.arange(4)))
    part = predict(spec, prediction, fitted.tensors, fitted.encoder, first)
    assert np.allclose(part.logits, whole.logits[:, :4], atol=1e-5)


def test_an_estimate_is_positive_and_leaves_no_trace():
    task = images()
    spec = spec_of(METHODS.make("deterministic", epochs=3), task)
    before = torch.get_rng_state()
    cost = estimate(spec, task)
    assert cost["seconds"] > 0
    assert cost["bytes"] == 4 * fit(spec, task, FitContext()).record["parameters"]
    assert torch.equal(torch.get_rng_state(), before)
