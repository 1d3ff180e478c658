"""Fewer samples of a posterior: the latest snapshots, or the first draws and views."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from dubio.inference.augmentation import ShiftFlip, Views
from dubio.inference.engine import looped_states
from dubio.inference.samples import WeightSamples, state_of
from dubio.inference.weight_draws import LowRankGaussian, WeightDraws
from dubio.networks.heads.linear import Softmax
from dubio.networks.mlp import mlp
from dubio.networks.network import Model
from dubio.networks.noise import DropoutEdit
from tests.networks.helpers import (
    CLASSES,
    IMAGE_ROWS,
    SETS,
    branch_of,
    fork_inputs,
    forked,
    image_batch,
    image_model,
    lived_in,
    nearly_equal,
)

ROWS = np.arange(6)


def model_of(shape: tuple[int, ...]) -> Model:
    torch.manual_seed(0)
    body = mlp(shape)
    return Model(body, Softmax().build(body.width, 3))


def logits(posterior: WeightSamples | WeightDraws, batch: torch.Tensor) -> torch.Tensor:
    return posterior.draw(7).predict(batch, ROWS).logits


def states(model: Model, count: int) -> tuple[dict[str, torch.Tensor], ...]:
    return tuple({n: t + 0.1 * k for n, t in state_of(model).items()} for k in range(count))


def test_of_several_states_the_latest() -> None:
    model, batch = model_of((4,)), torch.randn(6, 4)
    points = WeightSamples(model, states(model, 5))
    assert torch.equal(logits(points.limit(2), batch), logits(points, batch)[-2:])
    assert torch.equal(logits(points.limit(9), batch), logits(points, batch))


def test_of_one_state_the_first_noise_draws() -> None:
    model, batch = model_of((4,)), torch.randn(6, 4)
    DropoutEdit(0.5).apply(model)
    points = WeightSamples(model, states(model, 1), samples=8)
    assert torch.allclose(logits(points.limit(3), batch), logits(points, batch)[:3], atol=1e-6)


def test_of_draws_from_a_distribution_the_first_ones() -> None:
    model, batch = model_of((4,)), torch.randn(6, 4)
    mean = dict(model.named_parameters())
    parts = [{n: t.detach().clone() for n, t in mean.items()}, {n: 0.01 * torch.ones_like(t) for n, t in mean.items()}]
    spread = {n: 0.1 * torch.randn(3, *t.shape) for n, t in mean.items()}
    posterior = WeightDraws(model, LowRankGaussian(*parts, spread), 3, {}, ({},) * 6)
    assert torch.equal(logits(posterior.limit(4), batch), logits(posterior, batch)[:4])


@pytest.mark.parametrize("most", [1, 2])
def test_views_are_those_of_as_many_states(most: int) -> None:
    from dubio.networks.cnn import cnn

    torch.manual_seed(0)
    body = cnn((1, 8, 8))
    model, batch = Model(body, Softmax().build(body.width, 3)), torch.randn(6, 1, 8, 8)
    points = WeightSamples(model, states(model, 3), views=Views(ShiftFlip(1), 1))
    alone = replace(points, states=points.states[-most:])
    assert torch.allclose(logits(points.limit(most), batch), logits(alone, batch), atol=1e-6)


def test_of_one_state_without_noise_the_first_views() -> None:
    from dubio.networks.cnn import cnn

    torch.manual_seed(0)
    body = cnn((1, 8, 8))
    model, batch = Model(body, Softmax().build(body.width, 3)), torch.randn(6, 1, 8, 8)
    points = WeightSamples(model, states(model, 1), views=Views(ShiftFlip(1), 6))
    assert torch.allclose(logits(points.limit(2), batch), logits(points, batch)[:2], atol=1e-6)


def test_every_set_is_a_sample_of_its_own_member():
    model, x = forked(), fork_inputs()
    drawn = WeightSamples(model, (state_of(model),)).draw(0)
    logits = drawn.predict(x, np.arange(7)).logits
    assert logits.shape == (SETS, 7, CLASSES)
    assert drawn.member == (0, 1, 2)
    for index in range(SETS):
        assert torch.allclose(logits[index], branch_of(model, index)(x), atol=1e-6)


def test_the_sets_draw_their_own_noise_at_the_head():
    model = forked(edits=(DropoutEdit(0.5),))
    with torch.no_grad():
        for branch in model.network.stages[1].branches:
            branch.load_state_dict(model.network.stages[1].branches[0].state_dict())
    logits = WeightSamples(model, (state_of(model),), samples=2).draw(0).predict(fork_inputs(), np.arange(7)).logits
    assert not torch.allclose(logits[0], logits[1], atol=1e-3)


@pytest.mark.parametrize("name", ["vgg-small", "resnet50"])
def test_snapshots_predict_alike_with_folded_batch_norm(name):
    model = image_model(name)
    states = tuple(state_of(lived_in(image_model(name, seed=seed), seed=seed)) for seed in range(3))
    drawn = WeightSamples(model, states).draw(0)
    with torch.inference_mode():
        wanted = looped_states(model, states, image_batch())
    assert nearly_equal(drawn.predict(image_batch(), IMAGE_ROWS).logits, wanted)
