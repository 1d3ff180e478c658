"""The mean of the weights along a training, and the Gaussian around it: SWA, SWAG and MultiSWAG.

A trained network is continued at a constant learning rate for some epochs (the *tail*), each of which gives one
snapshot. SWA (Izmailov et al., 2018) predicts with their mean; SWAG (Maddox et al., 2019) with weights drawn from a
Gaussian of their mean and covariance; its ensemble is MultiSWAG (Wilson and Izmailov, 2020). The mean of that Gaussian
is SWA's: in a benchmark with both, SWA can be taken from SWAG's fit (``swag_samples``), so that the tail is trained
once.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from dubio.core.errors import UserError
from dubio.core.registry import Ensemble, method
from dubio.core.validate import NonNegative, Positive
from dubio.methods.arguments import NORM_EXAMPLES, Tail, Training
from dubio.methods.recipe import Recipe
from dubio.training.schedules import Constant, ConstantTail
from dubio.training.swag import SWA, SWAG, Centre


@dataclass(frozen=True)
class Gaussian:
    """Arguments of the Gaussian that SWAG collects and draws from.

    Attributes:
        rank: Deviations from the mean that make up the covariance's low-rank part.
        norm_examples: Largest number of training examples that a draw's batch-norm statistics are of; 0 for all.
    """

    rank: int = 20
    norm_examples: int = NORM_EXAMPLES

    def recipe(self, training: Training, tail: Tail, epochs: int, samples: int) -> Recipe:
        """Return the recipe of SWAG with a tail of ``epochs`` epochs and that number of draws.

        Raises:
            UserError: When there are too few snapshots for a covariance.
        """
        collect = SWAG(self.rank, samples, self.norm_examples)
        if epochs < 2:
            reason = "each gives one snapshot, and a covariance needs two"
            raise UserError(f"swag: tail_epochs must be at least 2: {reason}; given {epochs}.")
        return tail.recipe("swag", "SWAG", training, epochs=epochs, schedule=ConstantTail(), collect=collect)


@method("swa", family="swag", colour=13, samples_from="one network", ensemble=True)
def swa(
    *, training: Training = Training(), tail: Tail = Tail(), tail_epochs: int = 20, gaussian: Gaussian = Gaussian(),
    swag_samples: NonNegative = 0,
) -> Recipe:  # fmt: skip
    """One network: the mean of the weights over a tail of training at a constant rate.

    Args:
        training: How the network is trained first.
        tail: How it is continued.
        tail_epochs: Epochs of the tail; each gives one snapshot.
        gaussian: Arguments of the method ``swag`` whose tail it shares.
        swag_samples: The argument ``samples`` of that method: the mean is taken from its fit. 0 trains a tail of its
            own, which gives the same weights.

    Raises:
        UserError: When arguments of a Gaussian are given that nothing would use.
    """
    if swag_samples:
        shared = gaussian.recipe(training, tail, tail_epochs, swag_samples)
        objective = replace(shared.objective, epochs=0)
        return replace(
            shared, name="swa", title="SWA", start=shared.fit_part(), objective=objective, schedule=Constant(),
            collect=Centre(),
        )  # fmt: skip
    if unused := [f"{key}={value}" for key, value in vars(gaussian).items() if value != getattr(Gaussian(), key)]:
        hint = "give swag_samples, which takes the mean from the fit of swag, or leave it out"
        raise UserError(f"swa: {', '.join(unused)} has no effect without swag_samples; {hint}.")
    if tail_epochs < 1:
        raise UserError(f"swa: tail_epochs must be at least 1; given {tail_epochs}.")
    return tail.recipe("swa", "SWA", training, epochs=tail_epochs, schedule=ConstantTail(), collect=SWA())


MULTISWAG = Ensemble(summary="Weights drawn from the Gaussians of independent trainings (MultiSWAG).")


@method("swag", family="swag", colour=14, samples_from="one mode", ensemble=MULTISWAG)
def swag(
    *, training: Training = Training(), tail: Tail = Tail(), tail_epochs: int = 20, gaussian: Gaussian = Gaussian(),
    samples: Positive = 20,
) -> Recipe:  # fmt: skip
    """Weights drawn from a Gaussian fitted to a tail of training at a constant rate.

    Args:
        training: How the network is trained first.
        tail: How it is continued.
        tail_epochs: Epochs of the tail; each gives one snapshot.
        gaussian: What is collected and drawn.
        samples: Draws of weights that predict.
    """
    return gaussian.recipe(training, tail, tail_epochs, samples)
