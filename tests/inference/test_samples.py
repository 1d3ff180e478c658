"""Fewer samples of a posterior: the latest snapshots, or the first draws and views."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from dubio.inference.augmentation import ShiftFlip, Views
from dubio.inference.samples import WeightSamples, state_of
from dubio.inference.weight_draws import LowRankGaussian, WeightDraws
from dubio.networks.heads.linear import Softmax
from dubio.networks.mlp import mlp
from dubio.networks.network import Model
from dubio.networks.noise import DropoutEdit

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
