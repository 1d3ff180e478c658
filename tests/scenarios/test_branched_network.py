"""An ensemble inside one network: a new method is one network with several sets of features, and nothing else."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from dubio.core.registry import METHODS, NETWORKS, network
from dubio.encoders import encoding_for
from dubio.methods import FitContext, NetworkSpec, estimate, fit, fit_spec, pred_spec
from dubio.networks.network import Dense, Network, Stage
from dubio.testing import assert_ok, check_network
from dubio.testing.tasks import small_task
from tests.methods.helpers import predict

MEMBERS = 4


class Branches(Stage):
    """One hidden layer per member on shared features."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.branches = nn.ModuleList(nn.Linear(inputs, outputs) for _ in range(MEMBERS))

    def forward(self, h: Tensor) -> Tensor:
        return torch.stack([torch.relu(branch(h)) for branch in self.branches], dim=1)


@pytest.fixture
def branched(monkeypatch):
    NETWORKS.names()  # filled before it is copied
    monkeypatch.setattr(NETWORKS, "_entries", {**NETWORKS._entries})

    @network("branched", inputs="table")
    def branched(shape: tuple[int, ...], *, width: int = 8) -> Network:
        """A shared layer, then one branch per member."""
        trunk = Dense("hidden", shape[0], 16, accepts=("dropout", "concrete_dropout"))
        return Network([trunk, Branches(16, width)], width, sets=MEMBERS)

    return "branched"


def fitted(name, method, **arguments):
    task, recipe = small_task("table"), METHODS.make(method, epochs=15, batch=16, lr=0.02, **arguments)
    spec = fit_spec(recipe, task, encoding_for("table", {}), NetworkSpec(name), seed=0, member=0)
    result = fit(spec, task, FitContext())
    split = task.of_kind("id")[0]
    return result, predict(spec, pred_spec(recipe, "f", seed=0, member=0), result.tensors, result.encoder, split)


def test_it_trains_and_its_sets_predict_as_members(branched):
    result, predictions = fitted(branched, "deterministic")
    assert predictions.logits.shape == (MEMBERS, 90, 3)
    np.testing.assert_array_equal(predictions.member, np.arange(MEMBERS))
    members = predictions.logits.argmax(axis=2)
    assert (members == predictions.labels).mean(axis=1).min() > 0.9
    assert not np.array_equal(predictions.logits[0], predictions.logits[1])
    # the validation loss pools the members' probabilities
    assert result.record["val_nll"] < 0.3


def test_noise_is_drawn_for_every_member(branched):
    _, predictions = fitted(branched, "mc-dropout", p=0.1, samples=3)
    assert predictions.logits.shape == (3 * MEMBERS, 90, 3)
    np.testing.assert_array_equal(np.bincount(predictions.member), [3] * MEMBERS)


def test_snapshots_of_it_have_its_members_too(branched):
    recipe = {"cycles": 3}
    _, predictions = fitted(branched, "snapshot-ensemble", **recipe)
    np.testing.assert_array_equal(np.bincount(predictions.member), [3] * MEMBERS)


def test_it_conforms_and_its_cost_is_known(branched):
    assert_ok(check_network(branched))
    task, recipe = small_task("table"), METHODS.make("deterministic", epochs=2)
    spec = fit_spec(recipe, task, encoding_for("table", {}), NetworkSpec(branched), seed=0, member=0)
    assert estimate(spec, task)["bytes"] > 0
