"""A plugin: a task, a network, a method and a metric of one's own, in one file.

Try it::

    dubio check docs/examples/plugin.py
    dubio list tasks --plugin docs/examples/plugin.py
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn

from dubio import Examples, Predictions, SourceCard, Split, Task, method, metric, network, task
from dubio.methods.recipe import Recipe
from dubio.networks.network import Dense, Network
from dubio.networks.noise import DropoutEdit
from dubio.training.objectives import Objective


@task("two-moons")
def two_moons(*, noise: float = 0.15, rows: int = 200, split_seed: int = 0) -> Task:
    """Two interleaved half circles, and a third cloud that belongs to neither.

    Args:
        noise: Deviation of a point from its half circle.
        rows: Points of each split.
        split_seed: Of all points.
    """
    generator = np.random.default_rng(split_seed)

    def moons(name: str) -> Examples:
        labels = np.arange(rows, dtype=np.int64) % 2
        angle = generator.uniform(0, np.pi, rows)
        x = np.where(labels == 0, np.cos(angle), 1 - np.cos(angle))
        y = np.where(labels == 0, np.sin(angle), 0.5 - np.sin(angle))
        points = np.stack([x, y], axis=1) + noise * generator.standard_normal((rows, 2))
        return Examples(points, labels, ids=np.array([f"{name}-{row}" for row in range(rows)]))

    cloud = Examples(
        np.array([0.5, 3.0]) + 0.3 * generator.standard_normal((rows, 2)),
        np.full(rows, -1, dtype=np.int64),  # none of the task's classes
        ids=np.array([f"cloud-{row}" for row in range(rows)]),
    )
    splits = (
        Split.of("train", "train", moons("train")),
        Split.of("val", "val", moons("val")),
        Split.of("test", "id", moons("test")),
        Split.of("cloud", "ood", cloud),
    )
    card = SourceCard("made up", "1", "CC0-1.0", "none", "Two half circles in the plane.")
    return Task("two-moons", "table", "multiclass", ("upper", "lower"), splits, card)


class Waves(nn.Module):
    """Every feature with the sine and cosine of learned multiples of it."""

    def __init__(self, features: int, waves: int) -> None:
        """Make ``waves`` random directions."""
        super().__init__()
        self.directions = nn.Linear(features, waves)

    def forward(self, h: Tensor) -> Tensor:
        """[B, D] to [B, D + 2·waves]."""
        turned = self.directions(h)
        return torch.cat([h, torch.sin(turned), torch.cos(turned)], dim=1)


@network("wavy", inputs="table")
def wavy(shape: tuple[int, ...], *, waves: int = 16, units: int = 32) -> Network:
    """Sines and cosines of the features, then one dense layer whose inputs are a noise site.

    Args:
        shape: (features,).
        waves: How many sines and cosines.
        units: Units of the dense layer.
    """
    wide = shape[0] + 2 * waves
    dense = Dense("dense", wide, units, accepts=("dropout", "concrete_dropout"))
    return Network([Waves(shape[0], waves), dense], units)


@method("light-dropout")
def light_dropout(*, p: float = 0.1, samples: int = 20, epochs: int = 30) -> Recipe:
    """MC dropout with a low rate.

    Args:
        p: Probability that an input is dropped.
        samples: Draws at prediction.
        epochs: Passes over the training data, at most.
    """
    objective = Objective(epochs=epochs)
    return Recipe("light-dropout", "Light dropout", edits=(DropoutEdit(p),), objective=objective, samples=samples)


@metric("sure-errors", better="lower", needs={"labels"}, targets={"multiclass", "ordinal"}, mean=True)
def sure_errors(p: Predictions, *, threshold: float = 0.9) -> np.ndarray:
    """Share of examples that are wrong although the predictor is sure.

    Args:
        p: The labelled rows; the metric is the mean of what is returned for each.
        threshold: Confidence above which a predictor is sure.
    """
    wrong = p.probs.argmax(axis=1) != p.labels
    return (wrong & (p.probs.max(axis=1) > threshold)).astype(float)
