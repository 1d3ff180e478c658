"""The Laplace collector with batch-norm and on a logistic regression, and the search on a logarithmic grid."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from dubio.encoders import ArrayRows, TokenRows
from dubio.inference.augmentation import ShiftFlip, Views
from dubio.inference.batches import LabelledRows, collate
from dubio.inference.laplace import HeadPredictor
from dubio.inference.predictor import load_state
from dubio.networks.heads.linear import Softmax
from dubio.networks.mlp import mlp
from dubio.networks.network import Model, Network
from dubio.networks.textcnn import textcnn
from dubio.training.batch_norm import refresh, statistics
from dubio.training.collectors import Collected, FinishContext
from dubio.training.laplace.collector import Laplace
from dubio.training.laplace.selection import Trials, minimise_on_log_grid
from dubio.training.validation import posterior_nll

CPU = torch.device("cpu")


def labelled(rows, *shape, seed=0):
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 2, size=rows)
    inputs = rng.normal(size=(rows, *shape)) + labels.reshape(-1, *([1] * len(shape)))
    return LabelledRows(ArrayRows(inputs.astype(np.float32)), labels, 2)


def with_batch_norm():
    torch.manual_seed(0)
    stage = nn.Sequential(nn.Conv2d(1, 3, 3, padding=1), nn.BatchNorm2d(3), nn.ReLU(), nn.Flatten())
    return Model(Network([stage], 48), Softmax().build(48, 2))


def context_of(shape, **more):
    return FinishContext(labelled(60, *shape), labelled(40, *shape, seed=1), CPU, seed=3, batch=20, **more)


def finished(collector, model, context):
    held = Collected()
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    posterior = collector.finish(held, model, context)
    after = model.state_dict()
    assert all(torch.equal(after[name], tensor) for name, tensor in before.items())  # the model is left as it was
    return posterior, held.facts["record"]["laplace"]


@pytest.mark.parametrize("structure", ["kron", "diag"])
def test_batch_norm_statistics_are_those_of_every_draw(structure):
    model, context = with_batch_norm(), context_of((1, 4, 4), augmentation=ShiftFlip(1))
    refresh(model, FinishContext(context.train, context.train, CPU, seed=0, batch=20))
    posterior, said = finished(Laplace(structure, draws=3, scale=0.7), model, context)
    assert [name for name in said["fixed"] if not name.startswith("network.stages.0.1.")] == []
    assert said["scale"] == said["scale_with_views"] == 0.7
    states = [posterior.plain.state(k) for k in range(3)]
    for state in states:
        load_state(model, state)
        given = statistics(model)
        refresh(
            model, FinishContext(context.train, context.train, CPU, seed=3, batch=20, augmentation=context.augmentation)
        )
        again = statistics(model)
        assert all(torch.equal(given[name], again[name]) for name in given)
    means = [state["network.stages.0.1.running_mean"] for state in states]
    assert not torch.equal(means[0], means[1])
    tensors = posterior.tensors()
    restored = Laplace(structure, draws=3, scale=0.7).form.restore(tensors, model, 0, None)
    assert all(torch.equal(restored.plain.state(2)[name], states[2][name]) for name in states[2])
    assert restored.tensors().keys() == tensors.keys()


def test_the_last_layer_changes_no_statistics():
    model, context = with_batch_norm(), context_of((1, 4, 4))
    posterior, said = finished(Laplace("last-kron", draws=2, scale=1.0), model, context)
    assert said["random"] == ["head.linear.bias", "head.linear.weight"]
    assert all(not buffers for buffers in posterior.plain.buffers)
    assert "fixed/network.stages.0.1.running_mean" in posterior.tensors()


@pytest.mark.parametrize(
    ("network", "rows"),
    [
        (lambda: mlp((4,), hidden=(6,)), ArrayRows(np.random.default_rng(0).normal(size=(30, 4)).astype(np.float32))),
        (
            lambda: textcnn((9,), embedding=4, maps=3, kernels=(2,)),
            TokenRows(np.arange(90, dtype=np.int32) % 8 + 1, np.arange(0, 91, 3)),
        ),
    ],
)
def test_draws_of_the_last_layer_share_the_network_and_predict_what_whole_states_do(network, rows):
    torch.manual_seed(0)
    body = network()
    model = Model(body, Softmax().build(body.width, 2))
    data = LabelledRows(rows, np.arange(30) % 2, 2)
    posterior, _ = finished(Laplace("last-full", draws=4, scale=2.0), model, FinishContext(data, data, CPU, 3, 10))
    some = np.arange(7)
    drawn = posterior.draw(0)
    assert isinstance(drawn, HeadPredictor)
    fast = drawn.predict(collate(rows, some), some).logits
    plain = posterior.plain.draw(0).predict(collate(rows, some), some).logits
    torch.testing.assert_close(fast, plain, rtol=1e-5, atol=1e-5)
    assert drawn.member == (0,) * 4
    viewed = Laplace("last-full", draws=4).form.restore(posterior.tensors(), model, 0, Views(ShiftFlip(1)))
    assert not isinstance(viewed.draw(0), HeadPredictor)


def test_draws_of_a_logistic_regression_have_the_inverse_of_its_exact_hessian_as_covariance():
    torch.manual_seed(0)
    model, context = Model(Network([nn.Identity()], 3), Softmax().build(3, 2)), context_of((3,), l2=0.02)
    posterior, _ = finished(Laplace("last-full", draws=4000, prior="decay", scale=1.0), model, context)
    x, y = torch.from_numpy(context.train.encoded.values).double(), torch.from_numpy(context.train.labels)

    def loss(flat):  # −log posterior: Σ −log p(y) + ½ N λ ‖θ‖²
        weights = flat.reshape(2, 4)
        return nn.functional.cross_entropy(x @ weights[:, :3].T + weights[:, 3], y, reduction="sum") + 0.6 * flat @ flat

    head = model.head.linear
    at = torch.cat([head.weight, head.bias[:, None]], dim=1).detach().double().flatten()
    wanted = torch.linalg.inv(torch.autograd.functional.hessian(loss, at))
    states = (posterior.plain.state(k) for k in range(4000))
    found = torch.stack(
        [torch.cat([s["head.linear.weight"], s["head.linear.bias"][:, None]], 1).flatten() for s in states]
    )
    error = (wanted.diagonal()[:, None] * wanted.diagonal() + wanted**2).sqrt() / math.sqrt(4000)
    assert ((torch.cov(found.double().T) - wanted).abs() < 5 * error).all()


def test_the_scale_is_the_best_of_those_tried():
    torch.manual_seed(0)
    model, context = Model(Network([nn.Identity()], 3), Softmax().build(3, 2)), context_of((3,))
    with torch.no_grad():
        model.head.linear.weight.mul_(12.0)  # overconfident
    posterior, said = finished(Laplace("last-full", draws=10), model, context)
    trials = Trials(model, context, refreshes=False)
    tried = {
        scale: trials.nll(posterior.plain.distribution.scaled(scale), None) for scale in (0.01, 0.1, 0.32, 1.0, 3.2)
    }
    best = posterior_nll(posterior, context.val, seed=context.seed, device=CPU)
    assert best <= min(tried.values()) + 1e-4
    assert said["scale"] > 0.1
    assert said["scale_with_views"] is None


def test_the_least_on_a_logarithmic_grid():
    asked = []

    def score(value):
        asked.append(value)
        return math.nan if value > 5.0 else (math.log10(value) - math.log10(0.06)) ** 2

    found = minimise_on_log_grid(score, 0.01, 10.0)
    assert found.value == pytest.approx(10**-1.25)
    assert found.at_bound is None
    np.testing.assert_allclose(asked[:7], 10.0 ** np.arange(-2, 1.1, 0.5))
    assert len(asked) == 9


@pytest.mark.parametrize(
    ("score", "value", "end"),
    [
        (lambda v: v, 10**-2.25, "low"),  # ever better downwards
        (lambda v: -v, 10**1.25, "high"),
        (lambda v: abs(math.log10(v) + 2.0), 0.01, None),  # the first of the coarse grid, and worse beyond it
        (lambda v: abs(math.log10(v) - 1.0), 10.0, None),
        (lambda v: 0.0, 0.01, "low"),  # no optimum at all
    ],
)
def test_a_search_that_runs_into_its_bound_says_at_which_end(score, value, end):
    found = minimise_on_log_grid(score, 0.01, 10.0)
    assert found.value == pytest.approx(value)
    assert found.at_bound == end


def test_a_scale_at_the_edge_of_the_grid_is_in_the_record(monkeypatch):
    torch.manual_seed(0)
    model, context = Model(Network([nn.Identity()], 3), Softmax().build(3, 2)), context_of((3,), l2=1e-9)
    # scores taken from the scale itself: downwards without views, upwards with them
    told = Laplace("last-diag", draws=2, prior="decay")
    monkeypatch.setattr(Trials, "nll", lambda self, gaussian, views: gaussian.scale * (1 if views is None else -1))
    _, said = finished(told, model, replace(context, augmentation=ShiftFlip(1)))
    assert (said["scale"], said["scale_at_bound"]) == (pytest.approx(10**-2.25), "low")
    assert (said["scale_with_views"], said["scale_with_views_at_bound"]) == (pytest.approx(10**1.25), "high")
    assert said["decay_at_bound"] is None
    _, given = finished(Laplace("last-diag", draws=2, prior="decay", scale=99.0), model, context)
    assert (given["scale"], given["scale_at_bound"], given["scale_with_views_at_bound"]) == (99.0, None, None)
