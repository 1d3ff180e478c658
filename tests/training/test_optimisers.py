"""Optimisers, schedules and class weights against hand computations."""

import subprocess
import sys

import pytest
import torch

from dubio.core.errors import UserError
from dubio.networks.heads.linear import Softmax
from dubio.networks.mlp import mlp
from dubio.networks.network import Model
from dubio.networks.noise import ConcreteDropoutEdit
from dubio.training.objectives import Objective, balanced_weights
from dubio.training.optimisers import SGD, Adam, AdamW
from dubio.training.schedules import Constant, Cosine, LinearTail, Step


def model_with_concrete():
    body = mlp((3,), hidden=(4, 4))
    model = Model(body, Softmax().build(4, 2))
    ConcreteDropoutEdit().apply(model)
    return model


@pytest.mark.parametrize("factor", [1.0, 0.25])
def test_adam_shrinks_weights_by_a_constant_factor_whatever_the_rate(factor):
    model, setting = model_with_concrete(), Adam(lr=1e-3, shrink=1e-2)
    optimiser = setting.build(model)
    setting.set_factor(optimiser, factor)
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    for p in model.parameters():
        p.grad = torch.zeros_like(p)
    optimiser.step()
    for name, p in model.named_parameters():
        expected = before[name] if "noise" in name else before[name] * (1 - 1e-2)
        assert torch.allclose(p, expected, atol=1e-7), name


def test_adam_is_torchs_own_adam():
    ours, theirs = model_with_concrete(), model_with_concrete()
    theirs.load_state_dict(ours.state_dict())
    a, b = Adam(lr=0.01).build(ours), torch.optim.Adam(theirs.parameters(), lr=0.01)
    for step in range(3):
        for p, q in zip(ours.parameters(), theirs.parameters(), strict=True):
            p.grad = torch.full_like(p, 0.1 * (step + 1))
            q.grad = p.grad.clone()
        a.step()
        b.step()
    for p, q in zip(ours.parameters(), theirs.parameters(), strict=True):
        assert torch.allclose(p, q, atol=1e-6)


TORCHS_OWN = {Adam(lr=0.01): torch.optim.Adam, AdamW(lr=0.01): torch.optim.AdamW, SGD(lr=0.01): torch.optim.SGD}


@pytest.mark.parametrize("setting", TORCHS_OWN, ids=lambda setting: type(setting).__name__)
def test_plain_steps_have_the_bits_of_torchs_own(setting):
    ours, theirs = model_with_concrete(), model_with_concrete()
    theirs.load_state_dict(ours.state_dict())
    a = setting.build(ours)
    twins = {id(p): q for p, q in zip(ours.parameters(), theirs.parameters(), strict=True)}
    groups = [{**group, "params": [twins[id(p)] for p in group["params"]]} for group in a.param_groups]
    b = TORCHS_OWN[setting](groups, lr=0.01)
    for step in range(4):
        for optimiser, model in ((a, ours), (b, theirs)):
            optimiser.zero_grad()
            sum((p.sin() * (step + 1)).sum() for p in model.parameters()).backward()
            optimiser.step()
        if step == 1:  # the second half continues from a state that was saved
            a.load_state_dict(a.state_dict())
    for p, q in zip(ours.parameters(), theirs.parameters(), strict=True):
        assert torch.equal(p, q)
        assert p.requires_grad


def test_a_training_does_not_import_the_compiler_of_torch():
    code = """
import sys
from dubio.networks.heads.linear import Softmax
from dubio.networks.mlp import mlp
from dubio.networks.network import Model
from dubio.training.optimisers import SGD, Adam, AdamW
from dubio.training.sgmcmc import SGLD
for setting in (Adam(), Adam(shrink=0.1), AdamW(), SGD(), SGLD()):
    model = Model(mlp((3,), hidden=(4,)), Softmax().build(4, 2))
    optimiser = setting.build(model)
    for parameter in model.parameters():
        parameter.sum().backward()
    optimiser.step()
    optimiser.zero_grad()
    optimiser.load_state_dict(optimiser.state_dict())
assert "torch._dynamo" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_learned_rates_never_decay():
    for setting in (Adam(l2=0.1), AdamW(decay=0.1), SGD(l2=0.1)):
        groups = setting.build(model_with_concrete()).param_groups
        assert [group["weight_decay"] for group in groups] == [0.1, 0.0]
        assert len(groups[1]["params"]) == 2


def test_schedules_at_chosen_points():
    assert Constant().factor(0.7) == 1.0
    assert [Cosine().factor(t) for t in (0.0, 0.5, 1.0)] == pytest.approx([1.0, 0.5, 0.0])
    assert [Step((0.5, 0.75), 0.1).factor(t) for t in (0.0, 0.5, 0.8)] == pytest.approx([1.0, 0.1, 0.01])
    tail = LinearTail(0.5, 0.9, 0.01)
    assert [tail.factor(t) for t in (0.2, 0.5, 0.7, 0.9, 1.0)] == pytest.approx([1.0, 1.0, 0.505, 0.01, 0.01])
    with pytest.raises(UserError, match="hold < end"):
        LinearTail(0.9, 0.5)


def test_class_weights_are_the_papers_and_an_absent_class_counts_for_nothing():
    labels = torch.tensor([0, 0, 0, 2])
    weights = balanced_weights(labels, 4)
    assert weights.tolist() == pytest.approx([1 / (4 * 0.75), 0.0, 1 / (4 * 0.25), 0.0])
    full = balanced_weights(torch.tensor([0, 1, 1, 1]), 2)
    assert full[torch.tensor([0, 1, 1, 1])].mean().item() == pytest.approx(1.0)


def test_settings_that_mean_nothing_are_refused():
    with pytest.raises(UserError, match=r"lr must be .* above 0"):
        Adam(lr=0.0)
    with pytest.raises(UserError, match="l2 and shrink"):
        Adam(l2=0.1, shrink=0.1)
    with pytest.raises(UserError, match=r"batch must be .* at least 1"):
        Objective(batch=0)
    with pytest.raises(UserError, match="multilabel"):
        Objective(class_weights="batch").check_target("multilabel")
