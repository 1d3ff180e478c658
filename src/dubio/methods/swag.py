"""The mean of the weights along a training, and the Gaussian around it: SWA, SWAG and MultiSWAG.

A trained network is continued at a constant learning rate for some epochs (the *tail*), each of which gives one
snapshot. SWA (Izmailov et al., 2018) predicts with their mean; SWAG (Maddox et al., 2019) with weights drawn from a
Gaussian of their mean and covariance; its ensemble is MultiSWAG (Wilson and Izmailov, 2020).
"""

from __future__ import annotations

from dubio.core.errors import UserError
from dubio.core.registry import Ensemble, method
from dubio.methods.arguments import NORM_EXAMPLES, Tail, Training
from dubio.methods.recipe import Recipe
from dubio.training.schedules import ConstantTail
from dubio.training.swag import SWA, SWAG


@method("swa", family="swag", colour=13, samples_from="one network", ensemble=True)
def swa(*, training: Training = Training(), tail: Tail = Tail(), tail_epochs: int = 20) -> Recipe:
    """One network: the mean of the weights over a tail of training at a constant rate."""
    if tail_epochs < 1:
        raise UserError(f"swa: tail_epochs must be at least 1; given {tail_epochs}.")
    return tail.recipe("swa", "SWA", training, epochs=tail_epochs, schedule=ConstantTail(), collect=SWA())


MULTISWAG = Ensemble(summary="Weights drawn from the Gaussians of independent trainings (MultiSWAG).")


@method("swag", family="swag", colour=14, samples_from="one mode", ensemble=MULTISWAG)
def swag(
    *, training: Training = Training(), tail: Tail = Tail(), tail_epochs: int = 20, rank: int = 20, samples: int = 20,
    norm_examples: int = NORM_EXAMPLES,
) -> Recipe:  # fmt: skip
    """Weights drawn from a Gaussian fitted to a tail of training at a constant rate.

    Args:
        training: How the network is trained first.
        tail: How it is continued.
        tail_epochs: Epochs of the tail; each gives one snapshot.
        rank: Deviations from the mean that make up the covariance's low-rank part.
        samples: Draws of weights that predict.
        norm_examples: Largest number of training examples that a draw's batch-norm statistics are of; 0 for all.
    """
    collect = SWAG(rank, samples, norm_examples)
    if tail_epochs < 2:
        reason = "each gives one snapshot, and a covariance needs two"
        raise UserError(f"swag: tail_epochs must be at least 2: {reason}; given {tail_epochs}.")
    return tail.recipe("swag", "SWAG", training, epochs=tail_epochs, schedule=ConstantTail(), collect=collect)
