"""Snapshots of one training, averaged: snapshot ensembles and fast geometric ensembles.

A snapshot ensemble (SSE; Huang et al., 2017) trains from scratch in cosine cycles and keeps the weights at the end of
each. A fast geometric ensemble (FGE; Garipov et al., 2018) continues a trained network in short triangular cycles and
keeps the weights at the low rate of each.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from dubio.core.errors import UserError
from dubio.core.registry import Ensemble, method
from dubio.core.validate import Positive
from dubio.methods.arguments import ImageViews, OptimiserName, Tail, Training
from dubio.methods.recipe import Recipe
from dubio.training.collectors import KeepAll, Precision
from dubio.training.objectives import ClassWeights
from dubio.training.schedules import Cyclic, Triangular


@dataclass(frozen=True)
class CycleTraining:
    """The arguments of :class:`~dubio.methods.arguments.Training` that training in cycles leaves open."""

    epochs: Positive = 45
    batch: int = 32
    clip: float = 10.0
    class_weights: ClassWeights = "none"
    optimiser: OptimiserName = "adam"
    lr: float = 1e-3
    l2: float = 0.0
    images: ImageViews = ImageViews()

    def training(self) -> Training:
        """Return all arguments of the training: it never stops early, and cycles are its schedule."""
        return Training(patience=0, collect="last", **vars(self))


SNAPSHOTS = Ensemble(title="Ensemble of snapshot ensembles")
GEOMETRIC = Ensemble(title="Ensemble of fast geometric ensembles")


@method("snapshot-ensemble", family="snapshot", colour=9, samples_from="several modes", ensemble=SNAPSHOTS)
def snapshot_ensemble(
    *, training: CycleTraining = CycleTraining(), cycles: int = 5, store: Precision = "float32"
) -> Recipe:
    """The weights at the end of every cosine cycle of one training; their probabilities are averaged.

    Args:
        training: How the network is trained.
        cycles: Cosine cycles, each with one snapshot (pitfalls paper, eq. 16).
        store: The precision in which snapshots are stored.
    """
    recipe = training.training().recipe("snapshot-ensemble", "Snapshot ensemble")
    return replace(recipe, schedule=Cyclic(cycles), collect=KeepAll(store=store))


@method("fge", family="snapshot", colour=12, samples_from="one mode", ensemble=GEOMETRIC)
def fge(
    *,
    training: Training = Training(),
    tail: Tail = Tail(),
    tail_low_lr: float = 5e-4,
    cycle_epochs: int = 2,
    cycles: int = 5,
    store: Precision = "float32",
) -> Recipe:
    """A trained network continued in short triangular cycles, with a snapshot at the low rate of each.

    Args:
        training: How the network is trained first.
        tail: How it is continued; ``tail_lr`` is the paper's α₁.
        tail_low_lr: The paper's α₂.
        cycle_epochs: Epochs per cycle; the snapshot is taken at its middle.
        cycles: Cycles, each with one snapshot.
        store: The precision in which snapshots are stored.
    """
    if cycle_epochs < 2 or cycle_epochs % 2:
        raise UserError(f"fge: cycle_epochs must be even, with the snapshot at the middle; given {cycle_epochs}.")
    if not 0.0 <= tail_low_lr <= tail.tail_lr or tail.tail_lr == 0.0:
        rates = f"{tail_low_lr} and {tail.tail_lr}"
        raise UserError(f"fge: tail_low_lr must lie between 0 and tail_lr, which is positive; given {rates}.")
    triangles = Triangular(cycles, tail_low_lr / tail.tail_lr)
    epochs = (2 * triangles.cycles - 1) * cycle_epochs // 2
    name, title, collect = "fge", "Fast geometric ensemble", KeepAll(store=store)
    return tail.recipe(name, title, training, epochs=epochs, schedule=triangles, collect=collect)
