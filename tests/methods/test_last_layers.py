"""Variational last layers as a method: that it conforms, what it stores and draws, on frozen features too."""

import numpy as np
import pytest

from dubio.core.errors import UserError
from dubio.core.registry import METHODS
from dubio.encoders import encoding_for
from dubio.methods import FitContext, NetworkSpec, check, fit, fit_spec, pred_spec
from dubio.metrics.quantities import uncertainty
from dubio.networks.heads.variational import Variational
from dubio.testing import assert_ok, check_method
from dubio.testing.tasks import SMALL_NETWORKS, small_task
from tests.methods.helpers import predict

QUICK = {"epochs": 15, "batch": 16, "lr": 0.02, "samples": 5}


@pytest.mark.parametrize(
    "inputs", ["table", *(pytest.param(name, marks=pytest.mark.slow) for name in ("image", "text"))]
)
def test_it_conforms(inputs):
    assert_ok(check_method("vbll", inputs=(inputs,), arguments=QUICK))


def spec_of(recipe, task):
    return fit_spec(recipe, task, encoding_for("table", {}), NetworkSpec(*SMALL_NETWORKS["table"]), seed=0, member=0)


def test_samples_share_one_fit_with_the_single_pass():
    task = small_task("table")
    recipes = [METHODS.make("vbll", **{**QUICK, "samples": samples}) for samples in (5, 0)]
    spec, other = (spec_of(recipe, task) for recipe in recipes)
    assert spec == other
    assert [recipe.pooled for recipe in recipes] == [5, 0]
    result, split = fit(spec, task, FitContext()), task.of_kind("id")[0]
    samples, one = (
        predict(spec, pred_spec(recipe, "f", seed=0, member=0), result.tensors, result.encoder, split)
        for recipe in recipes
    )
    assert samples.logits.shape[0] == 5
    assert (uncertainty(samples, "mutual_information") > 0).all()
    assert one.logits.shape[0] == 1
    assert (one.model_variance > 0).all()
    assert np.abs(samples.probs - one.probs).mean() < 0.15


def test_arguments_are_those_of_the_layer():
    recipe = METHODS.make("vbll", covariance="diagonal", prior_variance=2.0, noise_scale=3.0, noise_freedom=4.0)
    assert recipe.head == Variational("diagonal", 2.0, 3.0, 4.0)
    with pytest.raises(UserError, match="covariance"):
        METHODS.make("vbll", covariance="full")


def test_a_layer_that_is_too_large_is_refused_before_training(monkeypatch):
    monkeypatch.setattr("dubio.networks.heads.variational.DENSE_ELEMENTS", 100)
    with pytest.raises(UserError, match="use covariance='diagonal'"):
        check(spec_of(METHODS.make("vbll"), small_task("table")), small_task("table"))
