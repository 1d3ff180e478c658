"""Cyclical stochastic-gradient MCMC (Zhang et al., 2020): weight samples around several optima, from one training.

The learning rate goes down a cosine and up again, cycle after cycle. At the start of a cycle large steps look for
another optimum; in its last epochs the steps carry noise that samples the posterior around it, and snapshots are kept.
Prediction averages over all of them; their number is ``(cycles − burn_in) · samples_per_cycle``.
"""

from __future__ import annotations

from dataclasses import dataclass

from dubio.core.registry import method
from dubio.core.validate import Positive
from dubio.methods.arguments import ImageViews
from dubio.methods.recipe import Recipe
from dubio.training.collectors import KeepAll, Precision
from dubio.training.objectives import ClassWeights, Objective
from dubio.training.optimisers import Optimiser
from dubio.training.schedules import Cyclic, Temperature
from dubio.training.sgmcmc import SGHMC, SGLD


@dataclass(frozen=True)
class Cycles:
    """Training and sampling in cosine cycles.

    Attributes:
        epochs: Passes over the training data.
        batch: Examples per step.
        cycles: Cosine cycles.
        samples_per_cycle: Snapshots kept in each.
        sampling_epochs: Epochs at the end of each cycle whose steps carry noise.
        burn_in: First cycles whose snapshots are dropped.
        temperature: Temperature of the noise, a number or a rule; 1 samples the posterior itself.
        l2: Weight decay: the prior N(0, 1/(N·l2)).
        embedding_rate: Factor of the learning rate of embeddings.
        clip: Largest norm of the gradient; 0 for no limit.
        class_weights: Weights of the classes in the loss.
        store: The precision in which snapshots are stored.
        images: Random views of images.
    """

    epochs: Positive = 45
    batch: int = 32
    cycles: int = 5
    samples_per_cycle: int = 3
    sampling_epochs: int = 3
    burn_in: int = 0
    temperature: Temperature = 0.01
    l2: float = 3e-5
    embedding_rate: float = 100.0
    clip: float = 10.0
    class_weights: ClassWeights = "none"
    store: Precision = "float32"
    images: ImageViews = ImageViews()

    def recipe(self, name: str, title: str, optimiser: Optimiser) -> Recipe:
        """Return the recipe of a sampler."""
        return Recipe(
            name,
            title,
            objective=Objective(self.batch, self.epochs, 0, self.clip, self.class_weights, self.images.augmentation()),
            optimiser=optimiser,
            schedule=Cyclic(self.cycles, self.sampling_epochs, self.temperature, self.samples_per_cycle),
            collect=KeepAll(skip=self.burn_in * self.samples_per_cycle, store=self.store),
            views=self.images.at_prediction(name),
        )


@method("csgld", family="sgmcmc", colour=10, samples_from="several modes", ensemble=True)
def csgld(*, sampling: Cycles = Cycles(), lr: float = 0.5, momentum: float = 0.0) -> Recipe:
    """Weights sampled by Langevin dynamics at the end of every cosine cycle."""
    return sampling.recipe("csgld", "Cyclical SGLD", SGLD(lr, sampling.l2, momentum, sampling.embedding_rate))


@method("csghmc", family="sgmcmc", colour=11, samples_from="several modes", ensemble=True)
def csghmc(*, sampling: Cycles = Cycles(), lr: float = 0.05, alpha: float = 0.1) -> Recipe:
    """Weights sampled by Hamiltonian dynamics with friction at the end of every cosine cycle."""
    return sampling.recipe("csghmc", "Cyclical SGHMC", SGHMC(lr, sampling.l2, alpha, sampling.embedding_rate))
