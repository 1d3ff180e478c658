"""Mean-field variational inference: a Gaussian for every weight, trained by a bound on the evidence.

The loss is the cross-entropy plus (β/N)·KL(q ‖ p) with the prior p = N(0, 1/(N·l2)) that weight decay ``l2`` stands for
(pitfalls paper, eqs 11 and 12). The μ² part of the KL divergence is the optimiser's weight decay and not scaled by β.

The arguments allow two ways of training. From scratch, as in the retina paper: Adam on everything, Flipout, β rising
over the first steps (``anneal``). From a trained network, as in the pitfalls paper: ``start_epochs`` of ordinary
training, whose fit is shared with the method ``deterministic`` of the same arguments, then SGD on μ and Adam on log σ.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal, cast

from dubio.core.registry import method
from dubio.methods.arguments import ScheduleName, Training
from dubio.methods.recipe import Recipe
from dubio.networks.gaussian_weights import Estimator, GaussianWeights
from dubio.training.optimisers import SGD, Adam, MeanAndScale

MeanOptimiser = Literal["adam", "sgd"]


@dataclass(frozen=True)
class MeanTraining(Training):
    """How the means are trained; ``l2`` is the prior and the decay of μ."""

    optimiser: MeanOptimiser = "adam"
    l2: float = 5e-5


@dataclass(frozen=True)
class Bound:
    """The bound on the evidence and how σ is trained.

    Attributes:
        beta: Weight of the KL divergence; 1 is the evidence lower bound.
        anneal: Fraction of all steps over which β rises from 0.
        log_sigma: log σ to start from.
        estimator: How outputs are drawn while training.
        scale_lr: Adam's learning rate of log σ.
        unscaled_kl: Erratum of the retina benchmark's code: the divergence is not divided by the training examples.
    """

    beta: float = 1e-2
    anneal: float = 0.25
    log_sigma: float = -5.0
    estimator: Estimator = "flipout"
    scale_lr: float = 1e-2
    unscaled_kl: bool = False


@dataclass(frozen=True)
class Start:
    """The ordinary training whose weights μ starts from; 0 epochs start from scratch."""

    start_epochs: int = 0
    start_optimiser: MeanOptimiser = "adam"
    start_lr: float = 1e-3
    start_schedule: ScheduleName = "constant"

    def recipe(self, training: Training) -> Recipe | None:
        """Return the recipe to start from, with the data, decay and augmentation of the training, or None."""
        if not self.start_epochs:
            return None
        return replace(
            training,
            epochs=self.start_epochs,
            optimiser=self.start_optimiser,
            lr=self.start_lr,
            schedule=self.start_schedule,
        ).start()


@method("mean-field-vi", family="variational", colour=15, samples_from="one solution", ensemble=True)
def mean_field_vi(
    *, training: MeanTraining = MeanTraining(), bound: Bound = Bound(), start: Start = Start(), samples: int = 10
) -> Recipe:
    """A Gaussian for every weight, drawn at prediction."""
    prior = training.l2, bound.log_sigma, bound.beta
    weights = GaussianWeights(*prior, bound.anneal, bound.estimator, bound.unscaled_kl)
    direct = training.recipe("mean-field-vi", "Mean-field VI", edits=(weights,), samples=samples)
    optimiser = MeanAndScale(cast(Adam | SGD, direct.optimiser), bound.scale_lr)
    return replace(direct, start=start.recipe(training), optimiser=optimiser)
