"""Post-hoc scores against brute force in numpy: explicit loops, inverses, neighbours and null spaces."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy.stats import multivariate_normal
from sklearn.covariance import ledoit_wolf

from dubio.core.errors import UserError
from dubio.inference.feature_scores import (
    ASH,
    Density,
    Energy,
    LastLayer,
    Mahalanobis,
    NearestNeighbours,
    ReAct,
    RelativeMahalanobis,
    TrainingFeatures,
    ViM,
    inverse_root,
    seeded_rows,
    shrunk,
)

EVERY = (Energy(), ReAct(), ASH(), Mahalanobis(), RelativeMahalanobis(), NearestNeighbours(3), ViM(), Density())


class World:
    """Training features of some classes, a last layer, and rows to score."""

    def __init__(self, rows=60, width=7, classes=3, seed=0, link="softmax"):
        generator = np.random.default_rng(seed)
        self.labels = np.arange(rows) % classes
        means = generator.normal(size=(classes, width)) * 2
        mixing = generator.normal(size=(width, width))
        self.train = np.maximum(means[self.labels] + generator.normal(size=(rows, width)) @ mixing, 0)
        self.train = (self.train + 0.1).astype(np.float32)
        self.test = np.abs(generator.normal(size=(9, width)) * 3).astype(np.float32)  # no two are equal
        self.weight, self.bias = generator.normal(size=(classes, width)), generator.normal(size=classes)
        self.link = link

    @property
    def last(self):
        return LastLayer(torch.from_numpy(self.weight), torch.from_numpy(self.bias), self.link)

    @property
    def training(self):
        return TrainingFeatures(torch.from_numpy(self.train), torch.from_numpy(self.labels), self.last, seed=5)

    def score(self, score, rows=None):
        rows = torch.from_numpy(self.test if rows is None else rows).double()
        return score.score(score.fit(self.training), rows, self.last).numpy()

    def logits(self, features):
        return np.array([[sum(w * h for w, h in zip(row, x, strict=True)) + b
                          for row, b in zip(self.weight, self.bias, strict=True)] for x in features])  # fmt: skip

    def energy(self, features, temperature=1.0):
        return [-temperature * math.log(sum(math.exp(z / temperature) for z in row)) for row in self.logits(features)]

    def class_rows(self):
        return {label: self.train[self.labels == label].astype(np.float64) for label in np.unique(self.labels)}


def test_energy_is_the_free_energy_of_the_logits():
    world = World()
    for temperature in (1.0, 0.5, 10.0):
        expected = world.energy(world.test.astype(np.float64), temperature)
        np.testing.assert_allclose(world.score(Energy(temperature)), expected, rtol=1e-10)


def test_energy_of_several_labels_is_the_sum_over_labels():
    world = World(link="sigmoid")
    expected = [-sum(math.log1p(math.exp(z)) for z in row) for row in world.logits(world.test.astype(np.float64))]
    np.testing.assert_allclose(world.score(Energy()), expected, rtol=1e-10)


def test_react_cuts_activations_at_a_quantile_of_training():
    world = World()
    limit = sorted(world.train.ravel().tolist())
    position = 0.8 * (len(limit) - 1)
    low = math.floor(position)
    cut = limit[low] + (position - low) * (limit[low + 1] - limit[low])
    rectified = [[min(float(h), cut) for h in row] for row in world.test]
    np.testing.assert_allclose(world.score(ReAct(0.8)), world.energy(rectified), rtol=1e-6)


def test_ash_prunes_and_scales_each_example():
    world = World(width=10)
    shaped = []
    for row in world.test.astype(np.float64):
        order = sorted(range(10), key=lambda i: -row[i])[:3]  # of ten, seven are pruned
        factor = math.exp(sum(row) / sum(row[i] for i in order))
        shaped.append([row[i] * factor if i in order else 0.0 for i in range(10)])
    np.testing.assert_allclose(world.score(ASH(0.7)), world.energy(shaped), rtol=1e-10)


def test_ash_is_finite_for_negative_and_for_zero_features():
    world = World(width=10)
    rows = np.stack([-np.ones(10), np.zeros(10), np.linspace(-5, 5, 10)]).astype(np.float32)
    assert np.isfinite(world.score(ASH(0.9), rows)).all()


def test_the_shrunk_covariance_is_that_of_ledoit_and_wolf():
    generator = np.random.default_rng(3)
    for rows, width in ((200, 5), (20, 30), (3, 8)):
        centred = generator.normal(size=(rows, width)) @ generator.normal(size=(width, width))
        expected, _ = ledoit_wolf(centred, assume_centered=True)
        blocks = torch.from_numpy(centred).split(7)
        np.testing.assert_allclose(shrunk(blocks).numpy(), expected, rtol=1e-7, atol=1e-9)


def test_the_shrunk_covariance_approaches_the_empirical_one():
    generator = np.random.default_rng(4)
    centred = generator.normal(size=(100_000, 3)) * [1.0, 2.0, 5.0]
    empirical = centred.T @ centred / len(centred)
    np.testing.assert_allclose(shrunk([torch.from_numpy(centred)]).numpy(), empirical, atol=2e-3)


def shared_covariance(world):
    residuals = np.concatenate([rows - rows.mean(axis=0) for rows in world.class_rows().values()])
    return ledoit_wolf(residuals, assume_centered=True)[0]


def distances(world, covariance):
    precision, means = np.linalg.inv(covariance), [rows.mean(axis=0) for rows in world.class_rows().values()]
    return [min((x - m) @ precision @ (x - m) for m in means) for x in world.test.astype(np.float64)]


@pytest.mark.parametrize("rows", [60, 5])  # five rows in seven dimensions, two classes with two rows, one with one
def test_mahalanobis_is_the_distance_from_the_nearest_mean(rows):
    world = World(rows=rows)
    np.testing.assert_allclose(world.score(Mahalanobis()), distances(world, shared_covariance(world)), rtol=1e-6)


def all_rows_covariance(world, covariance):
    """By the law of total variance: that within classes, and that of their means."""
    mean = world.train.astype(np.float64).mean(axis=0)
    for rows in world.class_rows().values():
        offset = rows.mean(axis=0) - mean
        covariance = covariance + len(rows) / len(world.train) * np.outer(offset, offset)
    return mean, covariance


@pytest.mark.parametrize("rows", [60, 5])
def test_relative_mahalanobis_subtracts_the_distance_from_all_rows(rows):
    world = World(rows=rows)
    mean, covariance = all_rows_covariance(world, shared_covariance(world))
    background = [(x - mean) @ np.linalg.inv(covariance) @ (x - mean) for x in world.test.astype(np.float64)]
    expected = np.array(distances(world, shared_covariance(world))) - background
    np.testing.assert_allclose(world.score(RelativeMahalanobis()), expected, rtol=1e-6, atol=1e-8)


def test_of_many_rows_the_covariances_of_relative_mahalanobis_are_the_empirical_ones():
    world = World(rows=50_000, width=4)
    centred = world.train.astype(np.float64) - world.train.astype(np.float64).mean(axis=0)
    background = np.linalg.inv(centred.T @ centred / len(centred))
    residuals = np.concatenate([rows - rows.mean(axis=0) for rows in world.class_rows().values()])
    mean = world.train.astype(np.float64).mean(axis=0)
    expected = np.array(distances(world, residuals.T @ residuals / len(residuals)))
    expected -= [(x - mean) @ background @ (x - mean) for x in world.test.astype(np.float64)]
    np.testing.assert_allclose(world.score(RelativeMahalanobis()), expected, rtol=0.01, atol=0.01)


def test_a_unit_that_is_dead_in_training_makes_no_example_more_certain():
    generator = np.random.default_rng(0)
    world = World(rows=2000, width=32, classes=10)
    means = generator.normal(size=(10, 32))
    world.train = (means[world.labels] + generator.normal(size=(2000, 32))).astype(np.float32)
    world.train[:, :3] = 0.0
    inside = (means[np.arange(50) % 10] + generator.normal(size=(50, 32))).astype(np.float32)
    inside[:, :3] = 0.0
    fires = inside.copy()
    fires[:, :3] = 0.5
    before = world.score(RelativeMahalanobis(), inside)
    np.testing.assert_allclose(world.score(RelativeMahalanobis(), fires), before, atol=1e-6)
    assert (world.score(Mahalanobis(), fires) > world.score(Mahalanobis(), inside)).all()


def test_a_class_without_training_rows_is_no_nearest_class():
    world = World()
    world.labels = np.where(world.labels == 1, 2, world.labels)
    np.testing.assert_allclose(world.score(Mahalanobis()), distances(world, shared_covariance(world)), rtol=1e-6)


def test_knn_is_the_distance_from_the_kth_neighbour():
    world = World(rows=90)
    unit = [row / math.sqrt(sum(h * h for h in row)) for row in world.train.astype(np.float64)]
    for k in (1, 4, 90, 500):
        expected = []
        for row in world.test.astype(np.float64):
            own = row / math.sqrt(sum(h * h for h in row))
            every = sorted(math.sqrt(sum((a - b) ** 2 for a, b in zip(own, u, strict=True))) for u in unit)
            expected.append(every[min(k, 90) - 1])
        # half precision moves a neighbour of length 1 by at most 2⁻¹¹
        np.testing.assert_allclose(world.score(NearestNeighbours(k)), expected, atol=2.0**-11 + 1e-7)


def test_knn_searches_all_blocks_of_its_bank(monkeypatch):
    world = World(rows=90)
    whole = world.score(NearestNeighbours(4))
    monkeypatch.setattr("dubio.inference.feature_scores.BLOCK_ROWS", 3)
    np.testing.assert_allclose(world.score(NearestNeighbours(4)), whole, rtol=1e-12)


def test_the_bank_of_neighbours_is_a_seeded_subset():
    world = World(rows=90)
    bank = NearestNeighbours(4, bank=20).fit(world.training)["bank"].double().numpy()
    rows = seeded_rows(90, 20, seed=5)
    assert len(bank) == len(set(rows.tolist())) == 20
    unit = world.train[rows] / np.linalg.norm(world.train[rows], axis=1, keepdims=True)
    np.testing.assert_allclose(bank, unit, atol=2.0**-11)
    assert not np.array_equal(rows, seeded_rows(90, 20, seed=6))


@pytest.mark.parametrize("rows", [60, 5])
def test_vim_adds_a_virtual_class_for_the_null_space(rows):
    world = World(rows=rows, width=8)
    train, test = world.train.astype(np.float64), world.test.astype(np.float64)
    origin = -np.linalg.pinv(world.weight) @ world.bias
    right = np.linalg.svd(train - origin, full_matrices=True)[2]
    null = right[min(8, rows) // 2 :]  # directions beyond the principal half
    residual = [[np.linalg.norm(null @ (x - origin)) for x in side] for side in (train, test)]
    scale = world.logits(train).max(axis=1).sum() / sum(residual[0])
    # the paper's score: the softmax probability of the virtual class
    expected = []
    for logits, norm in zip(world.logits(test), residual[1], strict=True):
        virtual = math.exp(scale * norm)
        probability = virtual / (virtual + sum(math.exp(z) for z in logits))
        expected.append(math.log(probability / (1.0 - probability)))
    np.testing.assert_allclose(world.score(ViM()), expected, rtol=1e-6, atol=1e-6)


def test_density_is_that_of_a_mixture_of_gaussians():
    world = World(rows=90, width=4)
    density = 0.0
    for rows in world.class_rows().values():
        covariance = ledoit_wolf(rows - rows.mean(axis=0), assume_centered=True)[0]
        density += len(rows) / 90 * multivariate_normal(rows.mean(axis=0), covariance).pdf(world.test)
    np.testing.assert_allclose(world.score(Density()), -np.log(density), rtol=1e-4)


@pytest.mark.parametrize("last", [[0.0], [0.0, 0.5], [0.0, 0.5, 0.5], [0.0, 0.0, 0.5, 0.5]])
def test_the_density_of_a_class_with_fewer_than_three_different_rows_has_the_shared_covariance(last):
    """The products x xᵀ of two centred rows are equal: their spread, which decides on shrinkage, is 0."""
    few = len(last)
    world = World(rows=40 + few, width=4, classes=2)
    world.labels = np.array([0] * 40 + [1] * few)
    world.train[40:] = world.train[40] + np.array(last, np.float32)[:, None] * np.array([1, 2, 0, 1], np.float32)
    mean = world.class_rows()[1].mean(axis=0)
    expected = few / (40 + few) * multivariate_normal(mean, shared_covariance(world)).pdf(world.test)
    rows = world.class_rows()[0]
    covariance = ledoit_wolf(rows - rows.mean(axis=0), assume_centered=True)[0]
    expected += 40 / (40 + few) * multivariate_normal(rows.mean(axis=0), covariance).pdf(world.test)
    np.testing.assert_allclose(world.score(Density()), -np.log(expected), rtol=1e-4)


def test_the_density_is_high_on_new_examples_of_a_class_with_two_rows():
    generator = np.random.default_rng(2)
    world = World(rows=200, width=16, classes=3)
    centres = np.eye(16)[:3] * 20
    world.labels = np.array([0] * 99 + [1] * 99 + [2] * 2)
    world.train = (centres[world.labels] + generator.normal(size=(200, 16))).astype(np.float32)
    inside = (centres[[2] * 50] + generator.normal(size=(50, 16))).astype(np.float32)
    outside = (generator.normal(size=(50, 16)) - centres[[2] * 50]).astype(np.float32)
    assert world.score(Density(), inside).max() < world.score(Density(), outside).min()


def test_covariances_of_too_many_classes_are_refused_by_name():
    Density().check(width=300, classes=150)
    with pytest.raises(UserError, match=r"1000 covariances of 2048 × 2048 .* 67,108,864"):
        Density().check(width=2048, classes=1000)


@pytest.mark.parametrize("score", EVERY, ids=lambda score: score.name)
def test_scores_are_finite_whatever_the_features(score):
    constant = World()
    constant.train[:] = 1.5  # every example looks the same
    partly = World()
    partly.train[:, 2:] = 0.0  # dead units
    one = World(rows=1, classes=1)
    for world in (constant, partly, one):
        rows = np.concatenate([world.test, np.zeros_like(world.test[:1])])
        assert np.isfinite(world.score(score, rows)).all()


@pytest.mark.parametrize("score", EVERY, ids=lambda score: score.name)
def test_rows_are_scored_one_by_one(score):
    world = World()
    together, alone = world.score(score), [world.score(score, world.test[i : i + 1])[0] for i in range(9)]
    np.testing.assert_allclose(alone, together, rtol=1e-9, atol=1e-9)


def test_the_inverse_root_inverts():
    covariance = torch.tensor([[2.0, 0.5], [0.5, 1.0]], dtype=torch.float64)
    root = inverse_root(covariance)
    torch.testing.assert_close(root.T @ root, covariance.inverse())
