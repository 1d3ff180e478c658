"""Draws of weights: their moments against the closed form, how they are stored, and how few are held at once.

A file gives its tensors back in any order; what is drawn must not depend on it.
"""

from __future__ import annotations

import weakref

import numpy as np
import pytest
import torch
from torch import nn

from dubio.core.errors import UserError
from dubio.core.types import Examples, Split
from dubio.encoders import ArrayRows
from dubio.inference import predictor as drawn_states
from dubio.inference.augmentation import ShiftFlip, Views
from dubio.inference.laplace import LaplaceGaussian, diagonal_block
from dubio.inference.posterior import Mixture, chunks_of
from dubio.inference.predictor import ChunkedPredictor, StatePredictor
from dubio.inference.samples import WeightSamples
from dubio.inference.weight_draws import LowRankGaussian, StoredLowRank, WeightDraws, draw_generator
from dubio.methods.prediction import predict_with
from dubio.networks.heads.linear import Softmax
from dubio.networks.linear_maps import WeightMatrix
from dubio.networks.network import Dense, Model, Network
from dubio.networks.noise import DropoutEdit
from dubio.training.batch_norm import statistics


def gaussian(rank=4, seed=0):
    generator = torch.Generator().manual_seed(seed)

    def drawn(*shape):
        return torch.randn(shape, generator=generator)

    shapes = {"a": (2, 2), "b": (3,)}
    return LowRankGaussian(
        {name: drawn(*shape) for name, shape in shapes.items()},
        {name: drawn(*shape).square() for name, shape in shapes.items()},
        {name: drawn(rank, *shape) for name, shape in shapes.items()},
    )


def flat(state):
    return torch.cat([state[name].flatten() for name in ("a", "b")]).numpy()


def test_draws_have_the_mean_and_the_covariance_of_the_closed_form():
    law, count = gaussian(), 20_000
    drawn = np.stack([flat(law.draw(draw_generator(7, k))) for k in range(count)])
    columns = np.stack([flat({n: law.deviations[n][k] for n in law.deviations}) for k in range(law.rank)], 1)
    wanted = 0.5 * (np.diag(flat(law.variance)) + columns @ columns.T / (law.rank - 1))
    # five standard errors of a mean and of a covariance of Gaussian draws
    scale = np.sqrt(np.diag(wanted))
    assert np.all(np.abs(drawn.mean(0) - flat(law.mean)) < 5 * scale / np.sqrt(count))
    error = np.sqrt((np.outer(scale, scale) ** 2 + wanted**2) / count)
    assert np.all(np.abs(np.cov(drawn.T) - wanted) < 5 * error)


def test_a_single_snapshot_has_no_covariance():
    with pytest.raises(UserError, match="at least 2 snapshots"):
        gaussian(rank=1)


def network():
    torch.manual_seed(0)
    stages = [
        nn.Sequential(nn.Conv2d(1, 3, 3, padding=1), nn.BatchNorm2d(3), nn.ReLU()),
        nn.Flatten(),
        Dense("dense", 48, 5, accepts=("dropout",)),
    ]
    model = Model(Network(stages, 5), Softmax().build(5, 3))
    DropoutEdit(0.5).apply(model)
    return model


def posterior(draws=5, samples=0, views=None):
    model = network()
    generator = torch.Generator().manual_seed(1)
    mean = {name: p.detach().clone() for name, p in model.named_parameters()}
    law = LowRankGaussian(
        mean,
        {name: torch.full_like(p, 0.01) for name, p in mean.items()},
        {name: 0.1 * torch.randn((3, *p.shape), generator=generator) for name, p in mean.items()},
    )
    buffers = []
    for k in range(draws):
        model.network.stages[0][1].running_mean.fill_(0.1 * k)
        buffers.append(statistics(model))
    return WeightDraws(model, law, 11, {}, tuple(buffers), samples, views)


def split(rows=200):
    generator = np.random.default_rng(0)
    pixels = generator.normal(size=(rows, 1, 4, 4)).astype(np.float32)
    kept = Split.of("id", "id", Examples(np.zeros((rows, 4, 4, 1), np.uint8), generator.integers(0, 3, size=rows)))
    return ArrayRows(pixels), kept


TASK = {"target": "multiclass", "classes": ["a", "b", "c"]}
WAYS = {"plain": {}, "noise": {"samples": 2}, "views": {"views": Views(ShiftFlip(1, 0.5), 2)}}


@pytest.mark.parametrize("way", WAYS)
def test_what_is_stored_gives_the_same_draws_again(way):
    first = posterior(**WAYS[way])
    stored = {name: torch.from_numpy(tensor.numpy().copy()) for name, tensor in first.tensors().items()}
    again = StoredLowRank(5).restore(stored, network(), first.samples, first.views)
    encoded, kept = split(20)
    one, two = (predict_with(p, encoded, kept, TASK, seed=3).logits for p in (first, again))
    assert np.array_equal(one, two)
    assert len(one) == 5 * max(1, first.samples) * (first.views.each if first.views else 1)
    # the distribution is stored, and of each draw only its statistics
    drawn = {name for name in stored if name.startswith("draw/")}
    assert {name.rpartition(".")[2] for name in drawn} == {"running_mean", "running_var", "num_batches_tracked"}


def test_draws_are_states_of_their_own_weights_and_statistics():
    made = posterior()
    states = tuple(made.state(k) for k in range(5))
    assert all(state.keys() == made.model.state_dict().keys() for state in states)
    assert len({float(state["head.linear.bias"][0]) for state in states}) == 5
    encoded, kept = split(20)
    drawn, points = (predict_with(p, encoded, kept, TASK, seed=3) for p in (made, WeightSamples(made.model, states)))
    assert np.array_equal(drawn.logits, points.logits)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("few", [1, 2, 4])
def test_held_in_parts_they_predict_the_same(monkeypatch, way, few):
    made, (encoded, kept) = posterior(**WAYS[way]), split()
    whole = predict_with(made, encoded, kept, TASK, seed=3)
    size = sum(tensor.numel() for tensor in made.model.state_dict().values())
    monkeypatch.setattr(drawn_states, "HELD_ELEMENTS", few * size)
    drawn = made.draw(3)
    assert isinstance(drawn, ChunkedPredictor)
    per_state = len(drawn.member) // 5
    assert [len(part.member) for part in chunks_of(drawn)] == [
        per_state * len(range(first, min(5, first + few))) for first in range(0, 5, few)
    ]
    in_parts = predict_with(made, encoded, kept, TASK, seed=3)
    np.testing.assert_allclose(in_parts.logits, whole.logits, rtol=1e-5, atol=1e-6)
    # batch by batch, as whoever does not ask for parts predicts
    batch, rows = torch.from_numpy(encoded.values[:9]), np.arange(9)
    np.testing.assert_allclose(drawn.predict(batch, rows).logits, whole.logits[:, :9], rtol=1e-5, atol=1e-6)


def test_parts_are_made_one_after_another_and_each_draw_once_a_split(monkeypatch):
    made, (encoded, kept) = posterior(), split()
    monkeypatch.setattr(drawn_states, "HELD_ELEMENTS", 1)
    asked = []
    monkeypatch.setattr(WeightDraws, "state", lambda self, k, real=WeightDraws.state: asked.append(k) or real(self, k))
    alive, most = weakref.WeakSet(), []

    def begin(self, *given, real=StatePredictor.__init__):
        alive.add(self)
        most.append(len(alive))
        real(self, *given)

    monkeypatch.setattr(StatePredictor, "__init__", begin)
    two = predict_with(Mixture((made, posterior())), encoded, kept, TASK, seed=3)
    assert asked == [0, 1, 2, 3, 4] * 2
    assert max(most) == 2  # the one that predicts, and the one that follows it
    assert list(two.member) == [0] * 5 + [1] * 5


SHAPES = {"b.weight": (2, 3), "b.bias": (2,), "a.weight": (4, 2)}


def turned(named):
    return dict(reversed(named.items()))


def equal(one, other):
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


def test_swag_draws_the_same():
    generator = torch.Generator().manual_seed(0)
    mean = {name: torch.randn(shape, generator=generator) for name, shape in SHAPES.items()}
    variance = {name: torch.rand(shape, generator=generator) for name, shape in SHAPES.items()}
    deviations = {name: torch.randn((2, *shape), generator=generator) for name, shape in SHAPES.items()}
    read = LowRankGaussian(mean, variance, deviations)
    other = LowRankGaussian(turned(mean), turned(variance), turned(deviations))
    assert equal(read.draw(draw_generator(0, 1)), other.draw(draw_generator(0, 1)))


def test_laplace_draws_the_same():
    point = {name: torch.zeros(shape) for name, shape in SHAPES.items()}
    matrices = [WeightMatrix("b.weight", "b.bias", (2, 3)), WeightMatrix("a.weight", None, (4, 2))]
    blocks = tuple(diagonal_block(matrix, torch.ones(matrix.size, dtype=torch.float64), 10) for matrix in matrices)
    draws = [LaplaceGaussian(point, some, 1.0).draw(draw_generator(0, 1)) for some in (blocks, blocks[::-1])]
    assert equal(*draws)
